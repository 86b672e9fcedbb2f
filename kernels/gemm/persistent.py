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
                "ceildiv(m, 128) * ceildiv(n, 128) < sm_count",
                "{ceildiv(m, 128) * ceildiv(n, 128)} tiles of 128 x 128 leave some of {sm_count} SMs idle",
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
        blocks = call.sm_count // walk.together * walk.together
        identity = PersistentBuild(Form.of(call, compiled_m=False), walk, blocks, call.arch)
        return identity, lambda: cls(identity)
