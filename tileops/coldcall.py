"""Cold calls: the first call of a key, step by step, and every call that may not use a plan.

The steps, in order: the arguments, the signature, the target, then the in-tree kernel or the target's, the launch, the
result. Only when all of them went well is anything kept: the target that was settled, the kernel, the plan.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch.utils._python_dispatch import _disable_current_modes

from tileops import backend, capture, decisions
from tileops.arguments import check_arguments
from tileops.backend.words import shown
from tileops.forced import named_kernel
from tileops.launch import Copy, copies_for, launcher
from tileops.memo import Held, MemoKey
from tileops.plan import CallFacts, Plan
from tileops.raised import tell, tell_build
from tileops.results import ResultCheck
from tileops.rules.callspec import CallSpec
from tileops.rules.device import device_kind
from tileops.rules.dispatcher import Entry, device_current
from tileops.rules.errors import (
    AmbiguousDispatchError,
    BackendError,
    DeclarationError,
    OpNotAvailableError,
    SignatureError,
)
from tileops.rules.interface import KernelInterface
from tileops.rules.trace import plain_value
from tileops.tally import FORWARD, NOTHING, SHAPES, count_build, on_target, tally
from tileops.tuning import request_tune
from tileops.uses import LinkedUse
from tileops.written import check_written, writing

if TYPE_CHECKING:
    from tileops.manifest.signature import Binding, OutputSpec
    from tileops.op import Op


@attrs.frozen
class Prepared:
    """Holds a plan that has not run yet.

    ``first`` runs it the first time where that time differs: an in-tree kernel's result is checked once a plan.
    ``held`` is the target kernel, ``entry`` the in-tree one, to keep or to drop afterwards. ``served_by`` is the
    implementation's name in the statistics, ``why`` tells of the decision; ``built``: a kernel was built for it.
    """

    plan: Plan
    served_by: str
    why: Callable[[], str]
    first: Callable[..., Any] | None = None
    held: tuple[MemoKey, Held] | None = None
    entry: Entry | None = None
    built: bool = False


class ColdCall:
    """Serves one call of ``op`` that found no plan."""

    def __init__(self, op: Op, tensors: tuple[Any, ...]) -> None:
        """Take the tensors in the signature's order, None for an input left out."""
        self.op = op
        self.tensors = tensors
        self.blueprint = type(op).blueprint
        self.name = self.blueprint.name
        self.only = named_kernel(self.name)

    def run(self) -> Any:
        """Check, settle, build, launch and check the call; keep its plan; return what the op returns."""
        op, dispatcher = self.op, self.blueprint.dispatcher
        generation, tuned = dispatcher.generation, op._tuned
        self.check()
        key = self.key()
        with outside_modes():
            plan = op._plans.get(key)
            if plan is not None:
                try:
                    result = plan.run(*self.tensors)
                except Exception as error:
                    tell(error, plan.facts)
                    raise
                op._last = plan
                plan.tally.calls += 1
                return result
            binding = self.bind()
            settlement = self.settle(binding.device)
            prepared = self.prepare(binding, settlement)
            try:
                result = (prepared.first or prepared.plan.run)(*self.tensors)
            except BaseException as error:
                self.drop(prepared)
                tell(error, prepared.plan.facts)
                raise
        self.keep(prepared, ran=True)
        self.keep_plan(prepared, key, settlement, (generation, tuned))
        decisions.tell(prepared.plan.facts, prepared.served_by, prepared.why)
        op._last = prepared.plan
        prepared.plan.tally.calls += 1
        return result

    def key(self) -> Any:
        """Return the key of the call's plan."""
        key = self.blueprint.generated.key_of(*self.tensors)
        return key if self.only is None else (key, self.only)  # the unforced calls of the key keep a plan of their own

    def settle(self, device: torch.device) -> backend.Settlement:
        """Say who serves the call: what an earlier call on the device settled, or else the target stage."""
        return self.op._settled.get(device) or backend.settle(self.name, device, self.op.target)

    def keep_plan(self, prepared: Prepared, key: Any, settlement: backend.Settlement, before: tuple[int, bool]) -> None:
        """Keep the settlement, and the plan unless what it was made from has changed meanwhile."""
        op, dispatcher = self.op, self.blueprint.dispatcher
        with dispatcher.plans:
            agreed = op._settled.setdefault(prepared.plan.facts.device, settlement)
            if (dispatcher.generation, op._tuned, agreed.target) == (*before, settlement.target):
                op._plans.keep(key, prepared.plan)

    def keep(self, prepared: Prepared, *, ran: bool) -> None:
        """Keep the kernel of a call that succeeded, or that is built ahead of calls and has not run."""
        if prepared.held is not None:
            self.op._kernels.succeed(*prepared.held, ran=ran)
        if prepared.entry is not None:
            self.blueprint.dispatcher.succeed(prepared.entry, ran=ran)

    def drop(self, prepared: Prepared) -> None:
        """Drop the kernel of a call that failed, unless another call has succeeded with it."""
        if prepared.held is not None:
            self.op._kernels.fail(*prepared.held)
        if prepared.entry is not None:
            self.blueprint.dispatcher.fail(prepared.entry)

    # The steps.

    def check(self) -> None:
        """Raise unless the arguments are tensors that the op can take."""
        check_arguments(self.name, self.blueprint.inputs, self.blueprint.optional, self.tensors)

    def bind(self) -> Binding:
        """Hold the call against the manifest's signature."""
        binding: Binding = self.blueprint.entry.checker.call(self.op._params, self.tensors)
        return binding

    def prepare(self, binding: Binding, settlement: backend.Settlement) -> Prepared:
        """Find who serves the call and make its plan."""
        if settlement.target is not backend.BUILTIN:
            self.check_not_named(settlement)
            return self.on_target(binding, settlement, settlement.target)
        return self.in_tree(binding)

    def on_target(self, binding: Binding, settlement: backend.Settlement, target: str) -> Prepared:
        """Make the plan of a call that a target serves: its kernel from the memo, built on a miss."""
        device = binding.device
        builder = backend.builder_for(self.name, target, device)
        if binding.empty:
            return self.empty(binding, target)
        self.check_written()
        specs = tuple(
            None if tensor is None else backend.TensorSpec(tensor.device, tensor.dtype, tuple(tensor.shape))
            for tensor in self.tensors
        )
        key = (target, device, *(None if spec is None else (spec.dtype, spec.shape) for spec in specs))
        if capture.is_capturing(device):
            kernels = self.op._kernels
            self.check_ready(kernels.is_ready(key, tuned=self.op._tuned), kernels.has(key))
        built: list[bool] = []

        def build() -> Any:
            built.append(True)
            return self.build(builder, specs, device, target)

        held = self.op._kernels.obtain(key, build)
        kernel = held.kernel
        assert kernel is not None, "obtain returns what is built"
        copies = self.copies(aligned=False)
        check = self.result_check(f"of target {target!r}", binding)
        run = self.launched(kernel, copies, device, check)
        name = on_target(target)
        plan = self.plan(run, kernel, binding, target, name, copies)
        plan.aligned = False  # a target's kernels get tensors wherever they start
        return Prepared(plan, name, lambda: settlement.text, held=(key, held), built=bool(built))

    def build(self, builder: Callable[..., Any], specs: Sequence[Any], device: torch.device, target: str) -> Any:
        """Call a target's builder with the device current."""
        try:
            with device_current(device):
                kernel = builder(*specs, **copy.deepcopy(self.op._params))
        except Exception as error:
            tell_build(error, self.name, f"the builder of target {target!r}", device)
            raise
        count_build(self.name, on_target(target))
        if not callable(kernel):
            raise BackendError(
                f"{self.name}: the kernel builder of target {target!r} has to return something callable, "
                f"got {type(kernel).__name__}: {shown(kernel)}",
                op=self.name,
                target=target,
            )
        if self.op._tuned:
            request_tune(self.op, kernel, device)
        return kernel

    def in_tree(self, binding: Binding) -> Prepared:
        """Make the plan of a call that an in-tree implementation serves."""
        device = binding.device
        if device.type == "meta" and not self.is_available(device):
            return self.shapes(binding)
        self.check_available(device)
        if binding.empty:
            return self.empty(binding, backend.BUILTIN)
        self.check_written()
        copies = self.copies(aligned=True)
        facts: dict[str, Any] = {}
        entry: Entry | None = None
        built = False
        why: Callable[[], str] = str
        if hasattr(self.op, "forward"):
            kernel, checked, name = self.op.forward, "of its forward", FORWARD
        else:
            use = self.use(binding)
            call = use.call_spec(device, binding.values)
            built = not self.blueprint.dispatcher.built(use.name, call, tuned=self.op._tuned, only=self.only)
            entry = self.resolve(use, call)
            kernel, checked, name = entry.kernel, repr(entry.key), entry.key
            if self.op._tuned and not hasattr(kernel, "request_tune"):
                request_tune(self.op, kernel, device)  # the dispatcher asks those that have it
            facts = {"interface": use.name, "call": call, "key": entry.key}
            table = self.blueprint.dispatcher.tables[use.name]
            why = decisions.reasons(table, call, self.only)
        first = self.launched(kernel, copies, device, self.result_check(checked, binding))
        run = self.launched(kernel, copies, device, None)
        plan = self.plan(run, kernel, binding, backend.BUILTIN, name, copies, **facts)
        return Prepared(plan, name, why, first, entry=entry, built=built)

    def launched(
        self, kernel: Any, copies: Sequence[Copy], device: torch.device, check: ResultCheck | None
    ) -> Callable[..., Any]:
        """Return the function that runs ``kernel`` on the tensors of a call, and returns what the op returns."""
        run = launcher(kernel, copies, device, check)
        written = self.written()
        if written:
            run = writing(run, self.name, self.blueprint.inputs, self.tensors, written)
        return self.handing_back(run)

    def resolve(self, use: LinkedUse, call: CallSpec) -> Entry:
        """Ask the dispatcher for the entry; word its errors with the op's name and targets."""
        self.check_named(use)
        dispatcher, tuned = self.blueprint.dispatcher, self.op._tuned
        try:
            if capture.is_capturing(call.device):
                built = dispatcher.built(use.name, call, tuned=tuned, only=self.only)
                self.check_ready(
                    built and not (tuned and dispatcher.awaits_tuning(use.name, call, only=self.only)), built
                )
            return dispatcher.resolve(use.name, call, tuned=tuned, only=self.only)
        except (OpNotAvailableError, AmbiguousDispatchError) as error:
            trace = getattr(error, "trace", None)
            if trace is None:
                raise
            raise trace.error(op=self.name, targets=backend.registered_targets(self.name)) from None
        except BackendError:
            raise
        except Exception as error:
            key = dispatcher.tables[use.name].explain(call, self.only).winner
            tell_build(error, self.name, f"the implementation {key!r}", call.device)
            raise

    def use(self, binding: Binding) -> LinkedUse:
        """Return the one interface that the call asks."""
        asked = [use for use in self.blueprint.uses if use.applies(binding.values)]
        if len(asked) != 1:
            raise DeclarationError(
                f"{self.name}: this call asks {[use.name for use in asked] or 'no interface'}; the conditions `when` "
                f"of its interfaces have to hold for exactly one: {[use.name for use in self.blueprint.uses]}",
                op=self.name,
            )
        return asked[0]

    def implementations(self) -> Mapping[str, type[KernelInterface]]:
        """Return the op's in-tree implementations by key."""
        return self.blueprint.dispatcher.implementations()

    def is_available(self, device: torch.device) -> bool:
        """Say whether some implementation of the op can run on devices of this kind."""
        kind = device_kind(device)
        return any(kind in cls.declaration.devices for cls in self.implementations().values())

    def check_available(self, device: torch.device) -> None:
        """Raise unless some implementation of the op can run on devices of this kind."""
        if not self.is_available(device):
            raise backend.in_tree_error(self.name, device)

    def check_ready(self, ready: bool, built: bool) -> None:
        """Raise, as a CUDA graph is being captured, unless the kernel of the call is ready to launch."""
        if not ready:
            what = "would be the first since its kernel was asked to tune" if built else "would build its kernel"
            specs = ", ".join(_spec_text(name, tensor, self.keyword_only(name)) for name, tensor in self.given())
            raise capture.cold_error(self.name, repr(self.op), self.text(), specs, what)

    def text(self) -> str:
        """Write the call's tensors and the op's params in one line."""
        params = [f"{name}={plain_value(value)}" for name, value in self.op._params.items()]
        return " ".join([*(_told(name, tensor) for name, tensor in self.given()), *params])

    def keyword_only(self, name: str) -> bool:
        """Say whether an input is passed by name."""
        return self.blueprint.entry.signature.inputs[name].keyword_only

    def given(self) -> list[tuple[str, Any]]:
        """Return the call's tensors with the names of their inputs."""
        return list(zip(self.blueprint.inputs, self.tensors, strict=True))

    def written(self) -> tuple[int, ...]:
        """Return the places of the inputs that the call writes."""
        names = self.blueprint.entry.checker.writes(self.op._params)
        return tuple(self.blueprint.inputs.index(name) for name in names)

    def check_written(self) -> None:
        """Raise for an input that cannot be written in place."""
        check_written(self.name, self.blueprint.inputs, self.tensors, self.written())

    def check_named(self, use: LinkedUse) -> None:
        """Raise when ``use_kernel`` names an implementation of another interface than the one the call asks."""
        keys = self.blueprint.dispatcher.slots[use.name].implementations
        if self.only is not None and self.only not in keys:
            raise OpNotAvailableError(
                f"use_kernel names {self.only!r}, but this call of {self.name} asks the interface {use.name!r}, whose "
                f"implementations are: {sorted(keys)}",
                op=self.name,
                key=self.only,
            )

    def check_not_named(self, settlement: backend.Settlement) -> None:
        """Raise when ``use_kernel`` names an in-tree implementation for a call that a target serves."""
        if self.only is not None:
            raise OpNotAvailableError(
                f"use_kernel names {self.only!r}, an in-tree implementation of {self.name}, but a target serves "
                f"the call ({settlement.text}); construct the op with target=tileops.backend.BUILTIN",
                op=self.name,
                key=self.only,
                target=settlement.target,
            )

    # Its parts.

    def empty(self, binding: Binding, target: Any) -> Prepared:
        """Make the plan of a call with nothing to compute: outputs of the inferred shapes, filled as declared."""
        device = binding.device
        outputs = self.outputs(binding)
        for output in outputs:
            if output.empty is None and 0 not in output.shape:
                raise SignatureError(
                    f"{self.name}: an input has no element, and the manifest does not say what then fills the output "
                    f"{output.name!r} of shape {output.shape}",
                    op=self.name,
                )

        def run(*_: torch.Tensor | None) -> Any:
            made = [
                torch.full(output.shape, output.empty or 0, dtype=output.dtype, device=device) for output in outputs
            ]
            return None if not made else made[0] if len(made) == 1 else tuple(made)

        return Prepared(self.plan(self.handing_back(run), None, binding, target, NOTHING), NOTHING, str)

    def shapes(self, binding: Binding) -> Prepared:
        """Make the plan of a call on meta tensors that no kernel serves: as torch's own ops, it infers shapes."""
        outputs, device = self.outputs(binding), binding.device

        def run(*_: torch.Tensor | None) -> Any:
            made = [torch.empty(output.shape, dtype=output.dtype, device=device) for output in outputs]
            return None if not made else made[0] if len(made) == 1 else tuple(made)

        return Prepared(self.plan(self.handing_back(run), None, binding, backend.BUILTIN, SHAPES), SHAPES, str)

    def outputs(self, binding: Binding) -> tuple[OutputSpec, ...]:
        """Return the outputs that a kernel makes: those that are not a written input handed back."""
        return tuple(output for output in self.blueprint.entry.checker.outputs(binding) if output.same_as is None)

    def result_check(self, kernel: str, binding: Binding) -> ResultCheck:
        """Return what the kernel's result is held against."""
        present = tuple(tensor is not None for tensor in self.tensors)
        return ResultCheck(self.name, kernel, binding.device, self.outputs(binding), present)

    def handing_back(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``run``, extended to hand back the written inputs that the manifest lists among the outputs."""
        places = self.op._handed_back
        if places is None:
            return run

        def run_and_hand_back(*tensors: torch.Tensor | None) -> Any:
            return hand_back(places, run(*tensors), tensors)

        return run_and_hand_back

    def copies(self, *, aligned: bool) -> tuple[Copy, ...]:
        """Return the copies that the call needs before its launch."""
        checker, inputs = self.blueprint.entry.checker, self.blueprint.entry.signature.inputs
        written = checker.writes(self.op._params)
        return copies_for(
            self.tensors,
            self.blueprint.inputs,
            [name in written for name in inputs],
            [item.contiguous for item in inputs.values()],
            aligned=aligned,
        )

    def plan(
        self,
        run: Callable[..., Any],
        kernel: Any,
        binding: Binding,
        target: Any,
        name: str,
        copies: Sequence[Copy] = (),
        **served_by: Any,
    ) -> Plan:
        """Put a plan together."""
        facts = CallFacts(
            op=self.name,
            device=binding.device,
            target=target,
            indices=binding.indices,
            params=self.op.params,
            copies=tuple(copy.why for copy in copies if copy.why is not None),
            **served_by,
        )
        return Plan(run, kernel, facts, binding, tally(self.name, name))


def call_of(op: Op, tensors: tuple[Any, ...]) -> ColdCall:
    """Return the cold call of ``op`` with these tensors: an op may have a kind of its own."""
    return op._cold_call(tensors)


def hand_back(places: tuple[int | None, ...] | None, made: Any, tensors: Sequence[Any]) -> Any:
    """Return a call's outputs: those that were made, and the caller's own tensors at ``places`` among its inputs."""
    if places is None:
        return made
    fresh = list(made) if isinstance(made, (tuple, list)) else [] if made is None else [made]
    given = tuple([fresh.pop(0) if place is None else tensors[place] for place in places])
    return given[0] if len(given) == 1 else given


def _told(name: str, tensor: Any) -> str:
    if tensor is None:
        return f"{name}=none"
    return f"{name}={'x'.join(map(str, tensor.shape)) or 'scalar'} {plain_value(tensor.dtype)} {tensor.device}"


def _spec_text(name: str, tensor: Any, keyword_only: bool) -> str:
    spec = "None"
    if tensor is not None:
        spec = f"TensorSpec(torch.device({str(tensor.device)!r}), {tensor.dtype}, {tuple(tensor.shape)})"
    return f"{name}={spec}" if keyword_only else spec


def outside_modes() -> AbstractContextManager[Any]:
    """Leave the dispatch modes that are in force: a kernel's memory writes are none of the operations they watch."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()
