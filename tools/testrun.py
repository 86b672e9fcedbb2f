"""One run of the op tests: what its JUnit report says of each test, and which tests pytest collects for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from xml.etree import ElementTree

import attrs

from tileops.tools.usage import UsageError

Outcome: TypeAlias = Literal["passed", "skipped", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("passed", "skipped", "failed")
_CHECKOUT_TESTS = Path(__file__).resolve().parent.parent / "tests" / "ops"


@attrs.frozen
class Case:
    """One test of a report: its address, how it ended and why, the ops it checked and how many of their outputs."""

    name: str
    outcome: Outcome
    why: str
    ops: tuple[str, ...]
    checked: int

    @property
    def function(self) -> str:
        """Return the test's address without its parameters."""
        return self.name.partition("[")[0]

    def joined(self, other: Case) -> Case:
        """Return one case of two records of the same test, as when its teardown fails too; the worse outcome holds."""
        worse = max(self, other, key=lambda case: OUTCOMES.index(case.outcome))
        ops = tuple(sorted({*self.ops, *other.ops}))
        return attrs.evolve(worse, ops=ops, checked=max(self.checked, other.checked))


@attrs.frozen
class Run:
    """What a report says: its tests by address in the order of the run, and what it was about, where that is said."""

    cases: dict[str, Case]
    target: str | None
    device: str | None
    timestamp: str | None


def read(path: Path) -> Run:
    """Read a JUnit report; raises UsageError for a file that is none."""
    try:
        root = ElementTree.parse(path).getroot()
    except OSError as error:
        raise UsageError(f"cannot read the report {path}: {error.strerror}") from error
    except ElementTree.ParseError as error:
        raise UsageError(f"{path} is no JUnit report: {error}") from error
    suites = [root] if root.tag == "testsuite" else root.findall("testsuite")
    if not suites:
        raise UsageError(f"{path} is no JUnit report: it holds a <{root.tag}> and no <testsuite>")
    cases: dict[str, Case] = {}
    said: dict[str, str] = {}
    for suite in suites:
        said |= dict(_properties(suite))
        for element in suite.findall("testcase"):
            case = _case(path, element)
            cases[case.name] = cases[case.name].joined(case) if case.name in cases else case
    return Run(cases, said.get("tileops_target"), said.get("tileops_device"), suites[0].get("timestamp"))


def _case(path: Path, element: ElementTree.Element) -> Case:
    name = f"{element.get('classname', '')}::{element.get('name', '')}"
    outcome: Outcome = "passed"
    why = ""
    for child in element:
        if child.tag in ("failure", "error"):
            outcome, why = "failed", child.get("message") or child.tag
            break
        if child.tag == "skipped":
            outcome, why = "skipped", child.get("message") or "no reason"
    properties = _properties(element)
    counts = [value for key, value in properties if key == "checked_outputs"]
    if not all(re.fullmatch(r"\d+", count) for count in counts):
        raise UsageError(f"{path}: {name} has checked_outputs {counts}, which is no count")
    ops = tuple(sorted({value for key, value in properties if key == "op"}))
    return Case(name, outcome, " ".join(why.split()), ops, sum(map(int, counts)))


def _properties(element: ElementTree.Element) -> list[tuple[str, str]]:
    return [(one.get("name", ""), one.get("value", "")) for one in element.findall("properties/property")]


def op_tests(given: str | None) -> Path:
    """Return the folder of the op tests: as given, else that of this checkout, else ``tests/ops`` here.

    Raises UsageError where there is none: a wheel holds no tests.
    """
    candidates = [Path(given)] if given is not None else [_CHECKOUT_TESTS, Path("tests/ops")]
    for folder in candidates:
        if (folder / "conftest.py").is_file():
            return folder.resolve()
    raise UsageError(
        f"no op tests in {candidates[0]}: name the folder tests/ops of a TileOps checkout by --tests, "
        "so that the tests which the run dropped can be counted"
    )


def collected(tests: Path, options: Sequence[str] = ()) -> list[str]:
    """Return the node ids that pytest collects in ``tests`` with ``options``; raises UsageError when it cannot."""
    command = [sys.executable, "-m", "pytest", str(tests), "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        command, cwd=tests.parent.parent, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise UsageError(f"pytest cannot collect {tests} with {' '.join(options) or 'its default options'}:\n{tail}")
    listed = done.stdout.partition("\n\n")[0].splitlines()
    return [line for line in listed if "::" in line]


def file_of(node: str) -> str:
    """Return the file of a node id."""
    return node.partition("::")[0]


def address_of(node: str) -> str:
    """Return the address under which a JUnit report has the test of a node id: dots for folders and classes."""
    path, bracket, parameters = node.partition("[")
    names = path.split("::")
    names[0] = names[0].replace("/", ".").removesuffix(".py")
    return f"{'.'.join(names[:-1])}::{names[-1]}{bracket}{parameters}"
