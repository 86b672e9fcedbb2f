"""Fused add and RMSNorm of rows that at most a warp or a block keeps on chip; the general one walks rows twice."""

from __future__ import annotations

from typing import ClassVar

from tileops.kernels.kept import WALKED_ROWS, BlockRows, WalkedRows, WarpRows, block_rows, warp_rows
from tileops.kernels.limits import row_bytes
from tileops.kernels.norm.rms_norm_build import FusedAddRMSNormLaunch
from tileops.kernels.rows import BLOCK_BYTES
from tileops.rules.declaration import Declaration, Refusal

WALKED = (
    # One row of 1025 bfloat16 takes 1.9 us walked and 2.3 kept, 32 of 2046 1.9 and 2.2, but one of 4097 4.1 and 3.2, on
    # an H200.
    Refusal(
        "rows < 2 * sm_count and 1024 < length <= 2048 and length * itemsize(dtype) % 8 != 0",
        "{rows} rows of length={length}, in accesses of less than 8 bytes, are walked faster than kept: a walk takes "
        "up to 2048 elements at once",
    ),
    # One row of 8192 bfloat16 takes 2.2 us walked and 2.5 kept, 127 take 3.4 and 3.7, 256 take 5.7 and 6.0, one of
    # 4096 1.9 and 2.0; but 32 rows of 7168 take 2.9 and 2.5, 128 of 16384 6.0 either way, one of 2048 2.0 and 1.8.
    Refusal(
        "rows < 2 * sm_count and length * itemsize(dtype) <= 16384 and length * itemsize(dtype) % 8192 == 0",
        "{rows} rows of {length * itemsize(dtype)} bytes are walked faster than kept: threads take whole turns",
    ),
)
"""Refusals of few rows whose walk leaves no thread idle."""


class FusedAddRMSNormWarpKernel(WarpRows, FusedAddRMSNormLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = warp_rows(before="fused_add_rms_norm_block")


class FusedAddRMSNormBlockKernel(BlockRows, FusedAddRMSNormLaunch):
    """Serves rows that a block keeps on chip, x and residual while they are added."""

    declaration: ClassVar[Declaration] = block_rows(
        *WALKED, kept=(row_bytes(BLOCK_BYTES // 2, "kept twice by a block"),)
    )


class FusedAddRMSNormStreamKernel(WalkedRows, FusedAddRMSNormLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = WALKED_ROWS
