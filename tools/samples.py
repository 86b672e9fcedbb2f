"""Samples: tensors for the calls that workload rows stand for, with values that the op's calls really have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from tileops.backend import TensorSpec
from tileops.manifest.schema import Signature, TensorShape
from tileops.manifest.workload import Case
from tileops.rules.errors import BackendError

Tensors = dict[str, torch.Tensor | None]
Maker = Callable[[Case, TensorShape, torch.device], torch.Tensor]


def _normal(case: Case, size: TensorShape, device: torch.device) -> torch.Tensor:
    return torch.randn(size.shape, dtype=size.dtype, device=device)


def _off_centre(case: Case, size: TensorShape, device: torch.device) -> torch.Tensor:
    """Values whose mean is not 0: a norm that loses the mean shows."""
    return _normal(case, size, device).add_(0.5)


def _weight(case: Case, size: TensorShape, device: torch.device) -> torch.Tensor:
    """A matrix that keeps the size of what it multiplies: products of products stay inside float16."""
    return _normal(case, size, device).mul_(size.shape[-1] ** -0.5)


def _variance(case: Case, size: TensorShape, device: torch.device) -> torch.Tensor:
    return _normal(case, size, device).abs_().add_(0.5)


def _positions(case: Case, size: TensorShape, device: torch.device) -> torch.Tensor:
    table = case.inputs["cos_sin"]
    assert table is not None, "RoPE's table of angles is no optional input"
    return torch.randint(0, table.shape[0], size.shape, dtype=size.dtype, device=device)


def _angles(case: Case, size: TensorShape, device: torch.device) -> torch.Tensor:
    angles = torch.rand(size.shape[0], size.shape[1] // 2, device=device).mul_(2 * math.pi)
    return torch.cat([angles.cos(), angles.sin()], dim=-1).to(size.dtype)


_MAKERS: Final[Mapping[tuple[str, str], Maker]] = {
    **{(f"{norm}NormFwdOp", "x"): _off_centre for norm in ("RMS", "Layer", "Group", "Batch", "FusedAddRMS")},
    ("BatchNormFwdOp", "running_var"): _variance,
    ("GatedMLPFwdOp", "w_gate_up"): _weight,
    ("GatedMLPFwdOp", "w_down"): _weight,
    ("RoPEFwdOp", "positions"): _positions,
    ("RoPEFwdOp", "cos_sin"): _angles,
}


def make(op: str, signature: Signature, case: Case, device: torch.device) -> Tensors:
    """Return fresh random tensors for a case, by input; raises BackendError for an integer input of no known range."""
    made: Tensors = {}
    for name, size in case.inputs.items():
        if size is None:
            made[name] = None
            continue
        maker = _MAKERS.get((op, name), _normal)
        if maker is _normal and not size.dtype.is_floating_point:
            raise BackendError(f"{op}: nobody said what values {name} takes; add it to tools/samples.py")
        made[name] = maker(case, size, _place(signature, name, device))
    return made


def specs(signature: Signature, case: Case, device: torch.device) -> dict[str, TensorSpec | None]:
    """Return a description of each tensor of a case."""
    return {
        name: None if size is None else TensorSpec(_place(signature, name, device), size.dtype, size.shape)
        for name, size in case.inputs.items()
    }


def blank(signature: Signature, case: Case, device: torch.device) -> Tensors:
    """Return tensors for a case with whatever values, for questions that read none."""
    return {
        name: None if spec is None else torch.empty(spec.shape, dtype=spec.dtype, device=spec.device)
        for name, spec in specs(signature, case, device).items()
    }


def copied(tensors: Mapping[str, torch.Tensor | None]) -> Tensors:
    """Return copies, to be written."""
    return {name: None if tensor is None else tensor.clone() for name, tensor in tensors.items()}


def wide(tensors: Mapping[str, torch.Tensor | None]) -> Tensors:
    """Return float64 copies; integers as they are."""
    return {
        name: tensor if tensor is None or not tensor.is_floating_point() else tensor.to(torch.float64, copy=True)
        for name, tensor in tensors.items()
    }


def shapes(case: Case) -> str:
    """Write the shapes of a case: ``a=1x4096 b=4096x4096``."""
    return " ".join(
        f"{name}={'x'.join(map(str, size.shape)) or 'scalar'}" for name, size in case.inputs.items() if size is not None
    )


def dtypes(case: Case) -> str:
    """Write the dtypes of a case: ``bfloat16``, ``float16-int64-float16``."""
    return "-".join(str(dtype).removeprefix("torch.") for dtype in case.case.values())


def _place(signature: Signature, name: str, device: torch.device) -> torch.device:
    return device if signature.inputs[name].device is None else torch.device("cpu")


def outputs(result: Any) -> list[torch.Tensor]:
    """Return what a call gave as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]
