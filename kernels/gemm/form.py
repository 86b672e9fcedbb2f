"""Describes how one GEMM's operands lie in memory: the part of the build identity that all programs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

if TYPE_CHECKING:
    from tileops.kernels.gemm.call import GemmCall


@frozen
class Form:
    """Holds the shapes of a, b and d in elements. What is None is read from the tensors at each launch."""

    m: int | None
    n: int | None
    k: int | None
    dtype: str
    trans_a: bool
    trans_b: bool

    @classmethod
    def of(cls, call: GemmCall, *, compiled_m: bool) -> Form:
        """Returns the form of a call, with m compiled in or left open."""
        dtype = str(call.dtype).removeprefix("torch.")
        return cls(call.m if compiled_m else None, call.n, call.k, dtype, call.trans_a, call.trans_b)

    def opened(self) -> Form:
        """Returns the form with no dimension compiled in."""
        return evolve(self, m=None, n=None, k=None)

    def __str__(self) -> str:
        known = "".join(f", {name}={size}" for name, size in (("m", self.m), ("n", self.n), ("k", self.k)) if size)
        layout = ("T" if self.trans_a else "N") + ("T" if self.trans_b else "N")
        return f"{self.dtype}{known}, {layout}"
