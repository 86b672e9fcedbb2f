"""Rotary position embedding of q and k in one launch: a block a token; the general one walks any number of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from attrs import frozen

from tileops.kernels.built import Built
from tileops.kernels.rope.flags import flags
from tileops.kernels.rope.form import RoPEForm
from tileops.kernels.rope.rope import RoPECall, RoPEInterface
from tileops.kernels.rows import COUNT_LIMIT, WALK
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal

HEADS = 2**20
"""Most heads, and elements of a head, of the program with 32-bit indices within a token."""


@frozen
class RoPEBuild:
    """The build identity: tokens and known positions are counted at each launch."""

    form: RoPEForm
    checked: bool
    """The host asks whether all positions have angles. The device program is the same."""
    arch: int
    blocks: int | None = None
    """Blocks of the program that walks tokens with 64-bit indices; None: a block a token."""

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic."""
        return 64 if self.blocks else 32

    def program(self) -> Any:
        """Returns the device program."""
        from tileops.kernels.rope.programs.rope import program

        return program(self.form, self.blocks)

    def __str__(self) -> str:
        return f"{self.form}" + (", 64-bit indices" if self.blocks else "")


class RoPELaunch(Built, RoPEInterface):
    """Stands above the implementations of the rotation."""

    def __init__(self, identity: RoPEBuild) -> None:
        """Compiles the program of a build identity."""
        super().__init__(identity)
        self._q_heads = (identity.form.q_heads, identity.form.head_dim)
        self._k_heads = (identity.form.k_heads, identity.form.head_dim)
        self._checked = identity.checked

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns new q_out and k_out; raises ValueError for a position outside cos_sin where it is to be checked."""
        q_out, k_out = torch.empty_like(q), torch.empty_like(k)
        # Nobody may wait for a stream whose work is captured.
        if not self._checked or torch.cuda.is_current_stream_capturing():
            self._rotate(q, k, positions, cos_sin, 0, q_out, k_out)
            return q_out, k_out
        flag = flags.take()
        self._rotate(q, k, positions, cos_sin, flag.address, q_out, k_out)
        torch.accelerator.current_stream(q.get_device()).synchronize()
        if flags.give_back(flag):
            low, high = positions.aminmax()
            last = cos_sin.shape[0] - 1
            raise ValueError(f"positions go from {int(low)} to {int(high)}, but cos_sin has rows for 0 to {last}")
        return q_out, k_out

    def _rotate(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        outside: int,
        q_out: torch.Tensor,
        k_out: torch.Tensor,
    ) -> None:
        """Launches the program. A view costs more than a microsecond: most calls need none."""
        q_heads, k_heads = self._q_heads, self._k_heads
        if q.shape[1:] == q_heads:
            self._launch(q, k, positions, cos_sin, outside, q_out, k_out)
        else:
            q, q_out = q.view(-1, *q_heads), q_out.view(-1, *q_heads)
            k, k_out = k.view(-1, *k_heads), k_out.view(-1, *k_heads)
            self._launch(q, k, positions.view(-1), cos_sin, outside, q_out, k_out)


class RoPETokenKernel(RoPELaunch):
    """Serves heads that 32 bits count within a token."""

    declaration: ClassVar[Declaration] = Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(
            Refusal(f"tokens > {COUNT_LIMIT}", f"a block a token: at most {COUNT_LIMIT}, got {{tokens}}"),
            Refusal(
                f"max(q_heads, k_heads, head_dim) > {HEADS}",
                f"counts heads and their elements in 32 bits: at most {HEADS}, got {{q_heads}} and {{k_heads}} heads "
                "of {head_dim}",
            ),
        ),
    )

    @classmethod
    def entry_for(cls, call: RoPECall) -> tuple[RoPEBuild, Callable[[], RoPETokenKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = RoPEBuild(RoPEForm.of(call), call.check_positions, call.arch)
        return identity, lambda: cls(identity)


class RoPEWalkKernel(RoPELaunch):
    """Serves any number of tokens, heads and elements. The general one."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)

    @classmethod
    def entry_for(cls, call: RoPECall) -> tuple[RoPEBuild, Callable[[], RoPEWalkKernel]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = RoPEBuild(RoPEForm.of(call), call.check_positions, call.arch, WALK)
        return identity, lambda: cls(identity)
