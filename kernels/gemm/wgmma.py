"""gemm_wgmma: Hopper's warpgroup matrix units, fed by its bulk tensor copy engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.interface import OneLaunch
from tileops.kernels.gemm.limits import INDEX, PITCH, TILE_COLUMNS
from tileops.kernels.gemm.tiles import Tile, wgmma_tile
from tileops.rules.archs import exactly
from tileops.rules.declaration import Declaration, Refusal


@frozen
class WgmmaBuild:
    """The build identity: what is compiled in. m is read at each launch."""

    form: Form
    tile: Tile
    arch: int

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.gemm.programs.wgmma import program

        return program(self.form, self.tile)

    def options(self) -> dict[str, Any]:
        """Returns how to compile it."""
        return {}

    def __str__(self) -> str:
        return f"{self.form}, {self.tile}"


class GemmWgmmaKernel(OneLaunch):
    """Serves large products on Hopper."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=exactly(90),
        refusal=(
            Refusal("m < 64", "m={m}: one tile has at least 64 rows"),
            *PITCH,
            TILE_COLUMNS,
            INDEX,
        ),
    )

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[WgmmaBuild, Callable[[], GemmWgmmaKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        tile = wgmma_tile(call.m, call.n, call.k, call.sm_count)
        identity = WgmmaBuild(Form.of(call, compiled_m=False), tile, call.arch)
        return identity, lambda: cls(identity)
