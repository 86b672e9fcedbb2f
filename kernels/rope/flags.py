"""Flags that a kernel raises and the host sees without a copy."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import torch
from attrs import field, frozen

BLOCK = 256
"""Flags that are allocated together."""


def page_locked(count: int) -> torch.Tensor:
    """Returns zeros of int32 in page-locked host memory, which every CUDA device reaches at the host's address."""
    return torch.zeros(count, dtype=torch.int32, pin_memory=True)


@frozen(eq=False)
class Flag:
    """Is an int32 at an address that host and devices share."""

    address: int
    cell: ctypes.c_int32 = field(init=False)

    @cell.default
    def _cell(self) -> ctypes.c_int32:
        return ctypes.c_int32.from_address(self.address)


class Flags:
    """Lends flags, each to one call at a time; one that nobody has is 0.

    Memory is never freed: a kernel of a call that failed may still raise the flag, which is lost then.
    """

    def __init__(self, allocate: Callable[[int], torch.Tensor] = page_locked) -> None:
        self._allocate = allocate
        self._blocks: list[torch.Tensor] = []
        self._free: list[Flag] = []
        self._growing = threading.Lock()

    def take(self) -> Flag:
        """Returns a flag that is 0 and that nobody else gets until it is given back."""
        while True:
            try:
                return self._free.pop()
            except IndexError:
                self._grow()

    def give_back(self, flag: Flag) -> bool:
        """Takes a flag back once no kernel can raise it any more; returns whether it was raised."""
        raised = flag.cell.value != 0
        if raised:
            flag.cell.value = 0
        self._free.append(flag)
        return raised

    def _grow(self) -> None:
        with self._growing:
            if not self._free:
                block = self._allocate(BLOCK)
                self._blocks.append(block)
                first, size = block.data_ptr(), block.element_size()
                self._free.extend(Flag(first + place * size) for place in range(BLOCK))


flags = Flags()
"""The flags of this process."""
