"""The build identity of LayerNorm, GroupNorm and BatchNorm in training, and how their kernels are called."""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.kept import Rows, flat
from tileops.kernels.norm.batch_norm import BatchNormTrainInterface
from tileops.kernels.norm.group_norm import GroupNormInterface
from tileops.kernels.norm.layer_norm import LayerNormCall, LayerNormInterface
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import WALK, Share


@frozen
class RunBuild:
    """The build identity. What keeps a run on chip has its length compiled in."""

    form: RunForm
    share: Share
    arch: int
    walks: bool = False
    """A block walks its runs, with 64-bit indices."""

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 64 if self.walks else 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.norm.programs import moments

        if self.walks:
            return moments.streaming(self.form, self.share, WALK)
        return moments.on_chip(self.form, self.share)

    def __str__(self) -> str:
        return f"{self.form}, {self.share}" + (", 64-bit indices" if self.walks else "")


class RunLaunch(Built):
    """Launches a program of runs over x [batch, runs, spatial]."""

    identity: RunBuild

    def launch(
        self,
        x: torch.Tensor,
        shape: tuple[int, int, int],
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y like x. ``shape``: x as batch, runs and spatial, one of them -1."""
        y = torch.empty_like(x)
        runs = x.view(shape)
        # The program takes x again for what is not there, and does not look at it.
        given = [runs if one is None else one for one in (running_mean, running_var, weight, bias)]
        self._launch(runs, *given, y.view(shape))
        return y


class LayerNormLaunch(Built, Rows, LayerNormInterface):
    """Stands above the implementations of LayerNorm."""

    def __init__(self, identity: RunBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        self._length = identity.form.spatial
        self._row = (identity.form.spatial,)

    @classmethod
    def identity_of(cls, call: LayerNormCall, share: Share) -> RunBuild:
        """Returns the build identity of a call with a share."""
        return RunBuild(RunForm.of_layer(call), share, call.arch, walks=cls.walks)

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        y = torch.empty_like(x)
        # A view costs a microsecond, and two where its shape is a tuple.
        rows, out = (x, y) if x.shape[1:] == self._row else (x.view(-1, self._length), y.view(-1, self._length))
        self._launch(rows, rows, rows, flat(weight, rows), flat(bias, rows), out)
        return y


class GroupNormLaunch(RunLaunch, GroupNormInterface):
    """Stands above the implementations of GroupNorm."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        return self.launch(x, (1, -1, self.identity.form.spatial), None, None, weight, bias)


class BatchNormTrainLaunch(RunLaunch, BatchNormTrainInterface):
    """Stands above the implementations of BatchNorm in training whose runs are channels."""

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y of x's shape and dtype and writes the running statistics."""
        form = self.identity.form
        return self.launch(x, (-1, form.groups, form.spatial), running_mean, running_var, weight, bias)
