"""BatchNorm by the running statistics: y = (x - mean) / sqrt(var + eps) * weight + bias, all but x one a channel.

x [batch, channels * spatial] goes by in accesses of a thread; the channels' numbers stay in the L1 cache.
2 * itemsize bytes and two to four operations an element, by what there is of weight and bias.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.norm.channels import ChannelForm
from tileops.kernels.rows import Share


def program(form: ChannelForm, share: Share, blocks: int | None) -> Any:
    """Builds the program (x, running_mean, running_var, weight, bias, y); what is not there takes running_mean.

    ``blocks``: that many blocks walk all there is, with 64-bit indices; None: as many as it takes.
    """
    channels, spatial, dtype, param_dtype = form.channels, form.spatial, form.dtype, form.param_dtype
    threads, turns, width = share.lanes, share.turns, share.width
    length = channels * spatial
    piece = length // width
    slice_ = threads * turns
    batch = T.dynamic("batch", "int64" if blocks else "int32")
    one_channel = spatial % width == 0
    # An access has at most 16 bytes: parameters in float32 take two for what x has in one.
    param_width = min(width, 4) if param_dtype == "float32" else width

    @T.macro
    def parameter(source: Any, into: Any, column: Any) -> None:
        if one_channel:
            into[0] = T.cast(source[column // spatial], "float32")
        elif spatial == 1:
            part = T.alloc_local((param_width,), param_dtype)
            for chunk in T.unroll(width // param_width):
                for i in T.vectorized(param_width):
                    part[i] = source[column + chunk * param_width + i]
                for i in T.vectorized(param_width):
                    into[chunk * param_width + i] = T.cast(part[i], "float32")
        else:
            for i in T.unroll(width):
                into[i] = T.cast(source[(column + i) // spatial], "float32")

    @T.macro
    def work(x: Any, mean: Any, var: Any, weight: Any, bias: Any, y: Any, start: Any, thread: Any) -> None:
        kept = T.alloc_local((turns, width), dtype)
        wide = T.alloc_local((width,), "float32")
        first = T.alloc_local((1 if one_channel else width,), "float32")
        second = T.alloc_local((1 if one_channel else width,), "float32")
        for t in T.unroll(turns):
            access = start + t * threads + thread
            if access < batch * piece:
                for i in T.vectorized(width):
                    kept[t, i] = x[access // piece, access % piece * width + i]
        for t in T.unroll(turns):
            access = start + t * threads + thread
            if access < batch * piece:
                column = access % piece * width
                for i in T.vectorized(width):
                    wide[i] = T.cast(kept[t, i], "float32")
                parameter(mean, first, column)
                parameter(var, second, column)
                for i in T.unroll(1 if one_channel else width):
                    second[i] = T.rsqrt(second[i] + form.eps)
                for i in T.unroll(width):
                    wide[i] = (wide[i] - first[0 if one_channel else i]) * second[0 if one_channel else i]
                if form.weighted:
                    parameter(weight, first, column)
                    for i in T.unroll(width):
                        wide[i] = wide[i] * first[0 if one_channel else i]
                if form.biased:
                    parameter(bias, first, column)
                    for i in T.unroll(width):
                        wide[i] = wide[i] + first[0 if one_channel else i]
                for i in T.vectorized(width):
                    kept[t, i] = T.cast(wide[i], dtype)
                for i in T.vectorized(width):
                    y[access // piece, column + i] = kept[t, i]

    @T.prim_func
    def main(
        x: T.Tensor((batch, length), dtype),
        running_mean: T.Tensor((channels,), param_dtype),
        running_var: T.Tensor((channels,), param_dtype),
        weight: T.Tensor((channels,), param_dtype),
        bias: T.Tensor((channels,), param_dtype),
        y: T.Tensor((batch, length), dtype),
    ):
        with T.Kernel(blocks if blocks else T.ceildiv(batch * piece, slice_), threads=threads) as block:
            thread = T.get_thread_binding()
            if blocks:
                for turn in T.serial((batch * piece + blocks * slice_ - 1) // (blocks * slice_)):
                    start = (turn * blocks + block) * slice_
                    work(x, running_mean, running_var, weight, bias, y, start, thread)
            else:
                work(x, running_mean, running_var, weight, bias, y, block * slice_, thread)

    return main
