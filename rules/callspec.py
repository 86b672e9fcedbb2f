"""Call specs: the facts of one call that selection and building read, checked when the spec is made."""

from __future__ import annotations

import inspect
import keyword
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform, overload

import attrs
import torch
from attrs import field

from tileops.rules.errors import DeclarationError, ExpressionError, RuleError
from tileops.rules.evaluate import EVALUATION_ERRORS
from tileops.rules.expr import Expression, parse
from tileops.rules.facts import (
    METADATA_KEY,
    MISSING,
    Kind,
    choice,
    dim,
    dims,
    flag,
    integer,
    kind_of,
    number,
    read_pairs,
)
from tileops.rules.initialiser import initialiser
from tileops.rules.parser import RESERVED
from tileops.rules.types import Type, show

if TYPE_CHECKING:
    from tileops.rules.device import DeviceFacts

DEVICE_SCOPE: Mapping[str, Type] = MappingProxyType(
    {
        "arch": Type("int", low=-1),
        "calibration": Type("str", optional=True),
        "sm_count": Type("int", low=0),
        "smem_budget": Type("int", low=0),
    }
)


if TYPE_CHECKING:

    class _Device:
        """Tells type checkers that ``device`` takes a name too, and is a torch.device when read."""

        def __get__(self, spec: object, owner: type | None = None) -> torch.device: ...

        def __set__(self, spec: object, device: str | torch.device) -> None: ...


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(dim, integer, flag, choice, number, dims)
)
class _Fields:
    """Tells type checkers that the annotations of a call spec are its arguments."""

    __slots__ = ()


@attrs.define(frozen=True, slots=True, init=False, eq=False, repr=False, kw_only=True)
class CallSpec(_Fields):
    """Stands above every call spec class; ``@call_spec`` completes one.

    An instance is immutable. Equality and hash cover the declared facts and ``device``. The device facts (``arch``,
    ``calibration``, ``sm_count``, ``smem_budget``) are those ``stated``, else they are read from the device once.
    """

    device: _Device
    stated: DeviceFacts | None = None
    _key: tuple[Any, ...] = field(init=False)
    _hash: int = field(init=False)
    _read: DeviceFacts | None = field(init=False)

    kinds: ClassVar[Mapping[str, Kind]] = MappingProxyType({})
    invariants: ClassVar[tuple[Expression, ...]] = ()
    derived: ClassVar[Mapping[str, Expression]] = MappingProxyType({})
    scope: ClassVar[Mapping[str, Type]] = DEVICE_SCOPE

    def __hash__(self) -> int:
        """Return the hash, computed when the spec was made."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Compare class, device and declared facts."""
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return self._key == other._key

    @property
    def device_facts(self) -> DeviceFacts:
        """Return the stated device facts, else those of the device, read once for this spec."""
        if self.stated is not None:
            return self.stated
        if self._read is None:
            from tileops.rules.device import read_facts  # the device layer may ask a backend: only when facts are read

            object.__setattr__(self, "_read", read_facts(self.device))
        assert self._read is not None, "read above"
        return self._read

    @property
    def arch(self) -> int:
        """Return the architecture (90 for compute capability 9.0), -1 where it is unknown."""
        return self.device_facts.arch

    @property
    def calibration(self) -> str | None:
        """Return the name of the board that tuning data may be keyed by, or None."""
        return self.device_facts.calibration

    @property
    def sm_count(self) -> int:
        """Return the number of multiprocessors, 0 where it is unknown."""
        return self.device_facts.sm_count

    @property
    def smem_budget(self) -> int:
        """Return the shared memory that one block may use in bytes, 0 where it is unknown."""
        return self.device_facts.smem_budget

    def facts(self) -> dict[str, Any]:
        """Return the declared facts."""
        return dict(zip(self.kinds, self._key[1:], strict=True))

    def values(self) -> dict[str, Any]:
        """Return all that an expression can read: declared, derived and device facts."""
        known = self.facts()
        for name in self.derived:
            known[name] = getattr(self, name)
        device = self.device_facts
        known.update({name: getattr(device, name) for name in DEVICE_SCOPE})
        return known

    def replace(self: _S, /, **changes: Any) -> _S:
        """Return a spec with some facts, ``device`` or ``stated`` changed; checked as a new one is."""
        given: dict[str, Any] = {"device": self.device, "stated": self.stated, **self.facts(), **changes}
        return type(self)(**given)

    def text(self) -> str:
        """Return the facts for people: ``m=1 n=4096 dtype=bfloat16``; `read` takes the words that shlex makes of it."""
        return " ".join(f"{name}={_plain(value)}" for name, value in self.facts().items())

    def __repr__(self) -> str:
        """Return the class, the device and the facts."""
        facts = "".join(f", {name}={show(value)}" for name, value in self.facts().items())
        stated = "" if self.stated is None else f", stated={self.stated!r}"
        return f"{type(self).__name__}({self.device}{facts}{stated})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as class and facts: a hash holds within one process only."""
        return _rebuild, (type(self), self.facts(), self.device, self.stated)

    @classmethod
    def read(cls: type[_S], texts: Iterable[str], *, device: str | torch.device, stated: Any = None) -> _S:
        """Return the spec that texts like ``m=1`` describe; raises FactError with the nearest name or what is taken."""
        given: dict[str, Any] = {"device": device, "stated": stated, **read_pairs(texts, cls.kinds)}
        return cls(**given)

    @classmethod
    def has_default(cls, fact: str) -> bool:
        """Say whether a call may leave a declared fact out."""
        return cls.kinds[fact].default is not MISSING

    @classmethod
    def content(cls) -> dict[str, Any]:
        """Return all of the class that a proof depends on, as plain data: kinds, bounds, invariants, derived facts."""
        return {
            "name": cls.__name__,
            "facts": {name: kind.content() for name, kind in cls.kinds.items()},
            "invariants": [rule.text for rule in cls.invariants],
            "derived": {name: rule.text for name, rule in cls.derived.items()},
        }


