"""Every op that the target serves, by its name in the manifest, with the function that builds its kernels."""

from collections.abc import Mapping

from tileops.backend import BuildKernel

from tileops_cpu.ops.batch_norm import build_batch_norm
from tileops_cpu.ops.cumsum import build_cumsum
from tileops_cpu.ops.fused_add_rms_norm import build_fused_add_rms_norm
from tileops_cpu.ops.gated_mlp import build_gated_mlp
from tileops_cpu.ops.gemm import build_gemm
from tileops_cpu.ops.group_norm import build_group_norm
from tileops_cpu.ops.layer_norm import build_layer_norm
from tileops_cpu.ops.rms_norm import build_rms_norm
from tileops_cpu.ops.rope import build_rope
from tileops_cpu.ops.silu_and_mul import build_silu_and_mul
from tileops_cpu.ops.softmax import build_softmax

# TileOps warns of a name that no op has; its builder is never called.
BUILDERS: Mapping[str, BuildKernel] = {
    "BatchNormFwdOp": build_batch_norm,
    "CumsumFwdOp": build_cumsum,
    "FusedAddRMSNormFwdOp": build_fused_add_rms_norm,
    "GatedMLPFwdOp": build_gated_mlp,
    "GemmFwdOp": build_gemm,
    "GroupNormFwdOp": build_group_norm,
    "LayerNormFwdOp": build_layer_norm,
    "RMSNormFwdOp": build_rms_norm,
    "RoPEFwdOp": build_rope,
    "SiLUAndMulFwdOp": build_silu_and_mul,
    "SoftmaxFwdOp": build_softmax,
}
