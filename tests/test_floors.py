"""Hold the floors: arrows between the parts go only down, and each module has one import name."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = {"rules": 0, "manifest": 1, "kernels": 2, "tileops": 3, "tools": 4}
LINKED = ("rules", "manifest", "kernels", "tools")
MAX_LINES = 600


def sources(*folders: str) -> list[Path]:
    """The Python files of these folders, links not followed."""
    found = []
    for folder in folders:
        for path, folders_in, names in os.walk(ROOT / folder):
            folders_in[:] = [name for name in folders_in if name not in {"__pycache__", ".venv", "build"}]
            found += [Path(path, name) for name in names if name.endswith(".py")]
    return sorted(found)


def imports(tree: ast.Module) -> list[str]:
    """Every module a file names: import statements and constant arguments of import_module.

    ``from tileops import rules`` counts as ``tileops.rules``.
    """
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            assert all(alias.name != "*" for alias in node.names), f"line {node.lineno}: star import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names += [a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return names


def floor_of(name: str) -> int | None:
    """The floor of an imported module, None for one that is not ours."""
    parts = name.split(".")
    if parts[0] != "tileops":
        return None
    return FLOORS.get(parts[1], FLOORS["tileops"]) if len(parts) > 1 else FLOORS["tileops"]


@pytest.mark.parametrize("part", FLOORS)
def test_no_module_imports_from_a_floor_above_its_own(part: str) -> None:
    files = sources(part)
    assert files, f"{part}/ holds no module"
    upward = []
    for path in files:
        for name in imports(ast.parse(path.read_text())):
            floor = floor_of(name)
            if floor is not None and floor > FLOORS[part]:
                upward.append(f"{path.relative_to(ROOT)} imports {name}")
    assert upward == []


def test_no_module_is_imported_under_a_second_name() -> None:
    second = []
    for path in [*sources(*FLOORS, "tests", "examples"), ROOT / ".ci/steps.py"]:
        for name in imports(ast.parse(path.read_text())):
            if name.split(".")[0] in LINKED:
                second.append(f"{path.relative_to(ROOT)} imports {name}; write tileops.{name}")
    assert second == []


def test_modules_are_short() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources(*FLOORS, "tests", "examples")}
    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}


def test_no_handler_swallows_an_error() -> None:
    swallowed = []
    for path in sources(*FLOORS, "examples"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and all(isinstance(item, ast.Pass) for item in node.body):
                swallowed.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert swallowed == []


@pytest.mark.parametrize("part", LINKED)
def test_the_links_inside_tileops_exist_and_are_links_in_git(part: str) -> None:
    link = ROOT / "tileops" / part
    assert link.is_symlink()
    assert os.readlink(link) == f"../{part}"
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    entry = subprocess.run(
        ["git", "ls-files", "-s", f"tileops/{part}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert entry.startswith("120000 "), f"git does not store tileops/{part} as a link: {entry!r}"


def test_the_lint_sees_what_it_should() -> None:
    tree = ast.parse(
        "import rules.expr\nfrom tileops import tools\nimport importlib\nimportlib.import_module('kernels')"
    )
    assert imports(tree) == ["rules.expr", "tileops.tools", "importlib", "kernels"]
    assert floor_of("tileops.tools") == 4
    assert floor_of("tileops.gemm") == 3
    assert floor_of("torch.nn") is None
    with pytest.raises(AssertionError, match="relative import"):
        imports(ast.parse("from . import expr"))
    with pytest.raises(AssertionError, match="star import"):
        imports(ast.parse("from torch import *"))
