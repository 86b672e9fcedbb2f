"""Kernel selection as data that a prover can read.

Ops are imported from their family: ``from tileops.gemm import GemmFwdOp``. What else the package offers is listed in
``__all__`` and loaded when it is first asked for, so that importing a part costs that part only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileops.catalog import collecting, op_class
    from tileops.explain import OpTrace, explain
    from tileops.forced import use_kernel
    from tileops.op import Op
    from tileops.tally import stats
    from tileops.uses import Uses

__all__ = ["Op", "OpTrace", "Uses", "collecting", "explain", "op_class", "stats", "use_kernel"]

_HOMES = {
    "Op": "op",
    "OpTrace": "explain",
    "Uses": "uses",
    "collecting": "catalog",
    "explain": "explain",
    "op_class": "catalog",
    "stats": "tally",
    "use_kernel": "forced",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
