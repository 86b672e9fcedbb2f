"""The functions of the expression language, as Python computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen


@frozen
class Function:
    """Describes a function: how it is computed, what it takes (for messages), and how many arguments it has."""

    compute: Callable[..., Any]
    usage: str
    least: int
    most: int | None


def ceildiv(a: int, b: int) -> int:
    """Return ``a / b`` rounded up; raises ZeroDivisionError for b = 0."""
    return -(-a // b)


def align_up(a: int, b: int) -> int:
    """Return the smallest multiple of b at or above a (b > 0); raises ZeroDivisionError for b = 0."""
    return -(-a // b) * b


def is_pow2(n: int) -> bool:
    """Say whether n is 1, 2, 4, 8, ...; zero and negative numbers are not."""
    return n > 0 and n & (n - 1) == 0


def next_pow2(n: int) -> int:
    """Return the smallest power of two at or above n; 1 for n <= 1."""
    return 1 if n <= 1 else 1 << (n - 1).bit_length()


def itemsize(dtype: torch.dtype) -> int:
    """Return the size of one element in bytes; raises TypeError for None."""
    if dtype is None:
        raise TypeError("itemsize of None")
    return dtype.itemsize


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "min": Function(min, "min(a, b, ...) of integers", 2, None),
        "max": Function(max, "max(a, b, ...) of integers", 2, None),
        "abs": Function(abs, "abs(a) of an integer", 1, 1),
        "ceildiv": Function(ceildiv, "ceildiv(a, b) of integers", 2, 2),
        "align_up": Function(align_up, "align_up(a, b) of integers", 2, 2),
        "is_pow2": Function(is_pow2, "is_pow2(a) of an integer", 1, 1),
        "next_pow2": Function(next_pow2, "next_pow2(a) of an integer", 1, 1),
        "gcd": Function(math.gcd, "gcd(a, b, ...) of integers", 2, None),
        "prod": Function(math.prod, "prod(t) of a tuple of integers", 1, 1),
        "len": Function(len, "len(t) of a tuple", 1, 1),
        "itemsize": Function(itemsize, "itemsize(d) of a dtype, in bytes", 1, 1),
    }
)
FOLDS: Mapping[str, Callable[..., Any]] = MappingProxyType({"any": any, "all": all, "sum": sum})
