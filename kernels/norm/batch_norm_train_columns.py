"""batch_norm_train_columns: x [batch, channels], so that a channel's samples lie a row apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.columns import ColumnShare, sample_columns
from tileops.kernels.norm.batch_norm import BatchNormTrainCall, BatchNormTrainInterface
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import COUNT_LIMIT
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal


@frozen
class ColumnsBuild:
    """The build identity: samples are counted at each launch."""

    form: RunForm
    share: ColumnShare
    arch: int

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.norm.programs.batch_norm_columns import program

        return program(self.form, self.share)

    def __str__(self) -> str:
        return f"{self.form}, {self.share}"


class BatchNormTrainColumnsKernel(Built, BatchNormTrainInterface):
    """Serves one element a channel and sample."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal("spatial > 1", "spatial={spatial}: reads channels that lie side by side"),
            Refusal(
                f"batch > {COUNT_LIMIT} or channels > {COUNT_LIMIT}",
                "counts samples and channels in 32 bits, got batch={batch}, channels={channels}",
            ),
        ),
        preferred_over={"batch_norm_train_shared"},
    )

    def __init__(self, identity: ColumnsBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        self._shape = (-1, identity.form.groups)

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[ColumnsBuild, Callable[[], BatchNormTrainColumnsKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_channels(call, compiled_batch=False)
        share = sample_columns(call.channels, call.dtype.itemsize, call.sm_count)
        identity = ColumnsBuild(form, share, call.arch)
        return identity, lambda: cls(identity)

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y of x's shape and dtype and writes the running statistics."""
        y = torch.empty_like(x)
        weight = running_mean if weight is None else weight
        bias = running_mean if bias is None else bias
        samples, out = (x, y) if x.dim() == 2 else (x.view(self._shape), y.view(self._shape))
        self._launch(samples, running_mean, running_var, weight, bias, out)
        return y
