"""What a kernel has to return, checked before a caller sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from tileops.arguments import PLAIN
from tileops.rules.errors import KernelResultError


class Expected(Protocol):
    """Describes one output, as the manifest's signature infers it for a call."""

    @property
    def name(self) -> str:
        """The output's name in the manifest."""

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""


Check = Callable[[Any, Sequence[torch.Tensor | None]], Any]


def result_check(op: str, kernel: str, device: torch.device, outputs: Sequence[Expected]) -> Check:
    """Return a function that takes a kernel's result and the tensors it was given, and hands the result on.

    It holds the result against the manifest: how many tensors, and for each its dtype, shape, contiguous strides,
    device, and that it shares no storage with an input.

    Raises:
        KernelResultError: from the function; names the op, the kernel, what was expected and what came.
    """

    def fail(where: str, expected: str, received: str) -> KernelResultError:
        return KernelResultError(
            f"{op}: kernel {kernel} returned a wrong result: expected {where} to be {expected}, received {received}",
            op=op,
            kernel=kernel,
            expected=expected,
            received=received,
        )

    def check_one(result: Any, tensors: Sequence[torch.Tensor | None]) -> Any:
        if type(result) in PLAIN and (
            result.dtype is dtype and result.shape == shape and result.is_contiguous() and result.device == device
        ):
            storage = result.untyped_storage()._cdata
            for tensor in tensors:
                if tensor is not None and tensor.untyped_storage()._cdata == storage:
                    break
            else:
                return result
        expected = f"a contiguous {dtype} tensor of shape {tuple(shape)} on {device} with storage of its own"
        raise fail(f"output {name!r}", expected, _describe(result, tensors))

    def check_none(result: Any, tensors: Sequence[torch.Tensor | None]) -> Any:
        if result is not None:
            raise fail("the result", "None, as the op only writes in place", _describe(result, tensors))
        return None

    def check_many(result: Any, tensors: Sequence[torch.Tensor | None]) -> Any:
        if not isinstance(result, tuple) or len(result) != len(each):
            raise fail("the result", f"a tuple of {len(each)} tensors {names}", _describe(result, tensors))
        for index, check in enumerate(each):
            check(result[index], (*tensors, *result[:index]))
        return result

    if not outputs:
        return check_none
    if len(outputs) == 1:
        name, dtype, shape = outputs[0].name, outputs[0].dtype, torch.Size(outputs[0].shape)
        return check_one
    each = [result_check(op, kernel, device, (output,)) for output in outputs]
    names = ", ".join(output.name for output in outputs)
    return check_many


def _describe(result: Any, tensors: Sequence[torch.Tensor | None]) -> str:
    """Describe a result in the terms of the check that it failed."""
    if isinstance(result, (tuple, list)):
        return f"a {type(result).__name__} of {len(result)}: {', '.join(type(item).__name__ for item in result)}"
    if not isinstance(result, torch.Tensor):
        return f"{type(result).__name__}: {result!r:.80}"
    kind = "tensor" if type(result) in PLAIN else type(result).__qualname__
    text = f"a {result.dtype} {kind} of shape {tuple(result.shape)} on {result.device}"
    if result.layout is not torch.strided:
        return f"{text} of layout {result.layout}"
    text += "" if result.is_contiguous() else f" with strides {result.stride()}"
    storage = result.untyped_storage()._cdata
    shared = any(tensor is not None and tensor.untyped_storage()._cdata == storage for tensor in tensors)
    return text + (" that shares storage with an input or another output" if shared else "")
