"""Describes the runs that LayerNorm, GroupNorm and BatchNorm in training work on, for their shared programs."""

from __future__ import annotations

from attrs import frozen

from tileops.kernels.norm.batch_norm import BatchNormTrainCall
from tileops.kernels.norm.group_norm import GroupNormCall
from tileops.kernels.norm.layer_norm import LayerNormCall


def name_of(dtype: object) -> str:
    """Returns the name of a dtype: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


@frozen
class RunForm:
    """Holds what is compiled in of x [batch, runs, spatial]. What is None is read from the tensors at each launch."""

    batch: int | None
    runs: int | None
    spatial: int
    groups: int
    """How many runs in a row have parameters of their own, before the same come again."""
    group_channels: int
    """Parameters a run."""
    same: int
    """Elements in a row that share a parameter."""
    dtype: str
    param_dtype: str
    weighted: bool
    biased: bool
    eps: float
    momentum: float | None = None
    """How far the running statistics move towards a batch's; None where there are none."""
    flat: bool = False
    """x is [runs, spatial], for there is no batch."""

    @property
    def length(self) -> int:
        """Returns the elements of a run, whose batch is compiled in."""
        assert self.batch is not None, "a program that keeps runs on chip has their length compiled in"
        return self.batch * self.spatial

    @property
    def params(self) -> int:
        """Returns the length of weight and bias."""
        return self.groups * self.group_channels

    @classmethod
    def of_layer(cls, call: LayerNormCall) -> RunForm:
        """Returns the form of a LayerNorm: a row is a run, and each of its elements has its parameters."""
        dtype = name_of(call.dtype)
        affine = (call.weighted, call.biased, call.eps)
        return cls(1, None, call.length, 1, call.length, 1, dtype, dtype, *affine, flat=True)

    @classmethod
    def of_groups(cls, call: GroupNormCall) -> RunForm:
        """Returns the form of a GroupNorm: a group of a sample is a run."""
        dtype, channels = name_of(call.dtype), call.channels // call.groups
        affine = (call.weighted, call.biased, call.eps)
        return cls(1, None, channels * call.spatial, call.groups, channels, call.spatial, dtype, dtype, *affine)

    @classmethod
    def of_channels(cls, call: BatchNormTrainCall, *, compiled_batch: bool) -> RunForm:
        """Returns the form of a BatchNorm in training: a channel is a run."""
        return cls(
            call.batch if compiled_batch else None,
            call.channels,
            call.spatial,
            call.channels,
            1,
            call.spatial,
            name_of(call.dtype),
            name_of(call.param_dtype),
            call.weighted,
            call.biased,
            call.eps,
            call.momentum,
        )

    def __str__(self) -> str:
        known = [f"{name} {size}" for name, size in (("batch", self.batch), ("runs", self.runs)) if size]
        parts = (" weight" * self.weighted + " bias" * self.biased).split()
        shape = ", ".join([*known, f"spatial {self.spatial}"])
        return f"{self.dtype}, {shape}, {' and '.join(parts) or 'no weight'}, eps {self.eps:g}"
