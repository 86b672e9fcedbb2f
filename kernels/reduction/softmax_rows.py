"""Softmax of contiguous rows, each on chip: at most a warp, a block, several blocks or a cluster a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.kept import BlockRows, WarpRows, block_rows, warp_rows
from tileops.kernels.limits import ENOUGH, IDLE, TICKETS, WAITING
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import APART
from tileops.kernels.reduction.softmax import SoftmaxCall
from tileops.kernels.reduction.softmax_build import SoftmaxBuild, SoftmaxLaunch
from tileops.kernels.rows import (
    ACCESS,
    CLUSTER,
    CLUSTER_LENGTH,
    LARGE_CLUSTER,
    NARROW_LIMIT,
    PART_BYTES,
    Share,
    access_width,
    cluster_row,
    part_row,
    short_rows,
)
from tileops.rules.archs import at_least, exactly
from tileops.rules.declaration import Declaration, Refusal

CLUSTER_ROWS = 2**31 // CLUSTER - 1
"""Most rows whose blocks are counted in 32 bits."""

LARGE_LENGTH = 2**17
"""Elements of a row of a large cluster, at most: of 262144 float32 16 rows take 15.8 us so, 14.9 by other blocks."""


class SoftmaxWarpKernel(WarpRows, SoftmaxLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = warp_rows("softmax_block", APART)

    @classmethod
    def share_of(cls, call: SoftmaxCall) -> Share:
        """Returns a share with half a warp a row of up to four accesses a thread, which saves shuffles.

        4096 rows of 256 float32 take 3.52 us so, and 3.68 with a warp each, on an H200.
        """
        itemsize = call.dtype.itemsize
        half = call.length <= 64 * access_width(call.length, itemsize)
        return short_rows(call.length, itemsize, call.outer >= 8 * call.sm_count, 16 if half else 32)


class SoftmaxBlockKernel(BlockRows, SoftmaxLaunch):
    """Serves rows that a block keeps on chip."""

    declaration: ClassVar[Declaration] = block_rows(
        APART,
        kept=(
            # On an H200 132 rows of 65536 bfloat16 take 30.0 us kept and 13.2 walked, of 32768 7.3 and 7.9.
            Refusal(
                f"length > {NARROW_LIMIT}",
                f"length={{length}} is walked faster: a thread has registers for a float32 of each element of at most "
                f"{NARROW_LIMIT}",
            ),
        ),
    )


class SoftmaxSharedKernel(SoftmaxLaunch):
    """Serves long rows: several blocks keep one on chip and tell each other its greatest value and sum."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            APART,
            # On an H200 one row of 8194 float32 takes 4.0 us shared and 2.6 by a block, 16 of 32768 5.3 and 5.7.
            Refusal(
                f"length * itemsize(dtype) <= {2 * PART_BYTES}",
                f"a row has {{length * itemsize(dtype)}} bytes: a block alone is faster up to {2 * PART_BYTES}",
            ),
            ENOUGH,
            WAITING,
            TICKETS,
        ),
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


class SoftmaxClusterKernel(SoftmaxLaunch):
    """Serves long rows where there are clusters: one keeps a row on chip."""

    own_barriers: ClassVar[bool] = True

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(90),
        refusal=(
            APART,
            *IDLE,
            Refusal("itemsize(dtype) < 4", "{dtype}: a cluster keeps float32, twice what blocks keep that are none"),
            Refusal(f"length > {CLUSTER_LENGTH}", f"length={{length}}: a cluster keeps at most {CLUSTER_LENGTH}"),
            Refusal(
                f"rows * {CLUSTER} < sm_count", f"{{rows}} rows of {CLUSTER} blocks leave some of {{sm_count}} SMs idle"
            ),
            # On an H200 64 rows of 32769 take 13.6 us by clusters and 11.3 by blocks that are none, of 128255 39.2 and
            # 35.5; but of 128256 25.3 and 28.9, and 256 rows of 151935 164 and 268.
            Refusal(
                "length % 2 != 0 and rows < sm_count",
                "{rows} rows of an odd length={length}, read one element an access: blocks that are no cluster "
                "have more of those in flight",
            ),
            Refusal(f"rows > {CLUSTER_ROWS}", f"counts blocks in 32 bits: at most {CLUSTER_ROWS} rows, got {{rows}}"),
        ),
        preferred_over={"softmax_shared"},
    )

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[SoftmaxBuild, Callable[[], SoftmaxClusterKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = cluster_row(call.length, call.dtype.itemsize, lanes=512)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch, CLUSTER, clustered=True)
        return identity, lambda: cls(identity)


class SoftmaxLargeClusterKernel(SoftmaxLaunch):
    """Serves few long rows: a cluster of more blocks than every board takes keeps one on chip."""

    own_barriers: ClassVar[bool] = True

    # On an H200 one row of 128256 float32 takes 3.5 us so and 4.6 by blocks that are no cluster, 64 take 20.1, and 22.3
    # by small clusters; 64 of bfloat16 take 13.1 and 16.2, 16 of 32768 float32 3.4, and 5.7 by a block each.
    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=exactly(90),
        refusal=(
            APART,
            *IDLE,
            Refusal(
                f"rows * {LARGE_CLUSTER} >= 8 * sm_count",
                f"{{rows}} rows of {LARGE_CLUSTER} blocks are more than {{sm_count}} SMs hold at once",
            ),
            Refusal(
                f"length * itemsize(dtype) % {LARGE_CLUSTER * ACCESS} != 0",
                f"a row has {{length * itemsize(dtype)}} bytes: {LARGE_CLUSTER} blocks have as many each, and whole "
                "accesses",
            ),
            Refusal(f"length > {LARGE_LENGTH}", f"length={{length}}: a large cluster keeps at most {LARGE_LENGTH}"),
        ),
        preferred_over={"softmax_cluster"},
    )

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[SoftmaxBuild, Callable[[], SoftmaxLargeClusterKernel]]:
        """Returns the build identity of a call and the function that builds it: four accesses a thread, at most."""
        itemsize = call.dtype.itemsize
        share = cluster_row(call.length, itemsize, LARGE_CLUSTER, 4 * ACCESS // itemsize, lanes=256)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch, LARGE_CLUSTER, clustered=True)
        return identity, lambda: cls(identity)
