"""The build identity of the norms whose runs flow through teams of blocks, and how their kernels are called."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.flow import EARLY_ARCH, Flow, best_flow
from tileops.kernels.norm.batch_norm import BatchNormTrainInterface
from tileops.kernels.norm.group_norm import GroupNormInterface
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import access_width


@frozen
class FlowBuild:
    """The build identity: the length of a run is compiled in."""

    form: RunForm
    flow: Flow
    arch: int

    @classmethod
    def of(cls, form: RunForm, runs: int, itemsize: int, call: Any) -> FlowBuild:
        """Returns the identity for so many runs on the device of a call."""
        width = access_width(form.spatial, itemsize)
        flow = best_flow(form.length // width, runs, width, width * itemsize, call.sm_count, call.smem_budget)
        return cls(form, flow, call.arch)

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.norm.programs import flow

        return flow.program(self.form, self.flow, early=self.arch >= EARLY_ARCH)

    def __str__(self) -> str:
        return f"{self.form}, {self.flow}"


class FlowLaunch(Built):
    """Launches a program of runs that flow over x [batch, runs, spatial]."""

    identity: FlowBuild
    own_barriers: ClassVar[bool] = True

    def __init__(self, identity: FlowBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        form = identity.form
        self._shape = (1, -1, form.spatial) if form.momentum is None else (-1, form.groups, form.spatial)
        self._parts = identity.flow.parts

    def launch(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y like x."""
        y = torch.empty_like(x)
        runs = x.view(self._shape)
        # The program takes x again for what is not there, and does not look at it.
        given: list[torch.Tensor] = [runs if one is None else one for one in (running_mean, running_var, weight, bias)]
        if self._parts > 1:
            given.append(x.new_empty((runs.shape[1] * self._parts,), dtype=torch.uint64))
        self._launch(runs, *given, y.view(self._shape))
        return y


class GroupNormFlowLaunch(FlowLaunch, GroupNormInterface):
    """Stands above the implementation of GroupNorm whose groups flow."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        return self.launch(x, None, None, weight, bias)


class BatchNormTrainFlowLaunch(FlowLaunch, BatchNormTrainInterface):
    """Stands above the implementation of BatchNorm in training whose channels flow."""

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y of x's shape and dtype and writes the running statistics."""
        return self.launch(x, running_mean, running_var, weight, bias)
