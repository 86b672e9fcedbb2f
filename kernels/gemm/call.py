"""The call spec of a dense matrix product."""

from __future__ import annotations

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim, flag


@call_spec()
class GemmCall(CallSpec):
    """States d[m, n] = a[m, k] @ b[k, n]. trans_a: a is stored [k, m]; trans_b: b is stored [n, k]."""

    m: int = dim()
    n: int = dim()
    k: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)
    trans_a: bool = flag()
    trans_b: bool = flag()
