"""gemm_persistent: large products on Hopper, by blocks that stay and overlap a tile's end with the next one's start."""

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
    """Serves large products on Hopper: more tiles than SMs."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=exactly(90),
        refusal=(
            Refusal("m <= 128", "m={m}: one row of tiles, of 128 rows each"),
            Refusal(
                # No tile's end overlaps the start of another. H200, bfloat16, us, this one and gemm_wgmma:
                # m=1536 n=2176 k=2048 24.0, 24.0; m=1024 n=4096 k=1024 14.7, 15.0; m=n=k=2048 24.3, 24.7;
                # m=2048 n=2304 k=2048 33.1, 35.9.
                "ceildiv(m, 128) * ceildiv(n, 128) * 2 < 3 * sm_count",
                "{ceildiv(m, 128) * ceildiv(n, 128)} tiles of 128 x 128 are less than three for two of {sm_count} SMs",
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
