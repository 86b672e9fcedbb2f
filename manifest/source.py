"""YAML with its lines kept: nodes that know their place, and problems gathered until the file is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

import yaml
from attrs import define, field, frozen

from tileops.rules.errors import ManifestError, nearest

BROKEN: Final[Any] = object()  # stands for a value that was reported already

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"-?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_MAX_DEPTH = 16  # deeper than any entry; an alias inside its own anchor would go on for ever


@frozen
class Problem:
    """One thing wrong with a manifest file."""

    file: str
    line: int
    path: str
    cause: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: "
        return f"{where}{self.path}: {self.cause}" if self.path else where + self.cause


@define
class Problems:
    """Gathers everything wrong with one file."""

    file: str
    found: list[Problem] = field(factory=list)

    def add(self, line: int, path: str, cause: str) -> None:
        """Note a problem at a line (from 1) and a field path."""
        problem = Problem(self.file, line, path, cause)
        if problem not in self.found:
            self.found.append(problem)

    def raise_any(self) -> None:
        """Raise ManifestError if anything was noted."""
        if self.found:
            raise self.error()

    def error(self) -> ManifestError:
        """Make the error of one line a problem, in the order of the file."""
        ordered = tuple(sorted(self.found, key=lambda problem: problem.line))
        return ManifestError("\n".join(str(problem) for problem in ordered), file=self.file, problems=ordered)


@frozen(eq=False)
class Field:
    """A YAML node with its field path. Readers note a problem and give BROKEN; they never raise."""

    node: yaml.Node
    path: str
    problems: Problems

    @property
    def line(self) -> int:
        """The node's line, from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def kind(self) -> str:
        """What kind of node it is: ``"mapping"``, ``"list"`` or ``"scalar"``."""
        if isinstance(self.node, yaml.MappingNode):
            return "mapping"
        return "list" if isinstance(self.node, yaml.SequenceNode) else "scalar"

    def complain(self, cause: str) -> Any:
        """Note a problem here and return BROKEN."""
        self.problems.add(self.line, self.path, cause)
        return BROKEN

    def entries(self, what: str) -> dict[str, Field]:
        """Read a mapping with string keys, each given once; empty (and noted) when the node is none."""
        if not isinstance(self.node, yaml.MappingNode):
            self.complain(f"expected {what}, found {self.describe()}")
            return {}
        found: dict[str, Field] = {}
        for key, value in self.node.value:
            spot = Field(key, self.path, self.problems)
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                spot.complain(f"expected a name as key, found {spot.describe()}")
                continue
            name = str(key.value)
            path = f"{self.path}.{name}" if self.path else name
            if name in found:
                first = found[name].node.start_mark.line + 1
                Field(key, path, self.problems).complain(f"given twice, first on line {first}")
                continue
            found[name] = Field(value, path, self.problems)
        return found

    def members(self, what: str, required: Iterable[str], optional: Iterable[str]) -> dict[str, Field]:
        """Read a mapping of known keys; unknown ones are noted with the nearest, missing ones by name."""
        required, optional = tuple(required), tuple(optional)
        known = (*required, *optional)
        found = self.entries(what)
        if isinstance(self.node, yaml.MappingNode):
            for name in [name for name in found if name not in known]:
                problem = found.pop(name)
                problem.complain(f"unknown key{nearest(name, known)}; {what} has the keys {', '.join(known)}")
            for name in required:
                if name not in found:
                    self.complain(f"the key {name} is missing")
        return found

    def items(self, what: str) -> list[Field]:
        """Read a list; empty (and noted) when the node is none."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.complain(f"expected {what}, found {self.describe()}")
            return []
        return [Field(item, f"{self.path}[{at}]", self.problems) for at, item in enumerate(self.node.value)]

    def text(self, what: str) -> Any:
        """Read a string, or BROKEN."""
        value = self.plain()
        if value is BROKEN or (isinstance(value, str) and value.strip()):
            return value
        return self.complain(f"expected {what}, found {self.describe()}")

    def expression(self, what: str) -> Any:
        """Read the text of an expression, or BROKEN: a bare number or boolean is one too."""
        value = self.plain()
        if type(value) in (bool, int, float):
            return repr(value)
        if isinstance(value, str) and value.strip():
            return value
        return value if value is BROKEN else self.complain(f"expected {what}, found {self.describe()}")

    def flag(self) -> Any:
        """Read true or false, or BROKEN."""
        value = self.plain()
        if value is BROKEN or type(value) is bool:
            return value
        return self.complain(f"expected true or false, found {self.describe()}")

    def plain(self, depth: int = 0) -> Any:
        """Read plain data (None, bool, int, float, str, list), or BROKEN.

        Stricter than YAML 1.1, whose ``010`` is 8 and ``1:30`` is 90; and ``1e-5`` is a float here.
        """
        if isinstance(self.node, yaml.SequenceNode):
            if depth > _MAX_DEPTH:
                return self.complain("lists are nested too deep")
            values = [item.plain(depth + 1) for item in self.items("a list")]
            return BROKEN if BROKEN in values else values
        if not isinstance(self.node, yaml.ScalarNode):
            return self.complain("expected a value or a list of values, found a mapping")
        text, kind = str(self.node.value), self.node.tag.rpartition(":")[2]
        if kind == "null":
            return None
        if kind == "bool":
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            return self.complain(f"write true or false, or quote the string: {text}")
        if kind in ("int", "float") or (kind == "str" and self.node.style in (None, "")):
            if _INT.fullmatch(text):
                return int(text)
            if _FLOAT.fullmatch(text) and not text.lstrip("+-").isdigit():
                return float(text)
            if text.lower() in _SPECIAL:
                return _SPECIAL[text.lower()]
            if kind != "str":
                return self.complain(f"write a plain decimal number, or quote the string: {text}")
        if kind not in ("str", "timestamp"):
            return self.complain(f"the tag {self.node.tag} is not used here")
        return text

    def describe(self) -> str:
        """Say in few words what stands here."""
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list"
        text = str(self.node.value)
        return repr(text) if text else "nothing"


def read(text: str, file: str) -> Field:
    """Parse YAML text into its root field. Raises ManifestError at the line where it does not parse."""
    problems = Problems(file)
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.context, error.problem) if part]
        problems.add(mark.line + 1 if mark else 1, "", "is not YAML: " + ", ".join(parts))
    except yaml.YAMLError as error:
        problems.add(1, "", "is not YAML: " + " ".join(str(error).split()))
    else:
        if node is not None:
            return Field(node, "", problems)
        problems.add(1, "", "is empty: expected a mapping of op names to entries")
    raise problems.error()
