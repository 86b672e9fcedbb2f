"""Kernel interfaces: the place where an op calls a kernel, and the contract of that call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from tileops.rules.callspec import CallSpec
from tileops.rules.declaration import Declaration
from tileops.rules.errors import DeclarationError
from tileops.rules.report import Finding


class KernelInterface:
    """Stands above all implementations of one interface.

    A direct subclass is an interface: it sets ``request``, the class of its call specs, and defines ``forward`` with
    the arguments of the call. A subclass of that is an implementation: it sets ``declaration`` and defines
    ``entry_for`` and ``forward``. Calling an instance calls its ``forward`` with nothing between.
    A built kernel may have ``request_tune()`` and ``config``.
    """

    request: ClassVar[type[CallSpec]]
    declaration: ClassVar[Declaration] = Declaration()

    def __init_subclass__(cls, **options: Any) -> None:
        """Make calling an instance the same as calling its ``forward``."""
        super().__init_subclass__(**options)
        if "forward" in cls.__dict__ and "__call__" not in cls.__dict__:
            # The slot holds the function itself: a __call__ that hands on costs 0.1 us a launch.
            cls.__call__ = cls.__dict__["forward"]  # type: ignore[method-assign]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel; an interface defines this with named arguments, an implementation fills it in."""
        raise NotImplementedError(f"{type(self).__qualname__} defines no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel."""
        return self.forward(*args, **kwargs)

    @classmethod
    def entry_for(cls, call: Any) -> tuple[Hashable, Callable[[], Callable[..., Any]]]:
        """Return the build identity of ``call`` and the function that builds its kernel.

        Calls with equal identity share one kernel, so all that goes into a build is in the identity.
        """
        raise NotImplementedError(f"{cls.__qualname__} defines no entry_for")


def is_interface(cls: Any) -> bool:
    """Say whether a class is an interface: a direct subclass of KernelInterface."""
    return isinstance(cls, type) and KernelInterface in cls.__bases__


def interface_of(cls: type[KernelInterface]) -> type[KernelInterface]:
    """Return the interface that an implementation inherits; an interface is its own.

    Raises DeclarationError for a class that inherits none, or more than one.
    """
    found = [base for base in getattr(cls, "__mro__", ()) if is_interface(base)]
    if len(found) == 1:
        interface: type[KernelInterface] = found[0]
        return interface
    name = getattr(cls, "__qualname__", repr(cls))
    if not found:
        raise DeclarationError(f"{name} inherits no kernel interface (a direct subclass of KernelInterface)")
    raise DeclarationError(f"{name} inherits several interfaces: {', '.join(base.__qualname__ for base in found)}")


def structure_faults(interface: type[KernelInterface], key: str, cls: Any) -> list[str]:
    """Return what keeps ``cls`` from being an implementation of ``interface`` at all."""
    name = getattr(cls, "__qualname__", repr(cls))
    if not isinstance(cls, type) or not issubclass(cls, interface) or cls is interface:
        return [f"{key}: {name} does not inherit the interface {interface.__qualname__}"]
    faults = []
    if not isinstance(cls.declaration, Declaration):
        faults.append(f"{key}: declaration of {name} is no Declaration: {cls.declaration!r}")
    if getattr(cls.entry_for, "__func__", None) is KernelInterface.entry_for.__func__:  # type: ignore[attr-defined]
        faults.append(f"{key}: {name} defines no entry_for(cls, call)")
    return faults


def argument_findings(
    interface: type[KernelInterface], implementation: type[KernelInterface], key: str | None = None
) -> tuple[Finding, ...]:
    """Return findings of kind "arguments" where ``forward`` does not take what the interface's callers pass."""
    wanted = inspect.signature(interface.forward)
    given = inspect.signature(implementation.forward)
    faults = _argument_faults(wanted, given)
    if not faults:
        return ()
    message = (
        f"{implementation.__qualname__}.forward{given} does not take the arguments of "
        f"{interface.__qualname__}.forward{wanted}: {'; '.join(faults)}"
    )
    return (Finding("arguments", (key or implementation.__qualname__,), message),)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_RUNS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _argument_faults(wanted: inspect.Signature, given: inspect.Signature) -> list[str]:
    ours = list(wanted.parameters.values())[1:]
    theirs = list(given.parameters.values())[1:]
    kinds = {parameter.kind for parameter in theirs}
    takes_rest = inspect.Parameter.VAR_POSITIONAL in kinds
    takes_names = inspect.Parameter.VAR_KEYWORD in kinds
    by_name = {parameter.name: parameter for parameter in theirs}
    positional = [parameter.name for parameter in theirs if parameter.kind in _POSITIONAL]
    faults = []
    for place, parameter in enumerate(one for one in ours if one.kind in _POSITIONAL):
        if place < len(positional):
            if positional[place] != parameter.name:
                faults.append(f"argument {place + 1} is {positional[place]!r}, not {parameter.name!r}")
        elif not takes_rest:
            faults.append(f"{parameter.name!r} is not taken by position")
    for parameter in ours:
        if parameter.kind in _RUNS:
            if parameter.kind not in kinds:
                faults.append(f"'{parameter}' is missing")
            continue
        same = by_name.get(parameter.name)
        if same is None:
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not takes_names:
                faults.append(f"{parameter.name!r} is missing")
        elif parameter.default is not parameter.empty and same.default is same.empty:
            faults.append(f"{parameter.name!r} may be left out by the caller, but has no default")
    names = {parameter.name for parameter in ours}
    for parameter in theirs:
        if parameter.name not in names and parameter.kind not in _RUNS and parameter.default is parameter.empty:
            faults.append(f"{parameter.name!r} is not passed by callers and has no default")
    return faults
