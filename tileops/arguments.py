"""What is checked of a call's arguments before the manifest's signature: that they are tensors an op can take.

Tensor subclasses and tensors inside a torch.func transform pass here: the op's torch operator hands them to whoever
gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from tileops.backend.words import shown
from tileops.rules.errors import SignatureError

#: The classes whose memory a kernel reads as it is. Any other subclass of Tensor means something by its operations:
#: it goes through the op's torch operator, which shows the call to it.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def check_arguments(op: str, names: Sequence[str], optional: Sequence[bool], values: Sequence[Any]) -> None:
    """Raise unless each value is a strided tensor, or None where the input is optional, and none wants a gradient.

    Raises:
        SignatureError: names the op, the input, what it takes and what came.
    """
    for name, may_lack, value in zip(names, optional, values, strict=True):
        if value is None and may_lack:
            continue
        problem = _problem(value)
        if problem is not None:
            takes = "a torch.Tensor or None" if may_lack else "a torch.Tensor"
            raise SignatureError(f"{op}: input {name!r} takes {takes}, got {problem}", op=op, input=name)
    check_gradients(op, names, values)


def check_gradients(op: str, names: Sequence[str], values: Sequence[torch.Tensor | None]) -> None:
    """Raise SignatureError when the call would have to record a gradient, which no op here does."""
    if torch.is_grad_enabled():
        wanted = [name for name, value in zip(names, values, strict=True) if value is not None and value.requires_grad]
        if wanted:
            raise SignatureError(
                f"{op}: input {wanted[0]!r} requires a gradient, and this op has no backward; "
                "call it under torch.no_grad() or torch.inference_mode(), or pass it detached",
                op=op,
                input=wanted[0],
            )
    if forward_ad._current_level >= 0:
        for name, value in zip(names, values, strict=True):
            if value is not None and forward_ad.unpack_dual(value).tangent is not None:  # type: ignore[no-untyped-call]  # torch has no type
                raise SignatureError(
                    f"{op}: input {name!r} carries a tangent, and this op has no forward derivative; "
                    "pass torch.autograd.forward_ad.unpack_dual(x).primal",
                    op=op,
                    input=name,
                )


def _problem(value: Any) -> str | None:
    """Say why a kernel cannot read ``value``'s memory as that of a plain tensor; None when it can."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__}: {shown(value)}"
    if value.is_nested:
        return "a nested tensor; call the op for each of its parts"
    if value.layout is not torch.strided:
        return f"a tensor of layout {value.layout}; pass x.to_dense()"
    return None
