"""Op: the base of every op. A subclass is data: its manifest entry, its implementations, the interfaces it asks."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tileops import backend, capture, operator
from tileops.arguments import check_arguments
from tileops.blueprint import Blueprint, OpDispatcher, draw, findings_error
from tileops.catalog import is_collecting
from tileops.coldcall import ColdCall, hand_back
from tileops.forced import named_kernel
from tileops.launch import ALIGNMENT
from tileops.manifest import loader
from tileops.manifest.record import OpEntry
from tileops.memo import KernelMemo
from tileops.plan import CallFacts, Plan, PlanTable, likeness, never
from tileops.rules.callspec import CallSpec
from tileops.rules.errors import BackendError, SignatureError, nearest
from tileops.rules.interface import KernelInterface
from tileops.rules.report import Finding
from tileops.tuning import request_tune
from tileops.uses import Uses

if TYPE_CHECKING:
    from tileops.ahead import Warmed


class DeclarationWarning(UserWarning):
    """Names a finding about an op's declarations that may be lived with, such as a pair that the prover left open."""


class _NoPlan:
    """Stands for the recent plan of an instance that has none: no call is like it."""

    like = staticmethod(never)


_NO_PLAN = _NoPlan()


class Op:
    """Calls kernels by the op's manifest entry: a target's where one serves the device, else the in-tree ones.

    A subclass has the name of its manifest entry, which gives constructor params, inputs and outputs. It declares
    ``kernel_types`` (implementations by key) and ``interfaces`` (a ``Uses`` by interface name); an op that declares
    neither is served by targets only. ``forward(self, *tensors)`` is written only where ``Uses`` does not do.

    An instance is constructed with the entry's params, and ``target=``: the name of a target, or
    ``tileops.backend.BUILTIN``, or None to let the process default and then the device decide. It is called with the
    entry's inputs, by position or keyword.

    Raises:
        DeclarationError: at class creation, with every finding about the declarations.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = {}
    interfaces: ClassVar[Mapping[str, Uses]] = {}

    #: Set for each subclass.
    entry: ClassVar[OpEntry]
    blueprint: ClassVar[Blueprint]
    dispatcher: ClassVar[OpDispatcher]
    findings: ClassVar[tuple[Finding, ...]]

    def __init_subclass__(cls, entry: OpEntry | None = None, *, base: bool = False, **kwargs: Any) -> None:
        """Put the class together; ``entry`` stands for the manifest's entry of the class's name.

        A ``base`` of other ops has no entry, and no instances.
        """
        super().__init_subclass__(**kwargs)
        if base:
            return
        cls.entry = entry if entry is not None else loader.entry(cls.__name__)
        cls.blueprint = draw(cls.__name__, cls.entry, cls.kernel_types, cls.interfaces)
        cls.dispatcher = cls.blueprint.dispatcher
        cls.findings = cls.blueprint.findings
        cls.__call__ = cls.blueprint.generated.call  # type: ignore[method-assign]  # one for each signature
        cls._serve = cls.blueprint.generated.serve  # type: ignore[method-assign]
        cls.__signature__ = _constructor(cls.entry)  # type: ignore[attr-defined]  # read by inspect and by help
        if is_collecting():
            return
        error = findings_error(cls.__name__, cls.findings)
        if error is not None:
            raise error
        for finding in cls.findings:
            warnings.warn(f"{cls.__name__}: {finding.message}", DeclarationWarning, stacklevel=2)

    def __init__(self, *args: Any, target: backend.Target | None = None, **kwargs: Any) -> None:
        """Check the params by the manifest and keep them as passed; load the installed backends, once in a process.

        Raises:
            TypeError: a param that the op does not have (names the nearest), or one that is missing.
            SignatureError: a value that the param does not take.
        """
        cls = type(self)
        if not hasattr(cls, "entry"):
            raise TypeError(
                f"{cls.__name__} is a base of ops and has no manifest entry; construct one of its subclasses"
            )
        error = findings_error(cls.__name__, cls.findings)
        if error is not None:
            raise error
        known = {*cls.entry.signature.params, "target"}
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"{cls.__name__} has no param {name!r}{nearest(name, known)}; its params are: "
                    f"{', '.join([*cls.entry.signature.params, 'target'])}"
                )
        if not (target is None or target is backend.BUILTIN or (isinstance(target, str) and target)):
            raise SignatureError(
                f"{cls.__name__}: target takes the name of a target, tileops.backend.BUILTIN or None, got {target!r}",
                op=cls.__name__,
                param="target",
            )
        self._params: dict[str, Any] = cls.entry.checker.bind_params(args, kwargs)
        self._target = target
        self._tuned = False
        self._told_untuned = False
        self._settled: dict[torch.device, backend.Settlement] = {}
        self._kernels = KernelMemo()
        self._plans = PlanTable()
        self._last: Plan | None = None
        self._recent: Plan | _NoPlan = _NO_PLAN
        self._name, self._about, self._operator = operator.enrol(self)
        self._handed_back = cls.blueprint.handed_back(self._params)
        backend.discover()
        with cls.dispatcher.plans:
            cls.dispatcher.instances.add(self)

    def __call__(self, *tensors: torch.Tensor | None, **named: torch.Tensor | None) -> Any:
        """Run the op. Each subclass has its own, with its inputs as parameters."""
        raise TypeError(f"{type(self).__name__} has no manifest entry")

    def _call_cold(self, tensors: tuple[Any, ...]) -> Any:
        """Serve a call that found no plan, or that may not use one."""
        blueprint = type(self).blueprint
        check_arguments(blueprint.name, blueprint.inputs, blueprint.optional, tensors)
        if operator.is_watched(tensors):
            return self._call_watched(tensors)
        return self._call_here(tensors)

    def _call_here(self, tensors: tuple[Any, ...]) -> Any:
        """Serve a call of plain tensors that nobody watches, and that has no plan yet."""
        return self._cold_call(tensors).run()

    def _cold_call(self, tensors: tuple[Any, ...]) -> ColdCall:
        """Return the steps of a call."""
        return ColdCall(self, tensors)

    def _call_watched(self, tensors: tuple[Any, ...]) -> Any:
        """Show a call to the modes, subclasses or transforms that it concerns: one torch operator."""
        made = self._operator(*tensors, operator.name_again(self._name, tensors), self._about)
        return hand_back(self._handed_back, made, tensors)

    def _call_traced(self, *tensors: Any) -> Any:
        """Serve a call that Dynamo traces: one torch operator in its graph."""
        return hand_back(self._handed_back, self._operator(*tensors, self._name, self._about), tensors)

    def _serve(self, *tensors: Any) -> Any:
        """Run the op on plain tensors that nobody watches. Each subclass has its own."""
        raise TypeError(f"{type(self).__name__} has no manifest entry")

    def _run_fresh(self, tensors: tuple[Any, ...]) -> Any:
        """Run the op for its torch operator, which returns fresh tensors only."""
        result = self._serve(*(operator.as_plain(tensor) for tensor in tensors))
        if self._handed_back is None:
            return result
        given = result if isinstance(result, tuple) else (result,)
        made = tuple(one for one, place in zip(given, self._handed_back, strict=True) if place is None)
        return None if not made else made[0] if len(made) == 1 else made

    def _remember(self, plan: Plan, tensors: tuple[torch.Tensor, ...]) -> None:
        """Let the next call be compared with this one before anything is looked up.

        A plan that was the last one too, and yet said no, was made in another mode: a warm-up before inference_mode.
        """
        if plan.like is None or plan is self._recent:
            with type(self).dispatcher.plans:
                if plan.like is not never:  # a dropped plan says no for good
                    copied = plan.aligned and any(tensor.data_ptr() % ALIGNMENT for tensor in tensors)
                    plan.like = never if copied else likeness(tensors)
        self._recent = plan

    # What the op knows of itself.

    @property
    def params(self) -> Mapping[str, Any]:
        """The op's params by name, as passed, defaults filled in."""
        return MappingProxyType(self._params)

    @property
    def target(self) -> backend.Target | None:
        """The ``target=`` argument."""
        return self._target

    @property
    def serving_target(self) -> backend.Target | None:
        """Who served the last successful call: a target's name, or ``BUILTIN``; None before there was one."""
        return None if self._last is None else self._last.facts.target

    @property
    def last_call(self) -> CallFacts | None:
        """The facts of the last successful call; None before there was one."""
        return None if self._last is None else self._last.facts

    def eval_roofline(self) -> tuple[int, int]:
        """Return the work of the last successful call: floating-point operations, and bytes moved at the least.

        Raises:
            BackendError: there was none.
        """
        if self._last is None:
            raise BackendError(f"{type(self).__name__}: eval_roofline() is about the last call, and there was none yet")
        return type(self).entry.checker.roofline(self._last.binding)

    def kernel_config(self) -> Mapping[str, Any]:
        """Return the ``config`` of the kernel that served the last call, or else the first one built that has one.

        Empty when no kernel has a config.
        """
        last = () if self._last is None else (self._last.kernel,)
        for kernel in (*last, *(kernel for kernel, _ in self._built())):
            config = getattr(kernel, "config", None)
            if isinstance(config, Mapping) and config:  # a kernel may have a member of that name for itself
                return dict(config)
        return {}

    def warm(self, *specs: backend.TensorSpec | None, **named: backend.TensorSpec | None) -> tuple[Warmed, ...]:
        """Build what calls with such tensors need, without data and without a launch; say what was built.

        Takes a ``TensorSpec(device, dtype, shape)`` for each input, by position or name as in a call, and None for an
        optional one that calls leave out. The tensors to come are contiguous and start at a multiple of 16 bytes:
        others need a copy, but no other kernel. Settles the target as a call does; a composite warms its parts. An
        instance in tuned mode needs one call more before a CUDA graph capture.

        Raises:
            SignatureError, OpNotAvailableError, ...: what a call would raise before its launch.
            ColdCaptureError: a CUDA graph is being captured.
        """
        from tileops.ahead import warm

        return warm(self, specs, named)

    def request_tune(self) -> None:
        """Put the instance into tuned mode: each kernel built later is asked to tune before its first call.

        Target kernels built so far are asked now, each on its device. In-tree kernels are shared between instances, so
        a tuned instance gets ones of its own mode with its next calls. Each shape needs one more call before a CUDA
        graph capture. Raises what a kernel's ``request_tune`` raises, and ColdCaptureError in a capture.
        """
        for device in tuple(self._settled):
            if capture.is_capturing(device):
                raise capture.busy_error(type(self).__name__, "request_tune()")
        with type(self).dispatcher.plans:
            if not self._tuned:
                for key in [key for key, plan in self._plans.items() if plan.facts.target is backend.BUILTIN]:
                    del self._plans[key]
            built = self._built()
            self._tuned = True
            self._kernels.expect_tuning()
            type(self).dispatcher.expect_tuning([kernel for kernel, _ in built])
            self._plans.clear()  # the next call of each key asks anew whether its kernel may launch in a capture
        for kernel, device in built:
            request_tune(self, kernel, device)

    def _built(self) -> list[tuple[Any, torch.device]]:
        """List the kernels that the instance's calls were served by, with the device of each, every pair once."""
        found = [(kernel, device) for (_, device, *_rest), kernel in self._kernels.kernels()]
        found += [(plan.kernel, plan.facts.device) for plan in tuple(self._plans.values()) if plan.kernel is not None]
        return list({(id(kernel), device): (kernel, device) for kernel, device in found}.values())

    @classmethod
    def implementations(cls) -> Mapping[str, type[KernelInterface]]:
        """Return the op's in-tree implementations by key, those registered later too."""
        return cls.dispatcher.implementations()

    # For subclasses with a forward of their own.

    def kernel_for(self, interface: str, call: CallSpec) -> Any:
        """Return the kernel that serves ``call`` through one of the op's interfaces, built if it is not yet.

        Raises:
            OpNotAvailableError: no implementation serves it, with each one's reasons.
            AmbiguousDispatchError: several do, with no precedence between them.
        """
        only = named_kernel(type(self).__name__)
        return type(self).dispatcher.resolve(interface, call, tuned=self._tuned, only=only).kernel

    def forget_plans(self) -> None:
        """Drop the plans, as when the implementations changed. What is settled and what is built stays."""
        with type(self).dispatcher.plans:
            self._plans.clear()

    # Copies: the params and the target travel, what was settled and built does not.

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as class, params and target."""
        return _remake, (type(self), self._params, self._target)

    def __repr__(self) -> str:
        """Return the constructor call that makes an equal op."""
        params = [f"{name}={value!r}" for name, value in self._params.items()]
        target = [] if self._target is None else [f"target={self._target!r}"]
        return f"{type(self).__name__}({', '.join(params + target)})"


def _remake(cls: type[Op], params: Mapping[str, Any], target: backend.Target | None) -> Op:
    return cls(**params, target=target)


def _constructor(entry: OpEntry) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    params = [
        inspect.Parameter(item.name, kind, default=inspect.Parameter.empty if item.required else item.default)
        for item in entry.signature.params.values()
    ]
    params.sort(key=lambda item: item.default is not inspect.Parameter.empty)
    return inspect.Signature([*params, inspect.Parameter("target", inspect.Parameter.KEYWORD_ONLY, default=None)])
