"""Softmax of rows side by side, each on chip: at most a warp, a block or several blocks a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.kept import BlockRows, WarpRows, block_rows, warp_rows
from tileops.kernels.limits import IDLE, TICKETS, WAITING
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import APART
from tileops.kernels.reduction.softmax import SoftmaxCall
from tileops.kernels.reduction.softmax_build import SoftmaxBuild, SoftmaxLaunch
from tileops.kernels.rows import part_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class SoftmaxWarpKernel(WarpRows, SoftmaxLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = warp_rows("softmax_block", APART)


class SoftmaxBlockKernel(BlockRows, SoftmaxLaunch):
    """Serves rows that a block keeps on chip."""

    declaration: ClassVar[Declaration] = block_rows(APART)


class SoftmaxSharedKernel(SoftmaxLaunch):
    """Serves long rows: several blocks keep one on chip and tell each other its greatest value and sum."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(APART, *IDLE, WAITING, TICKETS),
        preferred_over={"softmax_block"},
    )

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[SoftmaxBuild, Callable[[], SoftmaxSharedKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        # In float32 a thread has registers for twice as much: 92 us, not 104, for 256 rows of 151936.
        kept = 256 if call.dtype.itemsize == 4 else 128
        share, parts = part_row(call.length, call.dtype.itemsize, call.length, call.outer, call.sm_count, kept)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch, parts)
        return identity, lambda: cls(identity)
