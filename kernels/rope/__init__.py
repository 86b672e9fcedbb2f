"""Rotary position embedding: call spec and interface."""

from tileops.kernels.rope.rope import RoPECall, RoPEInterface

__all__ = [
    "RoPECall",
    "RoPEInterface",
]
