"""A small interface with two implementations, for the tests of the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tileops.rules import CallSpec, Declaration, Dispatcher, KernelInterface, Refusal, Slot, call_spec, dim


@call_spec()
class Call(CallSpec):
    m: int = dim()
    n: int = dim(default=4)


@call_spec()
class OtherCall(CallSpec):
    m: int = dim()


class Gemm(KernelInterface):
    request = Call

    def forward(self, a: Any) -> Any:
        raise NotImplementedError


class Wide(Gemm):
    """Serves everything; one kernel for each n."""

    declaration = Declaration(devices={"cpu"}, general=True)
    built: ClassVar[list[int]] = []

    def __init__(self, n: int) -> None:
        self.n = n
        self.tunings = 0

    def forward(self, a: Any) -> Any:
        return "wide", self.n, a

    def request_tune(self) -> None:
        self.tunings += 1

    @classmethod
    def entry_for(cls, call: Call) -> tuple[int, Callable[[], Wide]]:
        def build() -> Wide:
            cls.built.append(call.n)
            return cls(call.n)

        return call.n, build


class Narrow(Gemm):
    declaration = Declaration(devices={"cpu"}, refusal=(Refusal("m > 2", "serves at most two rows, got m={m}"),))

    def forward(self, a: Any) -> Any:
        return "narrow", a

    @classmethod
    def entry_for(cls, call: Call) -> tuple[str, Callable[[], Narrow]]:
        return "any", cls


def dispatcher(**classes: type[KernelInterface]) -> Dispatcher:
    return Dispatcher({"gemm": Slot("gemm", Gemm, classes)}, op="GemmFwdOp")


def call(m: int = 8, n: int = 4) -> Call:
    return Call(device="cpu", m=m, n=n)
