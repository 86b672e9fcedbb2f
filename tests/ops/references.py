"""Executable references: what each op means, in plain torch.

``reference`` computes a call in float64 through the function that the op's manifest entry names as its ``ref_api``.
Where torch has no such function the entry names one of those below. They take tensors of any float dtype.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import attrs
import torch

from tileops.manifest import loader

#: Where eps is left out: the machine epsilon of float32, in which torch norms 16-bit and 32-bit inputs.
EPS = torch.finfo(torch.float32).eps


def fused_add_rms_norm(x, residual, normalized_shape, weight=None, eps=EPS):
    """Return y, and what residual becomes."""
    total = x + residual
    return torch.nn.functional.rms_norm(total, normalized_shape, weight, eps), total


def silu_and_mul(x):
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def gated_mlp(x, w_gate_up, w_down):
    return silu_and_mul(x @ w_gate_up.mT) @ w_down.mT


def rope(q, k, positions, cos_sin, interleaved=False):
    """Return q and k, each pair (a, b) of a head as the complex number a + ib turned by its position's angle."""
    inside = (positions >= 0) & (positions < len(cos_sin))
    cos, sin = cos_sin[torch.where(inside, positions, 0).long()].chunk(2, dim=-1)
    turn = torch.complex(cos, sin).unsqueeze(-2)
    pairs = cos.shape[-1]

    def rotate(x):
        head, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        if interleaved:
            a, b = head[..., ::2], head[..., 1::2]
        else:
            a, b = head[..., :pairs], head[..., pairs:]
        turned = torch.view_as_real(torch.complex(a, b) * turn)  # [..., pairs, 2]
        turned = turned if interleaved else turned.mT
        y = torch.cat([turned.flatten(-2), rest], dim=-1)
        return torch.where(inside[..., None, None], y, torch.nan)

    return rotate(q), rotate(k)


@attrs.frozen
class Expected:
    """What a call returns, and what it writes into its inputs, by input name."""

    outputs: Any
    written: Mapping[str, torch.Tensor] = attrs.field(factory=dict)


Inputs = Mapping[str, torch.Tensor | None]


def reference(op: str, params: Mapping[str, Any], inputs: Inputs) -> Expected:
    """Compute a call of an op in float64 from its inputs as they are. Writes none of them."""
    function = api(loader.entry(op).ref_api)
    return _CALLS[op](function, {name: _wide(tensor) for name, tensor in inputs.items()}, params)


def api(name: str) -> Callable[..., Any]:
    """Return the function that a manifest entry names: one of torch, or one of this file."""
    here, _, own = name.rpartition(".")
    if here == "tests.ops.references":
        return getattr(sys.modules[__name__], own)
    module, _, attribute = name.partition(".")
    return reduce(getattr, attribute.split("."), importlib.import_module(module))


def _wide(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A float64 copy; integers as they are."""
    return tensor if tensor is None or not tensor.is_floating_point() else tensor.to(torch.float64, copy=True)


def _gemm(function, i, p):
    return Expected(function(i["a"].mT if p["trans_a"] else i["a"], i["b"].mT if p["trans_b"] else i["b"]))


def _rms_norm(function, i, p):
    return Expected(function(i["x"], tuple(p["normalized_shape"]), i["weight"], EPS if p["eps"] is None else p["eps"]))


def _fused_add(function, i, p):
    eps = EPS if p["eps"] is None else p["eps"]
    y, total = function(i["x"], i["residual"], tuple(p["normalized_shape"]), i["weight"], eps)
    return Expected(y, {"residual": total})


def _batch_norm(function, i, p):
    if i["x"].numel() == 0:  # of nothing come no statistics; torch fails where there is no channel
        return Expected(i["x"], {name: i[name] for name in ("running_mean", "running_var") if p["training"]})
    y = function(*i.values(), p["training"], p["momentum"], p["eps"])  # moves the float64 copies
    written = ("running_mean", "running_var") if p["training"] else ()
    return Expected(y, {name: i[name] for name in written})


_CALLS: Mapping[str, Callable[[Callable[..., Any], Any, Any], Expected]] = {
    "GemmFwdOp": _gemm,
    "RMSNormFwdOp": _rms_norm,
    "LayerNormFwdOp": lambda f, i, p: Expected(
        f(i["x"], tuple(p["normalized_shape"]), i["weight"], i["bias"], p["eps"])
    ),
    "GroupNormFwdOp": lambda f, i, p: Expected(f(i["x"], p["num_groups"], i["weight"], i["bias"], p["eps"])),
    "BatchNormFwdOp": _batch_norm,
    "FusedAddRMSNormFwdOp": _fused_add,
    "SoftmaxFwdOp": lambda f, i, p: Expected(f(i["x"], p["dim"])),
    "CumsumFwdOp": lambda f, i, p: Expected(f(i["x"], p["dim"])),
    "SiLUAndMulFwdOp": lambda f, i, p: Expected(f(i["x"])),
    "RoPEFwdOp": lambda f, i, p: Expected(f(i["q"], i["k"], i["positions"], i["cos_sin"], p["interleaved"])),
    "GatedMLPFwdOp": lambda f, i, p: Expected(f(i["x"], i["w_gate_up"], i["w_down"])),
}
