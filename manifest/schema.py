"""What a manifest entry says, as frozen classes: the op's contract that ops, targets and the prover read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch
from attrs import field, frozen

from tileops.manifest.form import Form
from tileops.manifest.paramtype import MAX_RUN, ParamType, show_value
from tileops.rules.expr import Expression, Name
from tileops.rules.types import Type

REQUIRED: Final[Any] = object()  # the default of a param that has none
MAX_DIM: Final = 2**40  # no dim, and no tensor's element count, is larger


class TensorShape(NamedTuple):
    """A tensor's dtype and shape, without the tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


@frozen
class Index:
    """A name that the signature is quantified over: a dim, a run of dims (``shape``) or a dtype."""

    name: str
    kind: str  # "dim", "shape" or "dtype"
    members: tuple[torch.dtype, ...] = ()

    def static(self, optional: bool = False) -> Type:
        """Give the type that expressions see; optional when only optional inputs bind the index."""
        if self.kind == "dtype":
            return Type("dtype", members=self.members, optional=optional)
        if self.kind == "shape":
            return Type("tuple", low=0, high=MAX_DIM, min_len=0, max_len=MAX_RUN, optional=optional)
        return Type("int", low=0, high=MAX_DIM, optional=optional)

    def __str__(self) -> str:
        if self.kind != "dtype":
            return self.kind.capitalize()
        names = " | ".join(show_value(member) for member in self.members)
        return f"DType[{names}]" if names else "DType"


@frozen
class Param:
    """A constructor param, its type and its default (REQUIRED where it has none)."""

    name: str
    type: ParamType
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        """Say whether the constructor must be given it."""
        return self.default is REQUIRED


@frozen
class Input:
    """A tensor that a call takes."""

    name: str
    dtype: Expression
    shape: Form
    optional: bool = False
    mutated: bool | Expression = False  # an expression reads params only
    contiguous: bool = False
    device: str | None = None  # "cpu": on the CPU whatever the call's device
    keyword_only: bool = False

    @property
    def dtype_name(self) -> str | None:
        """The index that the dtype is, or None where it is computed or fixed."""
        root = self.dtype.root
        return root.name if isinstance(root, Name) else None


@frozen
class Output:
    """A tensor that a call returns; ``same_as`` names the written input that is handed back."""

    name: str
    dtype: Expression
    shape: Form
    same_as: str | None = None
    empty: bool | int | float | None = None  # fills the output when a call has nothing to compute


@frozen
class Signature:
    """The indices, params, inputs (in call order), outputs and rules of an op."""

    forall: Mapping[str, Index]
    params: Mapping[str, Param]
    inputs: Mapping[str, Input]
    outputs: Mapping[str, Output]
    rules: tuple[Expression, ...] = ()


@frozen
class Roofline:
    """Work of a call: floating-point operations, and bytes where the default count does not hold."""

    flops: Expression
    bytes: Expression | None = None


@frozen
class Workload:
    """A row that real models run: values of indices and params, for each of some dtype cases."""

    label: str
    values: Mapping[str, Any]  # indices and params, as the file gives them
    dtypes: tuple[Mapping[str, torch.dtype], ...]
    without: frozenset[str] = frozenset()  # optional inputs that the row leaves out


@frozen
class Step:
    """One op of a composition: which op, its params, and what its tensors are called in the composite."""

    op: str
    inputs: Mapping[str, str]  # the sub-op's input -> a value of the composite
    outputs: tuple[str, ...]  # names for what it returns
    params: Mapping[str, Expression] = field(factory=dict)