_S = TypeVar("_S", bound=CallSpec)
_TAKEN = RESERVED | set(DEVICE_SCOPE) | {"self"} | {name for name in dir(CallSpec) if not name.startswith("_")}


@overload
def call_spec(cls: type[_S], /) -> type[_S]: ...


@overload
def call_spec(
    *, invariants: Iterable[str] = (), derived: Mapping[str, str] | None = None
) -> Callable[[type[_S]], type[_S]]: ...


def call_spec(
    cls: type[_S] | None = None, /, *, invariants: Iterable[str] = (), derived: Mapping[str, str] | None = None
) -> type[_S] | Callable[[type[_S]], type[_S]]:
    """Complete a CallSpec class from its annotated facts; ``@call_spec`` and ``@call_spec()`` mean the same.

    ``invariants`` are conditions that every call meets; ``derived`` names further facts, each an expression over the
    declared ones and those derived before it. Neither sees device facts. Raises DeclarationError for a fact without a
    kind or with a name that is taken, ExpressionError for a rule that does not parse or type.
    """

    def complete(cls: type[_S]) -> type[_S]:
        if not (isinstance(cls, type) and issubclass(cls, CallSpec)):
            raise DeclarationError(f"@call_spec completes a subclass of CallSpec, got {cls!r}")
        if isinstance(invariants, str) or not isinstance(invariants, Iterable):
            raise DeclarationError(f"{cls.__name__}: invariants takes a tuple of expressions, got {invariants!r}")
        if derived is not None and not isinstance(derived, Mapping):
            raise DeclarationError(f"{cls.__name__}: derived takes a mapping of names to expressions, got {derived!r}")
        annotations = inspect.get_annotations(cls)
        for name, annotation in annotations.items():
            if "ClassVar" in str(annotation):
                continue
            if not _has_kind(cls.__dict__.get(name)):
                raise DeclarationError(
                    f"{cls.__name__}.{name} has no kind: write {name} = dim(), integer(low, high), flag(), "
                    "choice(...), number() or dims(max_rank)"
                )
            _check_name(cls, name)
            _check_annotation(cls, name, annotation)
        for name, value in cls.__dict__.items():
            if _has_kind(value) and name not in annotations:
                raise DeclarationError(f"{cls.__name__}.{name} has no annotation: write {name}: int = ...")
        made: type[_S] = attrs.define(frozen=True, slots=True, init=False, eq=False, repr=False, kw_only=True)(cls)
        kinds = {a.name: kind for a in attrs.fields(made) if (kind := kind_of(a)) is not None}
        scope = {name: kind.type for name, kind in kinds.items()}
        names = dict(cls.derived)
        for name, text in (derived or {}).items():
            _check_name(cls, name)
            if name in scope:
                raise DeclarationError(f"{cls.__name__} has the fact {name!r} already: derive it under another name")
            names[name] = _rule(cls, f"derived fact {name!r}", text)
        types = dict(scope)
        for name, rule in names.items():
            types[name] = _typed(cls, f"derived fact {name!r}", rule, types)
        rules = (*cls.invariants, *(_rule(cls, "an invariant", text) for text in invariants))
        for rule in rules:
            found = _typed(cls, "an invariant", rule, types)
            if found.kind != "bool" or found.optional:
                raise ExpressionError(
                    f"{cls.__name__}: the invariant {rule.text!r} is no condition", text=rule.text, column=0
                )
        _attach(made, kinds, names, rules, types)
        return made

    return complete if cls is None else complete(cls)


