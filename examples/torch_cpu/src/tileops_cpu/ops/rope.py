"""RoPEFwdOp: the kernel, and the function that builds it for a call."""

import torch
from tileops.backend import TensorSpec


class CpuRoPE:
    """Rotates the first elements of each head of q and k by the angles of its token's position, in float32.

    Args:
        interleaved: pairs are neighbours, else the two halves of what is rotated.
        check_positions: raise for a position outside ``cos_sin``; else its heads become NaN.
    """

    def __init__(self, interleaved: bool, check_positions: bool) -> None:
        """Keep the form; no size is part of it."""
        self.interleaved = interleaved
        self.check_positions = check_positions

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rotated ``q`` [*B, HQ, D] and ``k`` [*B, HK, D], fresh tensors of their dtype.

        Raises:
            ValueError: a position of a token is outside ``cos_sin``, and positions are checked.
        """
        known = cos_sin.shape[0]
        outside = (positions < 0) | (positions >= known)
        if self.check_positions and outside.any():
            raise ValueError(f"position {positions[outside][0].item()} is outside cos_sin, which has {known} positions")
        angles = cos_sin[positions.masked_fill(outside, 0)].float().masked_fill(outside[..., None], float("nan"))
        cos, sin = (half.unsqueeze(-2) for half in angles.chunk(2, dim=-1))  # the same for every head
        return self._rotate(q, cos, sin, outside), self._rotate(k, cos, sin, outside)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
        rotated, rest = x[..., : 2 * cos.shape[-1]].float(), x[..., 2 * cos.shape[-1] :]
        if self.interleaved:
            a, b = rotated[..., ::2], rotated[..., 1::2]
        else:
            a, b = rotated.chunk(2, dim=-1)
        pairs = (a * cos - b * sin, b * cos + a * sin)
        turned = torch.stack(pairs, dim=-1).flatten(-2) if self.interleaved else torch.cat(pairs, dim=-1)
        return torch.cat([turned.to(x.dtype), rest.masked_fill(outside[..., None, None], float("nan"))], dim=-1)


def build_rope(
    q: TensorSpec,
    k: TensorSpec,
    positions: TensorSpec,
    cos_sin: TensorSpec,
    *,
    interleaved: bool,
    check_positions: bool,
) -> CpuRoPE:
    """Build the kernel of a call."""
    return CpuRoPE(interleaved, check_positions)
