"""batch_norm_train_spans: channels with few elements a sample, several side by side, flow through teams of blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.flow import EARLY_ARCH, GRIDS, ROUND, Flow, slots_of
from tileops.kernels.norm.batch_norm import BatchNormTrainCall, BatchNormTrainInterface
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import ACCESS, BLOCK_BYTES
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

SPATIAL = 512
"""Most elements of a channel and sample: eight channels of two bytes each fill the accesses of a block."""

SIDE_BY_SIDE = 4
"""Accesses side by side at least: 64 bytes. 12 us for 4096 samples of 1024 channels, 15 with 128 bytes."""

KEPT = 13
"""Accesses of a thread that stay in registers, at most, beside sums of each of their elements."""

MOST_PARTS = 32
"""Blocks that share a span, at most: a warp hears them all at once."""

LEAST_BYTES = 6 * 2**20
"""Bytes of a tensor below which meeting costs more than it saves: in two bytes, 32 x 512 x 49 takes 7.7 us against 4.3
with a block a channel, 64 x 1024 x 49 takes 11.5 against 12.8."""

LEAST_BATCH = 64
"""Samples below which a block has little to read between two meetings: 4 x 1048576 x 1 takes 685 us against 286 with
columns, 64 x 1024 x 49 takes 11.5 against 12.8 with a block a channel."""

LEAST_COUNT = 1024
"""Elements of a channel, likewise: 64 x 1048576 x 1 takes 735 us against 331 with columns."""

PART = 1664
"""Elements of a channel that a block keeps, whatever the spatial and however many threads find no place."""


def pitch(columns: int) -> int:
    """Returns the columns from one element of an access to the next where threads lay down sums of elements.

    Neither those who write, columns side by side, nor those who read, elements side by side, meet at a bank.
    """
    return columns + (4 - columns) % 8


@frozen
class SpanBuild:
    """The build identity."""

    form: RunForm
    side: int
    """Channels a span."""
    flow: Flow
    arch: int

    @classmethod
    def of(cls, call: BatchNormTrainCall) -> SpanBuild:
        """Returns the identity for a call: the fewest channels that fill accesses, in as few parts as keep SMs busy."""
        width = ACCESS // call.dtype.itemsize
        least = width // math.gcd(call.spatial, width)
        side = least * -(-SIDE_BY_SIDE * width // (least * call.spatial))
        columns = side * call.spatial // width
        spans = -(-call.channels // side)
        choices = []
        for threads, blocks in GRIDS:
            depth = threads // columns
            if depth == 0:
                continue
            scratch = 4 * depth * (width * pitch(columns) + 1) + 16 * side + 256
            slots = slots_of(call.smem_budget, columns * depth, blocks, ACCESS, scratch)
            for wanted in range(1, min(MOST_PARTS, call.sm_count, call.batch) + 1):
                part = -(-call.batch // wanted)
                turns = -(-part // depth)
                if turns > min(KEPT, slots - 2):
                    continue
                parts = -(-call.batch // part)
                teams = min(spans, blocks * call.sm_count // parts)
                rounds = -(-spans // teams)
                flow = Flow(columns, turns, width, slots, parts, teams, blocks, depth)
                # Two blocks an SM, where one can work while the other waits: 45 us for 256 x 2048 x 49, 50 with one.
                # Clusters of 4 or 8 blocks that keep a span in registers took 46 to 53.
                choices.append((rounds * (turns + ROUND), abs(blocks - (2 if rounds > 1 else 1)), parts, flow))
        best = min(choices, key=lambda choice: choice[:3])[3]
        return cls(RunForm.of_channels(call, compiled_batch=True), side, best, call.arch)

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.norm.programs.spans import program

        return program(self.form, self.side, self.flow, early=self.arch >= EARLY_ARCH)

    def __str__(self) -> str:
        return f"{self.form}, spans of {self.side} channels, {self.flow}"


class BatchNormTrainSpansKernel(Built, BatchNormTrainInterface):
    """Serves samples of a multiple of 16 bytes whose channels have few elements."""

    own_barriers: ClassVar[bool] = True

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                "channels * spatial * itemsize(dtype) % 16 != 0",
                "a sample has {channels * spatial * itemsize(dtype)} bytes: accesses take 16",
            ),
            Refusal(
                f"spatial > {SPATIAL}", f"spatial={{spatial}}: a block reads channels of at most {SPATIAL} elements"
            ),
            Refusal(
                f"count > {PART} * min(sm_count, {MOST_PARTS})",
                f"a channel has {{count}} elements: {{min(sm_count, {MOST_PARTS})}} blocks keep {PART} each",
            ),
            Refusal(
                f"channels * count * itemsize(dtype) < {LEAST_BYTES}",
                f"{{channels * count * itemsize(dtype)}} bytes: a block a channel is as fast below {LEAST_BYTES}",
            ),
            Refusal(
                f"batch < {LEAST_BATCH}",
                f"{{batch}} samples: teams read too little with fewer than {LEAST_BATCH}",
            ),
            Refusal(
                f"count < {LEAST_COUNT}",
                f"a channel has {{count}} elements: teams read too little with fewer than {LEAST_COUNT}",
            ),
            # Two bytes: 256 x 2048 x 56 takes 62 us by spans, 46 by a block a channel, of 49 43 and 80; four bytes:
            # 4096 x 1024 x 8 takes 113 and 99, of 9 139 and 270. With pieces of 16 bytes a block takes 197 for
            # 4096 x 1024 x 8, where spans take 93 of 10.
            Refusal(
                f"spatial * itemsize(dtype) % 16 == 0 and spatial * itemsize(dtype) > 16 "
                f"and count * itemsize(dtype) <= {BLOCK_BYTES}",
                "a channel lies in pieces of {spatial * itemsize(dtype)} bytes, {count * itemsize(dtype)} in all: a "
                "block a channel reads and keeps these faster",
            ),
            Refusal("smem_budget < 163840", "a block takes 160 KiB of shared memory, {smem_budget} bytes are there"),
            Refusal("channels > 1048576", "counts the parts of channels in 32 bits, got {channels} channels"),
        ),
        preferred_over={"batch_norm_train_columns"},
    )

    def __init__(self, identity: SpanBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        form = identity.form
        self._shape = (-1, form.groups * form.spatial)
        self._records = form.groups * identity.flow.parts

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[SpanBuild, Callable[[], BatchNormTrainSpansKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = SpanBuild.of(call)
        return identity, lambda: cls(identity)

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y of x's shape and dtype and writes the running statistics."""
        y = torch.empty_like(x)
        weight = running_mean if weight is None else weight
        bias = running_mean if bias is None else bias
        records = x.new_empty((self._records,), dtype=torch.uint64)
        samples, out = (x, y) if x.dim() == 2 else (x.view(self._shape), y.view(self._shape))
        self._launch(samples, running_mean, running_var, weight, bias, records, out)
        return y
