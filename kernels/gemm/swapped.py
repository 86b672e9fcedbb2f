"""gemm_swapped: few rows on Hopper, at the speed of memory; parts of k meet inside a cluster of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.cuts import Cut, swapped_cut
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.interface import OneLaunch
from tileops.kernels.gemm.limits import INDEX, PITCH, TILE_COLUMNS
from tileops.rules.archs import exactly
from tileops.rules.declaration import Declaration, Refusal


@frozen
class SwappedBuild:
    """The build identity: what is compiled in. m is read at each launch."""

    form: Form
    cut: Cut
    arch: int

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.gemm.programs.swapped import program

        return program(self.form, self.cut)

    def options(self) -> dict[str, Any]:
        """Returns how to compile it."""
        return {}

    def __str__(self) -> str:
        return f"{self.form}, {self.cut}"


class GemmSwappedKernel(OneLaunch):
    """Serves products of few rows on Hopper: b is read once, at the speed of memory."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=exactly(90),
        refusal=(
            Refusal("m > 128", "m={m}: one tile takes all rows, at most 128"),
            Refusal(
                # H200, bfloat16, us, swapped and split: m=128 n=512 k=16384 12.3, 9.7; m=64 n=512 k=7168 6.6, 7.6.
                "k > 8192 and ceildiv(m, 64) * ceildiv(n, 64) * 8 <= sm_count",
                "k={k} is long for eight blocks a tile, and there are {ceildiv(m, 64) * ceildiv(n, 64)} tiles",
            ),
            # H200, float16, m=1 n=4194240 k=8: 394 us, and 318 by gemm_mma; with m=64 443 us, and 726 by gemm_wgmma.
            Refusal("m <= 16 and k < 64", "k={k}: a slice of k is wider, and m={m} rows are not worth a warpgroup"),
            Refusal(
                # Float16, m=128 n=25217 k=2048: 42.6 us, and 34.7 by gemm_wgmma.
                "m >= 64 and n % 8 != 0 and ceildiv(n, 64) > sm_count",
                "the {m} rows of d are {n} elements long, no multiple of 16 bytes: they leave an element at a time",
            ),
            Refusal(
                # H200, bfloat16, us, swapped and gemm_persistent at m=128: n=24576 k=1536 24.2, 22.5; n=8192 k=8192
                # 38.9, 36.6; n=7168 k=2048 11.1, 10.8; n=4096 k=4096 16.2, 12.6; but n=28672 k=4096 67.0, 74.7.
                "m > 112 and k >= 1024 and ceildiv(n, 64) * 5 >= 2 * sm_count and ceildiv(n, 64) <= 3 * sm_count",
                "{m} rows and {ceildiv(n, 64)} columns of tiles fill {sm_count} SMs as they lie",
            ),
            *PITCH,
            TILE_COLUMNS,
            INDEX,
        ),
        preferred_over={"gemm_splitk"},
    )

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[SwappedBuild, Callable[[], GemmSwappedKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        cut = swapped_cut(call.m, call.n, call.k, call.sm_count, call.trans_a)
        identity = SwappedBuild(Form.of(call, compiled_m=False), cut, call.arch)
        return identity, lambda: cls(identity)
