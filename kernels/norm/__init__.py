"""Normalisations: call specs, interfaces and implementations."""

from tileops.kernels.norm.batch_norm import (
    BatchNormInferCall,
    BatchNormInferInterface,
    BatchNormTrainCall,
    BatchNormTrainInterface,
)
from tileops.kernels.norm.batch_norm_infer_channels import BatchNormInferWalkKernel, BatchNormInferWideKernel
from tileops.kernels.norm.batch_norm_train_channels import BatchNormTrainBlockKernel, BatchNormTrainSharedKernel
from tileops.kernels.norm.batch_norm_train_columns import BatchNormTrainColumnsKernel
from tileops.kernels.norm.batch_norm_train_spans import BatchNormTrainSpansKernel
from tileops.kernels.norm.batch_norm_train_stream import BatchNormTrainStreamKernel
from tileops.kernels.norm.fused_add_rms_norm import FusedAddRMSNormCall, FusedAddRMSNormInterface
from tileops.kernels.norm.fused_add_rms_norm_rows import (
    FusedAddRMSNormBlockKernel,
    FusedAddRMSNormStreamKernel,
    FusedAddRMSNormWarpKernel,
)
from tileops.kernels.norm.group_norm import GroupNormCall, GroupNormInterface
from tileops.kernels.norm.group_norm_rows import GroupNormBlockKernel, GroupNormSharedKernel, GroupNormWarpKernel
from tileops.kernels.norm.group_norm_stream import GroupNormStreamKernel
from tileops.kernels.norm.layer_norm import LayerNormCall, LayerNormInterface
from tileops.kernels.norm.layer_norm_rows import LayerNormBlockKernel, LayerNormStreamKernel, LayerNormWarpKernel
from tileops.kernels.norm.rms_norm import RMSNormCall, RMSNormInterface
from tileops.kernels.norm.rms_norm_rows import RMSNormBlockKernel, RMSNormStreamKernel, RMSNormWarpKernel

RMS_NORM_IMPLEMENTATIONS: dict[str, type[RMSNormInterface]] = {
    "rms_norm_block": RMSNormBlockKernel,
    "rms_norm_stream": RMSNormStreamKernel,
    "rms_norm_warp": RMSNormWarpKernel,
}
"""The implementations of RMSNormInterface by key."""

LAYER_NORM_IMPLEMENTATIONS: dict[str, type[LayerNormInterface]] = {
    "layer_norm_block": LayerNormBlockKernel,
    "layer_norm_stream": LayerNormStreamKernel,
    "layer_norm_warp": LayerNormWarpKernel,
}
"""The implementations of LayerNormInterface by key."""

GROUP_NORM_IMPLEMENTATIONS: dict[str, type[GroupNormInterface]] = {
    "group_norm_block": GroupNormBlockKernel,
    "group_norm_shared": GroupNormSharedKernel,
    "group_norm_stream": GroupNormStreamKernel,
    "group_norm_warp": GroupNormWarpKernel,
}
"""The implementations of GroupNormInterface by key."""

BATCH_NORM_TRAIN_IMPLEMENTATIONS: dict[str, type[BatchNormTrainInterface]] = {
    "batch_norm_train_block": BatchNormTrainBlockKernel,
    "batch_norm_train_columns": BatchNormTrainColumnsKernel,
    "batch_norm_train_shared": BatchNormTrainSharedKernel,
    "batch_norm_train_spans": BatchNormTrainSpansKernel,
    "batch_norm_train_stream": BatchNormTrainStreamKernel,
}
"""The implementations of BatchNormTrainInterface by key."""

BATCH_NORM_INFER_IMPLEMENTATIONS: dict[str, type[BatchNormInferInterface]] = {
    "batch_norm_infer_walk": BatchNormInferWalkKernel,
    "batch_norm_infer_wide": BatchNormInferWideKernel,
}
"""The implementations of BatchNormInferInterface by key."""

FUSED_ADD_RMS_NORM_IMPLEMENTATIONS: dict[str, type[FusedAddRMSNormInterface]] = {
    "fused_add_rms_norm_block": FusedAddRMSNormBlockKernel,
    "fused_add_rms_norm_stream": FusedAddRMSNormStreamKernel,
    "fused_add_rms_norm_warp": FusedAddRMSNormWarpKernel,
}
"""The implementations of FusedAddRMSNormInterface by key."""

__all__ = [
    "BATCH_NORM_INFER_IMPLEMENTATIONS",
    "BATCH_NORM_TRAIN_IMPLEMENTATIONS",
    "FUSED_ADD_RMS_NORM_IMPLEMENTATIONS",
    "GROUP_NORM_IMPLEMENTATIONS",
    "LAYER_NORM_IMPLEMENTATIONS",
    "RMS_NORM_IMPLEMENTATIONS",
    "BatchNormInferCall",
    "BatchNormInferInterface",
    "BatchNormInferWalkKernel",
    "BatchNormInferWideKernel",
    "BatchNormTrainBlockKernel",
    "BatchNormTrainCall",
    "BatchNormTrainColumnsKernel",
    "BatchNormTrainInterface",
    "BatchNormTrainSharedKernel",
    "BatchNormTrainSpansKernel",
    "BatchNormTrainStreamKernel",
    "FusedAddRMSNormBlockKernel",
    "FusedAddRMSNormCall",
    "FusedAddRMSNormInterface",
    "FusedAddRMSNormStreamKernel",
    "FusedAddRMSNormWarpKernel",
    "GroupNormBlockKernel",
    "GroupNormCall",
    "GroupNormInterface",
    "GroupNormSharedKernel",
    "GroupNormStreamKernel",
    "GroupNormWarpKernel",
    "LayerNormBlockKernel",
    "LayerNormCall",
    "LayerNormInterface",
    "LayerNormStreamKernel",
    "LayerNormWarpKernel",
    "RMSNormBlockKernel",
    "RMSNormCall",
    "RMSNormInterface",
    "RMSNormStreamKernel",
    "RMSNormWarpKernel",
]
