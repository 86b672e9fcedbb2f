"""Integer interval arithmetic: bounds of results, None for no bound. Imports nothing of ours."""

from __future__ import annotations

from typing import TypeAlias

Interval: TypeAlias = tuple[int | None, int | None]
ANY: Interval = (None, None)


def negate(a: Interval) -> Interval:
    """Bound ``-a``."""
    return (None if a[1] is None else -a[1], None if a[0] is None else -a[0])


def add(a: Interval, b: Interval) -> Interval:
    """Bound ``a + b``."""
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high


def multiply(a: Interval, b: Interval) -> Interval:
    """Bound ``a * b``."""
    if a[0] is not None and a[1] is not None and b[0] is not None and b[1] is not None:
        corners = [x * y for x in (a[0], a[1]) for y in (b[0], b[1])]
        return min(corners), max(corners)
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], None
    return ANY


def floor_divide(a: Interval, b: Interval) -> Interval:
    """Bound ``a // b``; only a divisor that is all positive gives bounds."""
    if b[0] is None or b[0] < 1:
        return ANY
    low = high = None
    if a[0] is not None:
        low = a[0] // b[0] if a[0] < 0 else (0 if b[1] is None else a[0] // b[1])
    if a[1] is not None:
        high = a[1] // b[0] if a[1] >= 0 else (-1 if b[1] is None else a[1] // b[1])
    return low, high


def modulo(a: Interval, b: Interval) -> Interval:
    """Bound ``a % b``, which has the divisor's sign."""
    if b[0] is not None and b[0] >= 1:
        top = None if b[1] is None else b[1] - 1
        if a[0] is not None and a[0] >= 0 and a[1] is not None:
            top = a[1] if top is None else min(top, a[1])
        return 0, top
    if b[1] is not None and b[1] <= -1:
        return (None if b[0] is None else b[0] + 1), 0
    return ANY


def least(a: Interval, b: Interval) -> Interval:
    """Bound ``min(a, b)``."""
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    highs = [high for high in (a[1], b[1]) if high is not None]
    return low, min(highs, default=None)


def greatest(a: Interval, b: Interval) -> Interval:
    """Bound ``max(a, b)``."""
    return negate(least(negate(a), negate(b)))


def absolute(a: Interval) -> Interval:
    """Bound ``abs(a)``."""
    if a[0] is not None and a[0] >= 0:
        return a
    if a[1] is not None and a[1] <= 0:
        return negate(a)
    return 0, None if a[0] is None or a[1] is None else max(-a[0], a[1])


def ceil_divide(a: Interval, b: Interval) -> Interval:
    """Bound ``ceildiv(a, b)``."""
    return negate(floor_divide(negate(a), b))


def align(a: Interval, b: Interval) -> Interval:
    """Bound ``align_up(a, b)``."""
    if b[0] is None or b[0] < 1:
        return ANY
    # At or above a, and less than b above it.
    return a[0], None if a[1] is None or b[1] is None else a[1] + b[1] - 1


def next_power(a: Interval) -> Interval:
    """Bound ``next_pow2(a)``."""
    low, high = (None if end is None else (1 if end <= 1 else 1 << (end - 1).bit_length()) for end in a)
    return (1 if low is None else low), high


def common_divisor(a: Interval, b: Interval) -> Interval:
    """Bound ``gcd(a, b)``: no more than either operand that cannot be 0."""
    sizes = [absolute(side) for side in (a, b)]
    positive = [size for size in sizes if size[0] is not None and size[0] > 0]
    tops = [size[1] for size in positive if size[1] is not None]
    if tops:
        return 1, min(tops)
    return (1 if positive else 0), None
