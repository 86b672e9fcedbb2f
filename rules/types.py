"""Static types of the expression language, with integer bounds. Imports nothing of ours but the errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import torch
from attrs import evolve, frozen

from tileops.rules.errors import shown

KindName: TypeAlias = Literal["int", "float", "bool", "str", "dtype", "tuple", "none"]
Value: TypeAlias = int | float | bool | str | torch.dtype | tuple[int, ...] | None
Bound: TypeAlias = int | None

# The dtype names an expression may write. Names of more than one spelling in torch (half, long) have only the long one.
DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        name: getattr(torch, name)
        for name in (
            "bool",
            *("int8", "int16", "int32", "int64"),
            *("uint8", "uint16", "uint32", "uint64"),
            *("float16", "bfloat16", "float32", "float64"),
            *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
            *("complex64", "complex128"),
        )
    }
)
DTYPE_NAMES: Mapping[torch.dtype, str] = MappingProxyType({dtype: name for name, dtype in DTYPES.items()})

_WORDS = {
    "int": "an integer",
    "float": "a float",
    "bool": "a bool",
    "str": "a string",
    "dtype": "a dtype",
    "tuple": "a tuple of integers",
    "none": "None",
}


@frozen
class Type:
    """Says which values an expression can have.

    ``low`` and ``high`` bound an integer, or every element of a tuple; ``members`` lists the choices of a string or
    dtype (empty: any); ``min_len`` and ``max_len`` bound a tuple's length (equal: fixed length). None is unbounded.
    """

    kind: KindName
    optional: bool = False
    low: Bound = None
    high: Bound = None
    members: tuple[str | torch.dtype, ...] = ()
    min_len: int = 0
    max_len: int | None = None

    def __str__(self) -> str:
        """Return the type in words: ``an integer``, ``a dtype or None``."""
        word = _WORDS[self.kind]
        if self.kind == "tuple" and self.max_len is not None:
            span = str(self.max_len) if self.min_len == self.max_len else f"{self.min_len} to {self.max_len}"
            word = f"a tuple of {span} integers"
        return f"{word} or None" if self.optional else word

    @property
    def numeric(self) -> bool:
        """Say whether values can be ordered with ``<``."""
        return self.kind in ("int", "float")

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """Return the pair ``(low, high)``."""
        return self.low, self.high

    def comparable(self, other: Type) -> bool:
        """Say whether ``==`` between the two can ever hold."""
        return self.kind == other.kind or (self.numeric and other.numeric)

    def join(self, other: Type) -> Type | None:
        """Return the type of a value that has either type, or None if the language has no such type."""
        if self.kind == "none":
            return evolve(other, optional=other.kind != "none")
        if other.kind == "none":
            return evolve(self, optional=True)
        optional = self.optional or other.optional
        if self.kind != other.kind:
            return Type("float", optional) if self.numeric and other.numeric else None
        both = self.members and other.members
        return Type(
            self.kind,
            optional,
            _lower(self.low, other.low),
            _upper(self.high, other.high),
            tuple(dict.fromkeys(self.members + other.members)) if both else (),
            min(self.min_len, other.min_len),
            _upper(self.max_len, other.max_len),
        )


def type_of_value(value: Value) -> Type:
    """Return the narrowest type of a constant; raises TypeError for a value the language does not have."""
    match value:
        case None:
            return Type("none")
        case bool():
            return Type("bool")
        case int():
            return Type("int", low=value, high=value)
        case float():
            return Type("float")
        case str():
            return Type("str", members=(value,))
        case torch.dtype():
            return Type("dtype", members=(value,))
        case tuple() if all(type(item) is int for item in value):
            return Type(
                "tuple",
                low=min(value, default=None),
                high=max(value, default=None),
                min_len=len(value),
                max_len=len(value),
            )
    raise TypeError(f"the expression language has no value like {value!r}")


def dtype_name(dtype: torch.dtype) -> str:
    """Return ``"bfloat16"`` for ``torch.bfloat16``."""
    return DTYPE_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def show(value: object) -> str:
    """Return a value as an expression writes it (``bfloat16``, ``'nhwc'``, ``(2, 3)``), huge integers by their size."""
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
    return shown(value)


def _lower(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else min(a, b)


def _upper(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else max(a, b)
