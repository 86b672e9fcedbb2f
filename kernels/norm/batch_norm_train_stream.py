"""batch_norm_train_stream: a block walks a channel twice. The general one: it serves every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.norm.batch_norm import BatchNormTrainCall
from tileops.kernels.norm.run_build import BatchNormTrainLaunch, RunBuild
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import long_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class BatchNormTrainStreamKernel(BatchNormTrainLaunch):
    """Serves channels of any length and number."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: BatchNormTrainCall) -> tuple[RunBuild, Callable[[], BatchNormTrainStreamKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_channels(call, compiled_batch=False)
        identity = RunBuild(form, long_row(call.spatial, call.dtype.itemsize), call.arch, walks=True)
        return identity, lambda: cls(identity)
