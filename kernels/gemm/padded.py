"""gemm_padded: Hopper's copy engine for row pitches that it does not take, by way of a padded copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.cuts import Cut, padded, swapped_cut, together
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.interface import OneLaunch
from tileops.kernels.gemm.limits import INDEX, TILE_COLUMNS
from tileops.kernels.gemm.tiles import ACCESS, Tile, wgmma_tile
from tileops.rules.archs import exactly
from tileops.rules.declaration import Declaration, Refusal


@frozen
class PaddedBuild:
    """The build identity. m is compiled in where it is a row pitch (trans_a) and read at each launch elsewhere."""

    form: Form
    plan: Tile | Cut
    arch: int

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.gemm.programs.padded import program

        return program(self.form, self.plan)

    def options(self) -> dict[str, Any]:
        """Returns how to compile it."""
        return {}

    def __str__(self) -> str:
        return f"{self.form}, {self.plan}"


class GemmPaddedKernel(OneLaunch):
    """Serves products on Hopper whose operands' rows are no multiples of 16 bytes apart."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=exactly(90),
        refusal=(
            Refusal(
                "(m if trans_a else k) * itemsize(dtype) % 16 == 0 "
                "and (k if trans_b else n) * itemsize(dtype) % 16 == 0",
                "the rows of a and b lie on 16-byte boundaries as they are",
            ),
            # H200, bfloat16, us, padded and split: n=4096 k=4099 32.6, 30.6 at m=16 and 33.9, 33.2 at m=32;
            # m=128 n=256 k=7169 12.0, 14.5. Padded and gemm_mma: m=33 n=1000 k=1003 5.2, 17.1; m=n=300 k=301 4.6, 7.8.
            Refusal("m <= 32", "m={m}: the copy of b costs more than its few uses save"),
            # H200, float16, us, padded and by gemm_mma: m=64 n=4194240 k=1 2982, 587; 333 x 777 x 65 5.5, 4.7.
            Refusal("k < 128", "k={k}: a copy with rows padded to 16 bytes is a large part of the work"),
            Refusal(
                # Float16, us, padded and split, all transposed: 129 x 256 x 7168 26.8, 11.5; 127 x 256 x 7168 13.2, 8.5
                "(m > 128 or trans_a) and k >= 4096 and ceildiv(m, 64) * ceildiv(n, 64) * 8 <= sm_count",
                "{ceildiv(m, 64) * ceildiv(n, 64)} tiles of 64 x 64 leave most of {sm_count} SMs idle, "
                "and k={k} is long",
            ),
            Refusal(
                # Float16, us: 321 x 777 x 8193, 78 tiles, padded 42; 320 x 777 x 8193, 65 tiles, split 84.
                "k >= 8192 and ceildiv(m, 64) * ceildiv(n, 64) * 4 <= sm_count",
                "{ceildiv(m, 64) * ceildiv(n, 64)} tiles of 64 x 64 leave most of {sm_count} SMs idle, "
                "and k={k} is very long",
            ),
            TILE_COLUMNS,
            INDEX,
        ),
        preferred_over={"gemm_splitk"},
    )

    def __init__(self, identity: PaddedBuild) -> None:
        """Compiles the program of a build identity for its arch. Needs nvcc or TileLang's disk cache."""
        super().__init__(identity)
        self._together = together(identity.form)
        self._pitch = padded(identity.form.k or 0)

    @classmethod
    def entry_for(cls, call: GemmCall) -> tuple[PaddedBuild, Callable[[], GemmPaddedKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        if call.m <= 128:
            plan: Tile | Cut = swapped_cut(call.m, call.n, call.k, call.sm_count, call.trans_a)
        else:
            plan = wgmma_tile(call.m, call.n, call.k, call.sm_count)
        identity = PaddedBuild(Form.of(call, compiled_m=call.trans_a), plan, call.arch)
        return identity, lambda: cls(identity)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Returns a new d [m, n]."""
        m, n = a.shape[self._m_axis], b.shape[self._n_axis]
        d = a.new_empty(m, n)
        if self._together:
            wide = a.new_empty(m + n, self._pitch)
            self._launch(a, b, wide, wide, d)
        else:
            self._launch(a, b, _room(a), _room(b), d)
        return d


def _room(operand: torch.Tensor) -> torch.Tensor:
    """Returns where an operand's padded copy goes, or the operand itself if it needs none."""
    rows, pitch = operand.shape
    return operand if pitch % ACCESS == 0 else operand.new_empty(rows, padded(pitch))
