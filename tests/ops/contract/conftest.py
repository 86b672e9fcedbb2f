"""One small call of every op in the manifest, for the contract's items that hold for all ops alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest
import torch

from tileops.backend import BUILTIN, TensorSpec
from tileops.backend.process import has_builder
from tileops.catalog import op_class, op_names
from tileops.manifest import loader
from tileops.manifest.schema import Workload
from tileops.manifest.workload import Case, bind, cases
from tileops.op import Op
from tileops.rules.errors import SignatureError

#: Elements of the tensors of a call.
ELEMENTS = 2**15


@attrs.frozen
class Sample:
    """A small call of one op: its params, and fresh tensors for it."""

    name: str
    case: Case
    target: Any
    device: torch.device

    def op(self) -> Op:
        return op_class(self.name)(**self.case.params, target=self.target)

    @property
    def signature(self) -> Any:
        return loader.entry(self.name).signature

    @property
    def written(self) -> tuple[str, ...]:
        return loader.entry(self.name).checker.writes(self.case.params)

    def traced(self) -> tuple[str, ...]:
        """The ops that a graph of the call holds: the op, or its parts where no builder serves it whole."""
        parts = tuple(step.op for step in loader.entry(self.name).composition)
        whole = self.target is not BUILTIN and has_builder(self.name, self.target)
        return (self.name,) if whole or not parts else parts

    def tensors(self, rows: int = 1) -> list[Any]:
        """Fresh tensors in call order; ``rows`` copies of the batch dims that no other index depends on."""
        torch.manual_seed(0)
        made = []
        for name, size in self.case.inputs.items():
            if size is None:
                made.append(None)
                continue
            shape = size.shape
            if rows > 1 and name in ROWED[self.name]:
                shape = (shape[0] * rows, *shape[1:])
            where = torch.device("cpu") if self.signature.inputs[name].device is not None else self.device
            if not size.dtype.is_floating_point:
                made.append(torch.zeros(shape, dtype=size.dtype, device=where))
            else:
                values = torch.randn(shape, device=where)
                made.append((values.abs() if name == "running_var" else values).to(size.dtype))
        return made

    def specs(self) -> list[TensorSpec | None]:
        return [None if t is None else TensorSpec(t.device, t.dtype, tuple(t.shape)) for t in self.tensors()]


# Which inputs have the rows of a call along their first dim: they may be any number.
ROWED: Mapping[str, tuple[str, ...]] = {
    "GemmFwdOp": ("a",),
    "RMSNormFwdOp": ("x",),
    "LayerNormFwdOp": ("x",),
    "GroupNormFwdOp": ("x",),
    "BatchNormFwdOp": ("x",),
    "FusedAddRMSNormFwdOp": ("x", "residual"),
    "SoftmaxFwdOp": ("x",),
    "CumsumFwdOp": ("x",),
    "SiLUAndMulFwdOp": ("x",),
    "RoPEFwdOp": ("q", "k", "positions"),
    "GatedMLPFwdOp": ("x",),
}


def small_case(name: str, written: bool) -> Case:
    """A row of the op's workloads with every size divided until its tensors are small."""
    entry = loader.entry(name)
    rows = [row for row in entry.workloads if not row.without and min(row_sizes(row)) > 1]
    for row in rows or entry.workloads:
        for by in (256, 64, 16, 8, 4, 2, 1):
            smaller = attrs.evolve(row, values={key: divided(value, by) for key, value in row.values.items()})
            try:
                found = next(cases(entry.checker, smaller))
                bind(entry.checker, found)
            except SignatureError:
                continue
            sizes = [math.prod(size.shape) for size in found.inputs.values() if size is not None]
            if sum(sizes) > ELEMENTS or max(sizes) < 64 or bool(entry.checker.writes(found.params)) != written:
                continue
            return found
    raise AssertionError(f"no row of {name} is a small call")


def row_sizes(row: Workload) -> Iterator[int]:
    yield 2
    for value in row.values.values():
        yield from (size for size in (value if isinstance(value, (list, tuple)) else [value]) if type(size) is int)


def divided(value: Any, by: int) -> Any:
    if isinstance(value, (list, tuple)):
        return [divided(item, by) for item in value]
    return max(value // by, 2) if type(value) is int and value > 1 else value


def kinds() -> list[tuple[str, bool]]:
    """Every op, twice where its params decide whether it writes its inputs."""
    found = []
    for name in sorted(op_names()):
        mutated = [item.mutated for item in loader.entry(name).signature.inputs.values()]
        if any(item is True for item in mutated):
            found.append((name, True))
        elif any(mutated):
            found += [(name, False), (name, True)]
        else:
            found.append((name, False))
    return found


@pytest.fixture(params=kinds(), ids=lambda kind: f"{kind[0]}-writes" if kind[1] else kind[0])
def sample(request, target, device) -> Sample:
    """A small call of each op; skips where the in-tree kernels are asked for and there are none."""
    name, written = request.param
    if target is BUILTIN and not has_kernels(name):
        pytest.skip(f"{name} has no in-tree kernel yet: name a target, --tileops-target=...")
    return Sample(name, small_case(name, written), target, device)


def has_kernels(name: str) -> bool:
    parts = [step.op for step in loader.entry(name).composition]
    return all(has_kernels(part) for part in parts) if parts else bool(op_class(name).implementations())
