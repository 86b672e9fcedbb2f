"""Times candidate tiles of every GEMM implementation on the manifest's rows, for the tables in kernels/gemm.

    PYTHONPATH=. python3 tests/gpu/gemm_sweep.py [LABEL ...]     rows of manifest/spec/gemm.yaml, or of the file $ROWS

Needs a CUDA GPU of arch 90 and nvcc. Compiles in parallel processes, then times; the best tiles of each row and
implementation come last, all figures as JSON lines in $OUT/gemm_sweep.jsonl.
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import concurrent.futures
import json
import logging
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import torch
from timing import copies, gpu_us, manifest_rows, relative_error

from tileops.kernels.gemm import gemv, mma, persistent, splitk, swapped, wgmma
from tileops.kernels.gemm.cuts import cost, cuts
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.tiles import Sharing, Tile, splitk_parts
from tileops.kernels.gemm.walks import WALKS

ARCH = 90

WGMMA = [
    Tile(128, 256, 64, 4, 256, "FullRow"),
    Tile(128, 192, 64, 4, 256, "FullRow"),
    Tile(192, 128, 64, 4, 384, "FullRow"),
    Tile(128, 160, 64, 5, 256, "FullRow"),
    Tile(128, 128, 64, 6, 256, "FullRow"),
    Tile(64, 256, 64, 5, 128),
    Tile(64, 128, 128, 4, 128),
    Tile(64, 96, 128, 5, 128),
    Tile(64, 64, 128, 6, 128),
]
MMA = {
    16: [
        Tile(16, 128, 64, 4, 128, "FullCol"),
        Tile(16, 64, 128, 4, 128, "FullCol"),
        Tile(16, 128, 128, 2, 128, "FullCol"),
    ],
    32: [
        Tile(32, 128, 64, 4, 128, "FullCol"),
        Tile(32, 64, 128, 3, 128, "FullCol"),
        Tile(32, 64, 64, 6, 128, "FullCol"),
        Tile(32, 256, 32, 4, 128, "FullCol"),
    ],
    64: [Tile(64, 128, 64, 3, 128), Tile(64, 64, 64, 5, 128), Tile(64, 128, 32, 5, 128), Tile(64, 64, 128, 3, 128)],
    10**9: [
        Tile(128, 128, 32, 4, 256),
        Tile(128, 128, 32, 4, 128),
        Tile(128, 128, 64, 3, 256),
        Tile(128, 128, 64, 3, 128),
        Tile(128, 256, 32, 4, 256),
    ],
}
SPLITK = {
    16: [Tile(16, 128, 64, 4, 128, "FullCol"), Tile(16, 64, 128, 4, 128, "FullCol")],
    32: [Tile(32, 128, 64, 4, 128, "FullCol"), Tile(32, 64, 128, 3, 128, "FullCol")],
    64: [Tile(64, 128, 64, 3, 128), Tile(64, 64, 128, 3, 128)],
    256: [Tile(128, 128, 32, 4, 256), Tile(128, 64, 64, 4, 128), Tile(64, 128, 64, 3, 128)],
}
SPLITK_TMA = [
    Tile(64, 128, 64, 4, 128),
    Tile(64, 64, 128, 4, 128),
    Tile(128, 128, 64, 4, 256, "FullRow"),
    Tile(128, 64, 128, 4, 256, "FullRow"),
    Tile(64, 256, 64, 4, 128),
]
GEMV = [Sharing(w, r, u) for w, r in ((1, 4), (1, 8), (2, 2), (4, 1), (2, 4), (4, 2), (8, 1)) for u in (2, 4, 8)]


def candidates(row: dict) -> list[tuple[str, object]]:
    """Returns (implementation, build identity) pairs worth trying on a row."""
    m, n, k = row["M"], row["N"], row["K"]
    trans_a, trans_b = row.get("trans_a", False), row.get("trans_b", True)
    open_form = Form(None, n, k, "bfloat16", trans_a, trans_b)
    found: list[tuple[str, object]] = []
    if m <= 2:
        closed = Form(m, n, k, "bfloat16", trans_a, trans_b)
        found += [("gemv", gemv.GemvBuild(closed, sharing, ARCH)) for sharing in GEMV]
    pitches = (m if trans_a else k, k if trans_b else n)
    aligned = all(pitch % 8 == 0 for pitch in pitches)
    if m >= 64 and aligned:
        found += [("gemm_wgmma", wgmma.WgmmaBuild(open_form, tile, ARCH)) for tile in WGMMA if tile.rows < 2 * m]
        blocks = torch.cuda.get_device_properties().multi_processor_count
        walks = [priced.walk for priced in WALKS if m >= priced.walk.tile.rows and priced.walk.fits(n, trans_b)]
        found += [("gemm_persistent", persistent.PersistentBuild(open_form, walk, blocks, ARCH)) for walk in walks]
    if m <= 128 and aligned:
        likely = [cut for cut in cuts(k) if m <= cut.tile.rows * 4 and (cut.tile.rows > 8 or not trans_a)]
        likely.sort(key=lambda cut: cost(cut, m, n, k, 132))
        found += [("gemm_swapped", swapped.SwappedBuild(open_form, cut, ARCH)) for cut in likely[:6]]
    if m <= 128 or m == 1024:
        tiles = next(tiles for most, tiles in MMA.items() if m <= most)
        found += [("gemm_mma", mma.MmaBuild(open_form, tile, ARCH, False)) for tile in tiles]
    if m <= 256 and n <= 8192:
        tiles = next(tiles for most, tiles in SPLITK.items() if m <= most)
        for tile, tma in [(tile, False) for tile in tiles] + [
            (tile, True) for tile in SPLITK_TMA if aligned and m > tile.rows // 4
        ]:
            for blocks in (132, 264, 396):
                parts = splitk_parts(tile, m, n, k, blocks)
                if parts > 1:
                    found.append(("gemm_splitk", splitk.SplitkBuild(open_form, tile, parts, tma, ARCH)))
    return list(dict.fromkeys(found))


CLASSES = {
    "gemv": gemv.GemvKernel,
    "gemm_persistent": persistent.GemmPersistentKernel,
    "gemm_wgmma": wgmma.GemmWgmmaKernel,
    "gemm_mma": mma.GemmMmaKernel,
    "gemm_splitk": splitk.GemmSplitkKernel,
    "gemm_swapped": swapped.GemmSwappedKernel,
}


def compile_one(pair: tuple[str, object]) -> str | None:
    """Compiles into TileLang's disk cache; returns what went wrong, if anything did."""
    logging.disable(logging.INFO)
    try:
        CLASSES[pair[0]].compile(pair[1])
    except Exception as error:  # noqa: BLE001  # one candidate must not end the sweep
        return f"{type(error).__name__}: {str(error)[-300:]}"
    return None


