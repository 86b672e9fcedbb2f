"""What a kernel has to return, checked before a caller sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Protocol

import attrs
import torch
from torch._C._dynamo.guards import TensorGuards

from tileops.arguments import PLAIN
from tileops.backend.words import shown
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

_guard: Any = TensorGuards  # torch's stub has no arguments

# Written for the number of inputs, because a target's results are checked on every call: 0.4 us for two inputs.
# ``_like`` is torch's own guard of one tensor, made from the last result that was checked in full: 0.1 us for type,
# dtype, device, shape and strides, which take 0.25 us one by one. Under no_grad it takes any tensor for one without a
# gradient. While ``_storage`` is alive, a tensor on the same storage hands out the same object for it.
_AROUND_ONE = """\
def run({names}):
    _result = _kernel({names}) if not _autocast() else _apart({names})
    try:
        if (_like(_result) and not _result.requires_grad) or _fits(_result):
            _storage = _result.untyped_storage()
            if {apart}:
                return _result
    except RuntimeError:  # a result without strides or storage: sparse, nested, of a transform
        raise _wrong(_result, ({names},)) from None
    raise _wrong(_result, ({names},))
"""


@functools.cache
def _around_one(present: tuple[bool, ...]) -> CodeType:
    """Compile the check of one output for the inputs that are present."""
    names = [f"_{index}" for index in range(len(present))]
    apart = [f"_storage is not {name}.untyped_storage()" for name, here in zip(names, present, strict=True) if here]
    source = _AROUND_ONE.format(names=", ".join(names), apart=" and ".join(apart) or "True")
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

        Held against the manifest: how many tensors, and for each its dtype, shape, contiguous strides, device, that
        it requires no gradient, and that it shares storage with no input and no other output.

        Raises:
            KernelResultError: from the returned function; names the op, the kernel, what was expected and what came.
        """
        if len(self.outputs) == 1:
            return self._around_one(kernel, self.outputs[0], self.present)
        return self._around_many(kernel)

    def _around_one(self, kernel: Kernel, output: Expected, present: tuple[bool, ...]) -> Kernel:
        shape = torch.Size(output.shape)
        scope: dict[str, Any] = {
            "_kernel": kernel,
            "_autocast": torch._C._is_any_autocast_enabled,
            "_apart": _without_autocast(kernel),
            "_like": _never,
            "_wrong": functools.partial(self._wrong, output),
        }

        def fits(result: Any) -> bool:
            """Check one result in full; let the guard stand for it from then on."""
            if (
                type(result) not in PLAIN
                or result.dtype is not output.dtype
                or result.shape != shape
                or not result.is_contiguous()
                or result.device != self.device
                or result.requires_grad
            ):
                return False
            scope["_like"] = _guard(result, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
            return True

        scope["_fits"] = fits
        exec(_around_one(present), scope)
        run: Kernel = scope["run"]
        return run

    def _around_many(self, kernel: Kernel) -> Kernel:
        count, apart = len(self.outputs), _without_autocast(kernel)
        # Each output is checked as what a kernel of (output, inputs, earlier outputs) hands on.
        checks = [
            self._around_one(lambda output, *_: output, output, (False, *self.present, *[True] * index))
            for index, output in enumerate(self.outputs)
        ]

        def run(*tensors: torch.Tensor | None) -> Any:
            result = kernel(*tensors) if not torch._C._is_any_autocast_enabled() else apart(*tensors)
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
        expected = (
            f"a contiguous {output.dtype} tensor of shape {shape} on {self.device} with storage of its own, no gradient"
        )
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


def _without_autocast(kernel: Kernel) -> Kernel:
    """Return ``kernel`` outside the caller's autocast, which would change what a kernel written in torch computes."""

    def run(*tensors: torch.Tensor | None) -> Any:
        with torch._C._DisableAutocast():
            return kernel(*tensors)

    return run


def _never(result: Any) -> bool:
    """Stand in for the guard until a result was checked in full."""
    return False


def _describe(result: Any, tensors: Sequence[torch.Tensor | None]) -> str:
    """Describe a result in the terms of the check that it failed."""
    if isinstance(result, (tuple, list)):
        return f"a {type(result).__name__} of {len(result)}: {', '.join(type(item).__name__ for item in result)}"
    if not isinstance(result, torch.Tensor):
        return f"{type(result).__name__}: {shown(result)}"
    kind = "tensor" if type(result) in PLAIN else type(result).__qualname__
    if result.layout is not torch.strided or result.is_nested:
        return f"a {result.dtype} {kind} of layout {result.layout}{', nested' if result.is_nested else ''}"
    text = f"a {result.dtype} {kind} of shape {tuple(result.shape)} on {result.device}"
    text += "" if result.is_contiguous() else f" with strides {result.stride()}"
    if result.requires_grad:
        text += " that requires a gradient" + ("" if result.grad_fn is None else f", made by {result.grad_fn.name()}")
    storage = result.untyped_storage()
    shared = any(tensor is not None and tensor.untyped_storage() is storage for tensor in tensors)
    return text + (" that shares storage with an input or another output" if shared else "")
