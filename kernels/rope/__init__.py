"""Rotary position embedding: call spec, interface and implementations."""

from tileops.kernels.rope.rope import RoPECall, RoPEInterface
from tileops.kernels.rope.rope_tokens import RoPETokenKernel, RoPEWalkKernel

ROPE_IMPLEMENTATIONS: dict[str, type[RoPEInterface]] = {
    "rope_token": RoPETokenKernel,
    "rope_walk": RoPEWalkKernel,
}
"""The implementations of RoPEInterface by key."""

__all__ = [
    "ROPE_IMPLEMENTATIONS",
    "RoPECall",
    "RoPEInterface",
    "RoPETokenKernel",
    "RoPEWalkKernel",
]
