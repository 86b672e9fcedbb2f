"""softmax_columns: rows whose elements lie apart, on chip; neighbouring rows share an access."""

from __future__ import annotations

from typing import ClassVar

from tileops.kernels.columns import COLUMN_LENGTH, ColumnShare, short_columns
from tileops.kernels.reduction.limits import BESIDE
from tileops.kernels.reduction.softmax import SoftmaxCall
from tileops.kernels.reduction.softmax_build import SoftmaxLaunch
from tileops.kernels.rows import COUNT_LIMIT
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal


class SoftmaxColumnsKernel(SoftmaxLaunch):
    """Serves rows that the threads of a column keep on chip."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            BESIDE,
            Refusal(f"length > {COLUMN_LENGTH}", f"length={{length}}: keeps at most {COLUMN_LENGTH} elements a row"),
            Refusal(f"rows > {COUNT_LIMIT}", f"counts rows in 32 bits: at most {COUNT_LIMIT}, got {{rows}}"),
        ),
    )

    @classmethod
    def share_of(cls, call: SoftmaxCall) -> ColumnShare:
        """Returns how threads share the rows of a call."""
        return short_columns(call.length, call.inner, call.dtype.itemsize)
