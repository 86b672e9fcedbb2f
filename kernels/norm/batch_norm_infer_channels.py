"""BatchNorm by the running statistics: x goes by in wide accesses; the general one walks any x with 64-bit indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.norm.batch_norm import BatchNormInferCall, BatchNormInferInterface
from tileops.kernels.norm.channels import ChannelForm
from tileops.kernels.rows import BLOCK, WALK, Share, access_width
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

ELEMENTS = 2**31 - 2**16
"""Most elements of the program with 32-bit indices: rounding up to a whole block stays within 31 bits."""


@frozen
class InferBuild:
    """The build identity: samples are counted at each launch."""

    form: ChannelForm
    share: Share
    arch: int
    blocks: int | None = None
    """Blocks of the program that walks with 64-bit indices; None: as many as it takes."""

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 64 if self.blocks else 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.norm.programs.batch_norm_infer import program

        return program(self.form, self.share, self.blocks)

    def __str__(self) -> str:
        return f"{self.form}, {self.share}" + (", 64-bit indices" if self.blocks else "")


class BatchNormInferLaunch(Built, BatchNormInferInterface):
    """Stands above the implementations of BatchNorm by the running statistics."""

    def __init__(self, identity: InferBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        self._shape = (-1, identity.form.channels * identity.form.spatial)

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y of x's shape and dtype."""
        y = torch.empty_like(x)
        weight = running_mean if weight is None else weight
        bias = running_mean if bias is None else bias
        # A view costs more than a microsecond.
        samples, out = (x, y) if x.dim() == 2 else (x.view(self._shape), y.view(self._shape))
        self._launch(samples, running_mean, running_var, weight, bias, out)
        return y


class BatchNormInferWideKernel(BatchNormInferLaunch):
    """Serves samples of a multiple of 16 bytes."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                "channels * spatial * itemsize(dtype) % 16 != 0",
                "a sample has {channels * spatial * itemsize(dtype)} bytes: accesses take 16",
            ),
            Refusal(
                f"batch * channels * spatial > {ELEMENTS}",
                f"counts elements in 32 bits: at most {ELEMENTS}, got {{batch * channels * spatial}}",
            ),
        ),
    )

    @classmethod
    def entry_for(cls, call: BatchNormInferCall) -> tuple[InferBuild, Callable[[], BatchNormInferWideKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = ChannelForm.of(call)
        share = Share(BLOCK, 1, 1, access_width(call.channels * call.spatial, call.dtype.itemsize))
        identity = InferBuild(form, share, call.arch)
        return identity, lambda: cls(identity)


class BatchNormInferWalkKernel(BatchNormInferLaunch):
    """Serves samples of any size and number. The general one."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: BatchNormInferCall) -> tuple[InferBuild, Callable[[], BatchNormInferWalkKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = ChannelForm.of(call)
        share = Share(BLOCK, 1, 1, access_width(call.channels * call.spatial, call.dtype.itemsize))
        identity = InferBuild(form, share, call.arch, WALK)
        return identity, lambda: cls(identity)
