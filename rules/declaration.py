"""Declarations: what an implementation says of the calls it serves, and which others it goes before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never, TypeAlias

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from tileops.rules.archs import ArchSet, arch_set
from tileops.rules.errors import DeclarationError, nearest
from tileops.rules.expr import Expression, Template, parse

Opaque: TypeAlias = Callable[[Any], bool | str | None]


@attrs.frozen
class Refusal:
    """Refuses the calls for which ``when`` is true; ``why`` is the message, with values in braces.

    ``Refusal("m > 2", "serves at most two rows, got m={m}")``. What the language cannot say may be a Python
    callable, ``Refusal(opaque=f, why="...")``: it gets the call and returns True or its own reason to refuse,
    False or None to serve. The prover assumes that it accepts anything.
    Raises ExpressionError for a rule or message that does not parse, DeclarationError for a wrong shape.
    """

    when: str | None = None
    why: str = ""
    opaque: Opaque | None = attrs.field(default=None, kw_only=True)
    rule: Expression | None = attrs.field(init=False, eq=False, repr=False)
    message: Template = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Parse the rule and the message."""
        if (self.when is None) == (self.opaque is None):
            raise DeclarationError(f"a refusal has either a rule or an opaque callable: {self!r}")
        if self.when is not None and type(self.when) is not str:
            raise DeclarationError(f"the rule of a refusal is an expression in a string, got {self.when!r}")
        if self.opaque is not None and not callable(self.opaque):
            raise DeclarationError(f"the opaque part of a refusal cannot be called: {self.opaque!r}")
        if type(self.why) is not str or not self.why.strip():
            raise DeclarationError(f"the refusal {self.text!r} says not why: give a message such as 'got m={{m}}'")
        object.__setattr__(self, "rule", None if self.when is None else parse(self.when))
        object.__setattr__(self, "message", Template(self.why))

    @property
    def text(self) -> str:
        """Return the rule as written, or the name of the opaque callable."""
        return self.when if self.when is not None else f"opaque {opaque_name(self.opaque)}"


def opaque_name(function: Any) -> str:
    """Return module and qualified name of a callable, for messages and content hashes."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _names(what: str, example: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise DeclarationError(f"{what} takes a set of names such as {{{example!r}}}, got {value!r}")
    for item in value:
        if type(item) is not str or not item:
            raise DeclarationError(f"{what} takes names such as {example!r}, got {item!r}")
    return frozenset(value)


def _devices(value: Any) -> frozenset[str]:
    names = _names("devices", "cuda", value)
    for name in sorted(names):
        kind = name.partition(":")[0]
        if not kind.isidentifier():
            raise DeclarationError(f"devices takes device types such as 'cuda', got {name!r}")
        if kind != name:
            raise DeclarationError(f"devices takes device types, not one device: write {kind!r} for {name!r}")
    return names


def _keys(value: Any) -> frozenset[str]:
    return _names("preferred_over", "gemm_splitk", value)


def _refusals(value: Any) -> tuple[Refusal, ...]:
    if not isinstance(value, list | tuple):
        raise DeclarationError(f"refusal takes a tuple of Refusal(...), got {value!r}")
    for item in value:
        if not isinstance(item, Refusal):
            raise DeclarationError(f"refusal takes Refusal(...) in its tuple, got {item!r}")
    return tuple(value)


def _check_devices(instance: Any, attribute: Any, value: frozenset[str]) -> None:
    if not value:
        raise DeclarationError("devices names no device type; leave it out for cuda")


def _check_flag(instance: Any, attribute: Any, value: Any) -> None:
    if type(value) is not bool:
        raise DeclarationError(f"{attribute.name} takes True or False, got {value!r}")


def _check_reason(instance: Any, attribute: Any, value: Any) -> None:
    if value is not None and (type(value) is not str or not value.strip()):
        raise DeclarationError(f"{attribute.name} takes a sentence or None, got {value!r}")


@attrs.frozen(kw_only=True, init=False)
class Declaration:
    """Says where an implementation runs, which calls it refuses, and which implementations it goes before.

    The defaults: CUDA devices of every arch, no refusal, no precedence. ``devices`` are device kinds (``device_kind``
    of `rules/device.py`). ``general`` puts the implementation below all others. ``preferred_over`` names keys of the
    same interface. ``dead_because`` tells the check why an implementation that can never win is kept.
    Raises DeclarationError for a value of the wrong shape; what only a whole table shows is a finding of its check.
    """

    devices: frozenset[str] = attrs.field(default=frozenset({"cuda"}), converter=_devices, validator=_check_devices)
    supported_archs: ArchSet | None = attrs.field(default=None, converter=arch_set)
    refusal: tuple[Refusal, ...] = attrs.field(default=(), converter=_refusals)
    general: bool = attrs.field(default=False, validator=_check_flag)
    preferred_over: frozenset[str] = attrs.field(default=frozenset(), converter=_keys)
    dead_because: str | None = attrs.field(default=None, validator=_check_reason)

    def __init__(
        self,
        *,
        devices: Iterable[str] = frozenset({"cuda"}),
        supported_archs: Any = None,
        refusal: Iterable[Refusal] = (),
        general: bool = False,
        preferred_over: Iterable[str] = frozenset(),
        dead_because: str | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            raise DeclarationError(f"a declaration has no {name!r}{nearest(name, _field_names(type(self)))}")
        self.__attrs_init__(
            devices=devices,
            supported_archs=supported_archs,
            refusal=refusal,
            general=general,
            preferred_over=preferred_over,
            dead_because=dead_because,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON or YAML, defaults left out.

        Raises DeclarationError for an opaque refusal, which only Python can say.
        """
        for refusal in self.refusal:
            if refusal.opaque is not None:
                raise DeclarationError(
                    f"{refusal.text} is a Python callable and cannot be written as data; write it as a rule, or keep "
                    "the declaration in Python"
                )
        return self.content()

    def content(self) -> dict[str, Any]:
        """Return plain data for a content hash; an opaque refusal is there by its callable's name only."""
        plain: dict[str, Any] = _converter().unstructure(self)
        return plain

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Declaration:
        """Make a declaration of plain data, as `to_plain` writes it.

        Raises DeclarationError with the path of each fault, all of them together.
        """
        if not isinstance(data, Mapping):
            raise DeclarationError(f"a declaration is a mapping of {', '.join(_field_names(cls))}, got {data!r}")
        if odd := [name for name in data if type(name) is not str]:
            raise DeclarationError(
                f"a declaration has no {odd[0]!r}; it is a mapping of {', '.join(_field_names(cls))}"
            )
        try:
            return _converter().structure(data, cls)
        except cattrs.BaseValidationError as error:
            faults = cattrs.transform_error(error, path="declaration", format_exception=_fault)
            raise DeclarationError("\n".join(faults), faults=faults) from error


