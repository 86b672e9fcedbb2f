"""Normalisation ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tileops.kernels.norm import (
    BATCH_NORM_INFER_IMPLEMENTATIONS,
    BATCH_NORM_TRAIN_IMPLEMENTATIONS,
    FUSED_ADD_RMS_NORM_IMPLEMENTATIONS,
    GROUP_NORM_IMPLEMENTATIONS,
    LAYER_NORM_IMPLEMENTATIONS,
    RMS_NORM_IMPLEMENTATIONS,
    BatchNormInferInterface,
    BatchNormTrainInterface,
    FusedAddRMSNormInterface,
    GroupNormInterface,
    LayerNormInterface,
    RMSNormInterface,
)
from tileops.op import Op
from tileops.rules.interface import KernelInterface
from tileops.uses import Uses

#: Where eps is left out: the machine epsilon of float32, which the ops compute in.
_EPS = "1.1920928955078125e-07 if eps is None else eps"
_ROWS = {"rows": "prod(B)", "length": "prod(normalized_shape)", "dtype": "T", "weighted": "present(weight)"}
_CHANNELS = {
    "batch": "N",
    "channels": "C",
    "spatial": "prod(S)",
    "dtype": "T",
    "weighted": "present(weight)",
    "biased": "present(bias)",
}


class RMSNormFwdOp(Op):
    """Divides by the root of the mean square over the last dims: ``y = x / sqrt(mean(x * x) + eps) * weight``.

    ``RMSNormFwdOp(normalized_shape, eps=None, target=None)``, called with ``x`` of shape ``[*B, *normalized_shape]``
    and optionally ``weight`` of shape ``[*normalized_shape]``, both float16 or both bfloat16; returns ``y`` like ``x``.
    ``eps=None`` means what it means to ``torch.nn.functional.rms_norm``.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = RMS_NORM_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {"rms_norm": Uses(RMSNormInterface, facts={**_ROWS, "eps": _EPS})}


class LayerNormFwdOp(Op):
    """Centres and scales over the last dims: ``y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias``.

    ``LayerNormFwdOp(normalized_shape, eps=1e-5, target=None)``, called with ``x`` of shape
    ``[*B, *normalized_shape]`` and optionally ``weight`` and ``bias`` of shape ``[*normalized_shape]``, all of one
    dtype: float16, bfloat16 or float32; returns ``y`` like ``x``. As ``torch.nn.functional.layer_norm``.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = LAYER_NORM_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {
        "layer_norm": Uses(LayerNormInterface, facts={**_ROWS, "biased": "present(bias)"}),
    }


class GroupNormFwdOp(Op):
    """Centres and scales each group of channels of each sample, then weighs and shifts each channel.

    ``GroupNormFwdOp(num_groups, eps=1e-5, target=None)``, called with ``x`` of shape ``[N, C, *S]``, where
    ``num_groups`` divides C, and optionally ``weight`` and ``bias`` of shape ``[C]``, all of one dtype: float16,
    bfloat16 or float32; returns ``y`` like ``x``. As ``torch.nn.functional.group_norm``.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = GROUP_NORM_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {
        "group_norm": Uses(GroupNormInterface, facts={**_CHANNELS, "groups": "num_groups"}),
    }


class BatchNormFwdOp(Op):
    """Centres and scales each channel by the batch's statistics when training, by the running ones otherwise.

    ``BatchNormFwdOp(training=False, momentum=0.1, eps=1e-5, target=None)``, called with ``x`` of shape ``[N, C, *S]``,
    float16, bfloat16 or float32, and ``running_mean``, ``running_var`` and optionally ``weight`` and ``bias`` of shape
    ``[C]``, which share x's dtype or are float32; returns ``y`` like ``x``. As ``torch.nn.functional.batch_norm``.

    When training, ``running_mean`` and ``running_var`` move by ``momentum`` towards the batch's mean and its
    variance over count - 1; one value a channel is refused, and none leaves them alone. Otherwise they are only read.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = {
        **BATCH_NORM_TRAIN_IMPLEMENTATIONS,
        **BATCH_NORM_INFER_IMPLEMENTATIONS,
    }
    interfaces: ClassVar[Mapping[str, Uses]] = {
        "batch_norm_fwd_train": Uses(BatchNormTrainInterface, when="training", facts={**_CHANNELS, "param_dtype": "P"}),
        "batch_norm_fwd_infer": Uses(
            BatchNormInferInterface, when="not training", facts={**_CHANNELS, "param_dtype": "P"}
        ),
    }


class FusedAddRMSNormFwdOp(Op):
    """Adds ``x`` to ``residual`` in place and returns the RMSNorm of the sum.

    ``FusedAddRMSNormFwdOp(normalized_shape, eps=None, target=None)``, called with ``x`` and ``residual`` of shape
    ``[*B, *normalized_shape]`` and optionally ``weight`` of shape ``[*normalized_shape]``, all of one dtype: float16,
    bfloat16 or float32. ``residual`` becomes ``x + residual``; returns ``y`` like ``x``: the norm of what it became.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = FUSED_ADD_RMS_NORM_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {
        "fused_add_rms_norm": Uses(FusedAddRMSNormInterface, facts={**_ROWS, "eps": _EPS}),
    }
