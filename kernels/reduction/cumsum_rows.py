"""Cumulative sums: short rows, few long rows in parts, and the general one, which walks rows of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.columns import LANES, ColumnShare, walking_columns
from tileops.kernels.flow import EARLY_ARCH
from tileops.kernels.limits import ROWS, row_bytes
from tileops.kernels.reduction.cumsum import CumsumCall, CumsumInterface
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.limits import APART
from tileops.kernels.rows import ACCESS, WALK, WARP_BYTES, Share, long_row, short_rows
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

SPLIT_LENGTH = 1024
"""Elements of a row below which parts of it are not worth a second read."""

ROW_LENGTH = 8192
"""Elements of a contiguous row below which a block alone is as fast as two kernels: 1024 in four bytes take 1.8 us
against 2.4, 4096 take 2.1 against 2.8, 64128 take 13.0 against 3.3; on a line between them the two meet here."""

LEAST_LENGTH = f"({ROW_LENGTH} if inner == 1 else {SPLIT_LENGTH})"
"""Elements of a row that has parts, at least, as a rule's text."""

GROUPS = f"outer * ceildiv(inner * itemsize(dtype) // gcd(inner * itemsize(dtype), {ACCESS}), {LANES})"
"""Blocks of the program that walks, as a rule's text: each takes a contiguous row, or 16 accesses side by side."""

MOST_PARTS = 512
"""Parts of a row at most: each reads the sums of those before it."""


@frozen
class CumsumBuild:
    """The build identity: slices [length, inner] are counted at each launch."""

    form: AlongForm
    share: Share | ColumnShare
    arch: int
    steps: int = 0
    """Slices of a part of a row; 0: rows are whole."""
    walks: bool = False
    """Blocks walk the rows, with 64-bit indices."""

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 64 if self.walks else 32

    @property
    def slice_length(self) -> int:
        """Returns the elements of a row that a block reads at a time."""
        if isinstance(self.share, ColumnShare):
            return self.share.depth * self.share.turns
        return self.share.lanes * self.share.turns * self.share.width

    @property
    def parts(self) -> int:
        """Returns how many parts a row has; 0: rows are whole."""
        return -(-self.form.length // (self.slice_length * self.steps)) if self.steps else 0

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.reduction.programs import cumsum

        early = self.arch >= EARLY_ARCH
        if isinstance(self.share, ColumnShare):
            if self.steps:
                return cumsum.columns_split(self.form, self.share, self.steps, early)
            return cumsum.columns(self.form, self.share, WALK)
        if self.steps:
            return cumsum.rows_split(self.form, self.share, self.steps, early)
        return cumsum.rows(self.form, self.share, WALK if self.walks else None)

    def __str__(self) -> str:
        parts = f", {self.parts} parts" if self.steps else ""
        return f"{self.form}, {self.share}{parts}" + (", 64-bit indices" if self.walks else "")


class CumsumLaunch(Built, CumsumInterface):
    """Stands above the implementations of the cumulative sum."""

    def __init__(self, identity: Any) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        form = identity.form
        inner = form.inner if isinstance(identity.share, ColumnShare) else 1
        self._size = form.length * inner
        self._sums = identity.parts * inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        y = torch.empty_like(x)
        count = x.numel() // self._size
        if self._sums:
            partial = x.new_empty(count * self._sums, dtype=torch.float32)
            self._launch(x, x.data_ptr(), partial.data_ptr(), y.data_ptr(), count)
        else:
            self._launch(x, x.data_ptr(), y.data_ptr(), count)
        return y


class CumsumShortKernel(CumsumLaunch):
    """Serves contiguous rows that at most a warp reads at once."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(APART, row_bytes(WARP_BYTES, "read by a warp at once"), ROWS),
    )

    @classmethod
    def entry_for(cls, call: CumsumCall) -> tuple[CumsumBuild, Callable[[], CumsumShortKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = short_rows(call.length, call.dtype.itemsize, busy=call.outer >= 8 * call.sm_count)
        identity = CumsumBuild(AlongForm.of(call), share, call.arch)
        return identity, lambda: cls(identity)


class CumsumSplitKernel(CumsumLaunch):
    """Serves few long rows: the parts of a row are summed first, then all of them run at once."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                f"length * itemsize(dtype) <= {WARP_BYTES} or length < {LEAST_LENGTH}",
                "length={length}: parts of a row would have too little work",
            ),
            # Rows of 128256 in four bytes, on 132 SMs: 65 take 28 us in parts and 34 whole, 128 take 57 and 43.
            # Columns of 4096: 32 blocks 30 and 66, 64 blocks 56 and 69, 96 blocks 81 and 80, 128 blocks 107 and 87.
            Refusal(
                f"{GROUPS} * 3 >= sm_count * 2",
                f"{{{GROUPS}}} blocks that walk keep {{sm_count}} SMs busy already",
            ),
            Refusal(
                "max(length, inner) > 1073741824 or outer > 65535",
                "counts in 32 bits, got length={length}, inner={inner}",
            ),
        ),
    )

    @classmethod
    def entry_for(cls, call: CumsumCall) -> tuple[CumsumBuild, Callable[[], CumsumSplitKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form, itemsize = AlongForm.of(call), call.dtype.itemsize
        share: Share | ColumnShare
        if call.inner == 1:
            share = long_row(call.length, itemsize, lanes=256)
            groups = call.outer
        else:
            share = walking_columns(call.inner, itemsize)
            groups = call.outer * -(-call.inner // (share.lanes * share.width))
        slices = -(-call.length // CumsumBuild(form, share, call.arch, 1).slice_length)
        wanted = max(1, min(MOST_PARTS, -(-4 * max(call.sm_count, 1) // groups)))
        identity = CumsumBuild(form, share, call.arch, -(-slices // wanted))
        return identity, lambda: cls(identity)


class CumsumWalkKernel(CumsumLaunch):
    """Serves rows of any length and number, contiguous or not. The general one."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: CumsumCall) -> tuple[CumsumBuild, Callable[[], CumsumWalkKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        itemsize = call.dtype.itemsize
        share = long_row(call.length, itemsize) if call.inner == 1 else walking_columns(call.inner, itemsize)
        identity = CumsumBuild(AlongForm.of(call), share, call.arch, walks=True)
        return identity, lambda: cls(identity)
