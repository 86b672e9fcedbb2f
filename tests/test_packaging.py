"""Build the wheel and the sdist, install the wheel into a new environment and use it far from the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("rules", "manifest", "kernels", "tools")
PARTS = ("pyproject.toml", "README.md", "LICENSE", "tileops", *LINKED)
OURS = ("tileops", "__editable__", "__pycache__")


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it goes before the wheel
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy so that the checkout gains no build folder."""
    copy = tmp_path_factory.mktemp("source") / "tileops"
    copy.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, copy / part)
    out = tmp_path_factory.mktemp("dist")
    # The sdist first, then the wheel from the sdist: what an installer that gets the sdist would build.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, cwd=copy)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that holds our wheel and sees the installed dependencies."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    interpreter = home / "venv" / "bin" / "python"
    dependencies = home / "dependencies"
    dependencies.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith(OURS):
            (dependencies / installed.name).symlink_to(installed)
    site = Path(run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    run(sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", wheel, cwd=home)
    return interpreter


def package_files() -> set[str]:
    """What the wheel must hold, as paths below its top: every module and data file of the package."""
    wanted = set()
    for part in ("tileops", *LINKED):
        prefix = "" if part == "tileops" else "tileops/"
        for path in (ROOT / part).rglob("*"):
            inside = path.relative_to(ROOT)
            linked = part == "tileops" and inside.parts[1] in LINKED
            if path.suffix in {".py", ".yaml", ".json"} and "__pycache__" not in path.parts and not linked:
                wanted.add(f"{prefix}{inside}")
    return wanted | {"tileops/py.typed"}


def test_the_wheel_puts_only_tileops_at_top_level_and_holds_every_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tileops"}
    files = {name for name in names if name.startswith("tileops/")}
    assert files == package_files()


def test_the_sdist_holds_every_file(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert package_files() <= names
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_the_console_script_explains_outside_the_checkout(python: Path, tmp_path: Path) -> None:
    script = python.parent / "tileops"
    overview = run(script, "explain", "GemmFwdOp", cwd=tmp_path)
    assert "gemm_mma" in overview
    facts = ("m=1", "n=4096", "k=4096", "dtype=bfloat16", "--arch", "90", "--json")
    answer = json.loads(run(script, "explain", "GemmFwdOp", *facts, cwd=tmp_path))
    assert answer["winner"] == "gemv"
    where = run(python, "-c", "import tileops.rules.errors as m; print(m.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(python.parent.parent), f"imported from {where}, not from the wheel"


def test_nothing_of_ours_but_tileops_is_importable(python: Path, tmp_path: Path) -> None:
    probe = (
        "import importlib.util as u; print([n for n in ('rules', 'manifest', 'kernels', 'tools') if u.find_spec(n)])"
    )
    assert run(python, "-c", probe, cwd=tmp_path).strip() == "[]"


def test_the_package_data_loads_from_the_wheel(python: Path, tmp_path: Path) -> None:
    probe = "from tileops.manifest import loader; print(loader.entry('GemmFwdOp').name)"
    assert run(python, "-c", probe, cwd=tmp_path).strip() == "GemmFwdOp"
