"""Cumulative sums by clusters of blocks: long rows, contiguous or side by side, each read once, in one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from tileops.kernels.columns import ColumnShare
from tileops.kernels.limits import ROW_ACCESSES
from tileops.kernels.reduction.cumsum import CumsumCall
from tileops.kernels.reduction.cumsum_rows import CumsumLaunch
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import APART, BESIDE
from tileops.kernels.rows import ACCESS, CLUSTER, CLUSTER_KEPT, CLUSTER_LENGTH, WARP, Share, access_width
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

THREADS = 256
"""Threads of a block of columns, four blocks an SM, so that an H200 runs 66 clusters: 36.9 us for 2 x 4096 x 2048 in
four bytes, 39.4 where two blocks of 512 an SM make 31. Copying ahead into shared memory made it no faster."""

TURNS = 8
"""Accesses of a row, one behind the other, that a thread keeps."""

MOST = 2**31 // CLUSTER - 1
"""Most clusters whose blocks are counted in 32 bits."""

ROW_LENGTH = 2048
"""Elements of a contiguous row below which a block alone is as fast."""

BUSY_LENGTH = 8192
"""Such elements in four bytes where there are many rows: a cluster takes 14 ns of an H200 to come and go. 1024 rows of
4096 take 16.3 us by clusters and 14.1 walked, 64 rows 2.3 and 2.9; 512 rows of 32768 take 34.1 and 37.5. In two bytes
8192 rows of 2048 take 87 and 90."""

BUSY_MOST = 2**18
"""Elements of a contiguous row, at most, where every SM has one: 256 rows of 303872 float32 take 208 us by clusters,
166 walked, of 151936 79 and 85; 64 rows of 256512 take 43, and 59 in parts."""

FEW = 8
"""Contiguous rows below which long ones are summed faster in parts, by more SMs than a cluster has: one of 128257
float32 takes 5.9 us by a cluster and 3.2 in parts, two of 128256 3.8 and 3.7, 32 of them 12.2 and 14.4."""

FEW_ACCESSES = 2**14
"""Accesses of such a row, at most."""

ODD_TURNS = 20
"""Accesses of a thread, each of one element: 12.8 us for 64 rows of 50257 float32, 15.9 with 40."""

ODD_LENGTH = CLUSTER * 1024 * ODD_TURNS
"""Elements of a row of an odd length that a cluster keeps on chip, at most."""

COLUMN_LENGTH = 512
"""Elements of rows side by side below which a block alone is as fast: 64 x 512 x 1024 in two bytes takes 35.5 us by
clusters and 37.3 walked, 64 x 256 x 1024 takes 28.7 and 20.7."""

SIDE = 128
"""Bytes side by side of a cluster that walks columns."""


@frozen
class ClusterBuild:
    """The build identity: slices [length, inner] are counted at each launch."""

    form: AlongForm
    share: Share | ColumnShare
    arch: int

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 32

    @property
    def parts(self) -> int:
        """Returns 0: no part of a row leaves its sum in memory."""
        return 0

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.reduction.programs import cumsum_cluster

        if isinstance(self.share, ColumnShare):
            return cumsum_cluster.columns(self.form, self.share, CLUSTER)
        return cumsum_cluster.rows(self.form, self.share, CLUSTER)

    def __str__(self) -> str:
        return f"{self.form}, {self.share}, clusters of {CLUSTER}"


def row_share(length: int, itemsize: int) -> Share:
    """Returns the share of a block: few accesses a thread where each is of one element and has a scan of its own."""
    width = access_width(length, itemsize)
    accesses = length // width
    turns = CLUSTER_KEPT // width if width > 1 else ODD_TURNS
    lanes = -(-accesses // (CLUSTER * turns * WARP)) * WARP
    # No turn more than the threads need.
    return Share(lanes, 1, -(-accesses // (CLUSTER * lanes)), width)


class CumsumClusterKernel(CumsumLaunch):
    """Serves long contiguous rows: a cluster keeps one on chip."""

    own_barriers: ClassVar[bool] = True

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(90),
        refusal=(
            APART,
            Refusal(f"length < {ROW_LENGTH}", "length={length}: the blocks of a cluster would have too little work"),
            Refusal(
                f"length < {BUSY_LENGTH} and itemsize(dtype) == 4 and rows >= sm_count",
                f"{{rows}} rows keep {{sm_count}} SMs busy: a cluster each is for {BUSY_LENGTH} elements of {{dtype}}",
            ),
            Refusal(
                f"rows < {FEW} and {ROW_ACCESSES} > {FEW_ACCESSES}",
                f"{{rows}} rows of {{{ROW_ACCESSES}}} accesses leave SMs idle that parts of a row would keep busy",
            ),
            Refusal(
                f"length > {BUSY_MOST} and rows >= sm_count",
                "{rows} rows of length={length}, each walked by a block, keep {sm_count} SMs busy",
            ),
            Refusal(f"length > {CLUSTER_LENGTH}", f"length={{length}}: a cluster keeps at most {CLUSTER_LENGTH}"),
            Refusal(
                f"length % 2 != 0 and length > {ODD_LENGTH}",
                f"an odd length={{length}}: a cluster that reads elements one by one keeps at most {ODD_LENGTH}",
            ),
            Refusal(f"rows > {MOST}", f"counts blocks in 32 bits: at most {MOST} rows, got {{rows}}"),
        ),
        preferred_over={"cumsum_split"},
    )

    @classmethod
    def entry_for(cls, call: CumsumCall) -> tuple[ClusterBuild, Callable[[], CumsumClusterKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = ClusterBuild(AlongForm.of(call), row_share(call.length, call.dtype.itemsize), call.arch)
        return identity, lambda: cls(identity)


class CumsumColumnsKernel(CumsumLaunch):
    """Serves long rows that lie side by side: a cluster walks some of them."""

    own_barriers: ClassVar[bool] = True

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(90),
        refusal=(
            BESIDE,
            Refusal(
                f"inner * itemsize(dtype) % {ACCESS} != 0",
                f"rows start {{inner * itemsize(dtype)}} bytes apart: accesses take {ACCESS}",
            ),
            # 3000 x 600 x 8 in two bytes, one lane in eight with an access, takes 82.6 us by clusters and 53.5 walked,
            # 124 x 4096 x 68 in four bytes 124 and 105.
            Refusal(
                f"ceildiv(inner * itemsize(dtype), {SIDE}) * {SIDE * 3 // 4} > inner * itemsize(dtype) "
                f"and outer * inner * itemsize(dtype) >= sm_count * {SIDE * 3 // 2}",
                f"{{outer}} slices of {{inner * itemsize(dtype)}} bytes side by side leave lanes of {SIDE} bytes idle",
            ),
            Refusal(f"length < {COLUMN_LENGTH}", "length={length}: the blocks of a cluster would have too little work"),
            Refusal(
                f"max(length, inner) > 1073741824 or outer * ceildiv(inner * itemsize(dtype), {4 * ACCESS}) > {MOST}",
                "counts in 32 bits, got outer={outer}, length={length}, inner={inner}",
            ),
        ),
        preferred_over={"cumsum_split"},
    )

    @classmethod
    def entry_for(cls, call: CumsumCall) -> tuple[ClusterBuild, Callable[[], CumsumColumnsKernel]]:
        """Returns the build identity of a call and the function that builds it.

        A cluster takes 128 bytes side by side where that gives every SM a block or more, else 64 and more levels.
        """
        width = ACCESS // call.dtype.itemsize
        lanes = 8
        if call.outer * -(-call.inner // (lanes * width)) * CLUSTER < 2 * call.sm_count:
            lanes = 4
        depth = THREADS // lanes
        turns = min(TURNS, -(-call.length // (CLUSTER * depth)))
        identity = ClusterBuild(AlongForm.of(call), ColumnShare(lanes, depth, turns, width), call.arch)
        return identity, lambda: cls(identity)
