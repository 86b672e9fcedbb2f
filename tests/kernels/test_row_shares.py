"""How rows are shared out among threads: every element has a thread, and what the threads keep fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileops.kernels import columns, rows

LENGTHS = st.integers(1, 2**20)
SIZES = st.sampled_from([2, 4])


def registers(share, itemsize):
    return share.turns * max(1, share.width * itemsize // 4)


@given(LENGTHS, SIZES)
def test_an_access_starts_on_its_boundary_in_every_row(length, itemsize):
    width = rows.access_width(length, itemsize)
    assert width * itemsize <= rows.ACCESS
    assert length % width == 0
    assert width & (width - 1) == 0


@given(st.integers(1, rows.WARP_BYTES), SIZES, st.booleans())
def test_short_rows_are_covered_by_at_most_a_warp(size, itemsize, busy):
    length = max(1, size // itemsize)
    share = rows.short_rows(length, itemsize, busy)
    assert share.lanes in (1, 2, 4, 8, 16, 32)
    assert share.lanes * share.turns * share.width >= length
    assert share.lanes * share.rows in (rows.BLOCK, rows.BLOCK // 2)
    assert registers(share, itemsize) <= rows.REGISTERS


@given(st.integers(1, rows.BLOCK_BYTES), SIZES, st.booleans())
def test_a_block_keeps_a_row(size, itemsize, busy):
    length = max(1, size // itemsize)
    if length > rows.NARROW_LIMIT and length % 2 and itemsize == 2:
        length -= 1
    share = rows.one_row(length, itemsize, busy)
    assert 32 <= share.lanes <= 1024
    assert share.lanes % 32 == 0
    assert (share.lanes - 32) * share.turns * share.width < length
    assert share.lanes * share.turns * share.width >= length
    assert registers(share, itemsize) <= rows.REGISTERS


@given(LENGTHS, SIZES, st.integers(1, 300), st.integers(1, 2000), st.integers(8, 160), st.sampled_from([128, 256]))
def test_every_part_of_a_row_has_work_and_all_fit_at_once(length, itemsize, pieces, count, sm_count, kept):
    run = length * pieces
    part = rows.BLOCK_BYTES // 2 if itemsize == 2 and length % 2 else rows.BLOCK_BYTES
    if run * itemsize <= rows.PART_BYTES or -(-run * itemsize // part) > sm_count:
        return
    share, parts = rows.part_row(length, itemsize, run, count, sm_count, kept)
    accesses = run // share.width
    share_of = share.lanes * share.turns
    assert (parts - 1) * share_of < accesses <= parts * share_of
    assert 2 <= parts <= sm_count
    assert share.turns * max(1, share.width * itemsize // 4) * 4 <= (kept if share.lanes == 256 else 128)


@given(st.integers(1, columns.COLUMN_LENGTH), st.integers(2, 4096), SIZES)
def test_columns_keep_whole_rows(length, inner, itemsize):
    share = columns.short_columns(length, inner, itemsize)
    assert share.depth * share.turns >= length
    assert inner % share.width == 0
    assert share.lanes * share.depth <= 1024
    # Across levels, sums in float32 meet in shared memory that every device grants a block.
    assert share.depth * share.lanes * share.width * 4 <= 48 * 1024


@pytest.mark.parametrize("count", [1, 8, 64, 1024, 4096, 100000])
def test_samples_of_columns_fill_a_block(count):
    share = columns.sample_columns(count, 2, 132)
    assert share.lanes * share.depth == 512
    assert share.depth * share.lanes * share.width * 4 <= 48 * 1024
