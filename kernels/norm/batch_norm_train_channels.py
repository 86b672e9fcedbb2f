"""BatchNorm in training with channels on chip, each read once and written once: a block or several blocks a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.flow import capacity
from tileops.kernels.norm.batch_norm import BatchNormTrainCall
from tileops.kernels.norm.flow_build import BatchNormTrainFlowLaunch, FlowBuild
from tileops.kernels.norm.limits import BLOCK_LENGTH, CHANNEL_BYTES
from tileops.kernels.norm.run_build import BatchNormTrainLaunch, RunBuild
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import BLOCK_BYTES, NARROW_LIMIT, one_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

CAPACITY = capacity("spatial * itemsize(dtype)")


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
            Refusal(f"count > {BLOCK_LENGTH}", f"a channel has {{count}} elements: a block keeps {BLOCK_LENGTH}"),
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


class BatchNormTrainSharedKernel(BatchNormTrainFlowLaunch):
    """Serves long channels: teams of blocks keep one each on chip and tell each other its statistics."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                f"count * itemsize(dtype) <= {CHANNEL_BYTES}",
                f"a channel has {{count * itemsize(dtype)}} bytes: a block alone is faster with up to {CHANNEL_BYTES}",
            ),
            Refusal(
                f"count * itemsize(dtype) <= {BLOCK_BYTES} and channels * 8 > sm_count",
                "{channels} channels, each kept by a block, use {sm_count} SMs well enough",
            ),
            Refusal(
                "spatial % 2 != 0 and itemsize(dtype) == 2",
                "an odd spatial={spatial} allows accesses of one element only: copies to shared memory take 4 bytes",
            ),
            Refusal(
                f"count * itemsize(dtype) > sm_count * ({CAPACITY})",
                f"a channel has {{count * itemsize(dtype)}} bytes: {{sm_count}} SMs keep {{{CAPACITY}}} each",
            ),
            Refusal("channels > 1048576", "counts the parts of channels in 32 bits, got {channels} channels"),
        ),
        preferred_over={"batch_norm_train_block"},
    )

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[FlowBuild, Callable[[], BatchNormTrainSharedKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_channels(call, compiled_batch=True)
        identity = FlowBuild.of(form, call.channels, call.dtype.itemsize, call)
        return identity, lambda: cls(identity)
