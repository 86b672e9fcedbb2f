"""The memory-bound ops for the scripts in this folder: inputs, float64 references, what one calls in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import frozen

from tileops.kernels import elementwise, norm, reduction, rope

Tensors = list[torch.Tensor | None]


@frozen
class Operation:
    """Describes one kernel interface to a script."""

    family: str
    op: str
    implementations: Mapping[str, Any]
    facts: Callable[[dict[str, Any]], dict[str, Any]]
    """From a workload of the manifest and one of its dtypes to the facts of a call."""
    inputs: Callable[[Any], Tensors]
    """From a call to fresh random arguments of forward."""
    reference: Callable[[Any, Tensors], list[torch.Tensor]]
    """From a call and arguments to what forward returns and then what it writes, in float64."""
    torch_call: Callable[[Any, Tensors], Any]
    moved: Callable[[Any], int]
    """From a call to the bytes it has to move."""
    written: tuple[int, ...] = ()
    """Places of the arguments that forward writes."""
    applies: Callable[[dict[str, Any]], bool] = lambda row: True

    @property
    def call_class(self) -> Any:
        """Returns the class of its call specs."""
        return next(iter(self.implementations.values())).request

    def outputs(self, result: Any, arguments: Tensors) -> list[torch.Tensor]:
        """Returns what a call gave: results, then written arguments."""
        given = list(result) if isinstance(result, tuple) else [result]
        return given + [arguments[place] for place in self.written]


def randn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns random values on the current CUDA device."""
    return torch.randn(shape, device="cuda", dtype=dtype)


def dtype_of(row: dict[str, Any], name: str = "T") -> torch.dtype:
    """Returns a dtype of a workload's case."""
    return getattr(torch, row[name])


def there(row: dict[str, Any], name: str) -> bool:
    """Says whether a workload gives an optional input."""
    return name not in row.get("without", ())


