"""Softmax of rows side by side, each on chip: at most a warp, a block, several blocks or a cluster a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.kept import BlockRows, WarpRows, block_rows, warp_rows
from tileops.kernels.limits import IDLE, TICKETS, WAITING
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import APART
from tileops.kernels.reduction.softmax import SoftmaxCall
from tileops.kernels.reduction.softmax_build import SoftmaxBuild, SoftmaxLaunch
from tileops.kernels.rows import CLUSTER, CLUSTER_LENGTH, NARROW_LIMIT, cluster_row, part_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

CLUSTER_ROWS = 2**31 // CLUSTER - 1
"""Most rows whose blocks are counted in 32 bits."""


class SoftmaxWarpKernel(WarpRows, SoftmaxLaunch):
    """Serves rows that at most a warp keeps on chip."""

    declaration: ClassVar[Declaration] = warp_rows("softmax_block", APART)


class SoftmaxBlockKernel(BlockRows, SoftmaxLaunch):
    """Serves rows that a block keeps on chip."""

    declaration: ClassVar[Declaration] = block_rows(
        APART,
        # On an H200 32 rows of 65536 bfloat16 take 11.6 us kept and 9.8 walked, of 32768 5.3 and 5.9.
        Refusal(
            f"length > {NARROW_LIMIT} and rows < sm_count",
            f"{{rows}} rows of length={{length}} are walked faster: a thread has registers for a float32 of each "
            f"element of at most {NARROW_LIMIT}",
        ),
    )


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


class SoftmaxClusterKernel(SoftmaxLaunch):
    """Serves long rows where there are clusters: one keeps a row on chip."""

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
        share = cluster_row(call.length, call.dtype.itemsize)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch, CLUSTER, clustered=True)
        return identity, lambda: cls(identity)
