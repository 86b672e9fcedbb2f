"""softmax_stream: rows are walked twice, contiguous or not. The general one: it serves every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.columns import long_columns
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.softmax import SoftmaxCall
from tileops.kernels.reduction.softmax_build import SoftmaxBuild, SoftmaxLaunch
from tileops.kernels.rows import long_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class SoftmaxStreamKernel(SoftmaxLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: SoftmaxCall) -> tuple[SoftmaxBuild, Callable[[], SoftmaxStreamKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        itemsize = call.dtype.itemsize
        share = long_row(call.length, itemsize) if call.inner == 1 else long_columns(call.inner, itemsize)
        identity = SoftmaxBuild(AlongForm.of(call), share, call.arch, walks=True)
        return identity, lambda: cls(identity)
