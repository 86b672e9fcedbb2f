"""Centre and scale each run of elements: LayerNorm's rows, GroupNorm's groups, BatchNorm's channels in training.

y = (x - mean) / sqrt(var + eps) * weight + bias. A run r of x [batch, runs, spatial] is batch pieces of spatial
elements, runs * spatial apart; GroupNorm has batch 1, LayerNorm x [runs, spatial]. The variance is the mean square of
the centred values.

On chip: the threads of a run keep it in registers, so it is read once and written once: 2 * itemsize bytes an element.
Streaming: a block walks a run twice, backwards the second time, so that what the L2 cache still holds is read first;
the mean and squares of each few accesses are merged into those so far (Chan's formula). Eight operations an element.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.norm.runs import RunForm
from tileops.kernels.programs.lanes import combiner
from tileops.kernels.rows import Share


class Parts:
    """Holds the types and the macros that the programs here and in ``flow`` are put together from."""

    def __init__(self, form: RunForm, share: Share, bits: str) -> None:
        self.form, self.share = form, share
        self.runs = T.dynamic("runs", bits) if form.runs is None else form.runs
        self.batch = T.dynamic("batch", bits) if form.batch is None else form.batch
        self.piece = form.spatial // share.width
        """Accesses a piece."""

    def x(self) -> Any:
        """Returns the type of x and y."""
        if self.form.flat:
            return T.Tensor((self.runs, self.form.spatial), self.form.dtype)
        return T.Tensor((self.batch, self.runs, self.form.spatial), self.form.dtype)

    def vector(self, there: bool) -> Any:
        """Returns the type of weight and bias; where there is none, of what stands in their place."""
        return T.Tensor((self.form.params,), self.form.param_dtype) if there else self.x()

    def statistics(self) -> Any:
        """Returns the type of the running statistics; where there are none, of what stands in their place."""
        return self.vector(self.form.momentum is not None)

    def loader(self) -> Any:
        """Returns a macro (x, kept, t, run, access): one access into kept[t]."""
        width, piece, single, flat = self.share.width, self.piece, self.form.batch == 1, self.form.flat

        @T.macro
        def load(x: Any, kept: Any, t: Any, run: Any, access: Any) -> None:
            for i in T.vectorized(width):
                if flat:
                    kept[t, i] = x[run, access * width + i]
                elif single:
                    kept[t, i] = x[0, run, access * width + i]
                else:
                    kept[t, i] = x[access // piece, run, access % piece * width + i]

        return load

    def finisher(self) -> Any:
        """Returns a macro (wide, mean, scale, weight, bias, y, run, access): stores one access of y."""
        form, width, piece, single = self.form, self.share.width, self.piece, self.form.batch == 1
        flat = form.flat
        groups, channels, same = form.groups, form.group_channels, form.same
        # Where a run has few channels side by side, an access may cross from one into the next.
        per_run = channels == 1
        one_channel = per_run or same % width == 0

        @T.macro
        def parameter(source: Any, into: Any, run: Any, access: Any) -> None:
            first = run % groups * channels
            if per_run:
                into[0] = T.cast(source[first], "float32")
            elif one_channel:
                into[0] = T.cast(source[first + access * width // same], "float32")
            elif same == 1:
                part = T.alloc_local((width,), form.param_dtype)
                for i in T.vectorized(width):
                    part[i] = source[first + access * width + i]
                for i in T.vectorized(width):
                    into[i] = T.cast(part[i], "float32")
            else:
                for i in T.unroll(width):
                    into[i] = T.cast(source[first + (access * width + i) // same], "float32")

        @T.macro
        def finish(wide: Any, mean: Any, scale: Any, weight: Any, bias: Any, y: Any, run: Any, access: Any) -> None:
            factor = T.alloc_local((1 if one_channel else width,), "float32")
            out = T.alloc_local((width,), form.dtype)
            for i in T.unroll(width):
                wide[i] = (wide[i] - mean[0]) * scale[0]
            if form.weighted:
                parameter(weight, factor, run, access)
                for i in T.unroll(width):
                    wide[i] = wide[i] * factor[0 if one_channel else i]
            if form.biased:
                parameter(bias, factor, run, access)
                for i in T.unroll(width):
                    wide[i] = wide[i] + factor[0 if one_channel else i]
            for i in T.vectorized(width):
                out[i] = T.cast(wide[i], form.dtype)
            for i in T.vectorized(width):
                if flat:
                    y[run, access * width + i] = out[i]
                elif single:
                    y[0, run, access * width + i] = out[i]
                else:
                    y[access // piece, run, access % piece * width + i] = out[i]

        return finish

    def keeper(self) -> Any:
        """Returns a macro (mean, variance, count, running_mean, running_var, run): moves the running statistics."""
        momentum, dtype = self.form.momentum, self.form.param_dtype

        @T.macro
        def keep(mean: Any, variance: Any, count: Any, running_mean: Any, running_var: Any, run: Any) -> None:
            old = T.alloc_local((2,), "float32")
            old[0] = T.cast(running_mean[run], "float32")
            old[1] = T.cast(running_var[run], "float32")
            unbiased = variance[0] * (T.cast(count, "float32") / T.cast(count - 1, "float32"))
            running_mean[run] = T.cast(old[0] * (1.0 - momentum) + mean[0] * momentum, dtype)
            running_var[run] = T.cast(old[1] * (1.0 - momentum) + unbiased * momentum, dtype)

        return keep


def on_chip(form: RunForm, share: Share) -> Any:
    """Builds the program (x, running_mean, running_var, weight, bias, y).

    What is not there takes anything of x's shape.
    """
    lanes, rows, turns, width = share.lanes, share.rows, share.turns, share.width
    length = form.length
    accesses = length // width
    exact = accesses == lanes * turns
    parts = Parts(form, share, "int32")
    load, finish, keep = parts.loader(), parts.finisher(), parts.keeper()
    sum_of = combiner(lanes, rows)
    runs = parts.runs

    @T.prim_func
    def main(
        x: parts.x(),
        running_mean: parts.statistics(),
        running_var: parts.statistics(),
        weight: parts.vector(form.weighted),
        bias: parts.vector(form.biased),
        y: parts.x(),
    ):
        with T.Kernel(T.ceildiv(runs, rows), threads=(lanes, rows)) as block:
            # Left alone nvcc asks for parameters so early that a thread takes 95 registers: 53 us, not 44, for 4096
            # rows of 9216 bfloat16.
            T.annotate_min_blocks_per_sm(max(1, 1024 // (lanes * rows)))
            lane = T.get_thread_binding(0)
            place = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), form.dtype)
            wide = T.alloc_local((width,), "float32")
            mean = T.alloc_local((1,), "float32")
            squares = T.alloc_local((1,), "float32")
            # Places past the last run repeat it and store nothing.
            run = T.min(block * rows + place, runs - 1)
            mean[0] = 0.0
            squares[0] = 0.0
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    load(x, kept, t, run, access)
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        mean[0] = mean[0] + wide[i]
            sum_of(mean, lane, place)
            mean[0] = mean[0] * (1.0 / length)
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        squares[0] = squares[0] + (wide[i] - mean[0]) * (wide[i] - mean[0])
            sum_of(squares, lane, place)
            squares[0] = squares[0] * (1.0 / length)
            if block * rows + place < runs:
                if form.momentum is not None and lane == 0:
                    keep(mean, squares, length, running_mean, running_var, run)
                squares[0] = T.rsqrt(squares[0] + form.eps)
                for t in T.unroll(turns):
                    access = t * lanes + lane
                    if exact or access < accesses:
                        for i in T.vectorized(width):
                            wide[i] = T.cast(kept[t, i], "float32")
                        finish(wide, mean, squares, weight, bias, y, run, access)

    return main


def streaming(form: RunForm, share: Share, blocks: int) -> Any:
    """Builds the program of ``on_chip`` for runs of any length and number: ``blocks`` blocks, each a run at a time."""
    lanes, turns, width = share.lanes, share.turns, share.width
    parts = Parts(form, share, "int64")
    load, finish, keep = parts.loader(), parts.finisher(), parts.keeper()
    sum_of = combiner(lanes)
    runs, piece = parts.runs, parts.piece
    batch = parts.batch
    slice_ = lanes * turns

    @T.prim_func
    def main(
        x: parts.x(),
        running_mean: parts.statistics(),
        running_var: parts.statistics(),
        weight: parts.vector(form.weighted),
        bias: parts.vector(form.biased),
        y: parts.x(),
    ):
        with T.Kernel(T.min(T.cast(runs, "int64"), blocks), threads=(lanes, 1)) as block:
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), form.dtype)
            wide = T.alloc_local((width,), "float32")
            mean = T.alloc_local((1,), "float32")
            squares = T.alloc_local((1,), "float32")
            own = T.alloc_local((1,), "float32")
            seen = T.alloc_local((1,), "float32")
            part = T.alloc_local((3,), "float32")
            accesses = T.cast(batch, "int64") * piece
            steps = (accesses + slice_ - 1) // slice_
            length = T.cast(accesses * width, "float32")
            first = T.cast(block, "int64")
            for turn in T.serial((runs - first + blocks - 1) // blocks):
                run = first + turn * blocks
                own[0] = 0.0
                squares[0] = 0.0
                seen[0] = 0.0
                for step in T.serial(steps):
                    part[0] = 0.0
                    part[1] = 0.0
                    part[2] = 0.0
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if access < accesses:
                            load(x, kept, t, run, access)
                            part[2] = part[2] + width
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if access < accesses:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                part[0] = part[0] + wide[i]
                    if part[2] > 0.0:
                        part[0] = part[0] / part[2]
                        for t in T.unroll(turns):
                            access = (step * turns + t) * lanes + lane
                            if access < accesses:
                                for i in T.vectorized(width):
                                    wide[i] = T.cast(kept[t, i], "float32")
                                for i in T.unroll(width):
                                    part[1] = part[1] + (wide[i] - part[0]) * (wide[i] - part[0])
                        gap = part[0] - own[0]
                        weight_of = part[2] / (seen[0] + part[2])
                        squares[0] = squares[0] + part[1] + gap * gap * seen[0] * weight_of
                        own[0] = own[0] + gap * weight_of
                        seen[0] = seen[0] + part[2]
                mean[0] = own[0] * (seen[0] / length)
                sum_of(mean, lane, 0)
                squares[0] = squares[0] + (own[0] - mean[0]) * (own[0] - mean[0]) * seen[0]
                sum_of(squares, lane, 0)
                squares[0] = squares[0] / length
                if form.momentum is not None and lane == 0:
                    keep(mean, squares, accesses * width, running_mean, running_var, run)
                squares[0] = T.rsqrt(squares[0] + form.eps)
                for back in T.serial(steps):
                    for t in T.unroll(turns):
                        access = ((steps - 1 - back) * turns + t) * lanes + lane
                        if access < accesses:
                            load(x, kept, t, run, access)
                    for t in T.unroll(turns):
                        access = ((steps - 1 - back) * turns + t) * lanes + lane
                        if access < accesses:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            finish(wide, mean, squares, weight, bias, y, run, access)

    return main