def require_spec(what: str, request: Any) -> None:
    """Raise DeclarationError unless ``request`` is a call spec class that ``@call_spec`` completed."""
    if not (isinstance(request, type) and issubclass(request, CallSpec)) or request is CallSpec:
        raise DeclarationError(f"{what} takes a subclass of CallSpec, got {request!r}")
    if "kinds" not in request.__dict__:
        raise DeclarationError(f"{what}: {request.__name__} is not complete: write @call_spec() above the class")


def _check_name(cls: type[CallSpec], name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise DeclarationError(f"{cls.__name__} cannot call a fact {name!r}: no expression could read that name")
    if name in cls.derived:
        raise DeclarationError(f"{cls.__name__} cannot have the fact {name!r}: its base class derives it")
    if name.startswith("_") or name in _TAKEN:
        raise DeclarationError(
            f"{cls.__name__} cannot call a fact {name!r}: the name is taken by the expression language, a device fact "
            "or CallSpec itself"
        )


_WORDS = {"int": "int", "bool": "bool", "float": "float", "str": "str", "dtype": "torch.dtype", "tuple": "tuple"}


def _check_annotation(cls: type[CallSpec], name: str, annotation: object) -> None:
    """Raise DeclarationError for an annotation that a type checker would be misled by; one of other words may be."""
    kind: Type = cls.__dict__[name].metadata[METADATA_KEY].type
    text = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
    while (outer := re.sub(r"\[[^\[\]]*\]", "", text)) != text and "Optional[" not in text:
        text = outer
    words = set(re.findall(r"\w+", text))
    told = words & _WORDS.keys()
    none = "None" in words or "Optional" in words
    if told and (kind.kind not in told or none != kind.optional):
        fits = _WORDS[kind.kind] + ("[int, ...]" if kind.kind == "tuple" else "") + (" | None" if kind.optional else "")
        raise DeclarationError(f"{cls.__name__}.{name} is annotated {text!r}, and its kind makes it {fits!r}")


def _has_kind(value: object) -> bool:
    return METADATA_KEY in getattr(value, "metadata", ())


def _rule(cls: type[CallSpec], what: str, text: str) -> Expression:
    try:
        return parse(text)
    except ExpressionError as error:
        raise ExpressionError(f"{cls.__name__}: {what}: {error}", **error.fields) from error


def _typed(cls: type[CallSpec], what: str, rule: Expression, scope: Mapping[str, Type]) -> Type:
    device = sorted(rule.facts & set(DEVICE_SCOPE))
    if device:
        raise ExpressionError(
            f"{cls.__name__}: {what} reads the device fact {device[0]!r}: it may speak of the call's own facts only",
            text=rule.text,
            column=0,
        )
    try:
        return rule.type_in(scope)
    except ExpressionError as error:
        raise ExpressionError(f"{cls.__name__}: {what}: {error}", **error.fields) from error


def _attach(
    cls: type[CallSpec],
    kinds: Mapping[str, Kind],
    derived: Mapping[str, Expression],
    invariants: tuple[Expression, ...],
    scope: Mapping[str, Type],
) -> None:
    cls.kinds = MappingProxyType(dict(kinds))
    cls.derived = MappingProxyType(dict(derived))
    cls.invariants = invariants
    cls.scope = MappingProxyType({**scope, **DEVICE_SCOPE})
    for name, rule in derived.items():
        setattr(cls, name, _derived_property(name, rule))
    cls.__init__ = initialiser(cls, kinds, invariants)  # type: ignore[method-assign]


def _derived_property(name: str, rule: Expression) -> property:
    names = tuple(sorted(rule.facts))
    function = rule.compile(names)

    def compute(self: CallSpec) -> Any:
        try:
            return function(*[getattr(self, fact) for fact in names])
        except EVALUATION_ERRORS as error:
            raise RuleError(
                f"{type(self).__name__}: the derived fact {name!r} = {rule.text!r} raises {error!r} on {self!r}",
                rule=rule.text,
                cause=repr(error),
            ) from error

    return property(compute, doc=f"Return ``{rule.text}``.")


def _plain(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return shlex.quote(value)
    if isinstance(value, tuple):
        return "x".join(map(str, value)) if value else "()"
    return show(value)


def _rebuild(cls: type[_S], facts: dict[str, Any], device: torch.device, stated: Any) -> _S:
    return cls(device=device, stated=stated, **facts)
