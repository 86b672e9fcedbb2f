"""The generated ``__init__`` of a call spec class, and the checks behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from tileops.rules.errors import FactError, RuleError, nearest
from tileops.rules.evaluate import EVALUATION_ERRORS
from tileops.rules.expr import Expression
from tileops.rules.facts import MISSING, Kind
from tileops.rules.placement import SETTLED, settle_device

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec


def initialiser(
    cls: type[CallSpec], kinds: Mapping[str, Kind], invariants: tuple[Expression, ...]
) -> Callable[..., None]:
    """Generate ``__init__``: one inline test a fact on the straight path, all the words on the other."""
    environment: dict[str, Any] = {
        "_set": object.__setattr__,
        "_settled": SETTLED,
        "_spec": cls,
        "_checked": _checked,
        "_verify": _verify,
        "_tuple": tuple,
        "_MISSING": MISSING,
        "_inf": float("inf"),
        **{f"_d_{name}": kind.default for name, kind in kinds.items()},
        **{f"_t_{name}": _exact_type(kind) for name, kind in kinds.items()},
        **{f"_m_{name}": frozenset(kind.type.members) for name, kind in kinds.items()},
        "_type": type,
    }
    # No fact's name starts with an underscore, so that whatever stands beside the facts here has one.
    given = "".join(f", {name}=_d_{name}" for name in kinds)
    listed = ", ".join(kinds)
    straight = " and ".join(
        ["not _unknown", "stated is None", *(_condition(name, kind) for name, kind in kinds.items())]
    )
    lines = [
        f"def __init__(_self, /, *, device=_MISSING{given}, stated=None, **_unknown):",
        "    _place = _settled.get(device) if _type(device) in _DEVICE_TYPES else None",
        f"    if not (_place is not None and {straight}):",
        f"        _place, {listed}{',' if listed else ''} = _checked(_spec, device, {{"
        + ", ".join(f"{name!r}: {name}" for name in kinds)
        + "}, stated, _unknown)",
        f"    _kept = (_place, {listed})",
        "    _set(_self, 'device', _place)",
        "    _set(_self, 'stated', stated)",
        *(f"    _set(_self, {name!r}, {name})" for name in kinds),
        "    _set(_self, '_key', _kept)",
        "    _set(_self, '_hash', _hash((_spec, _kept)))",
        "    _set(_self, '_read', None)",
        *(["    _verify(_self)"] if invariants else []),
    ]
    environment |= {"_DEVICE_TYPES": (torch.device, str), "_hash": hash}
    exec(compile("\n".join(lines), f"<{cls.__name__}.__init__>", "exec"), environment)
    made: Callable[..., None] = environment["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _exact_type(kind: Kind) -> type:
    kinds = {"int": int, "bool": bool, "float": float, "str": str, "dtype": torch.dtype, "tuple": tuple}
    return kinds[kind.type.kind]


def _condition(name: str, kind: Kind) -> str:
    """Return the test that a value can be stored as it stands; what fails it goes through ``Kind.check``."""
    low, high = kind.type.bounds
    test = f"_type({name}) is _t_{name}"
    match kind.word:
        case "dim" | "integer":
            test += f" and {low} <= {name} <= {high}"
        case "choice":
            test += f" and {name} in _m_{name}"
        case "number":
            # Zero goes the long way, where -0.0 becomes 0.0.
            test += f" and {name} != 0.0 and -_inf < {name} < _inf"
        case "dims":
            test = "False"
    return f"({name} is None or {test})" if kind.optional else f"{test}"


def _checked(
    cls: type[CallSpec], device: object, facts: dict[str, Any], stated: object, unknown: dict[str, Any]
) -> tuple[Any, ...]:
    """Return device and facts as a spec keeps them; raises one FactError that lists every fault."""
    faults: list[FactError] = []
    for name in unknown:
        faults.append(FactError(f"unknown fact {name!r}{nearest(name, facts)}; known: {', '.join(facts)}", fact=name))
    kept: list[Any] = []
    try:
        if device is MISSING:
            raise FactError("device takes a torch.device or its name; got nothing", fact="device", received="nothing")
        kept.append(settle_device(device))
    except FactError as error:
        faults.append(error)
    for name, value in facts.items():
        try:
            kept.append(cls.kinds[name].check(name, value))
        except FactError as error:
            faults.append(error)
    if stated is not None:
        from tileops.rules.device import DeviceFacts  # imported late: rules.device may import this module

        if not isinstance(stated, DeviceFacts):
            faults.append(FactError(f"stated takes DeviceFacts; got {stated!r}", fact="stated", received=repr(stated)))
    if faults:
        message = f"{cls.__name__}: " + "; ".join(map(str, faults))
        raise FactError(
            message, call=cls.__name__, facts=[fault.fields.get("fact") for fault in faults], **faults[0].fields
        )
    return tuple(kept)


def _verify(spec: CallSpec) -> None:
    for rule in spec.invariants:
        names = tuple(sorted(rule.facts))
        values = [getattr(spec, name) for name in names]
        try:
            holds = rule.compile(names)(*values)
        except EVALUATION_ERRORS as error:
            raise RuleError(
                f"{type(spec).__name__}: the invariant {rule.text!r} raises {type(error).__name__} on {spec!r}",
                rule=rule.text,
                cause=repr(error),
            ) from error
        if not holds:
            rendered = rule.render(dict(zip(names, values, strict=True)))
            raise FactError(
                f"{type(spec).__name__}: every call meets {rule.text!r}; got {rendered}",
                rule=rule.text,
                received=rendered,
            )
