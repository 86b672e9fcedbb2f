"""GroupNorm with groups on chip, each read once and written once: a warp, a block or several blocks a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.limits import IDLE, NARROW, ROWS, TICKETS, WAITING, row_bytes
from tileops.kernels.norm.group_norm import GroupNormCall
from tileops.kernels.norm.run_build import GroupNormLaunch, RunBuild
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import BLOCK_BYTES, WARP_BYTES, one_row, part_row, short_rows
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class GroupNormWarpKernel(GroupNormLaunch):
    """Serves groups that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(row_bytes(WARP_BYTES, "kept by a warp"), ROWS),
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
        refusal=(row_bytes(BLOCK_BYTES, "kept by a block"), NARROW, ROWS),
    )

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[RunBuild, Callable[[], GroupNormBlockKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_groups(call)
        busy = call.batch * call.groups >= 2 * call.sm_count
        identity = RunBuild(form, one_row(form.spatial, call.dtype.itemsize, busy), call.arch)
        return identity, lambda: cls(identity)


class GroupNormSharedKernel(GroupNormLaunch):
    """Serves long groups: several blocks keep one on chip and tell each other its statistics."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(*IDLE, WAITING, TICKETS),
        preferred_over={"group_norm_block"},
    )

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[RunBuild, Callable[[], GroupNormSharedKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_groups(call)
        rows = call.batch * call.groups
        share, parts = part_row(form.spatial, call.dtype.itemsize, form.spatial, rows, call.sm_count)
        identity = RunBuild(form, share, call.arch, parts)
        return identity, lambda: cls(identity)
