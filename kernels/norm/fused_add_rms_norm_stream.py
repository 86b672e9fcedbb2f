"""fused_add_rms_norm_stream: a block walks a row twice. The general one: it serves every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.norm.form import NormForm
from tileops.kernels.norm.fused_add_rms_norm import FusedAddRMSNormCall
from tileops.kernels.norm.rms_norm_build import FusedAddRMSNormLaunch, RMSNormBuild
from tileops.kernels.rows import WALK, long_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class FusedAddRMSNormStreamKernel(FusedAddRMSNormLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: FusedAddRMSNormCall) -> tuple[RMSNormBuild, Callable[[], FusedAddRMSNormStreamKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = long_row(call.length, call.dtype.itemsize)
        identity = RMSNormBuild(NormForm.of(call), share, call.arch, added=True, blocks=WALK)
        return identity, lambda: cls(identity)
