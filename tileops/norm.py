"""Normalisation ops."""

from __future__ import annotations

from tileops.op import Op


class RMSNormFwdOp(Op):
    """Divides by the root of the mean square over the last dims: ``y = x / sqrt(mean(x * x) + eps) * weight``.

    ``RMSNormFwdOp(normalized_shape, eps=None, target=None)``, called with ``x`` of shape ``[*B, *normalized_shape]``
    and optionally ``weight`` of shape ``[*normalized_shape]``, both float16 or both bfloat16; returns ``y`` like ``x``.
    ``eps=None`` means what it means to ``torch.nn.functional.rms_norm``. Served by targets only.
    """
