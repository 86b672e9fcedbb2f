"""cumsum_columns: long rows that lie side by side flow through teams of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.flow import EARLY_ARCH, Flow
from tileops.kernels.reduction.cumsum import CumsumCall, CumsumInterface
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import BESIDE
from tileops.kernels.rows import ACCESS
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

LANES, DEPTH = 16, 32
"""Threads side by side, and behind one another along the rows."""

TURNS = 8
"""Elements of a row that a thread keeps in registers."""

SIDE_BYTES = LANES * ACCESS
"""Bytes side by side of a team."""

MOST_PARTS = 8
"""Blocks of a team, at most: each reads what all of them tell."""

LEAST_BYTES = 16 * 2**20
"""Bytes of a tensor below which two kernels that each fill the chip once are as fast."""


@frozen
class ColumnsBuild:
    """The build identity: slices [length, inner] are counted at each launch."""

    form: AlongForm
    flow: Flow
    arch: int

    @classmethod
    def of(cls, call: CumsumCall) -> ColumnsBuild:
        """Returns the identity for a call: a team for each few rows side by side, of all blocks that there are."""
        width = ACCESS // call.dtype.itemsize
        side = LANES * width
        groups = call.outer * -(-call.inner // side)
        parts = max(1, min(MOST_PARTS, call.sm_count // groups))
        scratch = 4 * (DEPTH * (side + 1) + side + 2 * LANES * DEPTH) + 256
        slots = (call.smem_budget - scratch) // (LANES * DEPTH * ACCESS)
        teams = min(groups, call.sm_count // parts)
        return cls(AlongForm.of(call), Flow(LANES, TURNS, width, slots, parts, teams, 1, DEPTH), call.arch)

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 32

    @property
    def steps(self) -> int:
        """Returns in how many steps a team walks its rows."""
        return -(-self.form.length // (self.flow.parts * DEPTH * TURNS))

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.reduction.programs.cumsum_columns import program

        return program(self.form, self.flow, self.steps, early=self.arch >= EARLY_ARCH)

    def __str__(self) -> str:
        return f"{self.form}, {self.flow}"


class CumsumColumnsKernel(Built, CumsumInterface):
    """Serves large tensors whose rows lie side by side, too few for a block each."""

    own_barriers: ClassVar[bool] = True

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            BESIDE,
            Refusal(
                "inner * itemsize(dtype) % 16 != 0",
                "rows start {inner * itemsize(dtype)} bytes apart: accesses take 16",
            ),
            Refusal(
                f"rows * length * itemsize(dtype) < {LEAST_BYTES}",
                f"{{rows * length * itemsize(dtype)}} bytes: two kernels do as well below {LEAST_BYTES}",
            ),
            Refusal(
                "outer * ceildiv(inner, 128) >= sm_count",
                "{outer} slices of {inner} rows keep {sm_count} SMs busy already",
            ),
            # Teams for three quarters of the SMs: one team of 8 blocks, for 8 rows of 16268815 side by side in two
            # bytes, takes 28.9 ms where two kernels take 1.2.
            Refusal(
                f"outer * ceildiv(inner * itemsize(dtype), {SIDE_BYTES}) * {4 * MOST_PARTS} < sm_count * 3",
                f"{{outer}} slices of {{inner}} rows make too few teams of {MOST_PARTS} blocks for {{sm_count}} SMs",
            ),
            Refusal("length < 1024", "length={length}: parts of a row would have too little work"),
            Refusal("length * sm_count > 2147483648", "counts what blocks tell in 32 bits, got length={length}"),
            Refusal("smem_budget < 163840", "a block takes 160 KiB of shared memory, {smem_budget} bytes are there"),
        ),
        preferred_over={"cumsum_split"},
    )

    def __init__(self, identity: ColumnsBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        form, flow = identity.form, identity.flow
        side = flow.lanes * flow.width
        self._shape = (-1, form.length, form.inner)
        self._records = -(-form.inner // side) * identity.steps * flow.parts * side

    @classmethod
    def entry_for(cls, call: CumsumCall) -> tuple[ColumnsBuild, Callable[[], CumsumColumnsKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = ColumnsBuild.of(call)
        return identity, lambda: cls(identity)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        y = torch.empty_like(x)
        rows = x.view(self._shape)
        records = x.new_empty((rows.shape[0] * self._records,), dtype=torch.uint32)
        self._launch(rows, records, y.view(self._shape))
        return y
