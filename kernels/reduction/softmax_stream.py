"""softmax_stream: rows are walked twice, contiguous or not. The general one: it serves every call."""

from __future__ import annotations

from typing import ClassVar

from tileops.kernels.columns import ColumnShare, long_columns
from tileops.kernels.kept import WALKED_ROWS, WalkedRows
from tileops.kernels.reduction.softmax import SoftmaxCall
from tileops.kernels.reduction.softmax_build import SoftmaxLaunch
from tileops.kernels.rows import Share
from tileops.rules.declaration import Declaration


class SoftmaxStreamKernel(WalkedRows, SoftmaxLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = WALKED_ROWS

    @classmethod
    def share_of(cls, call: SoftmaxCall) -> Share | ColumnShare:
        """Returns how threads share the rows of a call."""
        return super().share_of(call) if call.inner == 1 else long_columns(call.inner, call.dtype.itemsize)
