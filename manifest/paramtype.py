"""Types of op params: what a constructor takes, written as Python writes it.

``bool int float str dtype None``, unions (``float | None``), ``list[int]``, ``tuple[int, ...]``, ``tuple[int, int]``,
nested, and choices: ``str[none | tanh]``, ``dtype[float16 | float32]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import torch
from attrs import frozen

from tileops.rules.errors import nearest
from tileops.rules.types import DTYPES, Type, dtype_name

MAX_RUN: Final = 8  # dims a run holds at most: the prover quantifies over runs of this length
SCALARS: Final = ("bool", "int", "float", "str", "dtype", "None")
CONTAINERS: Final = ("list", "tuple")
EXACT: Final = 2**53  # ints up to here are floats exactly
REFUSED: Final = object()

_TOKEN = re.compile(r"\s*(?:(\.\.\.)|([A-Za-z_][A-Za-z0-9_]*)|([\[\]|,]))")


@frozen
class Scalar:
    """One scalar type, with its choices if it has any."""

    kind: str
    members: tuple[Any, ...] = ()

    def accept(self, value: Any) -> Any:
        """Return the value, or REFUSED. Types are exact, save that a float may be written as an int."""
        kinds: dict[str, tuple[type, ...]] = {
            "bool": (bool,),
            "int": (int,),
            "float": (float, int),
            "str": (str,),
            "dtype": (torch.dtype,),
            "None": (type(None),),
        }
        if type(value) not in kinds[self.kind] or (self.members and value not in self.members):
            return REFUSED
        if self.kind == "float" and type(value) is int and abs(value) > EXACT:
            return REFUSED
        return value

    def __str__(self) -> str:
        names = " | ".join(show_value(member) if self.kind == "dtype" else member for member in self.members)
        return f"{self.kind}[{names}]" if names else self.kind


@frozen
class Sequence:
    """A list or tuple: of any length (``repeat``) or of one type a place."""

    container: str
    places: tuple[ParamType, ...]
    repeat: bool

    def accept(self, value: Any) -> Any:
        """Return a copy as a plain list or tuple, or REFUSED. A torch.Size is a tuple."""
        kind = list if self.container == "list" else tuple
        if not isinstance(value, kind):
            return REFUSED
        places = self.places * len(value) if self.repeat else self.places
        if len(places) != len(value) or (self.of_ints and len(value) > MAX_RUN):
            return REFUSED
        taken = [place.accept(item) for place, item in zip(places, value, strict=True)]
        return REFUSED if any(item is REFUSED for item in taken) else kind(taken)

    @property
    def of_ints(self) -> bool:
        """Say whether every place takes ints only, so that the value can stand for dims."""
        return all(place.options == (Scalar("int"),) for place in self.places)

    def __str__(self) -> str:
        inner = ", ".join(str(place) for place in self.places)
        return f"{self.container}[{inner}{', ...' if self.repeat and self.container == 'tuple' else ''}]"


@frozen
class ParamType:
    """A union of scalar and sequence types."""

    options: tuple[Scalar | Sequence, ...]

    def accept(self, value: Any) -> Any:
        """Return the value, copied where it could change, or REFUSED."""
        for option in self.options:
            taken = option.accept(value)
            if taken is not REFUSED:
                return taken
        return REFUSED

    def from_plain(self, value: Any) -> Any:
        """Return what plain YAML data means under this type (dtypes by name, a list for a tuple), or REFUSED."""
        candidates = [value]
        if isinstance(value, str) and value in DTYPES:
            candidates.append(DTYPES[value])
        if isinstance(value, list):
            candidates.append(tuple(value))
        for candidate in candidates:
            taken = self.accept(candidate)
            if taken is not REFUSED:
                return taken
        return REFUSED

    @property
    def static(self) -> Type | None:
        """Give the type that expressions see, or None where they cannot read such a param."""
        optional = Scalar("None") in self.options
        rest = [option for option in self.options if option != Scalar("None")]
        if not rest:
            return Type("none")
        if all(isinstance(option, Sequence) and option.of_ints for option in rest):
            sizes = [option.places for option in rest if isinstance(option, Sequence) and not option.repeat]
            lengths = [len(places) for places in sizes]
            open_ended = len(sizes) < len(rest)
            low = 0 if open_ended else min(lengths)
            high = MAX_RUN if open_ended else max(lengths)
            return Type("tuple", optional=optional, min_len=low, max_len=high)
        kinds = {option.kind if isinstance(option, Scalar) else "" for option in rest}
        if kinds == {"int", "float"}:
            kinds = {"float"}
        if len(kinds) != 1 or "" in kinds:
            return None
        members: tuple[Any, ...] = ()
        if all(isinstance(option, Scalar) and option.members for option in rest):
            members = tuple(member for option in rest if isinstance(option, Scalar) for member in option.members)
        kind: Any = kinds.pop()
        return Type(kind, optional=optional, members=members)

    def __str__(self) -> str:
        return " | ".join(str(option) for option in self.options)


def parse_type(text: str) -> ParamType:
    """Read a param type. Raises ValueError that says what was found and what may stand there."""
    tokens = _tokens(text)
    found, end = _union(tokens, 0, text)
    if end != len(tokens):
        raise ValueError(f"{text!r} has {tokens[end]!r} where it should end")
    return found


def choices(text: str) -> tuple[str, tuple[str, ...]]:
    """Split ``"DType[float16 | bfloat16]"`` into its head and its choices. Raises ValueError."""
    tokens = _tokens(text)
    if not tokens:
        raise ValueError("it is empty")
    names, end = _choices(tokens, 1, text) if len(tokens) > 1 else ((), 1)
    if end != len(tokens):
        raise ValueError(f"{text!r} has {tokens[end]!r} where it should end")
    return tokens[0], names


def dtypes_named(names: Iterable[str]) -> tuple[torch.dtype, ...]:
    """Look dtypes up by name. Raises ValueError with the nearest name."""
    found = []
    for name in names:
        if name not in DTYPES:
            raise ValueError(f"{name!r} is no dtype{nearest(name, DTYPES)}; dtypes are {', '.join(DTYPES)}")
        found.append(DTYPES[name])
    return tuple(found)


def show_value(value: Any) -> str:
    """Write a value as messages show it: dtypes by their name alone, the rest as Python does."""
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return repr(value)


def show_received(value: Any) -> str:
    """Write a received value with its type: ``int 64``, ``str 'x'``, ``None``."""
    if value is None:
        return "None"
    name = "dtype" if isinstance(value, torch.dtype) else type(value).__name__
    text = show_value(value)
    return f"{name} {text if len(text) <= 80 else text[:77] + '...'}"


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text!r} has {text[at:].strip()[0]!r} where a type is expected")
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


def _union(tokens: list[str], at: int, text: str) -> tuple[ParamType, int]:
    option, at = _option(tokens, at, text)
    options: list[Scalar | Sequence] = [option]
    while at < len(tokens) and tokens[at] == "|":
        option, at = _option(tokens, at + 1, text)
        options.append(option)
    return ParamType(tuple(options)), at


def _option(tokens: list[str], at: int, text: str) -> tuple[Scalar | Sequence, int]:
    if at >= len(tokens):
        raise ValueError(f"{text!r} ends where a type is expected")
    name = tokens[at]
    bracket = at + 1 < len(tokens) and tokens[at + 1] == "["
    if name in SCALARS:
        if not bracket:
            return Scalar(name), at + 1
        if name not in ("str", "dtype"):
            raise ValueError(f"{name} takes no choices: only str and dtype do")
        members, at = _choices(tokens, at + 1, text)
        return Scalar(name, dtypes_named(members) if name == "dtype" else members), at
    if name not in CONTAINERS:
        known = (*SCALARS, *CONTAINERS)
        raise ValueError(f"{name!r} is no type{nearest(name, known)}; types are {', '.join(known)}")
    if not bracket:
        raise ValueError(f"{name} needs its elements' type, such as {name}[int{', ...' if name == 'tuple' else ''}]")
    places: list[ParamType] = []
    repeat = name == "list"
    at += 1
    while tokens[at] != "]":
        if at + 1 < len(tokens) and tokens[at + 1] == "..." and name == "tuple" and len(places) == 1:
            repeat, at = True, at + 2
        else:
            place, at = _union(tokens, at + 1, text)
            places.append(place)
        if at >= len(tokens) or tokens[at] not in (",", "]"):
            raise ValueError(f"{text!r} lacks a ',' or ']' in {name}[...]")
        if tokens[at] == "," and repeat:
            raise ValueError(f"{text!r} gives {name}[...] more than its elements' type")
    return Sequence(name, tuple(places), repeat), at + 1


def _choices(tokens: list[str], at: int, text: str) -> tuple[tuple[str, ...], int]:
    if tokens[at] != "[":
        raise ValueError(f"{text!r} has {tokens[at]!r} where '[' is expected")
    names = []
    while tokens[at] != "]":
        if at + 2 >= len(tokens) or not tokens[at + 1].isidentifier() or tokens[at + 2] not in ("|", "]"):
            raise ValueError(f"{text!r} does not list its choices as [a | b]")
        names.append(tokens[at + 1])
        at += 2
    return tuple(names), at + 1
