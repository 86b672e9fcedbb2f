"""What a kernel has to return, checked before a caller sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Protocol

import attrs
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


Kernel = Callable[..., Any]

# Written for the number of inputs, because a target's results are checked on every call: 0.5 us for two inputs. While
# ``_storage`` is alive, a tensor on the same storage hands out the same object for it.
_AROUND_ONE = """\
def run({names}):
    _result = _kernel({names})
    try:
        if (
            (type(_result) is _tensor or type(_result) in _plain)
            and _result.dtype is _dtype
            and _result.shape == _shape
            and _result.is_contiguous()
            and {on_device}
        ):
            _storage = _result.untyped_storage()
            if {apart}:
                return _result
    except RuntimeError:  # a result without strides or storage: sparse, nested, of a transform
        raise _wrong(_result, ({names},)) from None
    raise _wrong(_result, ({names},))
"""


@functools.cache
def _around_one(present: tuple[bool, ...], on_cpu: bool) -> CodeType:
    """Compile the check of one output for the inputs that are present."""
    names = [f"_{index}" for index in range(len(present))]
    apart = [f"_storage is not {name}.untyped_storage()" for name, here in zip(names, present, strict=True) if here]
    source = _AROUND_ONE.format(
        names=", ".join(names),
        apart=" and ".join(apart) or "True",
        on_device="_result.is_cpu" if on_cpu else "_result.device == _device",
    )
    return compile(source, f"<tileops result check of {len(present)} inputs>", "exec")


@attrs.frozen
class ResultCheck:
    """Holds what a kernel has to return for one plan."""

    op: str
    kernel: str
    device: torch.device
    outputs: tuple[Expected, ...]
    present: tuple[bool, ...]

    def around(self, kernel: Kernel) -> Kernel:
        """Return ``kernel`` with its result checked on every call, and handed on.

        Held against the manifest: how many tensors, and for each its dtype, shape, contiguous strides, device, and
        that it shares storage with no input and no other output.

        Raises:
            KernelResultError: from the returned function; names the op, the kernel, what was expected and what came.
        """
        if len(self.outputs) == 1:
            return self._around_one(kernel, self.outputs[0], self.present)
        return self._around_many(kernel)

    def _around_one(self, kernel: Kernel, output: Expected, present: tuple[bool, ...]) -> Kernel:
        scope: dict[str, Any] = {
            "_kernel": kernel,
            "_tensor": torch.Tensor,
            "_plain": PLAIN,
            "_dtype": output.dtype,
            "_shape": torch.Size(output.shape),
            "_device": self.device,
            "_wrong": functools.partial(self._wrong, output),
        }
        exec(_around_one(present, self.device.type == "cpu"), scope)
        run: Kernel = scope["run"]
        return run

    def _around_many(self, kernel: Kernel) -> Kernel:
        count = len(self.outputs)
        # Each output is checked as what a kernel of (output, inputs, earlier outputs) hands on.
        checks = [
            self._around_one(lambda output, *_: output, output, (False, *self.present, *[True] * index))
            for index, output in enumerate(self.outputs)
        ]

        def run(*tensors: torch.Tensor | None) -> Any:
            result = kernel(*tensors)
            if count == 0:
                if result is not None:
                    raise self._error("the result", "None, as the op only writes in place", _describe(result, tensors))
                return None
            if not isinstance(result, tuple) or len(result) != count:
                names = ", ".join(output.name for output in self.outputs)
                raise self._error("the result", f"a tuple of {count} tensors {names}", _describe(result, tensors))
            for index, check in enumerate(checks):
                check(result[index], *tensors, *result[:index])
            return result

        return run

    def _wrong(self, output: Expected, result: Any, tensors: Sequence[torch.Tensor | None]) -> KernelResultError:
        shape = tuple(output.shape)
        expected = f"a contiguous {output.dtype} tensor of shape {shape} on {self.device} with storage of its own"
        return self._error(f"output {output.name!r}", expected, _describe(result, tensors))

    def _error(self, where: str, expected: str, received: str) -> KernelResultError:
        return KernelResultError(
            f"{self.op}: kernel {self.kernel} returned a wrong result: expected {where} to be {expected}, "
            f"received {received}",
            op=self.op,
            kernel=self.kernel,
            expected=expected,
            received=received,
        )


def _describe(result: Any, tensors: Sequence[torch.Tensor | None]) -> str:
    """Describe a result in the terms of the check that it failed."""
    if isinstance(result, (tuple, list)):
        return f"a {type(result).__name__} of {len(result)}: {', '.join(type(item).__name__ for item in result)}"
    if not isinstance(result, torch.Tensor):
        return f"{type(result).__name__}: {result!r:.80}"
    kind = "tensor" if type(result) in PLAIN else type(result).__qualname__
    if result.layout is not torch.strided or result.is_nested:
        return f"a {result.dtype} {kind} of layout {result.layout}{', nested' if result.is_nested else ''}"
    text = f"a {result.dtype} {kind} of shape {tuple(result.shape)} on {result.device}"
    text += "" if result.is_contiguous() else f" with strides {result.stride()}"
    storage = result.untyped_storage()
    shared = any(tensor is not None and tensor.untyped_storage() is storage for tensor in tensors)
    return text + (" that shares storage with an input or another output" if shared else "")
