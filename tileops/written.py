"""Inputs that a call writes in place: what autograd is told of it, and no other input lost to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch

from tileops.results import Kernel
from tileops.rules.errors import SignatureError


def check_written(
    op: str, names: Sequence[str], tensors: Sequence[torch.Tensor | None], written: Sequence[int]
) -> None:
    """Raise SignatureError for a written input of which several elements are one place in memory."""
    for index in written:
        tensor = tensors[index]
        if tensor is None:
            continue
        if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
            raise SignatureError(
                f"{op}: input {names[index]!r} is written, but some of its elements are one place in memory "
                f"(shape {tuple(tensor.shape)}, strides {tensor.stride()}): pass {names[index]}.contiguous(), "
                "and read the result there",
                op=op,
                input=names[index],
            )


@attrs.frozen
class _Pair:
    """Names a written input and another one, with the bytes that each spans from its first element."""

    written: int
    other: int
    span: int
    other_span: int
    both_written: bool
    both_dense: bool


def writing(
    kernel: Kernel, op: str, names: Sequence[str], tensors: Sequence[torch.Tensor | None], written: Sequence[int]
) -> Kernel:
    """Return ``kernel`` with its writes accounted for; the calls to come have the shapes and strides of ``tensors``.

    Autograd's version counters of the written inputs go up. An input whose memory may overlap that of a written one
    is read from a copy, as the kernel may write before it reads.

    Raises:
        SignatureError: from the returned function; two written inputs overlap.
    """
    if all(tensors[index] is None for index in written):
        return kernel
    pairs = _pairs(tensors, written)
    places = tuple(index for index in written if tensors[index] is not None)

    def run(*given: Any) -> Any:
        for pair in pairs:
            start, other = given[pair.written].data_ptr(), given[pair.other].data_ptr()
            if start < other + pair.other_span and other < start + pair.span:
                if not pair.both_written:
                    given = (*given[: pair.other], given[pair.other].clone(), *given[pair.other + 1 :])
                elif pair.both_dense or start == other:
                    raise SignatureError(
                        f"{op}: the inputs {names[pair.written]!r} and {names[pair.other]!r} are both written, and "
                        "share memory: pass tensors of their own",
                        op=op,
                        input=names[pair.other],
                    )
        result = kernel(*given)
        torch._C._increment_version([given[index] for index in places])
        return result

    return run


def _pairs(tensors: Sequence[torch.Tensor | None], written: Sequence[int]) -> tuple[_Pair, ...]:
    found = []
    for index in written:
        for other, tensor in enumerate(tensors):
            mine = tensors[index]
            both = other in written
            if mine is None or tensor is None or other == index or (both and other < index):
                continue
            if mine.device == tensor.device:
                dense = mine.is_contiguous() and tensor.is_contiguous()
                found.append(_Pair(index, other, _span(mine), _span(tensor), both, dense))
    return tuple(found)


def _span(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to past its last one; 0 when it has none."""
    if 0 in tensor.shape:
        return 0
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((steps + 1) * tensor.dtype.itemsize)
