"""RMSNorm with rows on chip, each read once and written once: short rows, a warp a row, a block a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.limits import NARROW, ROWS, row_bytes
from tileops.kernels.norm.form import NormForm
from tileops.kernels.norm.rms_norm import RMSNormCall
from tileops.kernels.norm.rms_norm_build import RMSNormBuild, RMSNormLaunch
from tileops.kernels.rows import BLOCK_BYTES, SHORT_BYTES, WARP_BYTES, one_row, several_rows, short_rows
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class RMSNormShortKernel(RMSNormLaunch):
    """Serves rows that a few threads share."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(row_bytes(SHORT_BYTES, "shared by less than a warp"), ROWS),
        preferred_over={"rms_norm_warp"},
    )

    @classmethod
    def entry_for(cls, call: RMSNormCall) -> tuple[RMSNormBuild, Callable[[], RMSNormShortKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = short_rows(call.length, call.dtype.itemsize, busy=call.rows >= 8 * call.sm_count)
        identity = RMSNormBuild(NormForm.of(call), share, call.arch)
        return identity, lambda: cls(identity)


class RMSNormWarpKernel(RMSNormLaunch):
    """Serves rows that a warp keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(row_bytes(WARP_BYTES, "kept by a warp"), ROWS),
        preferred_over={"rms_norm_block"},
    )

    @classmethod
    def entry_for(cls, call: RMSNormCall) -> tuple[RMSNormBuild, Callable[[], RMSNormWarpKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = several_rows(call.length, call.dtype.itemsize, 32, busy=call.rows >= 8 * call.sm_count)
        identity = RMSNormBuild(NormForm.of(call), share, call.arch)
        return identity, lambda: cls(identity)


class RMSNormBlockKernel(RMSNormLaunch):
    """Serves rows that a block keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(row_bytes(BLOCK_BYTES, "kept by a block"), NARROW, ROWS),
    )

    @classmethod
    def entry_for(cls, call: RMSNormCall) -> tuple[RMSNormBuild, Callable[[], RMSNormBlockKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = one_row(call.length, call.dtype.itemsize, busy=call.rows >= 2 * call.sm_count)
        identity = RMSNormBuild(NormForm.of(call), share, call.arch)
        return identity, lambda: cls(identity)
