from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tileops.rules import CallSpec, Declaration, KernelInterface, argument_findings, call_spec, dim, interface_of
from tileops.rules.errors import DeclarationError
from tileops.rules.interface import is_interface, structure_faults


@call_spec()
class Call(CallSpec):
    m: int = dim()


class Gemm(KernelInterface):
    request = Call

    def forward(self, a: Any, b: Any, *, bias: Any = None) -> Any:
        raise NotImplementedError


class Good(Gemm):
    declaration = Declaration(general=True)

    def forward(self, a: Any, b: Any, *, bias: Any = None) -> Any:
        return a, b, bias

    @classmethod
    def entry_for(cls, call: Call) -> tuple[int, Callable[[], Good]]:
        return call.m, cls


def test_calling_a_kernel_is_calling_its_forward() -> None:
    assert Good()(1, b=2, bias=3) == (1, 2, 3)
    assert Good.__call__ is Good.forward


def test_a_kernel_with_a_call_of_its_own_keeps_it() -> None:
    class Own(Good):
        def forward(self, a: Any, b: Any, *, bias: Any = None) -> Any:
            return "forward"

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return "call"

    assert Own()(1, 2) == "call"


def test_a_subclass_that_defines_another_forward_is_called_by_it() -> None:
    class Other(Good):
        def forward(self, a: Any, b: Any, *, bias: Any = None) -> Any:
            return "other"

    class Same(Other):
        pass

    assert Other()(1, 2) == "other"
    assert Same()(1, 2) == "other"


def test_the_defaults_of_an_implementation() -> None:
    assert KernelInterface.declaration == Declaration()
    with pytest.raises(NotImplementedError, match="Gemm defines no entry_for"):
        Gemm.entry_for(Call(device="cpu", m=1))

    class Bare(KernelInterface):
        request = Call

    with pytest.raises(NotImplementedError, match="Bare defines no forward"):
        Bare()(1)


def test_which_interface_a_class_inherits() -> None:
    class Deeper(Good):
        pass

    class Norm(KernelInterface):
        request = Call

    class Two(Gemm, Norm):
        pass

    assert interface_of(Good) is interface_of(Deeper) is interface_of(Gemm) is Gemm
    assert is_interface(Gemm)
    assert not is_interface(Good)
    assert not is_interface(KernelInterface)
    with pytest.raises(DeclarationError, match=r"Two inherits several interfaces: .*Gemm, .*Norm"):
        interface_of(Two)
    for stray in (int, KernelInterface):
        with pytest.raises(DeclarationError, match="inherits no kernel interface"):
            interface_of(stray)  # type: ignore[arg-type]


def forward_a_b(self: Any, a: Any, b: Any, *, bias: Any = None) -> None: ...
def forward_more(self: Any, a: Any, b: Any, *, bias: Any = None, extra: int = 1) -> None: ...
def forward_anything(self: Any, *args: Any, **kwargs: Any) -> None: ...
def forward_by_either(self: Any, a: Any, b: Any, bias: Any = None) -> None: ...
def forward_swapped(self: Any, b: Any, a: Any, *, bias: Any = None) -> None: ...
def forward_short(self: Any, a: Any, *, bias: Any = None) -> None: ...
def forward_no_bias(self: Any, a: Any, b: Any) -> None: ...
def forward_bias_needed(self: Any, a: Any, b: Any, *, bias: Any) -> None: ...
def forward_extra_needed(self: Any, a: Any, b: Any, extra: Any, *, bias: Any = None) -> None: ...
def forward_none(self: Any) -> None: ...


@pytest.mark.parametrize("forward", [forward_a_b, forward_more, forward_anything, forward_by_either])
def test_a_forward_that_takes_the_arguments(forward: Callable[..., Any]) -> None:
    assert argument_findings(Gemm, type("Kernel", (Gemm,), {"forward": forward})) == ()


@pytest.mark.parametrize(
    ("forward", "told"),
    [
        (forward_swapped, "argument 1 is 'b', not 'a'"),
        (forward_short, "'b' is not taken by position"),
        (forward_no_bias, "'bias' is missing"),
        (forward_bias_needed, "'bias' may be left out by the caller, but has no default"),
        (forward_extra_needed, "'extra' is not passed by callers and has no default"),
        (forward_none, "'a' is not taken by position; 'b' is not taken by position; 'bias' is missing"),
    ],
)
def test_a_forward_that_does_not(forward: Callable[..., Any], told: str) -> None:
    (finding,) = argument_findings(Gemm, type("Kernel", (Gemm,), {"forward": forward}), "gemm_x")
    assert finding.kind == "arguments"
    assert finding.keys == ("gemm_x",)
    assert finding.severity == "error"
    assert told in finding.message
    assert "Kernel.forward(self" in finding.message


def test_runs_of_arguments_must_be_taken_as_runs() -> None:
    class Many(KernelInterface):
        request = Call

        def forward(self, *tensors: Any) -> Any:
            raise NotImplementedError

    assert argument_findings(Many, type("Kernel", (Many,), {"forward": forward_anything})) == ()
    (finding,) = argument_findings(Many, type("Kernel", (Many,), {"forward": forward_none}))
    assert "'*tensors: 'Any'' is missing" in finding.message or "*tensors" in finding.message


def test_what_is_no_implementation_at_all() -> None:
    class NoEntry(Gemm):
        pass

    class NoDeclaration(Good):
        declaration = {"general": True}  # type: ignore[assignment]  # noqa: RUF012

    assert structure_faults(Gemm, "good", Good) == []
    assert "defines no entry_for(cls, call)" in structure_faults(Gemm, "x", NoEntry)[0]
    assert "is no Declaration" in structure_faults(Gemm, "x", NoDeclaration)[0]
    for stray in (int, Gemm, KernelInterface, 3):
        assert "does not inherit the interface Gemm" in structure_faults(Gemm, "x", stray)[0]
