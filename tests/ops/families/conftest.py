"""Calls of any op from its manifest entry: inputs of every layout, run and held against the float64 reference."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
import torch

from tileops.backend import BUILTIN, Target
from tileops.catalog import op_class
from tileops.manifest import loader
from tileops.manifest.schema import TensorShape, Workload
from tileops.manifest.workload import Case, bind, cases
from tileops.op import Op
from tileops.rules.errors import SignatureError

# What a test spends on a CPU: elements of all its tensors, and operations.
CPU_ELEMENTS, CPU_FLOPS = 2**20, 2**27

LAYOUTS = ("packed", "transposed", "sliced", "expanded", "misaligned")


def _load(name: str) -> ModuleType:
    """Load a module that lies beside the tests: pytest's importlib mode puts none on the path."""
    path = Path(__file__).parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tileops_tests_{name}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def references() -> ModuleType:
    return _load("references")


def values_of(op: str, name: str, sizes: Mapping[str, TensorShape | None], make: torch.Generator) -> torch.Tensor:
    """Values for an input such that the op's outputs are near 1, and sums of a few of them are exact."""
    dtype, shape = sizes[name]
    if name == "positions":
        known = sizes["cos_sin"].shape[0]
        return torch.randint(0, known, shape, generator=make, device=make.device, dtype=dtype)
    x = torch.randn(shape, generator=make, device=make.device, dtype=torch.float32)
    if name == "cos_sin":
        half = x[..., : shape[-1] // 2]
        return torch.cat([half.cos(), half.sin()], dim=-1)
    if name == "running_var":
        return x.abs() + 0.5
    if op in ("GemmFwdOp", "GatedMLPFwdOp") and name in ("b", "w_gate_up", "w_down"):
        # Half of 1 in the second product: its operand is rounded, and so is what that was made of.
        return x / math.sqrt(max(shape[-1], 1)) / (2 if name == "w_down" else 1)
    x = (x * 64).round() / 64
    if op == "CumsumFwdOp":
        return x / 2 ** (round(math.log2(max([1, *shape]))) // 2)
    return x * 3 if op == "SoftmaxFwdOp" else x


def laid_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The values in a tensor of another layout, within memory of its own; ``expanded`` repeats the first of a dim."""
    if layout == "transposed" and values.dim() >= 2:
        return values.permute(*reversed(range(values.dim()))).contiguous().permute(*reversed(range(values.dim())))
    if layout == "sliced" and values.dim() >= 1:
        wide = torch.full((*values.shape[:-1], 2 * values.shape[-1] + 1), 7, dtype=values.dtype, device=values.device)
        wide[..., 1::2] = values
        return wide[..., 1::2]
    if layout == "expanded" and values.dim() >= 1 and values.shape[0] > 0:
        return values[:1].expand(values.shape)
    if layout == "misaligned":
        held = torch.empty(values.numel() + 1, dtype=values.dtype, device=values.device)
        held[1:] = values.flatten()
        return held[1:].view(values.shape)
    return values.contiguous()


@attrs.frozen
class Calls:
    """Makes and checks calls for a run's target and device."""

    target: Target
    device: torch.device
    check: Callable[[Any, Any, Any], None]
    reference: Callable[..., Any]

    def small(self, op: str, label: str) -> Case:
        """A workload case; on the CPU its largest dims halved until it fits the budget."""
        entry = loader.entry(op)
        row_label, _, dtypes = label.partition("/")
        row = entry.workload(row_label)
        row = attrs.evolve(row, dtypes=tuple(case for case in row.dtypes if names(case) == dtypes))
        while self.device.type == "cpu" and _costs(op, row):
            smaller = next((one for one in _halved(op, row) if one is not None), None)
            assert smaller is not None, f"{op} {label} cannot be made small enough for a CPU"
            row = smaller
        (case,) = cases(entry.checker, row)
        return case

    def inputs(self, op: str, case: Case, seed: int = 0, layouts: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Tensors for a case; ``layouts`` says how each lies, packed where it does not."""
        make = torch.Generator(self.device).manual_seed(seed)
        made: dict[str, Any] = {}
        for name, size in case.inputs.items():
            if size is None:
                made[name] = None
                continue
            values = values_of(op, name, case.inputs, make).to(size.dtype)
            made[name] = laid_out(values, (layouts or {}).get(name, "packed"))
        return made

    def run(self, op: str, params: Mapping[str, Any], inputs: Mapping[str, Any], instance: Op | None = None) -> Op:
        """Call an op and hold what it returns, what it writes and what it leaves alone against the reference.

        Skips where the in-tree kernels are asked for, and the op has none.
        """
        if self.target is BUILTIN and not has_kernels(op):
            pytest.skip(f"{op} has no in-tree kernel yet: name a target, --tileops-target=...")
        made = op_class(op)(**params, target=self.target) if instance is None else instance
        params = made.params
        expected = self.reference(op, params, inputs)
        before = {name: None if tensor is None else tensor.clone() for name, tensor in inputs.items()}
        entry = type(made).entry
        keyword = [name for name, item in entry.signature.inputs.items() if item.keyword_only]
        outputs = made(
            *(inputs[name] for name in inputs if name not in keyword), **{name: inputs[name] for name in keyword}
        )
        self.check(made, outputs, expected.outputs)
        for name, tensor in inputs.items():
            if tensor is None:
                continue
            if name in expected.written:
                self.check(made, tensor, expected.written[name])
            else:
                assert torch.equal(tensor, before[name]), f"{op} wrote {name}"
        assert set(expected.written) == set(entry.checker.writes(params))
        assert made.serving_target == self.target
        sizes = entry.checker.outputs(entry.checker.call(params, tuple(inputs.values())))
        for output, size in zip(outputs if isinstance(outputs, tuple) else (outputs,), sizes, strict=True):
            assert (output.dtype, tuple(output.shape)) == (size.dtype, size.shape)
            assert output.is_contiguous()
            assert output.device.type == self.device.type
        return made


def has_kernels(op: str) -> bool:
    """Whether an op, or each part of a composite, has an in-tree implementation."""
    parts = [step.op for step in loader.entry(op).composition]
    return all(has_kernels(part) for part in parts) if parts else bool(op_class(op).implementations())


def names(case: Mapping[str, torch.dtype]) -> str:
    """A case's dtypes as its label has them."""
    return "-".join(str(dtype).removeprefix("torch.") for dtype in case.values())


def _costs(op: str, row: Workload) -> bool:
    """Whether a row's calls cost more than a CPU test spends."""
    checker = loader.entry(op).checker
    for case in cases(checker, row):
        binding = bind(checker, case)
        outputs = [size.shape for size in checker.outputs(binding)]
        elements = sum(math.prod(shape) for shape in [*outputs, *(size.shape for size in case.inputs.values() if size)])
        if elements > CPU_ELEMENTS or checker.roofline(binding)[0] > CPU_FLOPS:
            return True
    return False


def _halved(op: str, row: Workload):
    """The row with one dim halved, largest first, params last; None for one that is no call then."""
    entry = loader.entry(op)
    signature = entry.signature
    places = []
    for name, value in row.values.items():
        late = name in signature.params
        if type(value) is int and not late:
            places.append((late, -value, name, None))
        elif isinstance(value, list | tuple):
            places += [(late, -size, name, at) for at, size in enumerate(value)]
    for _, size, name, at in sorted(places, key=lambda place: (place[0], place[1])):
        if size > -2:
            continue
        half = (1 - size) // 2
        value = half if at is None else [*row.values[name][:at], half, *row.values[name][at + 1 :]]
        smaller = attrs.evolve(row, values={**row.values, name: value})
        try:
            for case in cases(entry.checker, smaller):
                bind(entry.checker, case)
        except SignatureError:
            yield None
        else:
            yield smaller


@pytest.fixture
def calls(target, device, check, references) -> Calls:
    return Calls(target, device, check, references.reference)
