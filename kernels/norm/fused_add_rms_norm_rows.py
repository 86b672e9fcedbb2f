"""Fused add and RMSNorm with rows on chip: a warp a row, a block a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.limits import NARROW, ROWS, row_bytes
from tileops.kernels.norm.form import NormForm
from tileops.kernels.norm.fused_add_rms_norm import FusedAddRMSNormCall
from tileops.kernels.norm.rms_norm_build import FusedAddRMSNormLaunch, RMSNormBuild
from tileops.kernels.rows import BLOCK_BYTES, WARP_BYTES, one_row, short_rows
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class FusedAddRMSNormWarpKernel(FusedAddRMSNormLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(row_bytes(WARP_BYTES, "kept by a warp"), ROWS),
        preferred_over={"fused_add_rms_norm_block"},
    )

    @classmethod
    def entry_for(cls, call: FusedAddRMSNormCall) -> tuple[RMSNormBuild, Callable[[], FusedAddRMSNormWarpKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = short_rows(call.length, call.dtype.itemsize, busy=call.rows >= 8 * call.sm_count)
        identity = RMSNormBuild(NormForm.of(call), share, call.arch, added=True)
        return identity, lambda: cls(identity)


class FusedAddRMSNormBlockKernel(FusedAddRMSNormLaunch):
    """Serves rows that a block keeps on chip, x and residual while they are added."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(row_bytes(BLOCK_BYTES // 2, "kept twice by a block"), NARROW, ROWS),
    )

    @classmethod
    def entry_for(cls, call: FusedAddRMSNormCall) -> tuple[RMSNormBuild, Callable[[], FusedAddRMSNormBlockKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = one_row(call.length, call.dtype.itemsize, busy=call.rows >= 2 * call.sm_count)
        identity = RMSNormBuild(NormForm.of(call), share, call.arch, added=True)
        return identity, lambda: cls(identity)
