"""RMSNorm of rows that at most a warp or a block keeps on chip; the general one walks rows twice."""

from __future__ import annotations

from typing import ClassVar

from tileops.kernels.kept import WALKED_ROWS, BlockRows, WalkedRows, WarpRows, block_rows, warp_rows
from tileops.kernels.norm.rms_norm_build import RMSNormLaunch
from tileops.rules.declaration import Declaration


class RMSNormWarpKernel(WarpRows, RMSNormLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = warp_rows(before="rms_norm_block")


class RMSNormBlockKernel(BlockRows, RMSNormLaunch):
    """Serves rows that a block keeps on chip."""

    declaration: ClassVar[Declaration] = block_rows()


class RMSNormStreamKernel(WalkedRows, RMSNormLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = WALKED_ROWS
