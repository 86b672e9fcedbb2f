"""LayerNorm of rows that at most a warp or a block keeps on chip; the general one walks rows twice."""

from __future__ import annotations

from typing import ClassVar

from tileops.kernels.kept import WALKED_ROWS, BlockRows, WalkedRows, WarpRows, block_rows, warp_rows
from tileops.kernels.norm.run_build import LayerNormLaunch
from tileops.rules.declaration import Declaration, Refusal

# The accesses of a ragged row wait for each other. On an H200 one row of 768 float16 takes 1.9 us by a warp and 1.7 by
# a block, 8 of 640 2.8 and 1.9, one of 769 12.5 and 2.2; 8192 of 384 float32 take 8.5 and 8.9.
FEW = Refusal(
    "rows < 8 * sm_count", "{rows} rows, a warp each, leave {sm_count} SMs waiting: a block a row hides it better"
)


class LayerNormWarpKernel(WarpRows, LayerNormLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = warp_rows(before="layer_norm_block", few=FEW)


class LayerNormBlockKernel(BlockRows, LayerNormLaunch):
    """Serves rows that a block keeps on chip."""

    declaration: ClassVar[Declaration] = block_rows()


class LayerNormStreamKernel(WalkedRows, LayerNormLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = WALKED_ROWS
