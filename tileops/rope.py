"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tileops.kernels.rope import ROPE_IMPLEMENTATIONS, RoPEInterface
from tileops.op import Op
from tileops.rules.interface import KernelInterface
from tileops.uses import Uses


class RoPEFwdOp(Op):
    """Rotates queries and keys by the angles of their tokens' positions.

    ``RoPEFwdOp(interleaved=False, check_positions=True, target=None)``, called with ``q`` of shape ``[*B, HQ, D]`` and
    ``k`` of shape ``[*B, HK, D]``, both float16, bfloat16 or float32; ``positions`` of shape ``[*B]``, int32 or int64;
    ``cos_sin`` of shape ``[P, 2 * R]``, of q's dtype or float32: R cosines, then R sines, for each of P positions.
    Returns ``q_out`` and ``k_out`` like ``q`` and ``k``.

    The first ``2 * R`` elements of each head are R pairs (a, b), which become (a * cos - b * sin, b * cos + a * sin);
    the others are copied. Pair i is elements i and R + i, or 2 * i and 2 * i + 1 when ``interleaved``. Computed in
    float32, rounded once.

    A position outside ``cos_sin`` is a ``ValueError`` of the kernel. On CUDA that check waits for the device, so it is
    left out while a graph is captured, and ``check_positions=False`` leaves it out for good: then the heads of such a
    token are NaN. No kernel reads outside ``cos_sin``.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = ROPE_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {
        "rope": Uses(
            RoPEInterface,
            facts={
                "tokens": "prod(B)",
                "q_heads": "HQ",
                "k_heads": "HK",
                "head_dim": "D",
                "pairs": "R",
                "known": "P",
                "dtype": "T",
                "position_dtype": "I",
                "angle_dtype": "A",
            },
        ),
    }
