"""group_norm_stream: a block walks a group twice. The general one: it serves every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tileops.kernels.norm.group_norm import GroupNormCall
from tileops.kernels.norm.run_build import GroupNormLaunch, RunBuild
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.rows import long_row
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration


class GroupNormStreamKernel(GroupNormLaunch):
    """Serves groups of any length and number."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: GroupNormCall) -> tuple[RunBuild, Callable[[], GroupNormStreamKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        form = RunForm.of_groups(call)
        identity = RunBuild(form, long_row(form.spatial, call.dtype.itemsize), call.arch, walks=True)
        return identity, lambda: cls(identity)
