"""Refusals that the functions along one dim share."""

from __future__ import annotations

from tileops.rules.declaration import Refusal

APART = Refusal("inner > 1", "inner={inner}: reads rows whose elements lie side by side")
"""Of programs for rows that are contiguous."""

BESIDE = Refusal("inner == 1", "inner=1: reads rows that lie side by side, their elements apart")
"""Of programs for rows whose elements are a stride apart."""
