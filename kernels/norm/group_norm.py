"""GroupNorm: its call spec and its interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim, flag, number
from tileops.rules.interface import KernelInterface

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@call_spec(
    invariants=("channels % groups == 0",),
    derived={
        "group_channels": "channels // groups",
        "length": "channels // groups * spatial",
        "rows": "batch * groups",
    },
)
class GroupNormCall(CallSpec):
    """States a LayerNorm of each of batch * groups runs, then one weight and one bias a channel.

    x is [batch, channels, spatial]. A run is channels // groups channels of one sample: length elements side by side,
    of which spatial in a row have the same weight. weighted, biased: there is a weight, a bias.
    """

    batch: int = dim()
    channels: int = dim()
    groups: int = dim()
    spatial: int = dim()
    dtype: torch.dtype = choice(*DTYPES)
    weighted: bool = flag()
    biased: bool = flag()
    eps: float = number()


class GroupNormInterface(KernelInterface):
    """Centres and scales each group of channels: one dtype in and out, computed in float32, rounded once.

    Tensors are contiguous, on one device, their data on a 16-byte boundary; the pitch of a group is its length, the
    pitch of a channel is spatial. The variance is that of the centred values.
    """

    request: ClassVar[type[GroupNormCall]] = GroupNormCall

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype, on the current stream of their device.

        x is [batch, channels, *spatial]; weight and bias are [channels], of x's dtype, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
