"""Feed-forward blocks."""

from __future__ import annotations

from tileops.composite import CompositeOp


class GatedMLPFwdOp(CompositeOp):
    """Projects to gate and up, gates one by the other, projects back: a GemmFwdOp, a SiLUAndMulFwdOp, a GemmFwdOp.

    ``GatedMLPFwdOp(target=None)``, called with ``x`` of shape [M, K], ``w_gate_up`` of shape [2 * H, K] (the gate's H
    rows first) and ``w_down`` of shape [N, H], all float16 or all bfloat16; returns ``y`` of shape [M, N] in that
    dtype: ``(silu(gate) * up) @ w_down.T``. The values between the steps are rounded to the dtype too.
    """
