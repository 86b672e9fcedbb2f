"""gemm_mma: the warp matrix units of sm_80 and newer. The general one: it serves every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.interface import OneLaunch
from tileops.kernels.gemm.limits import GRID_Y, INDEX_LIMIT
from tileops.kernels.gemm.tiles import MMA_WIDE, Tile, mma_tile
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration

WIDE_BLOCKS = 1024
"""Blocks of the 64-bit program, which walk the tiles: several an SM on any board."""


@frozen
class MmaBuild:
    """The build identity. m is compiled in where it is a row pitch (trans_a) and read at each launch elsewhere.

    ``wide``: 64-bit indices; nothing of the shape is compiled in, so one build serves them all.
    """

    form: Form
    tile: Tile
    arch: int
    wide: bool

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.gemm.programs import mma

        return mma.program_wide(self.form, self.tile, WIDE_BLOCKS) if self.wide else mma.program(self.form, self.tile)

    def options(self) -> dict[str, Any]:
        """Returns how to compile it."""
        return {"warp_matrix": True, "index_bits": 64 if self.wide else 32}

    def __str__(self) -> str:
        return f"{self.form}, {self.tile}" + (", 64-bit indices" if self.wide else "")


class GemmMmaKernel(OneLaunch):
    """Serves any product on any GPU from sm_80 on."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[MmaBuild, Callable[[], GemmMmaKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        tile = mma_tile(call.m, call.n, call.sm_count)
        wide = max(call.m, call.n, call.k) > INDEX_LIMIT or -(-call.n // tile.cols) > GRID_Y
        form = Form.of(call, compiled_m=call.trans_a)
        identity = (
            MmaBuild(form.opened(), MMA_WIDE, call.arch, True) if wide else MmaBuild(form, tile, call.arch, False)
        )
        return identity, lambda: cls(identity)