def main() -> None:
    """Compiles, times and prints."""
    logging.disable(logging.INFO)
    wanted = set(sys.argv[1:])
    chosen = [(label, row) for label, row in manifest_rows() if not wanted or label in wanted]
    pairs = list(dict.fromkeys(pair for _, row in chosen for pair in candidates(row)))
    start = time.time()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), context) as pool:
        errors = dict(zip(pairs, pool.map(compile_one, pairs, chunksize=2), strict=True))
    print(f"{len(pairs)} programs, {sum(e is not None for e in errors.values())} failed, {time.time() - start:.0f} s")
    for pair, error in errors.items():
        if error:
            print("FAILED", pair[0], pair[1], error)
    out = Path(os.environ.get("OUT", ".")) / "gemm_sweep.jsonl"
    best: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    with out.open("w") as file:
        for label, row in chosen:
            m, n, k = row["M"], row["N"], row["K"]
            count = copies(2 * (m * k + k * n + m * n))
            trans_a, trans_b = row.get("trans_a", False), row.get("trans_b", True)
            a_shape, b_shape = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)
            sets = [
                (torch.randn(a_shape, device="cuda").bfloat16(), torch.randn(b_shape, device="cuda").bfloat16())
                for _ in range(count)
            ]
            views = [(a.T if trans_a else a, b.T if trans_b else b) for a, b in sets]
            reference = torch.matmul(*views[0])
            cublas = gpu_us([lambda a=a, b=b: torch.matmul(a, b) for a, b in views])
            best[label, "cublas"].append((cublas, ""))
            for pair in candidates(row):
                if errors[pair]:
                    continue
                record = {"row": label, "m": m, "n": n, "k": k, "key": pair[0], "build": str(pair[1]), "cublas": cublas}
                try:
                    kernel = CLASSES[pair[0]](pair[1])
                    record["policy"] = getattr(getattr(pair[1], "tile", None), "policy", None)
                    record["error"] = relative_error(kernel.forward(*sets[0]), reference)
                    record["us"] = gpu_us([lambda a=a, b=b, f=kernel.forward: f(a, b) for a, b in sets])
                    build = str(pair[1]).split("N, ")[-1].split("NT, ")[-1].split("NN, ")[-1]
                    mark = "" if record["error"] < 1e-2 else " WRONG"
                    best[label, pair[0]].append((record["us"], f"{build} {record['policy'] or ''}{mark}"))
                except Exception as error:  # noqa: BLE001  # one candidate must not end the sweep
                    record["failed"] = f"{type(error).__name__}: {str(error)[-300:]}"
                    print("FAILED", label, pair[0], pair[1], record["failed"])
                file.write(json.dumps(record) + "\n")
                file.flush()
    for (label, key), times in best.items():
        shown = "; ".join(f"{us:.1f} {build}" for us, build in sorted(times)[:3])
        print(f"{label:24} {key:12} {shown}")


if __name__ == "__main__":
    main()
