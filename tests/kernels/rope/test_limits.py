"""Every limit that the rotation declares, on both sides; the table; build identities."""

import pytest
import torch

from tests.kernels.tables import A100, H200, Asked
from tileops.kernels.rope import ROPE_IMPLEMENTATIONS
from tileops.kernels.rope.form import COPIES, THREADS
from tileops.kernels.rows import COUNT_LIMIT

BASE = {
    "tokens": 64,
    "q_heads": 32,
    "k_heads": 8,
    "head_dim": 128,
    "pairs": 64,
    "known": 8192,
    "dtype": torch.bfloat16,
    "position_dtype": torch.int64,
    "angle_dtype": torch.float32,
    "interleaved": False,
    "check_positions": True,
}
ROPE = Asked(ROPE_IMPLEMENTATIONS, **BASE)


@pytest.mark.parametrize(
    ("served", "refused", "why"),
    [
        ({"tokens": COUNT_LIMIT}, {"tokens": COUNT_LIMIT + 1}, "a block a token"),
        ({"q_heads": 2**20}, {"q_heads": 2**20 + 1}, "counts heads and their elements in 32 bits"),
        ({"k_heads": 2**20}, {"k_heads": 2**20 + 1}, "counts heads and their elements in 32 bits"),
        ({"head_dim": 2**20}, {"head_dim": 2**20 + 1}, "counts heads and their elements in 32 bits"),
    ],
)
def test_limit_holds_on_both_sides(served, refused, why):
    ROPE.holds("rope_token", served, refused, why)


def test_winner():
    assert ROPE.winner() == "rope_token"
    assert ROPE.winner(q_heads=2**21) == "rope_walk"
    for facts in (H200, A100):
        for changes in ({"tokens": 2**40}, {"head_dim": 2**40}, {"known": 2**40}):
            assert ROPE.reasons("rope_walk", facts, **changes) == []


def test_the_table_is_sound():
    ROPE.is_sound()


def test_identity_leaves_tokens_and_known_positions_open():
    first, second = (ROPE.identity("rope_token", tokens=n, known=n) for n in (5, 6))
    assert first == second != ROPE.identity("rope_token", interleaved=True)


def test_a_check_has_the_same_program():
    checked, unchecked = (ROPE.identity("rope_token", check_positions=asked) for asked in (True, False))
    assert checked != unchecked
    assert checked.form == unchecked.form


@pytest.mark.parametrize(
    ("head_dim", "pairs", "interleaved", "width", "accesses", "units", "rest", "lanes", "copies"),
    [
        (128, 64, False, 8, 2, 8, 0, 8, 0),
        (256, 32, True, 8, 1, 8, 24, 8, 3),
        (128, 48, False, 8, 2, 6, 4, 6, 1),
        (96, 36, False, 4, 2, 9, 6, 9, 1),
        (96, 36, True, 8, 1, 9, 3, 9, 1),
        (80, 24, False, 8, 2, 3, 4, 3, 2),
        (10, 5, False, 1, 2, 5, 0, 5, 0),
        (10, 5, True, 2, 1, 5, 0, 5, 0),
        (9, 3, False, 1, 2, 3, 3, 3, 1),
        (9, 3, True, 1, 2, 3, 3, 3, 1),
        (4096, 1, False, 1, 2, 1, 4094, 32, 4),
    ],
)
def test_accesses_start_on_their_boundaries(head_dim, pairs, interleaved, width, accesses, units, rest, lanes, copies):
    form = ROPE.identity("rope_token", head_dim=head_dim, pairs=pairs, interleaved=interleaved).form
    assert (form.width, form.accesses, form.units, form.rest) == (width, accesses, units, rest)
    assert (form.lanes, form.copies) == (lanes, copies)
    assert pairs % form.unit_pairs == 0
    assert 2 * pairs + rest * width == head_dim


@pytest.mark.parametrize("heads", [1, 8, 39, 128, 1000])
@pytest.mark.parametrize(("head_dim", "pairs"), [(2, 1), (64, 32), (128, 64), (300, 1), (4096, 7), (4096, 2048)])
def test_threads_cover_heads(heads, head_dim, pairs):
    form = ROPE.identity("rope_token", q_heads=heads, k_heads=1, head_dim=head_dim, pairs=pairs).form
    assert form.lanes * form.passes >= form.units
    assert form.lanes * form.passes * form.copies >= form.rest
    assert form.copies <= COPIES
    assert form.lanes * form.depth <= THREADS
    assert form.depth * form.turns >= heads + 1 or form.lanes * (form.depth + 1) > THREADS
