"""BatchNorm in training of x [batch, channels]: a thread works on one access of side-by-side channels.

Threads (lanes, depth): ``depth`` levels share the samples of a channel. x is read twice, the second time mostly from
the L2 cache; means and squares are merged by Chan's formula. 2 to 3 * itemsize bytes an element.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.columns import ColumnShare
from tileops.kernels.norm.runs import RunForm


def program(form: RunForm, share: ColumnShare) -> Any:
    """Builds the program (x, running_mean, running_var, weight, bias, y); what is not there takes running_mean."""
    channels, dtype, param_dtype, momentum = form.runs, form.dtype, form.param_dtype, form.momentum
    lanes, depth, turns, width = share.lanes, share.depth, share.turns, share.width
    pieces = channels // width
    batch = T.dynamic("batch")

    def vector() -> Any:
        return T.Tensor((channels,), param_dtype)

    @T.macro
    def over_levels(values: Any, lane: Any, level: Any) -> None:
        scratch = T.alloc_shared((depth, width, lanes), "float32")
        for i in T.unroll(width):
            scratch[level, i, lane] = values[i]
        T.sync_threads()
        for halving in T.unroll(depth.bit_length() - 1):
            half = depth >> (halving + 1)
            if level < half:
                for i in T.unroll(width):
                    scratch[level, i, lane] = scratch[level, i, lane] + scratch[level + half, i, lane]
            T.sync_threads()
        for i in T.unroll(width):
            values[i] = scratch[0, i, lane]
        T.sync_threads()

    @T.prim_func
    def main(
        x: T.Tensor((batch, channels), dtype),
        running_mean: vector(),
        running_var: vector(),
        weight: vector(),
        bias: vector(),
        y: T.Tensor((batch, channels), dtype),
    ):
        with T.Kernel(T.ceildiv(pieces, lanes), threads=(lanes, depth)) as block:
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            own = T.alloc_local((width,), "float32")
            mean = T.alloc_local((width,), "float32")
            squares = T.alloc_local((width,), "float32")
            scale = T.alloc_local((width,), "float32")
            shift = T.alloc_local((width,), "float32")
            local = T.alloc_local((width,), "float32")
            seen = T.alloc_local((1,), "float32")
            now = T.alloc_local((1,), "float32")
            # Lanes past the last access repeat it and store nothing.
            column = T.min(block * lanes + lane, pieces - 1) * width
            valid = block * lanes + lane < pieces
            steps = (batch + turns * depth - 1) // (turns * depth)
            seen[0] = 0.0
            for i in T.unroll(width):
                own[i] = 0.0
                squares[i] = 0.0
            for step in T.serial(steps):
                now[0] = 0.0
                for i in T.unroll(width):
                    local[i] = 0.0
                for t in T.unroll(turns):
                    if (step * turns + t) * depth + level < batch:
                        for i in T.vectorized(width):
                            kept[t, i] = x[(step * turns + t) * depth + level, column + i]
                        now[0] = now[0] + 1.0
                for t in T.unroll(turns):
                    if (step * turns + t) * depth + level < batch:
                        for i in T.vectorized(width):
                            wide[i] = T.cast(kept[t, i], "float32")
                        for i in T.unroll(width):
                            local[i] = local[i] + wide[i]
                if now[0] > 0.0:
                    share_of = now[0] / (seen[0] + now[0])
                    for i in T.unroll(width):
                        local[i] = local[i] / now[0]
                    for t in T.unroll(turns):
                        if (step * turns + t) * depth + level < batch:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                squares[i] = squares[i] + (wide[i] - local[i]) * (wide[i] - local[i])
                    for i in T.unroll(width):
                        local[i] = local[i] - own[i]
                        squares[i] = squares[i] + local[i] * local[i] * seen[0] * share_of
                        own[i] = own[i] + local[i] * share_of
                    seen[0] = seen[0] + now[0]
            for i in T.unroll(width):
                mean[i] = own[i] * (seen[0] / T.cast(batch, "float32"))
            over_levels(mean, lane, level)
            for i in T.unroll(width):
                squares[i] = squares[i] + (own[i] - mean[i]) * (own[i] - mean[i]) * seen[0]
            over_levels(squares, lane, level)
            for i in T.unroll(width):
                squares[i] = squares[i] / T.cast(batch, "float32")
                scale[i] = T.rsqrt(squares[i] + form.eps)
                if form.weighted:
                    scale[i] = scale[i] * T.cast(weight[column + i], "float32")
                shift[i] = 0.0
                if form.biased:
                    shift[i] = T.cast(bias[column + i], "float32")
            if valid and level == 0:
                for i in T.unroll(width):
                    own[i] = T.cast(running_mean[column + i], "float32")
                    local[i] = T.cast(running_var[column + i], "float32")
                    squares[i] = squares[i] * (T.cast(batch, "float32") / T.cast(batch - 1, "float32"))
                    running_mean[column + i] = T.cast(own[i] * (1.0 - momentum) + mean[i] * momentum, param_dtype)
                    running_var[column + i] = T.cast(local[i] * (1.0 - momentum) + squares[i] * momentum, param_dtype)
            if valid:
                for back in T.serial(steps):
                    for t in T.unroll(turns):
                        if ((steps - 1 - back) * turns + t) * depth + level < batch:
                            for i in T.vectorized(width):
                                kept[t, i] = x[((steps - 1 - back) * turns + t) * depth + level, column + i]
                    for t in T.unroll(turns):
                        if ((steps - 1 - back) * turns + t) * depth + level < batch:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                wide[i] = (wide[i] - mean[i]) * scale[i] + shift[i]
                            for i in T.vectorized(width):
                                kept[t, i] = T.cast(wide[i], dtype)
                            for i in T.vectorized(width):
                                y[((steps - 1 - back) * turns + t) * depth + level, column + i] = kept[t, i]

    return main
