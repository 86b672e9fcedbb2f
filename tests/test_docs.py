"""Run or check every fenced block of the README and of docs/, and every path and command they name.

What a block's info string means here:

- ``python``: executed; the blocks of a page share one module. An ``output`` block that follows holds what it prints.
- ``console``: each ``$ command`` is run from the top of the checkout; the lines below it are what it prints. A line
  ``...`` stands for any lines, ``...`` inside a line for any text.
- ``sh``: only in the README, its two commands; .ci/run runs them, here their paths are checked.
- ``yaml``, ``json``, ``toml``: parsed. ``mermaid``: begins with a graph. ``text``: paths checked only.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"python", "output", "console", "sh", "yaml", "json", "toml", "mermaid", "text"}
NO_PATH = re.compile(r"[^\w./*<>-]")
SUFFIXES = (".py", ".md", ".yaml", ".json", ".toml", ".yml")


def blocks(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text())


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def matches(expected: str, printed: str) -> bool:
    """Whether the text printed is the one expected, ``...`` standing for anything."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n"
        for line in expected.rstrip("\n").split("\n")
    )
    return (
        re.fullmatch(pattern, "\n".join(line.rstrip() for line in printed.rstrip("\n").split("\n")) + "\n") is not None
    )


def environment(folder: Path) -> dict[str, str]:
    """The environment of a page's commands: tileops from the checkout, the example backend installed or as if."""
    paths = [ROOT]
    if not metadata.entry_points(group="tileops.backends", name="torch_cpu"):
        example = ROOT / "examples/torch_cpu"
        project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
        about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        about.mkdir(exist_ok=True)
        lines = [f"{key} = {value}" for key, value in project["entry-points"]["tileops.backends"].items()]
        (about / "entry_points.txt").write_text("\n".join(["[tileops.backends]", *lines]))
        header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (about / "METADATA").write_text(header)
        paths += [folder, example / "src"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "COLUMNS": "120"}


def run_console(block: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Each command of a console block, with the text expected and the text printed."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command)
        if words[0] == "tileops":
            words = ["python", "-m", "tools.cli", *words[1:]]
        assert words[0] == "python", f"a console block runs python or tileops, not {words[0]!r}"
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in (0, 1), f"$ {command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        yield command, expected, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    sys.modules[module.__name__] = module
    printed: str | None = None
    for kind, text in blocks(page):
        assert kind in KINDS, f"{page.name}: a block of kind {kind!r}:\n{text}"
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, f"{page.name}: {text.splitlines()[0]}", "exec"), module.__dict__)
            printed = out.getvalue()
        elif kind == "output":
            assert printed is not None, f"{page.name}: an output block follows no python block"
            assert matches(text, printed), f"{page.name} says\n{text}\nbut the block prints\n{printed}"
            printed = None
        elif kind == "console":
            for command, expected, told in run_console(text, tmp_path):
                assert matches(expected, told), f"$ {command}\n{page.name} says\n{expected}\nbut it prints\n{told}"
        elif kind == "yaml":
            assert yaml.safe_load(text) is not None
        elif kind == "json":
            json.loads(text)
        elif kind == "toml":
            assert tomllib.loads(text)
        elif kind == "mermaid":
            assert text.startswith(("graph ", "flowchart "))
    del sys.modules[module.__name__]


def named_paths(text: str) -> set[str]:
    """What looks like a path of ours: a code span or a link target with a known suffix or top folder."""
    spans = re.findall(r"`([^`\n]+)`", text) + re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    found = set()
    for span in spans:
        if "://" in span or NO_PATH.search(span):
            continue
        top = span.split("/")[0]
        if span.endswith(SUFFIXES) or ("/" in span and top and (ROOT / top).exists()):
            found.add(span)
    return found


def words_of_blocks(page: Path) -> set[str]:
    """The paths that shell and text blocks name."""
    words = set()
    for kind, text in blocks(page):
        if kind in {"sh", "console", "text"}:
            commands = [line for line in text.splitlines() if kind != "console" or line.startswith("$ ")]
            for word in re.split(r"[\s'\"]+", " ".join(commands)):
                if "/" in word and not word.startswith((".venv", "-")) and not NO_PATH.search(word):
                    words.add(word)
    return {word for word in words if (ROOT / word.split("/")[0]).exists()}


def exists(path: str, page: Path) -> bool:
    pattern = re.sub(r"<[^>]*>", "*", path).rstrip("/")
    return any(any(top.glob(pattern)) for top in (ROOT, page.parent))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_a_page_names_exists(page: Path) -> None:
    paths = named_paths(prose(page)) | words_of_blocks(page)
    assert {path for path in paths if not exists(path, page)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_a_page_names_is_known(page: Path) -> None:
    commands = re.findall(r"`((?:python -m|tileops) [^`\n]+)`", prose(page))
    for command in commands:
        words = command.split()
        words = ["tools.cli", *words[1:]] if words[0] == "tileops" else words[2:]
        module, *rest = words
        if not module.startswith("tools"):
            continue
        tool = f"tools.{rest[0]}" if module == "tools.cli" and rest else module
        path = ROOT / f"{tool.replace('.', '/')}.py"
        assert path.exists(), f"{page.name}: `{command}` names no tool"
        for option in (word for word in rest if word.startswith("--")):
            assert f'"{option}"' in path.read_text(), f"{page.name}: `{command}`: {tool} has no option {option}"


def test_ci_runs_the_two_commands_of_the_readme_as_they_stand() -> None:
    loader = importlib.machinery.SourceFileLoader("ci_run", str(ROOT / ".ci/steps.py"))
    spec = importlib.util.spec_from_loader("ci_run", loader)
    assert spec is not None
    ci = importlib.util.module_from_spec(spec)
    loader.exec_module(ci)
    commands = ci.readme_commands()
    assert commands == [text.strip() for kind, text in blocks(ROOT / "README.md") if kind == "sh"]
    quickstart, tests = commands
    assert quickstart.endswith("examples/quickstart.py")
    for part in ("-m pytest", "tests/ops --tileops-target=torch_cpu --tileops-device=cpu", "examples/torch_cpu/tests"):
        assert part in tests
    for command in commands:
        assert command.startswith("python3 -m venv .venv && ")


def test_shell_blocks_stand_in_the_readme_only() -> None:
    assert {page.name for page in PAGES for kind, _ in blocks(page) if kind == "sh"} == {"README.md"}


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("took ... s\n", "took 0.3 s\n", True),
        ("a\n", "a\nb\n", False),
        ("a ... c\n", "a\nc\n", False),
    ],
)
def test_dots_stand_for_anything_and_nothing_else_does(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) is same
