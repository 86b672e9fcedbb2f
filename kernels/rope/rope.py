"""Rotary position embedding: its call spec and its interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim, flag
from tileops.rules.interface import KernelInterface

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@call_spec(
    invariants=("2 * pairs <= head_dim", "angle_dtype == dtype or angle_dtype == float32"),
    derived={"heads": "q_heads + k_heads", "rotated": "2 * pairs"},
)
class RoPECall(CallSpec):
    """States the rotation of the first 2 * pairs elements of each head of q and k by its token's angles.

    Pair i is elements i and pairs + i, or 2 * i and 2 * i + 1 when interleaved; (a, b) becomes
    (a * cos - b * sin, b * cos + a * sin). The elements behind them are copied. position_dtype and angle_dtype are
    those of positions and of cos_sin; known: how many positions cos_sin has.
    """

    tokens: int = dim()
    q_heads: int = dim()
    k_heads: int = dim()
    head_dim: int = dim()
    pairs: int = dim()
    known: int = dim()
    dtype: torch.dtype = choice(*DTYPES)
    position_dtype: torch.dtype = choice(torch.int32, torch.int64)
    angle_dtype: torch.dtype = choice(*DTYPES)
    interleaved: bool = flag()
    check_positions: bool = flag()


class RoPEInterface(KernelInterface):
    """Rotates queries and keys: one dtype in and out, computed in float32, rounded once.

    Tensors are contiguous, on one device, their data on a 16-byte boundary; the pitch of a head is head_dim, of a
    row of cos_sin 2 * pairs. No position makes the kernel read outside cos_sin: the heads of a token whose position is
    outside (negative, or known and more) are NaN in all their head_dim elements.
    """

    request: ClassVar[type[RoPECall]] = RoPECall

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns new q_out and k_out, of the shapes and dtype of q and k, on the current stream of their device.

        q is [..., q_heads, head_dim], k [..., k_heads, head_dim], positions [...], cos_sin [known, 2 * pairs]: the
        cosines of a position, then its sines.

        Raises:
            ValueError: under check_positions, for a position outside cos_sin; not while a CUDA graph is captured, for
                the check waits for the device.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
