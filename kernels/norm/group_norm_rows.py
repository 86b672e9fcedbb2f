"""GroupNorm with groups on chip, each read once and written once: a warp, a block or several blocks a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.flow import capacity
from tileops.kernels.limits import NARROW, ROWS, TICKETS, row_bytes
from tileops.kernels.norm.flow_build import FlowBuild, GroupNormFlowLaunch
from tileops.kernels.norm.group_norm import GroupNormCall
from tileops.kernels.norm.limits import ALONE_BYTES, BLOCK_LENGTH
from tileops.kernels.norm.run_build import GroupNormLaunch, RunBuild
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import BLOCK_BYTES, WARP_BYTES, one_row, short_rows
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

CAPACITY = capacity("length * itemsize(dtype)")


class GroupNormWarpKernel(GroupNormLaunch):
    """Serves groups that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            row_bytes(WARP_BYTES, "kept by a warp"),
            # 2 x 1280 x 25 in 32 groups take a block each 2.1 us, a warp each 2.8; 3 x 1280 x 51 in 64 groups 2.3 and
            # 3.1; but 2560 groups of 1024 4.3 and 4.2.
            Refusal("rows < 8 * sm_count", "{rows} groups, each kept by a block, find room on {sm_count} SMs at once"),
            ROWS,
        ),
        preferred_over={"group_norm_block"},
    )

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[RunBuild, Callable[[], GroupNormWarpKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_groups(call)
        busy = call.batch * call.groups >= 8 * call.sm_count
        identity = RunBuild(form, short_rows(form.spatial, call.dtype.itemsize, busy), call.arch)
        return identity, lambda: cls(identity)


class GroupNormBlockKernel(GroupNormLaunch):
    """Serves groups that a block keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            row_bytes(BLOCK_BYTES, "kept by a block"),
            Refusal(f"length > {BLOCK_LENGTH}", f"a group has {{length}} elements: a block keeps {BLOCK_LENGTH}"),
            NARROW,
            ROWS,
        ),
    )

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[RunBuild, Callable[[], GroupNormBlockKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_groups(call)
        busy = call.batch * call.groups >= 2 * call.sm_count
        identity = RunBuild(form, one_row(form.spatial, call.dtype.itemsize, busy), call.arch)
        return identity, lambda: cls(identity)


class GroupNormSharedKernel(GroupNormFlowLaunch):
    """Serves long groups: teams of blocks keep one each on chip and tell each other its statistics."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                f"length * itemsize(dtype) <= {ALONE_BYTES}",
                f"a group has {{length * itemsize(dtype)}} bytes: a block alone is faster with up to {ALONE_BYTES}",
            ),
            Refusal(
                f"length * itemsize(dtype) <= {BLOCK_BYTES} and rows * 8 > sm_count",
                "{rows} groups, each kept by a block, use {sm_count} SMs well enough",
            ),
            Refusal(
                "length % 2 != 0 and itemsize(dtype) == 2",
                "an odd length={length} allows accesses of one element only: copies to shared memory take 4 bytes",
            ),
            Refusal(
                f"length * itemsize(dtype) > sm_count * ({CAPACITY})",
                f"a group has {{length * itemsize(dtype)}} bytes: {{sm_count}} SMs keep {{{CAPACITY}}} each",
            ),
            TICKETS,
        ),
        preferred_over={"group_norm_block"},
    )

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[FlowBuild, Callable[[], GroupNormSharedKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = FlowBuild.of(RunForm.of_groups(call), call.batch * call.groups, call.dtype.itemsize, call)
        return identity, lambda: cls(identity)
