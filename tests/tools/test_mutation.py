"""Mutants of one table, and of a small one where each outcome is known; and that the cost of proofs grows by pairs."""

from __future__ import annotations

import attrs
import pytest

from tileops.rules.archs import between, exactly
from tileops.rules.declaration import Declaration, Refusal
from tileops.tools.catalogue import known
from tileops.tools.mutation import MOVED, OUTCOMES, REPORTED, SAME, judged, mutations, told, weaker
from tileops.tools.proofcost import cost, text


def test_every_part_of_a_declaration_is_taken_away_once() -> None:
    declaration = Declaration(
        supported_archs=between(80, 89),
        refusal=(Refusal("m > 2", "no"), Refusal("k % 8 != 0", "no")),
        preferred_over={"b", "c"},
    )
    assert [what for what, _ in mutations(declaration)] == [
        "without the refusal m > 2",
        "m > 2 becomes m > 1",
        "m > 2 becomes m > 3",
        "without the refusal k % 8 != 0",
        "not preferred over b",
        "not preferred over c",
        "on every arch",
        "from arch 79 on",
        "up to arch 90",
        "not on arch 80",
    ]
    assert all(changed != declaration for _, changed in mutations(declaration))
    assert [what for what, _ in mutations(Declaration(general=True))] == ["not general"]
    assert "not on arch 90" not in [what for what, _ in mutations(Declaration(supported_archs=exactly(90)))]
    assert list(weaker(Refusal("m * n >= sm_count", "no"))) == ["m * n > sm_count"]


@pytest.mark.parametrize(
    ("key", "what", "outcome"),
    [
        ("gemm_mma", "not general", REPORTED),
        ("gemm_splitk", "not preferred over gemm_persistent", REPORTED),
        ("gemm_mma", "not on arch 80", REPORTED),
        ("gemv", "m > 2 becomes m > 3", MOVED),
        ("gemm_wgmma", "up to arch 91", MOVED),
    ],
)
def test_who_notices_a_mutant_of_gemm(key: str, what: str, outcome: str) -> None:
    op = known("GemmFwdOp")
    asked = op.interfaces["gemm"]
    changed = dict(mutations(asked.table.declarations[key]))[what]
    found, detail = judged(op, asked, asked.table.with_declaration(key, changed), told(op, asked, asked.table))
    assert (found, bool(detail)) == (outcome, True)


def test_a_rule_that_another_one_covers_is_proved_to_move_nothing() -> None:
    op = known("GemmFwdOp")
    gemm = op.interfaces["gemm"]
    gemv = gemm.table.declarations["gemv"]
    twice = attrs.evolve(gemv, refusal=(*gemv.refusal, Refusal("m * m > 16", "covered by the first")))
    asked = attrs.evolve(gemm, table=gemm.table.with_declaration("gemv", twice))
    found = judged(op, asked, gemm.table, told(op, asked, asked.table))
    assert found == (SAME, "")
    assert found[0] in OUTCOMES


def test_queries_grow_as_the_pairs_that_only_the_solver_tells_apart() -> None:
    small, large = cost(10), cost(20)
    assert (small.findings, large.findings) == (0, 0)
    assert (small.pairs, large.pairs) == (45, 190)
    assert large.pairs - large.cheap == 2 * 45
    assert large.queries == 2 * small.queries
    assert "2.0 x" in text([small, attrs.evolve(large, seconds=2 * small.seconds)])
