"""Every op that the target serves, by its name in the manifest, with the function that builds its kernels."""

from collections.abc import Mapping

from tileops.backend import BuildKernel

from tileops_cpu.ops.gemm import build_gemm
from tileops_cpu.ops.rms_norm import build_rms_norm

# TileOps warns of a name that no op has; its builder is never called.
BUILDERS: Mapping[str, BuildKernel] = {
    "GemmFwdOp": build_gemm,
    "RMSNormFwdOp": build_rms_norm,
}
