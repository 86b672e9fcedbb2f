"""Normalisations: call specs and interfaces."""

from tileops.kernels.norm.batch_norm import (
    BatchNormInferCall,
    BatchNormInferInterface,
    BatchNormTrainCall,
    BatchNormTrainInterface,
)
from tileops.kernels.norm.fused_add_rms_norm import FusedAddRMSNormCall, FusedAddRMSNormInterface
from tileops.kernels.norm.group_norm import GroupNormCall, GroupNormInterface
from tileops.kernels.norm.layer_norm import LayerNormCall, LayerNormInterface
from tileops.kernels.norm.rms_norm import RMSNormCall, RMSNormInterface

__all__ = [
    "BatchNormInferCall",
    "BatchNormInferInterface",
    "BatchNormTrainCall",
    "BatchNormTrainInterface",
    "FusedAddRMSNormCall",
    "FusedAddRMSNormInterface",
    "GroupNormCall",
    "GroupNormInterface",
    "LayerNormCall",
    "LayerNormInterface",
    "RMSNormCall",
    "RMSNormInterface",
]
