"""Baselines: what one calls in torch in place of an op. In float64 the same function is the op's reference."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import torch

from tileops.rules.errors import BackendError
from tileops.tools.samples import Tensors
from tileops.tools.usage import UsageError

F = torch.nn.functional
EPS: Final = torch.finfo(torch.float32).eps  # what torch norms 16-bit and 32-bit inputs with where eps is left out

Role: TypeAlias = Literal["selected", "preferred"]
Params = Mapping[str, Any]
Eager = Callable[[Tensors, Params], Any]


def _gemm(t: Any, p: Params) -> Any:
    return torch.matmul(t["a"].mT if p["trans_a"] else t["a"], t["b"].mT if p["trans_b"] else t["b"])


def _eps(p: Params) -> float:
    return EPS if p["eps"] is None else float(p["eps"])


def _rms_norm(t: Any, p: Params) -> Any:
    return F.rms_norm(t["x"], tuple(p["normalized_shape"]), t["weight"], _eps(p))


def _fused_add_rms_norm(t: Any, p: Params) -> Any:
    return F.rms_norm(t["residual"].add_(t["x"]), tuple(p["normalized_shape"]), t["weight"], _eps(p))


def _layer_norm(t: Any, p: Params) -> Any:
    return F.layer_norm(t["x"], tuple(p["normalized_shape"]), t["weight"], t["bias"], p["eps"])


def _group_norm(t: Any, p: Params) -> Any:
    return F.group_norm(t["x"], p["num_groups"], t["weight"], t["bias"], p["eps"])


def _batch_norm(t: Any, p: Params) -> Any:
    statistics = t["running_mean"], t["running_var"]
    return F.batch_norm(t["x"], *statistics, t["weight"], t["bias"], p["training"], p["momentum"], p["eps"])


def _softmax(t: Any, p: Params) -> Any:
    return F.softmax(t["x"], p["dim"])


def _cumsum(t: Any, p: Params) -> Any:
    return torch.cumsum(t["x"], p["dim"])


def _silu_and_mul(t: Any, p: Params) -> Any:
    gate, up = t["x"].chunk(2, dim=-1)
    return F.silu(gate) * up


def _gated_mlp(t: Any, p: Params) -> Any:
    gate, up = (t["x"] @ t["w_gate_up"].mT).chunk(2, dim=-1)
    return (F.silu(gate) * up) @ t["w_down"].mT


def _rope(t: Any, p: Params) -> Any:
    """Rotate in the dtype of the angles and round once, as models written in torch do."""
    cos, sin = t["cos_sin"][t["positions"].long()].unsqueeze(-2).chunk(2, dim=-1)
    turned = []
    for x in (t["q"], t["k"]):
        head, rest = x.split([2 * cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]], dim=-1)
        a, b = (head[..., ::2], head[..., 1::2]) if p["interleaved"] else head.chunk(2, dim=-1)
        pair = (a * cos - b * sin, b * cos + a * sin)
        y = torch.stack(pair, dim=-1).flatten(-2) if p["interleaved"] else torch.cat(pair, dim=-1)
        turned.append(torch.cat([y.to(x.dtype), rest], dim=-1))
    return tuple(turned)


EAGER: Final[Mapping[str, Eager]] = {
    "GemmFwdOp": _gemm,
    "RMSNormFwdOp": _rms_norm,
    "FusedAddRMSNormFwdOp": _fused_add_rms_norm,
    "LayerNormFwdOp": _layer_norm,
    "GroupNormFwdOp": _group_norm,
    "BatchNormFwdOp": _batch_norm,
    "SoftmaxFwdOp": _softmax,
    "CumsumFwdOp": _cumsum,
    "SiLUAndMulFwdOp": _silu_and_mul,
    "RoPEFwdOp": _rope,
    "GatedMLPFwdOp": _gated_mlp,
}


def eager(op: str) -> Eager:
    """Return the function of torch that means what an op means; raises BackendError where nobody wrote it down."""
    if op not in EAGER:
        raise BackendError(f"{op} has no function of torch to be compared with: add it to tools/baselines.py")
    return EAGER[op]


@attrs.frozen
class Baseline:
    """Is one thing to compare with.

    ``ready`` makes the function to be timed of an op's eager one; ``missing`` says why the library cannot run on a
    device type, or returns None. ``ops`` are the ops that it is for, None for all.
    """

    name: str
    role: Role
    ready: Callable[[Eager], Eager]
    missing: Callable[[str], str | None]
    ops: frozenset[str] | None = None

    def serves(self, op: str) -> bool:
        """Say whether it is for an op."""
        return self.ops is None or op in self.ops


def _as_is(function: Eager) -> Eager:
    return function


def _compiled(function: Eager) -> Eager:
    torch.compiler.reset()  # each call of a run is compiled for its own shape, and none for a shape in between
    compiled: Eager = torch.compile(function, dynamic=False)
    return compiled


def _no_cublas(device: str) -> str | None:
    if device != "cuda":
        return f"cuBLAS runs on CUDA only, and this run is on {device}"
    return None if torch.version.cuda else "this torch is built without CUDA, so without cuBLAS"


def _no_triton(device: str) -> str | None:
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        return "triton is not installed, and torch.compile needs it on CUDA"
    return None


PRODUCTS: Final = frozenset({"GemmFwdOp"})
BASELINES: Final = (
    # Of a matrix product torch's eager call is cuBLAS's; it is measured once, under the library's name.
    Baseline("cublas", "selected", _as_is, _no_cublas, PRODUCTS),
    Baseline("torch", "selected", _as_is, lambda device: None, frozenset(EAGER) - PRODUCTS),
    # A compiled matrix product is a call of cuBLAS again.
    Baseline("compile", "preferred", _compiled, _no_triton, frozenset(EAGER) - PRODUCTS),
)


def roles(selected: Iterable[str] | None) -> tuple[Baseline, ...]:
    """Return the baselines, those named selected and all others preferred; as declared where none is named.

    Raises UsageError for an unknown name.
    """
    if selected is None:
        return BASELINES
    names = set(selected)
    unknown = names - {one.name for one in BASELINES}
    if unknown:
        known = ", ".join(one.name for one in BASELINES)
        raise UsageError(f"there is no baseline {', '.join(sorted(unknown))}; baselines: {known}")
    return tuple(attrs.evolve(one, role="selected" if one.name in names else "preferred") for one in BASELINES)