def normalised(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts that normalisations of rows share."""
    return {
        "rows": math.prod(row["B"]),
        "length": math.prod(row["normalized_shape"]),
        "dtype": dtype_of(row),
        "weighted": there(row, "weight"),
        "eps": float(row.get("eps", 1e-5)),
    }


def rows_input(call: Any, biased: bool = False) -> Tensors:
    """Returns x and parameters of rows; values off centre, so that a lost mean shows."""
    x = randn(call.rows, call.length, dtype=call.dtype) + 0.5
    weight = randn(call.length, dtype=call.dtype) if call.weighted else None
    if not biased:
        return [x, weight]
    return [x, weight, randn(call.length, dtype=call.dtype) if call.biased else None]


def doubles(tensors: Tensors) -> Tensors:
    """Returns the tensors in float64."""
    return [None if one is None else one.double() for one in tensors]


def rms_reference(call: Any, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """Returns an RMSNorm in float64."""
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + call.eps)
    return y if weight is None else y * weight


def fused_reference(call: Any, given: Tensors) -> list[torch.Tensor]:
    """Returns y and residual: y is the norm of the rounded sum."""
    x, residual, weight = given
    total = (x.float() + residual.float()).to(call.dtype).double()
    return [rms_reference(call, total, None if weight is None else weight.double()), total]


def group_facts(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts of a GroupNorm."""
    return {
        "batch": row["N"],
        "channels": row["C"],
        "groups": row["num_groups"],
        "spatial": math.prod(row["S"]),
        "dtype": dtype_of(row),
        "weighted": there(row, "weight"),
        "biased": there(row, "bias"),
        "eps": float(row.get("eps", 1e-5)),
    }


def channel_input(call: Any) -> Tensors:
    """Returns x [batch, channels, spatial] and parameters of a GroupNorm."""
    x = randn(call.batch, call.channels, call.spatial, dtype=call.dtype) + 0.5
    weight = randn(call.channels, dtype=call.dtype) if call.weighted else None
    return [x, weight, randn(call.channels, dtype=call.dtype) if call.biased else None]


def batch_facts(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts of a BatchNorm."""
    facts = {
        "batch": row["N"],
        "channels": row["C"],
        "spatial": math.prod(row["S"]),
        "dtype": dtype_of(row),
        "param_dtype": dtype_of(row, "P"),
        "weighted": there(row, "weight"),
        "biased": there(row, "bias"),
        "eps": float(row.get("eps", 1e-5)),
    }
    return facts | ({"momentum": float(row.get("momentum", 0.1))} if row.get("training") else {})


def batch_input(call: Any) -> Tensors:
    """Returns x, statistics and parameters of a BatchNorm."""
    x = randn(call.batch, call.channels, call.spatial, dtype=call.dtype) + 0.5
    mean, var = randn(call.channels, dtype=call.param_dtype), randn(call.channels, dtype=call.param_dtype).abs() + 0.5
    weight = randn(call.channels, dtype=call.param_dtype) if call.weighted else None
    return [x, mean, var, weight, randn(call.channels, dtype=call.param_dtype) if call.biased else None]


def batch_reference(call: Any, given: Tensors) -> list[torch.Tensor]:
    """Returns y, and in training the moved statistics."""
    x, mean, var, weight, bias = doubles(given)
    training = hasattr(call, "momentum")
    mean, var = mean.clone(), var.clone()
    y = torch.nn.functional.batch_norm(x, mean, var, weight, bias, training, getattr(call, "momentum", 0.0), call.eps)
    return [y, mean, var] if training else [y]


def batch_torch(call: Any, given: Tensors) -> Any:
    """Runs torch's BatchNorm; where dtypes are mixed in inference it is given what it takes."""
    training = hasattr(call, "momentum")
    return torch.nn.functional.batch_norm(*given, training, getattr(call, "momentum", 0.0), call.eps)


def along_facts(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts of a function along one dim."""
    shape, dim = row["S"], row.get("dim", -1) % len(row["S"])
    return {
        "outer": math.prod(shape[:dim]),
        "length": shape[dim],
        "inner": math.prod(shape[dim + 1 :]),
        "dtype": dtype_of(row),
    }


def along_input(call: Any) -> Tensors:
    """Returns x [outer, length, inner]."""
    return [randn(call.outer, call.length, call.inner, dtype=call.dtype)]


def softmax_reference(call: Any, given: Tensors) -> list[torch.Tensor]:
    """Returns torch's own in float64; by its formula where rows are longer than torch 2.11 takes."""
    wide = given[0].double()
    if call.length < 2**31:
        return [wide.softmax(1)]
    wide.sub_(wide.amax(1, keepdim=True)).exp_()
    return [wide.div_(wide.sum(1, keepdim=True))]


def silu_reference(call: Any, given: Tensors) -> list[torch.Tensor]:
    """Returns silu of the first half times the second."""
    gate, up = given[0].double().chunk(2, -1)
    return [torch.nn.functional.silu(gate) * up]


def silu_torch(call: Any, given: Tensors) -> torch.Tensor:
    """Runs what one writes in torch."""
    gate, up = given[0].chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def rope_facts(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts of a rotation."""
    return {
        "tokens": math.prod(row["B"]),
        "q_heads": row["HQ"],
        "k_heads": row["HK"],
        "head_dim": row["D"],
        "pairs": row["R"],
        "known": row["P"],
        "dtype": dtype_of(row),
        "position_dtype": dtype_of(row, "I"),
        "angle_dtype": dtype_of(row, "A"),
        "interleaved": row.get("interleaved", False),
        "check_positions": row.get("check_positions", True),
    }


def rope_input(call: Any) -> Tensors:
    """Returns q, k, positions and cos_sin; unchecked, a tenth of the positions lie outside."""
    high = call.known if call.check_positions else call.known + call.known // 10 + 1
    positions = torch.randint(0, high, (call.tokens,), device="cuda", dtype=call.position_dtype)
    if not call.check_positions:
        positions[::7] -= call.known // 10 + 1
    angles = torch.rand(call.known, call.pairs, device="cuda") * 6.3
    table = torch.cat([angles.cos(), angles.sin()], -1).to(call.angle_dtype)
    heads = [randn(call.tokens, count, call.head_dim, dtype=call.dtype) for count in (call.q_heads, call.k_heads)]
    return [*heads, positions, table]


def rope_reference(call: Any, given: Tensors, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Returns the rotated heads, NaN where a position lies outside."""
    q, k, positions, table = given
    inside = (positions >= 0) & (positions < call.known)
    cos, sin = table.to(dtype)[torch.where(inside, positions, 0).long()][:, None].chunk(2, -1)
    rotated = []
    for x in (q, k):
        y = x.to(dtype).clone()
        part = y[..., : 2 * call.pairs]
        a, b = (part[..., ::2], part[..., 1::2]) if call.interleaved else part.chunk(2, -1)
        first, second = a * cos - b * sin, b * cos + a * sin
        turned = torch.stack([first, second], -1).flatten(-2) if call.interleaved else torch.cat([first, second], -1)
        y[..., : 2 * call.pairs] = turned
        if not call.check_positions:
            y[~inside] = math.nan
        rotated.append(y)
    return rotated


def row_bytes(times: int) -> Callable[[Any], int]:
    """Returns the bytes of so many passes over x."""
    return lambda call: times * call.rows * call.length * call.dtype.itemsize


def channel_bytes(call: Any) -> int:
    """Returns the bytes of x and y of a norm of channels."""
    return 2 * call.batch * call.channels * call.spatial * call.dtype.itemsize


F = torch.nn.functional
OPERATIONS = {
    "rms_norm": Operation(
        "norm",
        "RMSNormFwdOp",
        norm.RMS_NORM_IMPLEMENTATIONS,
        normalised,
        rows_input,
        lambda call, given: [rms_reference(call, *doubles(given))],
        lambda call, given: F.rms_norm(given[0], (call.length,), given[1], call.eps),
        row_bytes(2),
    ),
    "softmax": Operation(
        "reduction",
        "SoftmaxFwdOp",
        reduction.SOFTMAX_IMPLEMENTATIONS,
        along_facts,
        along_input,
        softmax_reference,
        lambda call, given: given[0].softmax(1),
        row_bytes(2),
    ),
    "silu_and_mul": Operation(
        "elementwise",
        "SiLUAndMulFwdOp",
        elementwise.SILU_AND_MUL_IMPLEMENTATIONS,
        lambda row: {"rows": math.prod(row["B"]), "length": row["H"], "dtype": dtype_of(row)},
        lambda call: [randn(call.rows, 2 * call.length, dtype=call.dtype)],
        silu_reference,
        silu_torch,
        row_bytes(3),
    ),
    "fused_add_rms_norm": Operation(
        "norm",
        "FusedAddRMSNormFwdOp",
        norm.FUSED_ADD_RMS_NORM_IMPLEMENTATIONS,
        normalised,
        lambda call: [rows_input(call)[0], *rows_input(call)],
        fused_reference,
        lambda call, given: F.rms_norm(given[1].add_(given[0]), (call.length,), given[2], call.eps),
        row_bytes(4),
        written=(1,),
    ),
    "layer_norm": Operation(
        "norm",
        "LayerNormFwdOp",
        norm.LAYER_NORM_IMPLEMENTATIONS,
        lambda row: normalised(row) | {"biased": there(row, "bias")},
        lambda call: rows_input(call, True),
        lambda call, given: [F.layer_norm(*doubles(given)[:1], (call.length,), *doubles(given)[1:], call.eps)],
        lambda call, given: F.layer_norm(given[0], (call.length,), given[1], given[2], call.eps),
        row_bytes(2),
    ),
    "rope": Operation(
        "rope",
        "RoPEFwdOp",
        rope.ROPE_IMPLEMENTATIONS,
        rope_facts,
        rope_input,
        rope_reference,
        lambda call, given: rope_reference(call.replace(check_positions=True), given, call.dtype),
        lambda call: 2 * call.tokens * (call.q_heads + call.k_heads) * call.head_dim * call.dtype.itemsize,
    ),
    "group_norm": Operation(
        "norm",
        "GroupNormFwdOp",
        norm.GROUP_NORM_IMPLEMENTATIONS,
        group_facts,
        channel_input,
        lambda call, given: [F.group_norm(*doubles(given)[:1], call.groups, *doubles(given)[1:], call.eps)],
        lambda call, given: F.group_norm(given[0], call.groups, given[1], given[2], call.eps),
        channel_bytes,
    ),
    "batch_norm_train": Operation(
        "norm",
        "BatchNormFwdOp",
        norm.BATCH_NORM_TRAIN_IMPLEMENTATIONS,
        batch_facts,
        batch_input,
        batch_reference,
        batch_torch,
        channel_bytes,
        written=(1, 2),
        applies=lambda row: row.get("training", False),
    ),
    "batch_norm_infer": Operation(
        "norm",
        "BatchNormFwdOp",
        norm.BATCH_NORM_INFER_IMPLEMENTATIONS,
        batch_facts,
        batch_input,
        batch_reference,
        batch_torch,
        channel_bytes,
        applies=lambda row: not row.get("training", False),
    ),
    "cumsum": Operation(
        "reduction",
        "CumsumFwdOp",
        reduction.CUMSUM_IMPLEMENTATIONS,
        along_facts,
        along_input,
        lambda call, given: [given[0].double().cumsum(1)],
        lambda call, given: given[0].cumsum(1),
        row_bytes(2),
    ),
}
