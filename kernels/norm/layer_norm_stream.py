"""layer_norm_stream: a block walks a row twice. The general one: it serves every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.norm.layer_norm import LayerNormCall
from tileops.kernels.norm.run_build import LayerNormLaunch, RunBuild
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import long_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class LayerNormStreamKernel(LayerNormLaunch):
    """Serves rows of any length and number."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[RunBuild, Callable[[], LayerNormStreamKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        share = long_row(call.length, call.dtype.itemsize)
        identity = RunBuild(RunForm.of_layer(call), share, call.arch, walks=True)
        return identity, lambda: cls(identity)
