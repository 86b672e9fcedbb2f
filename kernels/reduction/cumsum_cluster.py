"""Cumulative sums by clusters of blocks: long rows, contiguous or side by side, each read once, in one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import evolve, frozen

from tileops.kernels.columns import WARP, ColumnShare
from tileops.kernels.reduction.cumsum import CumsumCall
from tileops.kernels.reduction.cumsum_rows import CumsumLaunch
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import APART, BESIDE
from tileops.kernels.rows import ACCESS, CLUSTER, CLUSTER_LENGTH, Share, cluster_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

THREADS = 256
"""Threads of a block of columns, four blocks an SM: clusters of 8 in 66 places, where two of 512 an SM have 31."""

TURNS = 8
"""Accesses of a row, one behind the other, that a thread keeps."""

MOST = 2**31 // CLUSTER - 1
"""Most clusters whose blocks are counted in 32 bits."""

ROW_LENGTH = 4096
"""Elements of a contiguous row below which a block alone is as fast."""

ODD_TURNS = 20
"""Accesses of a thread, each of one element: 12.8 us for 64 rows of 50257 float32, 15.9 with 40."""

ODD_LENGTH = CLUSTER * 1024 * ODD_TURNS
"""Elements of a row of an odd length that a cluster keeps on chip, at most."""

COLUMN_LENGTH = 512
"""Elements of rows side by side below which a block alone is as fast."""


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
    share = cluster_row(length, itemsize)
    accesses = length // share.width
    turns = share.turns if share.width > 1 else ODD_TURNS
    lanes = -(-accesses // (CLUSTER * turns * WARP)) * WARP
    # No turn more than the threads need.
    return evolve(share, lanes=lanes, turns=-(-accesses // (CLUSTER * lanes)))


class CumsumClusterKernel(CumsumLaunch):
    """Serves long contiguous rows: a cluster keeps one on chip."""

    own_barriers: ClassVar[bool] = True

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(90),
        refusal=(
            APART,
            Refusal(f"length < {ROW_LENGTH}", "length={length}: the blocks of a cluster would have too little work"),
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
