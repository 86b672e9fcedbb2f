"""Makes a witness small: the simplest values of its facts under which it still shows what was asked.

The solver's models are right but odd (m=1099511627713). Trying simpler values in Python costs no solver time and
needs no trust: each try is confirmed as the witness itself was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from tileops.rules.device import DeviceFacts
from tileops.rules.domain import Domain, Unstatable, device_of
from tileops.rules.spaces import holds
from tileops.rules.types import Type

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec

_ROUNDS = 3
_NEAR = 64  # how many of the least values of an integer are tried one by one


@attrs.frozen
class _Witness:
    kind: str
    stated: DeviceFacts
    facts: Mapping[str, Any]


def shrink(domain: Domain, call: CallSpec, shows: Callable[[CallSpec], bool]) -> CallSpec:
    """Return a call spec as simple as ``call`` or simpler for which ``shows`` still holds."""
    facts = {name: getattr(call, name) for name in domain.request.kinds}
    assert call.stated is not None, "a decoded call spec states its device facts"
    kind = next(kind for kind in domain.kinds if device_of(kind).type == call.device.type)
    best, best_call = _Witness(kind, call.stated, facts), call
    for _ in range(_ROUNDS):
        before = best
        for steps in (_devices, *(_of_fact(name) for name in facts)):
            for simpler in steps(domain, best):
                found = _spec(domain, simpler)
                if found is not None and shows(found):
                    best, best_call = simpler, found
                    break
        if best == before:
            break
    return best_call


def _spec(domain: Domain, witness: _Witness) -> CallSpec | None:
    if not holds(domain.spaces[witness.kind], witness.stated):
        return None
    try:
        return domain.spec(witness.kind, witness.stated, witness.facts)
    except Unstatable:
        return None


def _devices(domain: Domain, witness: _Witness) -> Iterator[_Witness]:
    """Yield other devices, the plainest first, until the one the witness has."""
    for kind in sorted(domain.kinds, key=lambda kind: (kind != "cuda", kind)):
        for region in domain.spaces[kind]:
            for stated in region.examples:
                if (kind, stated) == (witness.kind, witness.stated):
                    return
                yield attrs.evolve(witness, kind=kind, stated=stated)
    for region in domain.spaces[witness.kind]:
        if witness.stated in region:
            for stated in region.examples:
                for name in ("smem_budget", "sm_count", "calibration", "arch"):
                    value = getattr(stated, name)
                    if value != getattr(witness.stated, name):
                        yield attrs.evolve(witness, stated=attrs.evolve(witness.stated, **{name: value}))
            yield from _simpler_device(witness, Type("int", low=int(region.sm_count.low)), "sm_count")
            yield from _simpler_device(witness, Type("int", low=int(region.smem_budget.low)), "smem_budget")
            yield from _simpler_device(witness, Type("int", low=int(region.arch.low)), "arch")


def _simpler_device(witness: _Witness, kind: Type, name: str) -> Iterator[_Witness]:
    for value in _simpler(kind, getattr(witness.stated, name)):
        yield attrs.evolve(witness, stated=attrs.evolve(witness.stated, **{name: value}))


def _of_fact(name: str) -> Callable[[Domain, _Witness], Iterator[_Witness]]:
    def steps(domain: Domain, witness: _Witness) -> Iterator[_Witness]:
        for value in _simpler(domain.declared[name], witness.facts[name]):
            yield attrs.evolve(witness, facts={**witness.facts, name: value})

    return steps


def _simpler(kind: Type, value: Any) -> Iterator[Any]:
    """Yield the values of a fact that are simpler than ``value``, the simplest first."""
    if value is None:
        return
    if kind.optional:
        yield None
    match kind.kind:
        case "bool":
            if value:
                yield False
        case "int":
            yield from _simpler_integers(kind.low, value)
        case "float":
            yield from (number for number in (0.0, 1.0, -1.0, 0.5, float(round(value))) if _plainer(number, value))
        case "str" | "dtype":
            for member in kind.members:
                if member == value:
                    return
                yield member
        case "tuple":
            yield from _simpler_tuples(kind, value)


def _plainer(number: float, value: float) -> bool:
    return len(repr(number)) < len(repr(value)) or (number == 0.0 and value != 0.0)


def _simpler_integers(low: int | None, value: int) -> Iterator[int]:
    least = max(0, low) if low is not None else 0
    if value < 0:
        yield 0
        yield from (-number for number in _simpler_integers(1, -value))
    if value <= least:
        return
    near = range(least, min(value, least + _NEAR))
    yield from near
    # Beyond the small ones a power of two is simpler than another number though it be larger: 1024 rather than 978.
    highest = 2 * value - 1 if value > least + _NEAR and value & (value - 1) else value - 1
    yield from (power for bits in range(highest.bit_length()) if (power := 1 << bits) not in near and power >= least)
    # No power of two does: at least a rounder number.
    for bits in range(value.bit_length() - 1, 0, -1):
        rounder = value >> bits << bits
        if least < rounder < value:
            yield rounder


def _simpler_tuples(kind: Type, value: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for length in range(kind.min_len, len(value)):
        yield value[:length]
        yield value[len(value) - length :]
    for place, item in enumerate(value):
        for number in _simpler_integers(kind.low, item):
            yield (*value[:place], number, *value[place + 1 :])
