from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from tileops.backend import register_kernel_builder
from tileops.gemm import GemmFwdOp
from tileops.norm import RMSNormFwdOp

from tileops_cpu.ops import BUILDERS

OPS = {"GemmFwdOp": GemmFwdOp, "RMSNormFwdOp": RMSNormFwdOp}
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@attrs.define
class Recording:
    """A target of one test's own: this package's builders, and a record of what they were asked and what they made."""

    target: str
    asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = attrs.field(factory=list)
    kernels: list[Any] = attrs.field(factory=list)

    def serve(self, op: str, build: Callable[..., Any] | None = None) -> None:
        """Register a builder for ``op``: ``build``, or else this package's."""
        chosen = BUILDERS[op] if build is None else build

        def record(*inputs: Any, **params: Any) -> Any:
            self.asked.append((op, inputs, params))
            kernel = chosen(*inputs, **params)
            self.kernels.append(kernel)
            return kernel

        register_kernel_builder(op, self.target, record)


@pytest.fixture
def recording() -> Recording:
    """A target that nobody else uses and that claims no device: a test names it with ``target=``."""
    return Recording(f"recording_{next(_NUMBERS)}")
