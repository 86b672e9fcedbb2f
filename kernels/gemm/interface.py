"""The interface that every GEMM implementation serves."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from tileops.kernels.compile import compile_program, launcher
from tileops.kernels.gemm.call import GemmCall
from tileops.rules.interface import KernelInterface


class GemmInterface(KernelInterface):
    """Multiplies two matrices: float16 or bfloat16 in and out, sums in float32, rounded once.

    Operands are contiguous, on one device, their data on a 16-byte boundary.
    """

    request: ClassVar[type[GemmCall]] = GemmCall

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Returns a new d [m, n], row-major, in the operands' dtype, on the current stream of their device.

        a is [m, k], or [k, m] under trans_a; b is [k, n], or [n, k] under trans_b.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")


class OneLaunch(GemmInterface):
    """Stands above the implementations of one program, which is (a, b, d) where they launch nothing else."""

    def __init__(self, identity: Any) -> None:
        """Compiles the program of a build identity for its arch. Needs nvcc or TileLang's disk cache."""
        self.identity = identity
        self._launch = launcher(self.compile(identity))
        self._m_axis = 1 if identity.form.trans_a else 0
        self._n_axis = 0 if identity.form.trans_b else 1

    @classmethod
    def compile(cls, identity: Any) -> Any:
        """Returns TileLang's kernel object for a build identity."""
        options = identity.options()
        return compile_program(identity.program, identity.arch, **options)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Returns a new d [m, n]."""
        # Sizes one by one: a tuple of them costs a microsecond more.
        d = a.new_empty(a.shape[self._m_axis], b.shape[self._n_axis])
        self._launch(a, b, d)
        return d
