"""Softmax of rows side by side, each on chip: short rows, a warp a row, a block a row, several blocks a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.limits import IDLE, NARROW, ROWS, TICKETS, WAITING, row_bytes
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import APART
from tileops.kernels.reduction.softmax import SoftmaxCall
from tileops.kernels.reduction.softmax_build import SoftmaxBuild, SoftmaxLaunch
from tileops.kernels.rows import BLOCK_BYTES, SHORT_BYTES, WARP_BYTES, one_row, part_row, several_rows, short_rows
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class SoftmaxShortKernel(SoftmaxLaunch):
    """Serves rows that a few threads share."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(APART, row_bytes(SHORT_BYTES, "shared by less than a warp"), ROWS),
        preferred_over={"softmax_warp"},
    )

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[SoftmaxBuild, Callable[[], SoftmaxShortKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = short_rows(call.length, call.dtype.itemsize, busy=call.outer >= 8 * call.sm_count)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch)
        return identity, lambda: cls(identity)


class SoftmaxWarpKernel(SoftmaxLaunch):
    """Serves rows that a warp keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(APART, row_bytes(WARP_BYTES, "kept by a warp"), ROWS),
        preferred_over={"softmax_block"},
    )

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[SoftmaxBuild, Callable[[], SoftmaxWarpKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = several_rows(call.length, call.dtype.itemsize, 32, busy=call.outer >= 8 * call.sm_count)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch)
        return identity, lambda: cls(identity)


class SoftmaxBlockKernel(SoftmaxLaunch):
    """Serves rows that a block keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(APART, row_bytes(BLOCK_BYTES, "kept by a block"), NARROW, ROWS),
    )

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[SoftmaxBuild, Callable[[], SoftmaxBlockKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = one_row(call.length, call.dtype.itemsize, busy=call.outer >= 2 * call.sm_count)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch)
        return identity, lambda: cls(identity)


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
