"""Plans: what the first call of a key settled, so that later calls repeat none of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import attrs
import torch
from torch._C._dynamo.guards import TensorGuards

from tileops.rules.callspec import CallSpec
from tileops.tally import Tally

#: Plans an instance keeps. A decoder that grows by a token a step makes a plan a step; what an evicted plan ran
#: on stays built, so that making it anew costs a few lookups, no build.
LIMIT = 1024


@attrs.frozen(kw_only=True)
class CallFacts:
    """Says what one call was and who served it. Holds no tensor.

    Attributes:
        op: the op's class name.
        device: the device of the call's tensors.
        target: the target's name, or ``BUILTIN`` for the in-tree kernels.
        indices: the sizes, runs of sizes and dtypes that the manifest signature's names stood for.
        params: the op's params.
        interface: the kernel interface that an in-tree call asked, else None.
        call: its call spec, else None.
        key: the implementation that served it, else None.
        copies: what was copied before the launch, and why, one sentence each.
    """

    op: str
    device: torch.device
    target: Any
    indices: Mapping[str, Any]
    params: Mapping[str, Any]
    interface: str | None = None
    call: CallSpec | None = None
    key: str | None = None
    copies: tuple[str, ...] = ()


class Plan:
    """Holds the function that serves every call of one key, the facts of those calls, and what counts them.

    ``like`` says whether a call's tensors are as those of an earlier call of the key in all but their start, which the
    key counts only if ``aligned``. It is made with the second call, and says no once the plan is dropped.
    """

    __slots__ = ("aligned", "binding", "facts", "kernel", "like", "run", "tally")

    def __init__(self, run: Callable[..., Any], kernel: Any, facts: CallFacts, binding: Any, tally: Tally) -> None:
        """Take the function, the kernel under it, the facts and the binding of the call that made the plan."""
        self.run = run
        self.tally = tally
        self.aligned = True
        self.like: Callable[..., bool] | None = None
        self.kernel = kernel
        self.facts = facts
        self.binding = binding


class PlanTable(dict[Hashable, Plan]):
    """Maps keys to plans; the oldest goes when there are more than ``limit``.

    Reading takes no lock. Writing happens under the lock of the op that owns the table.
    """

    __slots__ = ("limit",)

    def __init__(self, limit: int = LIMIT) -> None:
        """Start empty."""
        super().__init__()
        self.limit = limit

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Add a plan, evicting the oldest ones beyond the limit."""
        before = self.get(key)
        if before is not None and before is not plan:
            before.like = never
        self[key] = plan
        while len(self) > self.limit:
            del self[next(iter(self))]

    def __delitem__(self, key: Hashable) -> None:
        self[key].like = never
        super().__delitem__(key)

    def clear(self) -> None:
        """Drop every plan."""
        for plan in tuple(self.values()):
            plan.like = never
        super().clear()


def never(*_: object) -> bool:
    """Say that a call is not like another: the answer of a plan that is not to be used again."""
    return False


def stand_in() -> torch.Tensor:
    """Return what stands for an input left out where a call is compared with another: like no tensor of a call."""
    return torch.empty((0, 3, 1, 4, 1, 5), dtype=torch.complex128)


def likeness(tensors: tuple[torch.Tensor, ...]) -> Callable[..., bool]:
    """Return torch's guard of these tensors, which keeps none of them.

    It compares class, dispatch keys under what is in force in the thread (so a transform, a trace, inference mode and
    autocast count, but not torch's own modes, as of fake tensors), dtype, device, shape, strides and, while gradients
    are recorded, whether one is wanted.
    """
    guard: Any = TensorGuards
    check: Callable[..., bool] = guard(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    return check
