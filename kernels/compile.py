"""Compiles a device program for one arch and hands back the plainest call that launches it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import torch

_building = threading.Lock()
"""TileLang does not say that tracing and lowering may run in several threads at once."""


def target_of(arch: int) -> dict[str, str]:
    """Returns TileLang's target for an arch such as 90: Hopper's own instructions need the sm_90a form."""
    return {"kind": "cuda", "arch": "sm_90a" if arch == 90 else f"sm_{arch}"}


def compile_program(
    program: Callable[[], Any],
    arch: int,
    *,
    warp_matrix: bool = False,
    index_bits: int = 32,
    by_hand: bool = False,
    own_barriers: bool = False,
) -> Any:
    """Builds ``program`` and compiles it for ``arch``; returns TileLang's kernel object. Needs nvcc, no GPU.

    ``warp_matrix`` keeps to mma.sync and to threads that all do the same, as on sm_80, whatever the arch has.
    ``by_hand`` leaves it to the program who does what and who waits for whom.
    ``index_bits`` is the width of index arithmetic: 64 for programs with dimensions of 2**31 and more.
    ``own_barriers``: TileLang adds no barrier to the program's, and no two buffers of it share memory.
    """
    # TileLang has no types, and importing it takes a second.
    tilelang: Any = importlib.import_module("tilelang")
    key = tilelang.PassConfigKey
    configs: dict[Any, Any] = {key.TL_CONFIG_INDEX_BITWIDTH: index_bits} if index_bits != 32 else {}
    if warp_matrix:
        configs |= {key.TL_DISABLE_WGMMA: True, key.TL_DISABLE_WARP_SPECIALIZED: True}
    if by_hand:
        configs |= {key.TL_DISABLE_WARP_SPECIALIZED: True, key.TL_DISABLE_THREAD_STORAGE_SYNC: True}
    if own_barriers:
        configs |= {key.TL_DISABLE_THREAD_STORAGE_SYNC: True, key.TL_DISABLE_SHARED_MEMORY_REUSE: True}
    with _building:
        return tilelang.compile(
            program(), target=target_of(arch), execution_backend="tvm_ffi", pass_configs=configs or None
        )


def launcher(kernel: Any) -> Callable[..., Any]:
    """Returns a compiled kernel's bare entry: what the program takes in its order, a tensor first, outputs among them.

    It launches on the current stream of that tensor's device and returns at once. The entry makes that device
    current and leaves it so; where it is not the caller's, the caller's is put back.
    """
    # TileLang exports every program under this name beside its own.
    entry: Callable[..., Any] = kernel.adapter.get_exportable_executable()["main"]
    if torch.cuda.device_count() < 2:
        return entry

    def launch(first: torch.Tensor, *others: Any) -> None:
        device = first.device
        if device.index == torch.cuda.current_device():
            entry(first, *others)
        else:
            with torch.cuda.device(device):
                entry(first, *others)

    return launch
