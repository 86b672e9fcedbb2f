"""GEMM for few rows on Hopper: d^T = b^T a^T, so that d's many columns fill the 64 rows of a warpgroup's matrix unit.

Each block computes one tile of d^T over its part of k. One warpgroup issues the bulk copies of the next slices of a
and b into a ring in shared memory; each other one multiplies 64 columns of d (wgmma, float32 sums in registers).
Where k is cut into parts, the blocks of one tile form a cluster: each sends every other a share of its float32 tile,
from shared memory to shared memory, and adds up its own share in the order of the parts: the same on every run,
with neither a workspace nor a second launch.

2 m n k operations. b is read once, which bounds the time; a is read once a tile, from the L2 cache.
The block starts while the kernel before it ends (programmatic dependent launch) and waits for its results
before it reads.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from collections.abc import Callable
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.gemm.cuts import Cut
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.programs.tiled import rows_of, type_a, type_b

PAD = 4
"""Floats that keep rows of a float32 tile off each other's banks: without them four threads of a warp share one."""

ONCE = "evict_first"
"""How b is kept in the L2 cache: a must not make room for it. 96 x 8192 x 8192 takes 36.7 us with it and 37.9 without,
128 x 24576 x 1536 22.5 and 24.7."""


def program(form: Form, cut: Cut) -> Any:
    """Builds the program (a, b, d) for one form and cut."""
    n, k, dtype = form.n, form.k, form.dtype
    m = rows_of(form)
    launch = launcher(form, cut)

    @T.prim_func
    def gemm_swapped(a: type_a(form, m, k), b: type_b(form, k, n), d: T.Tensor((m, n), dtype)):
        launch(a, b, d, m, 0)

    return gemm_swapped


def launcher(form: Form, cut: Cut) -> Callable[..., Any]:
    """Returns the launch as a macro (a, b, d, m, row of the tensor b where the matrix b begins)."""
    n, k, dtype, trans_a, trans_b = form.n, form.k, form.dtype, form.trans_a, form.trans_b
    tile, parts = cut.tile, cut.parts
    rows, cols, depth = tile.rows, tile.cols, tile.depth
    # Steps past the end of k add zeros.
    share = -(-k // (depth * parts))
    a_shape = (depth, rows) if trans_a else (rows, depth)
    b_shape = (depth, cols) if not trans_b else (cols, depth)
    own = rows // parts

    @T.macro
    def multiply(a: Any, b: Any, acc: Any, row: Any, col: Any, first: Any) -> None:
        a_tile = T.alloc_shared(a_shape, dtype)
        b_tile = T.alloc_shared(b_shape, dtype)
        for step in T.Pipelined(share, num_stages=tile.stages):
            if trans_b:
                T.copy(b[col, first + step * depth], b_tile, eviction_policy=ONCE)
            else:
                T.copy(b[first + step * depth, col], b_tile, eviction_policy=ONCE)
            if trans_a:
                T.copy(a[first + step * depth, row], a_tile)
            else:
                T.copy(a[row, first + step * depth], a_tile)
            T.gemm(
                b_tile,
                a_tile,
                acc,
                transpose_A=not trans_b,
                transpose_B=not trans_a,
                policy=T.GemmWarpPolicy.FullRow,
            )

    @T.macro
    def meet(acc: Any, d: Any, part: Any, row: Any, col: Any) -> None:
        mine = T.alloc_shared((rows, cols + PAD), "float32")
        theirs = T.alloc_shared((parts, own, cols + PAD), "float32")
        arrived = T.alloc_cluster_barrier([parts])
        total = T.alloc_fragment((own, cols), "float32")
        for i, j in T.Parallel(cols, rows):
            mine[j, i] = acc[i, j]
        T.fence_proxy_async()
        # The copies below write where the other blocks' rings were.
        T.cluster_sync()
        for p in T.unroll(parts):
            T.copy_cluster(mine[p * own : (p + 1) * own, :], theirs[part, :, :], dst_block=p, remote_barrier=arrived[0])
        T.mbarrier_wait_parity(arrived[0], 0)
        T.clear(total)
        for p in T.unroll(parts):
            for i, j in T.Parallel(own, cols):
                total[i, j] += theirs[p, i, j]
        T.copy(total, d[row + part * own, col], disable_tma=True)
        # A block's memory outlives the copies out of it.
        T.cluster_sync()

    @T.macro
    def launch(a: Any, b: Any, d: Any, m: Any, b_row: Any) -> None:
        with T.Kernel(
            parts, T.ceildiv(n, cols), T.ceildiv(m, rows), threads=tile.threads, cluster_dims=(parts, 1, 1)
        ) as (part, x, y):
            if cut.blocks > 1:
                T.annotate_min_blocks_per_sm(cut.blocks)
                T.disable_warp_group_reg_alloc()
            acc = T.alloc_fragment((cols, rows), "float32")
            T.pdl_sync()
            T.clear(acc)
            multiply(a, b, acc, y * rows, b_row + x * cols, part * share * depth)
            if parts > 1:
                meet(acc, d, part, y * rows, x * cols)
            else:
                out = T.alloc_shared((rows, cols), dtype)
                for i, j in T.Parallel(cols, rows):
                    out[j, i] = T.cast(acc[i, j], dtype)
                T.copy(out, d[y * rows, x * cols])

    return launch
