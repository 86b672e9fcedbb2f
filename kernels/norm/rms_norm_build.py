"""The build identity of RMSNorm and of fused add and RMSNorm, and how their kernels are called."""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.kept import Rows, flat
from tileops.kernels.norm.form import NormForm
from tileops.kernels.norm.fused_add_rms_norm import FusedAddRMSNormCall, FusedAddRMSNormInterface
from tileops.kernels.norm.rms_norm import RMSNormCall, RMSNormInterface
from tileops.kernels.rows import WALK, Share


@frozen
class RMSNormBuild:
    """The build identity: rows are counted at each launch, all else is compiled in."""

    form: NormForm
    share: Share
    arch: int
    added: bool = False
    walks: bool = False
    """Blocks walk the rows, with 64-bit indices."""

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 64 if self.walks else 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.norm.programs import rms_norm

        if self.walks:
            return rms_norm.streaming(self.form, self.share, self.added, WALK)
        return rms_norm.on_chip(self.form, self.share, self.added)

    def __str__(self) -> str:
        return f"{self.form}, {self.share}" + (", 64-bit indices" if self.walks else "")


class RMSNormLaunch(Built, Rows, RMSNormInterface):
    """Stands above the implementations of RMSNorm."""

    def __init__(self, identity: RMSNormBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        self._length = identity.form.length
        self._row = (identity.form.length,)

    @classmethod
    def identity_of(cls, call: RMSNormCall, share: Share) -> RMSNormBuild:
        """Returns the build identity of a call with a share."""
        return RMSNormBuild(NormForm.of(call), share, call.arch, walks=cls.walks)

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        y = torch.empty_like(x)
        # A view costs a microsecond, and two where its shape is a tuple.
        rows, out = (x, y) if x.shape[1:] == self._row else (x.view(-1, self._length), y.view(-1, self._length))
        self._launch(rows, flat(weight, rows), out)
        return y


class FusedAddRMSNormLaunch(Built, Rows, FusedAddRMSNormInterface):
    """Stands above the implementations of fused add and RMSNorm."""

    def __init__(self, identity: RMSNormBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        self._length = identity.form.length
        self._row = (identity.form.length,)

    @classmethod
    def identity_of(cls, call: FusedAddRMSNormCall, share: Share) -> RMSNormBuild:
        """Returns the build identity of a call with a share."""
        return RMSNormBuild(NormForm.of(call), share, call.arch, added=True, walks=cls.walks)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype and writes residual."""
        y = torch.empty_like(x)
        if x.shape[1:] == self._row:
            self._launch(x, residual, flat(weight, x), y)
        else:
            length = self._length
            rows = x.view(-1, length)
            self._launch(rows, residual.view(-1, length), flat(weight, rows), y.view(-1, length))
        return y
