"""SiLU-and-multiply: wide accesses; the general one walks rows of any length and number with 64-bit indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.elementwise.silu_and_mul import SiLUAndMulCall, SiLUAndMulInterface
from tileops.kernels.rows import BLOCK, WALK, Share, access_width
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

ELEMENTS = 2**31 - 2**16
"""Most elements of the program with 32-bit indices: rounding up to a whole block stays within 31 bits."""

FLIGHT = 1
"""Accesses of each half in flight a thread."""


@frozen
class SiLUAndMulBuild:
    """The build identity: rows are counted at each launch."""

    length: int
    dtype: str
    share: Share
    arch: int
    blocks: int | None = None
    """Blocks of the program that walks with 64-bit indices; None: as many as it takes."""

    @classmethod
    def of(cls, call: SiLUAndMulCall, blocks: int | None = None) -> SiLUAndMulBuild:
        """Returns the build identity of a call."""
        share = Share(BLOCK, 1, FLIGHT, access_width(call.length, call.dtype.itemsize))
        return cls(call.length, str(call.dtype).removeprefix("torch."), share, call.arch, blocks)

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 64 if self.blocks else 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.elementwise.programs.silu_and_mul import program

        return program(self.length, self.dtype, self.share, self.blocks)

    def __str__(self) -> str:
        wide = ", 64-bit indices" if self.blocks else ""
        return f"{self.dtype}, rows of {self.length}, {self.share.turns} accesses of {self.share.width}{wide}"


class SiLUAndMulLaunch(Built, SiLUAndMulInterface):
    """Stands above the implementations of SiLU-and-multiply."""

    def __init__(self, identity: SiLUAndMulBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        self._length = identity.length

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a new y [..., length] of x's dtype."""
        length = self._length
        y = x.new_empty((*x.shape[:-1], length))
        # A view costs more than a microsecond.
        if x.dim() == 2:
            self._launch(x, y)
        else:
            self._launch(x.view(-1, 2 * length), y.view(-1, length))
        return y


class SiLUAndMulWideKernel(SiLUAndMulLaunch):
    """Serves halves of a multiple of 16 bytes."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(
                "length * itemsize(dtype) % 16 != 0",
                "half a row has {length * itemsize(dtype)} bytes: accesses take 16",
            ),
            Refusal(
                f"rows * length > {ELEMENTS}",
                f"counts elements of y in 32 bits: at most {ELEMENTS}, got {{rows * length}}",
            ),
        ),
    )

    @classmethod
    def entry_for(cls, call: SiLUAndMulCall) -> tuple[SiLUAndMulBuild, Callable[[], SiLUAndMulWideKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = SiLUAndMulBuild.of(call)
        return identity, lambda: cls(identity)


class SiLUAndMulWalkKernel(SiLUAndMulLaunch):
    """Serves rows of any length and number. The general one."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: SiLUAndMulCall) -> tuple[SiLUAndMulBuild, Callable[[], SiLUAndMulWalkKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = SiLUAndMulBuild.of(call, WALK)
        return identity, lambda: cls(identity)
