"""The build identity of softmax, and how its kernels are called."""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.columns import ColumnShare
from tileops.kernels.kept import Rows
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.softmax import SoftmaxCall, SoftmaxInterface
from tileops.kernels.rows import WALK, Share


@frozen
class SoftmaxBuild:
    """The build identity: slices [length, inner] are counted at each launch."""

    form: AlongForm
    share: Share | ColumnShare
    arch: int
    parts: int = 1
    """Blocks that share a row."""
    clustered: bool = False
    """Those are a cluster."""
    walks: bool = False
    """Blocks walk the rows, with 64-bit indices."""

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 64 if self.walks else 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.reduction.programs import softmax, softmax_cluster, softmax_columns, softmax_shared

        if isinstance(self.share, ColumnShare):
            if self.walks:
                return softmax_columns.streaming(self.form, self.share, WALK)
            return softmax_columns.on_chip(self.form, self.share)
        if self.walks:
            return softmax.streaming(self.form, self.share, WALK)
        if self.clustered:
            return softmax_cluster.clustered(self.form, self.share, self.parts)
        if self.parts > 1:
            return softmax_shared.shared(self.form, self.share, self.parts)
        return softmax.on_chip(self.form, self.share)

    def __str__(self) -> str:
        shared = f", {self.parts} blocks a row" + ", a cluster" * self.clustered if self.parts > 1 else ""
        return f"{self.form}, {self.share}{shared}" + (", 64-bit indices" if self.walks else "")


class SoftmaxLaunch(Built, Rows, SoftmaxInterface):
    """Stands above the implementations of softmax."""

    def __init__(self, identity: SoftmaxBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        form = identity.form
        columns = isinstance(identity.share, ColumnShare)
        self._slice = (form.length, form.inner) if columns else (form.length,)
        self._met = 0 if identity.clustered or identity.parts == 1 else identity.parts

    @classmethod
    def identity_of(cls, call: SoftmaxCall, share: Share | ColumnShare) -> SoftmaxBuild:
        """Returns the build identity of a call with a share."""
        return SoftmaxBuild(AlongForm.of(call), share, call.arch, walks=cls.walks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        y = torch.empty_like(x)
        # A view costs a microsecond, and two where its shape is a tuple.
        rows, out = (x, y) if x.shape[1:] == self._slice else (x.view(-1, *self._slice), y.view(-1, *self._slice))
        if self._met:
            count = rows.shape[0]
            counters = x.new_empty((count + 1,), dtype=torch.int32)
            partial = x.new_empty((count, self._met, 2), dtype=torch.float32)
            self._launch(rows, counters, partial, out)
        else:
            self._launch(rows, out)
        return y
