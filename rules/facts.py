"""The kinds of fact a call spec declares: what each takes, reads from text and says about itself."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias

import attrs
import torch
from attrs import evolve, field, frozen

from tileops.rules.errors import DeclarationError, FactError, nearest, shown
from tileops.rules.types import DTYPES, Type, Value, dtype_name, show

KindWord: TypeAlias = Literal["dim", "integer", "flag", "choice", "number", "dims"]
DIM_MAX = 2**40
MAX_BITS = 256  # of a bound: as many as an integer literal of the language has
RANK_MAX = 64
METADATA_KEY = "tileops.kind"


class _Missing:
    """Is the default of a fact that has to be given."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@frozen
class Kind:
    """Says what one fact takes: the word of its maker, and the type of its values."""

    word: KindWord
    type: Type
    default: Any = field(default=MISSING, eq=False, repr=False)

    @property
    def optional(self) -> bool:
        """Say whether the fact may be None."""
        return self.type.optional

    def admits(self, value: object) -> bool:
        """Say whether a value is stored as it stands: exact type, within bounds."""
        kind = self.type
        if value is None:
            return kind.optional
        match self.word:
            case "flag":
                return type(value) is bool
            case "dim" | "integer":
                return self._within(value)
            case "number":
                return type(value) is float and math.isfinite(value)
            case "choice":
                return type(value) is (str if kind.kind == "str" else torch.dtype) and value in kind.members
        return (
            type(value) is tuple and kind.min_len <= len(value) <= (kind.max_len or 0) and all(map(self._within, value))
        )

    def _within(self, value: object) -> bool:
        low, high = self.type.bounds
        return type(value) is int and (low is None or low <= value) and (high is None or value <= high)

    def check(self, fact: str, value: object) -> Value:
        """Return the value as a call spec stores it; raises FactError with the fact, what it takes and what came.

        A torch.Size becomes a tuple, a StrEnum member its string, -0.0 becomes 0.0. Nothing else is converted.
        """
        stored: Any = value
        if self.word == "dims" and type(value) is torch.Size:
            stored = tuple(value)
        elif self.word == "choice" and isinstance(value, enum.Enum) and isinstance(value, str):
            stored = str(value.value)
        if not self.admits(stored):
            self._refuse(fact, value)
        return stored + 0.0 if type(stored) is float else stored

    def read(self, text: str, fact: str = "the fact") -> Value:
        """Return the value that a text names: ``4096``, ``true``, ``bfloat16``, ``2x3``, ``none``; raises FactError."""
        word = text.strip()
        if self.optional and word.lower() == "none" and word not in self.choices():
            return None
        value: object = word
        try:
            match self.word:
                case "flag":
                    value = {"true": True, "false": False}.get(word.lower(), word)
                case "dim" | "integer":
                    value = int(word)
                case "number":
                    value = float(word)
                case "dims":
                    body = word.strip("()").replace(",", "x").rstrip("x ")
                    value = tuple(map(int, body.split("x"))) if body else ()
                case "choice":
                    if self.type.kind == "dtype":
                        value = DTYPES.get(word.removeprefix("torch."), word)
        except ValueError:
            value = word
        return self.check(fact, value)

    def describe(self) -> str:
        """Return what the fact takes: ``an integer from 1 to 1099511627776``, ``one of float16, bfloat16``."""
        kind = self.type
        match self.word:
            case "flag":
                said = "true or false"
            case "dim" | "integer":
                said = f"an integer from {kind.low} to {kind.high}"
            case "number":
                said = "a finite float"
            case "choice":
                said = f"one of {', '.join(self.choices())}"
            case _:
                span = f"{kind.max_len}" if kind.min_len == kind.max_len else f"{kind.min_len} to {kind.max_len}"
                said = f"a tuple of {span} integers, each from {kind.low} to {kind.high}"
        return f"{said}, or None" if self.optional else said

    def choices(self) -> tuple[str, ...]:
        """Return the names of a choice's members, none for another kind."""
        return tuple(dtype_name(m) if isinstance(m, torch.dtype) else m for m in self.type.members)

    def content(self) -> dict[str, Any]:
        """Return the kind as plain data, without its default: all that a proof depends on."""
        kind = self.type
        plain: dict[str, Any] = {"kind": self.word}
        if kind.optional:
            plain["optional"] = True
        if kind.low is not None:
            plain.update(low=kind.low, high=kind.high)
        if kind.members:
            plain["members"] = list(self.choices())
            plain["of"] = kind.kind
        if kind.kind == "tuple":
            plain.update(min_rank=kind.min_len, max_rank=kind.max_len)
        return plain

    def _refuse(self, fact: str, value: object) -> NoReturn:
        got = "nothing" if value is MISSING else f"{show(value)} ({type(value).__name__})"
        hint = ""
        if isinstance(value, str) and self.type.kind == "dtype" and value in self.choices():
            hint = f": write torch.{value}"
        elif isinstance(value, str) and self.type.members:
            hint = nearest(value.removeprefix("torch."), self.choices())
        elif isinstance(value, torch.dtype) and self.type.kind == "dtype":
            got = dtype_name(value)
        elif type(value) is int and self.word == "number":
            hint = f": write {value}.0"
        elif isinstance(value, list) and self.word == "dims":
            hint = ": write a tuple"
        raise FactError(
            f"{fact} takes {self.describe()}; got {got}{hint}", fact=fact, takes=self.describe(), received=shown(value)
        )


