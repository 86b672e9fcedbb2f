"""The generated ``__call__``: a launch for a call that was seen before, the cold path for any other.

It is generated because it is the cost of every call: written for the op's own input names, it reads each tensor's
facts without a loop. A call like the one before is known by torch's own guard of the plan, one call for class,
dispatch keys, dtype, device, shape and strides of all tensors; any other reads its key and looks its plan up. Through a
target with a stub kernel, two tensors: 1.0 us by the guard; 2.9 us by the key, for an instance whose shapes take turns.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import attrs
import torch
from torch._C import _functorch
from torch.autograd import forward_ad

from tileops.arguments import PLAIN
from tileops.forced import COUNT
from tileops.plan import stand_in
from tileops.raised import tell

#: Stands for an input left out where a call is compared with the one before.
ABSENT = stand_in()

_CALL = """\
def __call__(self, {parameters}):
    if _tracing():
        return self._call_traced({names})
    _plan = self._recent
    if (
        not _plan.like({stand_ins})
        or _modes()
        or _forced.blocks
        or _forward._current_level >= 0
        or (_plan.aligned and ({starts}) & 15)
    ):
        _plan = None
        if (
            {plain}
            and not _modes()
            and _transforms() is None
            and _traced() is None
            and not _forced.blocks
            and _forward._current_level < 0
            and not (({grads}) and _grad())
        ):
            try:
                _plan = self._plans.get(({key}))
            except RuntimeError:  # no storage to point to: a functorch wrapper, a sparse or a nested tensor
                _plan = None
        if _plan is None:
            return self._call_cold(({names},))
        self._remember(_plan, ({stand_ins},))
    try:
        _result = _plan.run({names})
    except Exception as _error:
        _tell(_error, _plan.facts)
        raise
    self._last = _plan
    _plan.tally.calls += 1
    return _result
"""

# What the op's torch operator runs: the same for plain tensors that nobody watches, whatever brought them.
_SERVE = """\
def serve(self, {names}):
    _plan = None if _forced.blocks else self._plans.get(({key}))
    if _plan is None:
        return self._call_here(({names},))
    try:
        _result = _plan.run({names})
    except Exception as _error:
        _tell(_error, _plan.facts)
        raise
    self._last = _plan
    _plan.tally.calls += 1
    return _result
"""

# What a torch operator calls. ``record`` comes first, and goes straight to the op where nobody below would look at
# the call; ``run`` comes last. Written out for the inputs' names too: 3 us less than loops over the arguments.
_OPERATED = """\
def record({names}, op_instance, op_about):
    if (
        {plain}
        and not _modes()
        and _transforms() is None
        and _forward._current_level < 0
        and not (({grads}) and _grad())
    ):
        _op = _instance(op_instance, op_about)
        return _op._serve({names}) if _op._handed_back is None else _op._run_fresh(({names},))
    return _record({names}, op_instance, op_about)


def run({names}, op_instance, op_about):
    _op = _instance(op_instance, op_about)
    if {plain} and _op._handed_back is None:
        return _op._serve({names})
    return _op._run_fresh(({names},))
"""

_KEY = """\
def key_of({names}):
    return ({key})
