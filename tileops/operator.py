"""The torch operators of the ops: what a compiler, a dispatch mode or a tensor subclass sees of a call.

An op has one operator for each set of inputs that its calls write. It takes the call's tensors, a 0-dim int64 CPU
tensor that names the instance, and the op's class, params and target as canonical JSON. The name is data, so that
equal layers share one graph; the JSON is a constant of the graph, and all that shape inference reads. The operator
returns fresh tensors only: a written input is handed back by the op layer, not by the operator.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch
from torch.utils._python_dispatch import _disable_current_modes

from tileops import backend
from tileops.arguments import PLAIN, check_gradients
from tileops.caller import CallInput, generate_operated
from tileops.rules.errors import BackendError
from tileops.rules.expr import DTYPES

if TYPE_CHECKING:
    from tileops.op import Op

_LOCK = threading.Lock()
# An operator lives as long as its library. torch has no types for it.
_LIBRARY: Any = torch.library.Library("tileops", "FRAGMENT")  # type: ignore[no-untyped-call]
_OPERATORS: dict[str, torch._ops.OpOverload] = {}
_CLASSES: weakref.WeakValueDictionary[str, type[Op]] = weakref.WeakValueDictionary()
_NAMESAKES: Counter[str] = Counter()
_LABELS: weakref.WeakKeyDictionary[type[Op], str] = weakref.WeakKeyDictionary()
_INSTANCES: dict[int | float, weakref.ref[Op]] = {}
# From a random start: a name that a saved graph brings from another process means no instance of this one.
_NUMBERS = itertools.count(int.from_bytes(os.urandom(7), "little"))
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def enrol(op: Op) -> tuple[torch.Tensor, str, torch._ops.OpOverload]:
    """Enter an instance into the registry, which does not keep it alive.

    Returns the tensor that names it, what tells its class, params and target, and its operator.
    """
    cls = type(op)
    number = next(_NUMBERS)
    _INSTANCES[number] = weakref.ref(op, lambda _: _INSTANCES.pop(number, None))
    with _disable_current_modes(), torch.inference_mode(mode=False):
        name = torch.tensor(number, dtype=torch.int64, device="cpu")
    # What torch._dynamo.mark_static_address writes, without its import of 1 s: inductor's CUDA graphs take the name as
    # it is, as they take weights. They would look for any other input in device memory of their own, and fail.
    name._dynamo_static_input_type = "unguarded"  # type: ignore[attr-defined]
    about = json.dumps(
        {"op": _label(cls), "params": _plain(op.params), "target": _target(op)}, sort_keys=True, separators=(",", ":")
    )
    return name, about, operator_of(cls, cls.entry.checker.writes(op.params))


def name_again(name: torch.Tensor, tensors: Sequence[Any]) -> torch.Tensor:
    """Return the tensor that names an instance, as a fake one where the call's tensors or the mode in force are."""
    for tensor in tensors:
        mode = getattr(tensor, "fake_mode", None)
        if mode is not None:
            with mode:
                return torch.tensor(_number(name), dtype=torch.int64, device="cpu")
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        return torch.tensor(_number(name), dtype=torch.int64, device="cpu")
    return name


def _number(name: torch.Tensor) -> int:
    with _disable_current_modes():
        return int(name.item())


def is_watched(tensors: Sequence[Any]) -> bool:
    """Say whether a call has to go through the operator, as someone other than the op may have to see it."""
    if (
        torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
        or _functorch.peek_interpreter_stack() is not None
    ):
        return True
    return any(is_special(tensor) for tensor in tensors if tensor is not None)


