"""The generated ``__call__``: one lookup and a launch for a call that was seen before, the cold path for any other.

It is generated because it is the cost of every call: written for the op's own input names, it reads each tensor's
facts without a loop. Measured on two tensors: 1.4 us in all, 1.1 of it torch's attribute reads and the lookup.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import attrs
import torch
from torch.autograd import forward_ad

from tileops.arguments import PLAIN
from tileops.forced import COUNT
from tileops.raised import tell

_CALL = """\
def __call__(self, {parameters}):
    if _tracing():
        return self._call_traced({names})
    if {plain} and not _modes() and not _forced.blocks and _forward._current_level < 0 and not (({grads}) and _grad()):
        try:
            _plan = self._plans.get(({key}))
        except RuntimeError:  # no storage to point to: a functorch wrapper, a sparse or a nested tensor
            _plan = None
        if _plan is not None:
            try:
                _result = _plan.run({names})
            except Exception as _error:
                _tell(_error, _plan.facts)
                raise
            self._last = _plan
            _plan.tally.calls += 1
            return _result
    return self._call_cold(({names},))
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

    The key holds, per tensor: device, dtype, shape, strides, and whether it starts at a multiple of 16 bytes; None for
    an input that the call left out.
    """
    names = ", ".join(item.name for item in inputs)
    fields = {
        "parameters": _parameters(inputs),
        "plain": " and ".join(_plain(item) for item in inputs),
        "grads": " or ".join(_grads(item) for item in inputs),
        "key": ", ".join(_key(item) for item in inputs) + ",",
        "names": names,
    }
    scope: dict[str, Any] = {
        "_tensor": torch.Tensor,
        "_plain": PLAIN,
        "_modes": torch._C._len_torch_dispatch_stack,
        "_forced": COUNT,
        "_forward": forward_ad,
        "_grad": torch.is_grad_enabled,
        "_tell": tell,
        "_tracing": torch.compiler.is_dynamo_compiling,  # Dynamo reads it as True and leaves the rest alone
    }
    source = "\n\n".join(part.format(**fields) for part in (_CALL, _SERVE, _KEY))
    filename = f"<tileops {op}.__call__>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)
    call = scope["__call__"]
    call.__qualname__ = f"{op}.__call__"
    return GeneratedCall(call, scope["serve"], scope["key_of"])


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


def _key(item: CallInput) -> str:
    name = item.name
    facts = f"{name}.device, {name}.dtype, {name}.shape, {name}.stride(), {name}.data_ptr() & 15 == 0"
    return f"None if {name} is None else ({facts})" if item.optional else facts