"""


@attrs.frozen
class CallInput:
    """Names one input of a generated call."""

    name: str
    optional: bool = False
    keyword_only: bool = False


@attrs.frozen
class GeneratedCall:
    """Holds an op's ``__call__``, what its torch operator runs, and the function that gives its tensors' key."""

    call: Callable[..., Any]
    serve: Callable[..., Any]
    key_of: Callable[..., Hashable]


def generate_call(op: str, inputs: Sequence[CallInput]) -> GeneratedCall:
    """Write and compile ``__call__(self, <inputs>)`` for an op with these inputs, in call order.

    The key holds, per tensor: device, dtype, shape, strides, whether it starts at a multiple of 16 bytes, and whether
    torch left a negation of it undone; None for an input that the call left out.
    """
    fields = _fields(inputs)
    scope: dict[str, Any] = {
        "_tensor": torch.Tensor,
        "_plain": PLAIN,
        "_modes": torch._C._len_torch_dispatch_stack,
        "_forced": COUNT,
        "_forward": forward_ad,
        "_grad": torch.is_grad_enabled,
        "_tell": tell,
        "_absent": ABSENT,
        "_traced": torch._C._get_tracing_state,
        "_transforms": _functorch.peek_interpreter_stack,
        "_tracing": torch.compiler.is_dynamo_compiling,  # Dynamo reads it as True and leaves the rest alone
    }
    _run("\n\n".join(part.format(**fields) for part in (_CALL, _SERVE, _KEY)), f"<tileops {op}.__call__>", scope)
    call = scope["__call__"]
    call.__qualname__ = f"{op}.__call__"
    return GeneratedCall(call, scope["serve"], scope["key_of"])


def generate_operated(
    operator: str, inputs: Sequence[CallInput], instance: Callable[..., Any], record: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Write and compile what an op's torch operator calls at its Autograd key, and at the end.

    Args:
        operator: the operator's name.
        inputs: the op's inputs, in call order.
        instance: finds the op by the operator's last two arguments.
        record: takes over at the Autograd key where someone else has to see the call, or a gradient is wanted.
    """
    scope: dict[str, Any] = {
        "_tensor": torch.Tensor,
        "_plain": PLAIN,
        "_modes": torch._C._len_torch_dispatch_stack,
        "_transforms": _functorch.peek_interpreter_stack,
        "_forward": forward_ad,
        "_grad": torch.is_grad_enabled,
        "_instance": instance,
        "_record": record,
    }
    _run(_OPERATED.format(**_fields(inputs)), f"<tileops::{operator}>", scope)
    return scope["record"], scope["run"]


def _run(source: str, filename: str, scope: dict[str, Any]) -> None:
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)


def _fields(inputs: Sequence[CallInput]) -> dict[str, str]:
    """Return what the templates' fields stand for."""
    return {
        "parameters": _parameters(inputs),
        "plain": " and ".join(_plain(item) for item in inputs),
        "grads": " or ".join(_grads(item) for item in inputs),
        "key": ", ".join(_key(item) for item in inputs) + ",",
        "names": ", ".join(item.name for item in inputs),
        "stand_ins": ", ".join(_stand_in(item) for item in inputs),
        "starts": " | ".join(_start(item) for item in inputs),
    }


def _parameters(inputs: Sequence[CallInput]) -> str:
    """Return the parameter list: positional inputs, then a star, then the keyword-only ones."""
    texts: list[str] = []
    defaulted = False
    for item in (one for one in inputs if not one.keyword_only):
        defaulted = defaulted or item.optional  # Python wants a default on all that follow; the cold path refuses None
        texts.append(f"{item.name}=None" if defaulted else item.name)
    keyword_only = [one for one in inputs if one.keyword_only]
    if keyword_only:
        texts.append("*")
        texts += [f"{item.name}=None" if item.optional else item.name for item in keyword_only]
    return ", ".join(texts)


def _plain(item: CallInput) -> str:
    test = f"type({item.name}) is _tensor or type({item.name}) in _plain"  # a set costs 10 ns more than the usual case
    return f"({item.name} is None or {test})" if item.optional else f"({test})"


def _grads(item: CallInput) -> str:
    test = f"{item.name}.requires_grad"
    return f"({item.name} is not None and {test})" if item.optional else test


def _stand_in(item: CallInput) -> str:
    return f"_absent if {item.name} is None else {item.name}" if item.optional else item.name


def _start(item: CallInput) -> str:
    test = f"{item.name}.data_ptr()"
    return f"(0 if {item.name} is None else {test})" if item.optional else test


def _key(item: CallInput) -> str:
    name = item.name
    facts = f"{name}.device, {name}.dtype, {name}.shape, {name}.stride(), {name}.data_ptr() & 15 == 0, {name}.is_neg()"
    return f"None if {name} is None else ({facts})" if item.optional else facts