def kind_of(attribute: attrs.Attribute[Any]) -> Kind | None:
    """Return the kind that a field of a call spec carries, or None for a field that is no fact."""
    kind: Kind | None = attribute.metadata.get(METADATA_KEY)
    return kind


def _fact(word: KindWord, kind: Type, default: Any) -> Any:
    if type(kind.optional) is not bool:
        raise DeclarationError(f"{word}(): optional takes True or False, got {kind.optional!r}")
    made = Kind(word, kind)
    if default is not MISSING:
        try:
            made = evolve(made, default=made.check("the default", default))
        except FactError as error:
            raise DeclarationError(f"{word}(): {error}", cause=str(error)) from error
    return field(metadata={METADATA_KEY: made})


def dim(*, optional: bool = False, default: Any = MISSING) -> Any:
    """Declare a size of a dimension: an integer from 1 to 2**40 elements."""
    return _fact("dim", Type("int", optional, low=1, high=DIM_MAX), default)


def integer(low: int, high: int, *, optional: bool = False, default: Any = MISSING) -> Any:
    """Declare an integer from low to high, both included; raises DeclarationError for low > high."""
    _ends("integer", low, high)
    return _fact("integer", Type("int", optional, low=low, high=high), default)


def flag(*, optional: bool = False, default: Any = MISSING) -> Any:
    """Declare a fact that is True or False."""
    return _fact("flag", Type("bool", optional), default)


def number(*, optional: bool = False, default: Any = MISSING) -> Any:
    """Declare a finite float. Rules can only compare it."""
    return _fact("number", Type("float", optional), default)


def choice(*values: object, optional: bool = False, default: Any = MISSING) -> Any:
    """Declare one of several dtypes, or one of several strings; members of a StrEnum count as their strings.

    Raises DeclarationError for no values, a value twice, or values of any other kind.
    """
    members: list[str | torch.dtype] = []
    for value in values:
        plain = str(value.value) if isinstance(value, enum.Enum) and isinstance(value, str) else value
        if type(plain) is not str and not isinstance(plain, torch.dtype):
            hint = ": derive the enum from StrEnum" if isinstance(value, enum.Enum) else ""
            hint = ": for numbers take integer(low, high)" if isinstance(value, int) else hint
            raise DeclarationError(f"choice() takes dtypes or strings, got {value!r}{hint}", received=repr(value))
        if isinstance(plain, torch.dtype) and plain not in DTYPES.values():
            raise DeclarationError(f"choice(): the expression language has no dtype {plain}", received=repr(value))
        if plain in members:
            raise DeclarationError(f"choice() has {show(plain)} twice", received=repr(value))
        assert isinstance(plain, str | torch.dtype), "refused above"
        members.append(plain)
    if len({type(member) for member in members}) != 1:
        raise DeclarationError("choice() takes one or more values, all dtypes or all strings", received=repr(values))
    word: Literal["str", "dtype"] = "str" if isinstance(members[0], str) else "dtype"
    return _fact("choice", Type(word, optional, members=tuple(members)), default)


def dims(
    max_rank: int,
    min_rank: int = 0,
    *,
    low: int = 1,
    high: int = DIM_MAX,
    optional: bool = False,
    default: Any = MISSING,
) -> Any:
    """Declare a tuple of min_rank to max_rank integers, each from low to high (a dimension unless stated).

    Raises DeclarationError for ranks or bounds out of order, or a rank above 64.
    """
    _ends("dims", low, high)
    if type(min_rank) is not int or type(max_rank) is not int or not 0 <= min_rank <= max_rank <= RANK_MAX:
        raise DeclarationError(
            f"dims() takes ranks 0 <= min_rank <= max_rank <= {RANK_MAX}, got {min_rank!r} and {max_rank!r}"
        )
    kind = Type("tuple", optional, low=low, high=high, min_len=min_rank, max_len=max_rank)
    return _fact("dims", kind, default)


def _ends(word: str, low: object, high: object) -> None:
    if type(low) is not int or type(high) is not int or low > high:
        raise DeclarationError(f"{word}() takes integers low <= high, got {shown(low)} and {shown(high)}")
    if max(low.bit_length(), high.bit_length()) > MAX_BITS:
        raise DeclarationError(f"{word}() takes bounds of at most {MAX_BITS} bits, got {shown(low)} and {shown(high)}")


def read_pairs(texts: Iterable[str], kinds: Mapping[str, Kind]) -> dict[str, Value]:
    """Return the facts that texts like ``m=1`` and ``dtype=bfloat16`` name; raises FactError with the nearest name."""
    facts: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise FactError(f"a fact is written name=value, got {text!r}", fact=name, received=text)
        if name not in kinds:
            raise FactError(
                f"unknown fact {name!r}{nearest(name, kinds)}; known: {', '.join(kinds)}", fact=name, received=text
            )
        if name in facts:
            raise FactError(f"the fact {name!r} is given twice", fact=name, received=text)
        facts[name] = kinds[name].read(value, name)
    return facts
