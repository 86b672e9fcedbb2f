"""The example backend as a stranger has it: installed beside an installed wheel of tileops, far from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "tileops", "rules", "manifest", "kernels", "tools")
OURS = ("tileops", "__editable__", "__pycache__")
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def run(*command: object, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTEST_ADDOPTS"}}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy(parts: tuple[str, ...], source: Path, folder: Path) -> Path:
    """A copy to build from, so that the checkout gains no build folder."""
    folder.mkdir()
    for part in parts:
        if (source / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source / part, folder / part, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source / part, folder / part)
    return folder


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example's folder, as somebody has it who starts a backend from it."""
    parts = ("pyproject.toml", "README.md", "src", "tests")
    return copy(parts, ROOT / "examples/torch_cpu", tmp_path_factory.mktemp("example") / "torch_cpu")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, example: Path) -> Path:
    """The interpreter of an environment with both wheels, which sees the installed dependencies and no checkout."""
    home = tmp_path_factory.mktemp("environment")
    source = copy(PARTS, ROOT, home / "source")
    build = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "-w", home)
    run(*build, source, example, cwd=home)
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    interpreter = home / "venv" / "bin" / "python"
    dependencies = home / "dependencies"
    dependencies.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith(OURS):
            (dependencies / installed.name).symlink_to(installed)
    site = Path(run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    wheels = sorted(home.glob("*.whl"))
    assert len(wheels) == 2
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        interpreter,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        *wheels,
        cwd=home,
    )
    return interpreter


def test_its_tests_pass_beside_the_wheel_and_none_is_skipped(python: Path, example: Path) -> None:
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=example, **NO_GPU)
    last = said.strip().splitlines()[-1]
    assert " passed" in last
    assert "skipped" not in last, said


def test_the_console_script_lists_it(python: Path, tmp_path: Path) -> None:
    found = json.loads(run(python.parent / "tileops", "explain", "--targets", "--json", cwd=tmp_path, **NO_GPU))
    (backend,) = found["backends"]
    assert (backend["entry_point"], backend["distribution"]) == ("torch_cpu", "tileops-backend-example")
    assert (found["ok"], backend["state"], found["devices"]) == (True, "loaded", ["cpu"])
    (target,) = backend["targets"]
    assert target["devices"] == ["cpu"]
    assert {"GemmFwdOp", "RMSNormFwdOp"} <= set(target["ops"])
    assert target["unknown_ops"] == []


def test_removing_it_takes_the_target_away(python: Path, tmp_path: Path) -> None:
    ask = "from tileops.backend import registered_targets; print(registered_targets())"
    assert run(python, "-c", ask, cwd=tmp_path).strip() == "['torch_cpu']"
    uninstall = ("uninstall", "-q", "-y", "tileops-backend-example")
    run(sys.executable, "-m", "pip", "--python", python, *uninstall, cwd=tmp_path)
    assert run(python, "-c", ask, cwd=tmp_path).strip() == "[]"
