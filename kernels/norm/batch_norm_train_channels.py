"""BatchNorm in training with channels on chip, each read once and written once: a block or several blocks a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.norm.batch_norm import BatchNormTrainCall
from tileops.kernels.norm.run_build import BatchNormTrainLaunch, RunBuild
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import BLOCK_BYTES, NARROW_LIMIT, PART_BYTES, one_row, part_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

PART = f"({BLOCK_BYTES // 2} if spatial % 2 != 0 and itemsize(dtype) == 2 else {BLOCK_BYTES})"
"""Bytes of a part of a channel that a block keeps, as a rule's text."""


class BatchNormTrainBlockKernel(BatchNormTrainLaunch):
    """Serves channels that a block keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                f"count * itemsize(dtype) > {BLOCK_BYTES}",
                f"a channel has {{count * itemsize(dtype)}} bytes: a block keeps at most {BLOCK_BYTES}",
            ),
            Refusal(
                f"count > {NARROW_LIMIT} and spatial % 2 != 0 and itemsize(dtype) == 2",
                f"an odd spatial={{spatial}} allows accesses of one element only: a block keeps {NARROW_LIMIT} of them",
            ),
            Refusal("channels > 2147483647", "counts channels in 32 bits, got {channels}"),
        ),
    )

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[RunBuild, Callable[[], BatchNormTrainBlockKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_channels(call, compiled_batch=True)
        busy = call.channels >= 2 * call.sm_count
        identity = RunBuild(form, one_row(call.spatial, call.dtype.itemsize, busy, run=form.length), call.arch)
        return identity, lambda: cls(identity)


class BatchNormTrainSharedKernel(BatchNormTrainLaunch):
    """Serves long channels: several blocks keep one on chip and tell each other its statistics."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                f"count * itemsize(dtype) <= {PART_BYTES}",
                f"a channel has {{count * itemsize(dtype)}} bytes: a block alone keeps {PART_BYTES}",
            ),
            Refusal(
                f"count * itemsize(dtype) <= {BLOCK_BYTES} and channels * 8 > sm_count",
                "{channels} channels, each kept by a block, use {sm_count} SMs well enough",
            ),
            Refusal(
                f"ceildiv(count * itemsize(dtype), {PART}) > sm_count",
                f"a channel has {{ceildiv(count * itemsize(dtype), {PART})}} parts, whose blocks wait for each other: "
                "{sm_count} SMs hold as many at once",
            ),
            Refusal("channels > 1048576", "counts the parts of channels in 32 bits, got {channels} channels"),
        ),
        preferred_over={"batch_norm_train_block"},
    )

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[RunBuild, Callable[[], BatchNormTrainSharedKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_channels(call, compiled_batch=True)
        share, parts = part_row(call.spatial, call.dtype.itemsize, form.length, call.channels, call.sm_count)
        identity = RunBuild(form, share, call.arch, parts)
        return identity, lambda: cls(identity)
