"""Launches: a kernel wrapped in what its calls need, and in nothing else.

What a call needs is known when its plan is made: copies that make inputs contiguous or aligned, the device made
current, the result checked. A plan that needs none of it runs the kernel itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch

from tileops.results import Kernel, ResultCheck
from tileops.rules.dispatcher import device_current

#: In-tree kernels read 16 bytes at once.
ALIGNMENT = 16


@attrs.frozen
class Copy:
    """Says that an input is copied before the launch, and copied back after it when the kernel writes it.

    A copy without a reason moves nothing in the usual case, and is not reported: the tensor is contiguous, but its
    strides are odd where a dim is 1, or torch left a negation undone (as in ``x.conj().imag``). It is handed on with
    regular strides, once the negation is done.
    """

    index: int
    why: str | None
    back: bool = False


@attrs.frozen
class Described:
    """Describes a tensor that a call will bring, as a cold call reads it: fresh, so contiguous and aligned."""

    device: torch.device
    dtype: torch.dtype
    shape: torch.Size

    def is_contiguous(self) -> bool:
        """Say yes."""
        return True

    def stride(self) -> tuple[int, ...]:
        """Return the strides of a contiguous tensor, in elements."""
        return packed_strides(self.shape)

    def data_ptr(self) -> int:
        """Return an aligned address."""
        return 0

    def is_neg(self) -> bool:
        """Say no."""
        return False


def copies_for(
    tensors: Sequence[torch.Tensor | None],
    names: Sequence[str],
    written: Sequence[bool],
    contiguous: Sequence[bool],
    *,
    aligned: bool,
) -> tuple[Copy, ...]:
    """Return the copies that a call with these tensors needs.

    Args:
        tensors: the call's tensors; None for an input left out.
        names: the inputs' names, for the reasons.
        written: which inputs the call writes: they go to the kernel as they came, but for a negation left undone.
        contiguous: which of those the manifest declares contiguous all the same: copied, and copied back.
        aligned: whether the kernel needs its tensors to start at a multiple of 16 bytes.
    """
    copies = []
    for index, tensor in enumerate(tensors):
        if tensor is None or (written[index] and not contiguous[index] and not tensor.is_neg()):
            continue
        if not tensor.is_contiguous():
            copies.append(Copy(index, f"{names[index]} copied: strides {tensor.stride()}", written[index]))
            continue
        if aligned and tensor.data_ptr() % ALIGNMENT:
            why = f"{names[index]} copied: starts {tensor.data_ptr() % ALIGNMENT} bytes past a multiple of {ALIGNMENT}"
            copies.append(Copy(index, why, written[index]))
        elif tensor.is_neg() or tensor.stride() != packed_strides(tensor.shape):
            copies.append(Copy(index, None, written[index]))
    return tuple(copies)


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def launcher(kernel: Kernel, copies: Sequence[Copy], device: torch.device, check: ResultCheck | None) -> Kernel:
    """Return a function of the call's tensors that runs ``kernel`` as its plan needs it.

    ``check`` is made on every result; an in-tree kernel is checked on the first launch of a plan and passes None then.
    """
    run = kernel if check is None else check.around(kernel)
    if copies:
        run = _prepared(run, copies)
    if _is_one_of_several(device):
        run = _guarded(run, device)
    return run


def _prepared(kernel: Kernel, copies: Sequence[Copy]) -> Kernel:
    moves = tuple((copy.index, copy.why is None, copy.back) for copy in copies)

    def run(*tensors: torch.Tensor | None) -> Any:
        given = list(tensors)
        for index, only_strides, _ in moves:
            tensor = tensors[index]
            assert tensor is not None, "an input left out is part of the key, and is never copied"
            tensor = tensor.resolve_neg()
            # clone: .contiguous() would hand back a tensor that is contiguous and misaligned.
            given[index] = (
                tensor.as_strided(tensor.shape, packed_strides(tensor.shape))
                if only_strides
                else tensor.clone(memory_format=torch.contiguous_format)
            )
        result = kernel(*given)
        for index, _, back in moves:
            # Where only strides differ the kernel wrote the caller's memory itself, unless that was of the negation.
            if back and given[index].data_ptr() != tensors[index].data_ptr():  # type: ignore[union-attr]  # present
                tensors[index].copy_(given[index])  # type: ignore[union-attr,arg-type]  # present, as above
        return result

    return run


def _guarded(kernel: Kernel, device: torch.device) -> Kernel:
    index = device.index

    def run(*tensors: torch.Tensor | None) -> Any:
        if torch.accelerator.current_device_index() == index:
            return kernel(*tensors)
        with device_current(device):
            return kernel(*tensors)

    return run


def _is_one_of_several(device: torch.device) -> bool:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type == device.type and torch.accelerator.device_count() > 1