def is_special(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is more than its memory: a subclass, or wrapped by a transform of torch.func."""
    return (
        type(tensor) not in PLAIN
        or _functorch.is_functorch_wrapped_tensor(tensor)
        or torch._is_functional_tensor(tensor)
    )


def operator_of(cls: type[Op], written: Sequence[str]) -> torch._ops.OpOverload:
    """Return the operator of an op's calls that write these inputs, defined when it is first asked for."""
    label = _label(cls)
    inputs, outputs = cls.entry.signature.inputs, cls.entry.signature.outputs
    aliases = {name: f"({chr(ord('a') + place)}!)" for place, name in enumerate(written)}
    arguments = [f"Tensor{aliases.get(name, '')}{'?' if item.optional else ''} {name}" for name, item in inputs.items()]
    fresh = sum(output.same_as not in written for output in outputs.values())
    returns = "Tensor" if fresh == 1 else f"({', '.join(['Tensor'] * fresh)})"
    name = "__".join([label, *written])
    with _LOCK:
        if name not in _OPERATORS:
            schema = f"{name}({', '.join([*arguments, 'Tensor op_instance', 'str op_about'])}) -> {returns}"
            taken = [CallInput(item.name, item.optional, item.keyword_only) for item in inputs.values()]
            _OPERATORS[name] = _define(name, schema, cls.__name__, taken)
        return _OPERATORS[name]


def _define(name: str, schema: str, op_name: str, inputs: Sequence[CallInput]) -> torch._ops.OpOverload:
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator: torch._ops.OpOverload = getattr(torch.ops.tileops, name).default
    names = tuple(item.name for item in inputs)

    def watched(*arguments: Any) -> Any:
        check_gradients(op_name, names, arguments[: len(names)])
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    def infer(*arguments: Any) -> Any:
        cls, params = _described(arguments[-1])
        return infer_outputs(cls, params, arguments[: len(names)])

    record, run = generate_operated(name, inputs, _instance, watched)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, record, "Autograd")
    torch.library.register_fake(f"tileops::{name}", infer, lib=_LIBRARY)
    return operator


def infer_outputs(cls: type[Op], params: Mapping[str, Any], tensors: Sequence[Any]) -> Any:
    """Make the fresh outputs of a call without running it: tensors of the inferred shape, dtype, strides and device.

    Raises:
        SignatureError: the call does not conform to the manifest's signature.
    """
    checker = cls.entry.checker
    binding = checker.call(params, tensors)
    made = tuple(
        torch.empty(output.shape, dtype=output.dtype, device=binding.device)
        for output in checker.outputs(binding)
        if output.same_as is None
    )
    return None if not made else made[0] if len(made) == 1 else made


def _instance(name: torch.Tensor, about: str) -> Op:
    """Return the instance that a call's last two arguments name.

    Raises:
        BackendError: there is none: it is gone, or the graph is another process's.
    """
    found = _INSTANCES.get(name.item())
    op = None if found is None else found()
    if op is None or op._about != about:
        described = json.loads(about)
        raise BackendError(
            f"{described['op']}: a graph calls an instance of this op that this process does not have "
            f"(params {described['params']}): keep the op alive as long as what was compiled or exported from it, "
            "and compile or export again in each process",
            op=described["op"],
        )
    return op


def _described(about: str) -> tuple[type[Op], dict[str, Any]]:
    """Return class and params of the instances that ``about`` tells of."""
    told = json.loads(about)
    cls = _CLASSES.get(told["op"])
    if cls is None:
        raise BackendError(f"a graph calls {told['op']}, an op that this process has not imported", op=told["op"])
    return cls, _value(told["params"])


def _label(cls: type[Op]) -> str:
    """Return a name for an op class: its own, numbered where an earlier class had it, as in a notebook's cell."""
    with _LOCK:
        label = _LABELS.get(cls)
        if label is None:
            number = _NAMESAKES[cls.__name__] = _NAMESAKES[cls.__name__] + 1
            label = _LABELS[cls] = cls.__name__ if number == 1 else f"{cls.__name__}_{number}"
            _CLASSES[label] = cls
    return label


def as_plain(tensor: Any) -> Any:
    """Return the same memory without a subclass's ``__torch_function__``, as kernels read it."""
    return tensor if tensor is None or type(tensor) in PLAIN else tensor.as_subclass(torch.Tensor)


# Params as JSON: what JSON has no form for is an object with one member, its kind.


def _plain(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return {"dtype": _DTYPE_NAMES[value]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {"params": [[name, _plain(item)] for name, item in value.items()]}
    return value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        ((kind, held),) = value.items()
        if kind == "dtype":
            return DTYPES[held]
        if kind == "tuple":
            return tuple(_value(item) for item in held)
        return {name: _value(item) for name, item in held}
    return value


def _target(op: Op) -> Any:
    return {"builtin": True} if op.target is backend.BUILTIN else op.target


def after_fork() -> None:
    """Replace the lock in a forked child: the thread that held it may not exist there."""
    global _LOCK
    _LOCK = threading.Lock()
