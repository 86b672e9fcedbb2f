"""What a backend and the op layer say to each other: types only, nothing to inherit from."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import torch

#: The group of entry points in which a distribution declares its backend's module.
GROUP: Final = "tileops.backends"


class Builtin(enum.Enum):
    """Holds the one value that stands for the in-tree kernels, which have no target name."""

    BUILTIN = "builtin"

    def __repr__(self) -> str:
        """Write the name under which it is imported."""
        return "BUILTIN"

    __str__ = __repr__


BUILTIN: Final = Builtin.BUILTIN

#: What a call settles on, and what ``target=`` takes: the name of a target, or ``BUILTIN``.
Target: TypeAlias = str | Literal[Builtin.BUILTIN]

#: What a kernel returns: one output, several in the order of the manifest, or None when it only writes in place.
KernelResult: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...] | None

#: Says whether a device is one that the target's kernels are for. Looks at the device and at nothing else.
Detector: TypeAlias = Callable[[torch.device], bool]


class TensorSpec(NamedTuple):
    """Describes one tensor of a call, without holding the tensor or its data."""

    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, ...]


class BuildKernel(Protocol):
    """Builds the kernel of one op for one target.

    Written to the op's manifest signature: one positional argument per input, in declaration order, a
    ``TensorSpec`` or None for an optional input that the call left out; one keyword argument per param.
    Returns something callable, which takes the call's tensors in the same order.
    """

    def __call__(self, *inputs: Any, **params: Any) -> Callable[..., KernelResult]:
        """Choose, compile and return a kernel for a call of this description; raise if there is none."""
