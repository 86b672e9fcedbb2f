"""gemm_persistent: Hopper's products, by blocks that stay and overlap a tile's end with the next one's start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.interface import OneLaunch
from tileops.kernels.gemm.limits import INDEX, PITCH
from tileops.kernels.gemm.walks import Walk, walk_of
from tileops.rules.archs import exactly
from tileops.rules.declaration import Declaration, Refusal


@frozen
class PersistentBuild:
    """The build identity: what is compiled in. m is read at each launch."""

    form: Form
    walk: Walk
    blocks: int
    arch: int

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.gemm.programs.persistent import program

        return program(self.form, self.walk, self.blocks)

    def options(self) -> dict[str, Any]:
        """Returns how to compile it."""
        return {"by_hand": True}

    def __str__(self) -> str:
        return f"{self.form}, {self.walk}, {self.blocks} blocks"


class GemmPersistentKernel(OneLaunch):
    """Serves products on Hopper that fill its SMs: many tiles, or few and a long k."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=exactly(90),
        refusal=(
            # H200, bfloat16, us, this one and gemm_swapped: 96 x 7168 x 2048 11.6, 9.8.
            Refusal("m <= 112", "m={m}: one row of tiles, in good part empty"),
            Refusal(
                # A ring that just one tile fills costs more than it gains. This one and gemm_wgmma: 512 x 512 x 512
                # 3.6, 3.4; 256 x 1024 x 256 2.9, 2.8; 1024 x 1024 x 128 3.1, 3.0; but 4096 x 1024 x 128 5.4, 6.0, and
                # at k=1024 m=256 n=1024 4.4, 4.5; m=n=1024 5.8, 6.2.
                "k < 1024 and ceildiv(m, 128) * ceildiv(n, 128) * 2 < 3 * sm_count",
                "k={k} is short for {ceildiv(m, 128) * ceildiv(n, 128)} tiles of 128 x 128, less than three for two of "
                "{sm_count} SMs",
            ),
            Refusal(
                # This one and gemm_wgmma: 1024 x 256 x 7168 18.6, 16.0; but 129 x 256 x 7168 14.1, 15.5.
                "m > 512 and k >= 4096 and ceildiv(m, 64) * ceildiv(n, 64) <= sm_count",
                "k={k} is long for {ceildiv(m, 64) * ceildiv(n, 64)} tiles of 64 x 64, no more than {sm_count} SMs: a "
                "block has no second tile to overlap with",
            ),
            # Without bulk stores, float16, this one and gemm_wgmma: 333 x 777 x 1032 9.2, 6.1; 128 x 3329 x 7168 19.9,
            # 18.0; 128 x 25345 x 7168 113, 99; but 1024 x 50257 x 768 128, 167.
            Refusal(
                "n * itemsize(dtype) % 16 != 0 and ceildiv(m, 128) * ceildiv(n, 128) < 2 * sm_count",
                "a row of d has {n * itemsize(dtype)} bytes, no multiple of 16, which few tiles, "
                "{ceildiv(m, 128) * ceildiv(n, 128)} of 128 x 128, leave no time to store",
            ),
            *PITCH,
            INDEX,
        ),
        preferred_over={"gemm_wgmma"},
    )

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[PersistentBuild, Callable[[], GemmPersistentKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        walk = walk_of(call.m, call.n, call.k, call.trans_b, call.sm_count)
        identity = PersistentBuild(Form.of(call, compiled_m=False), walk, call.sm_count, call.arch)
        return identity, lambda: cls(identity)
