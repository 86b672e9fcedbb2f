"""gemv: products of one or two rows, at the speed of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.interface import OneLaunch
from tileops.kernels.gemm.limits import GRID_Y, INDEX
from tileops.kernels.gemm.tiles import Sharing, gemv_sharing
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal


@frozen
class GemvBuild:
    """The build identity: the whole shape is compiled in."""

    form: Form
    sharing: Sharing
    arch: int

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.gemm.programs import gemv

        build = gemv.program_rows if self.form.trans_b else gemv.program_columns
        return build(self.form, self.sharing.across, self.sharing.down, self.sharing.unroll, self.arch >= 90)

    def options(self) -> dict[str, Any]:
        """Returns how to compile it."""
        return {"warp_matrix": True}

    def __str__(self) -> str:
        return f"{self.form}, {self.sharing}"


class GemvKernel(OneLaunch):
    """Serves one or two rows of a."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal("m > 2", "m={m}: keeps the sums of at most two rows"),
            # H200, float16, m=1 n=4194240 k=8: 632 us, and 318 by gemm_mma.
            Refusal("k < 64", "k={k}: the threads that share a row or column of b have nothing to share"),
            Refusal(
                # The same at k=64, 632 us, and 173 by gemm_swapped, which serves just these; but n=4194248 takes
                # gemm_mma 1.9 times as long. A row costs its warps what 632 bytes cost at the speed of memory.
                f"arch == 90 and k < 512 and k % 8 == 0 and trans_b and not trans_a and n <= {64 * GRID_Y}",
                "k={k}: rows of b are too short for warps of their own, and Hopper's tiles take them",
            ),
            INDEX,
        ),
        preferred_over={"gemm_swapped"},
    )

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[GemvBuild, Callable[[], GemvKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        sharing = gemv_sharing(call.m, call.n, call.k, call.trans_b)
        identity = GemvBuild(Form.of(call, compiled_m=True), sharing, call.arch)
        return identity, lambda: cls(identity)
