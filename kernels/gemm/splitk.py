"""gemm_splitk: few tiles and a long k; the slices of k are shared out among blocks and added up in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.interface import OneLaunch
from tileops.kernels.gemm.limits import INDEX
from tileops.kernels.gemm.tiles import Tile, splitk_parts, splitk_tile
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal


@frozen
class SplitkBuild:
    """The build identity. m is compiled in where it is a row pitch (trans_a) and read at each launch elsewhere."""

    form: Form
    tile: Tile
    parts: int
    tma: bool
    arch: int

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.gemm.programs.splitk import program

        return program(self.form, self.tile, self.parts, self.tma)

    def options(self) -> dict[str, Any]:
        """Returns how to compile it."""
        return {"warp_matrix": not self.tma}

    def __str__(self) -> str:
        return f"{self.form}, {self.tile}, {self.parts} parts" + (", copy engine" if self.tma else "")


class GemmSplitkKernel(OneLaunch):
    """Serves products whose tiles would leave most SMs idle."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                # The smallest tiles of gemm_wgmma and gemm_mma are 64 columns wide. H200, bfloat16, us, split and not:
                # m=16 n=4096 k=7168 18.2, 20.7; m=16 n=7168 k=8192 32.9, 30.6; m=96 n=2112 k=7168 15.3, 17.1;
                # m=128 n=4096 k=12288 33.3, 31.1.
                "ceildiv(m, 64) * ceildiv(n, 64) * 2 > sm_count",
                "{ceildiv(m, 64) * ceildiv(n, 64)} tiles of 64 x 64 occupy more than half of {sm_count} SMs already",
            ),
            Refusal("k < 1024", "k={k}: parts of fewer than 512 elements cost more to add up than they save"),
            Refusal(
                # H200, bfloat16, us, split and gemm_persistent: 256 x 1024 x 1024 5.7, 4.4; 256 x 512 x 2048 5.8, 5.9.
                "arch == 90 and m > 128 and k < 2048",
                "k={k}: Hopper's tiles of all of k take less than adding up parts of it",
            ),
            INDEX,
        ),
        preferred_over={"gemm_persistent"},
    )

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[SplitkBuild, Callable[[], GemmSplitkKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        pitches = (call.m if call.trans_a else call.k, call.k if call.trans_b else call.n)
        tma = call.arch == 90 and call.m > 32 and all(pitch * call.dtype.itemsize % 16 == 0 for pitch in pitches)
        tile = splitk_tile(call.m, tma)
        parts = splitk_parts(tile, call.m, call.n, call.k, call.sm_count)
        form = Form.of(call, compiled_m=call.trans_a and not tma)
        identity = SplitkBuild(form, tile, parts, tma, call.arch)
        return identity, lambda: cls(identity)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Returns a new d [m, n]."""
        m, n = a.shape[self._m_axis], b.shape[self._n_axis]
        workspace = a.new_empty(self.identity.parts, m, n, dtype=torch.float32)
        d = a.new_empty(m, n)
        self._launch(a, b, workspace, d)
        return d