def _field_names(cls: type[Any]) -> list[str]:
    return [field.name for field in attrs.fields(cls) if field.init]


def _fault(error: BaseException, kind: type | None) -> str:
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        known = _field_names(error.cl)
        return "; ".join(f"unknown field {name!r}{nearest(name, known)}" for name in sorted(error.extra_fields))
    return str(error)


@functools.cache
def _converter() -> cattrs.Converter:
    # The fields' own converters run as hooks too, so that Python and YAML are held to one standard and faults keep
    # their path.
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(str, _exact_hook("a string"))
    converter.register_structure_hook(bool, _exact_hook("true or false"))
    converter.register_structure_hook(
        Refusal,
        functools.partial(
            _structure_refusal, make_dict_structure_fn(Refusal, converter, opaque=override(omit=True), **_FORBID)
        ),
    )
    converter.register_unstructure_hook(Refusal, _plain_refusal)
    converter.register_unstructure_hook(ArchSet, ArchSet.to_plain)
    converter.register_structure_hook(
        Declaration,
        make_dict_structure_fn(
            Declaration,
            converter,
            devices=override(struct_hook=lambda value, _: _devices(value)),
            supported_archs=override(struct_hook=lambda value, _: arch_set(value)),
            refusal=override(struct_hook=functools.partial(_structure_refusals, converter)),
            preferred_over=override(struct_hook=lambda value, _: _keys(value)),
            **_FORBID,
        ),
    )
    converter.register_unstructure_hook(
        Declaration,
        make_dict_unstructure_fn(
            Declaration,
            converter,
            devices=override(unstruct_hook=sorted),
            preferred_over=override(unstruct_hook=sorted),
            _cattrs_omit_if_default=True,
        ),
    )
    return converter


_FORBID: dict[str, Any] = {"_cattrs_forbid_extra_keys": True}


def _exact_hook(what: str) -> Callable[[Any, type[Any]], Any]:
    def exact(value: Any, kind: type[Any]) -> Any:
        if type(value) is not kind:
            raise DeclarationError(f"takes {what}, got {value!r}")
        return value

    return exact


def _structure_refusals(converter: cattrs.Converter, value: Any, _: Any) -> tuple[Refusal, ...]:
    if not isinstance(value, list | tuple):
        raise DeclarationError(f"takes a list of refusals, each with `when` and `why`, got {value!r}")
    return converter.structure(value, tuple[Refusal, ...])


def _structure_refusal(structure: Callable[[Any, Any], Refusal], value: Any, kind: Any) -> Refusal:
    if not isinstance(value, Mapping) or any(type(name) is not str for name in value):
        raise DeclarationError(f"takes a mapping of `when` and `why`, got {value!r}")
    return structure(value, kind)


def _plain_refusal(refusal: Refusal) -> dict[str, str]:
    if refusal.when is None:
        return {"opaque": opaque_name(refusal.opaque), "why": refusal.why}
    return {"when": refusal.when, "why": refusal.why}
