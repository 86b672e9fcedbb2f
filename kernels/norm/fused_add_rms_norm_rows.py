"""Fused add and RMSNorm of rows that at most a warp or a block keeps on chip; the general one walks rows twice."""

from __future__ import annotations

from typing import ClassVar

from tileops.kernels.kept import WALKED_ROWS, BlockRows, WalkedRows, WarpRows, block_rows, warp_rows
from tileops.kernels.limits import row_bytes
from tileops.kernels.norm.rms_norm_build import FusedAddRMSNormLaunch
from tileops.kernels.rows import BLOCK_BYTES
from tileops.rules.declaration import Declaration


class FusedAddRMSNormWarpKernel(WarpRows, FusedAddRMSNormLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = warp_rows(before="fused_add_rms_norm_block")


class FusedAddRMSNormBlockKernel(BlockRows, FusedAddRMSNormLaunch):
    """Serves rows that a block keeps on chip, x and residual while they are added."""

    declaration: ClassVar[Declaration] = block_rows(kept=(row_bytes(BLOCK_BYTES // 2, "kept twice by a block"),))


class FusedAddRMSNormStreamKernel(WalkedRows, FusedAddRMSNormLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = WALKED_ROWS
