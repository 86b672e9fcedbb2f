"""Gaps: calls that an entry admits on a claimed device and that nobody serves, in the op's own terms, shown again."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any, ClassVar

import attrs
import pytest
import torch

import tileops
from tileops import manifest
from tileops.catalog import collecting
from tileops.coverage import Effort, Gap, gaps
from tileops.op import Op
from tileops.rules.archs import at_least, exactly
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.facts import choice, dim, flag
from tileops.rules.interface import KernelInterface
from tileops.tools import audit, proofs
from tileops.tools.catalogue import known
from tileops.tools.cli import main
from tileops.uses import Uses

GENERAL = "gemm_mma"


@call_spec(invariants=("rows * length > 1",))
class RowsCall(CallSpec):
    rows: int = dim()
    length: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.float32)
    weighted: bool = flag()


class RowsInterface(KernelInterface):
    request: ClassVar[type[CallSpec]] = RowsCall

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        raise NotImplementedError


class TurnedInterface(KernelInterface):
    request: ClassVar[type[CallSpec]] = RowsCall

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        raise NotImplementedError


ENTRY = """\
ScaleFwdOp:
  ref_api: torch.mul
  signature:
    forall: {B: Shape, K: Dim, T: "DType[float16 | float32]"}
    params:
      turned: {type: bool, default: false}
    inputs:
      x: {dtype: T, shape: "[K, *B] if turned else [*B, K]"}
      weight: {dtype: T, shape: "[K]", optional: true}
    outputs:
      y: {dtype: T, shape: "[*B, K]"}
    rules: [RULES]
  serves: {cuda: [80, 90]}
  roofline: {flops: "prod(B) * K"}
"""
FACTS = {"rows": "prod(B)", "length": "K", "dtype": "T", "weighted": "present(weight)"}
PLAIN = {"scale": Uses(RowsInterface, facts=FACTS)}


def declared(*rules: str, interface: type[KernelInterface] = RowsInterface, **fields: Any) -> type[KernelInterface]:
    declaration = Declaration(refusal=tuple(Refusal(rule, "no") for rule in rules), **fields)

    def entry_for(cls: type, call: CallSpec) -> Any:
        return call, cls

    members = {"declaration": declaration, "forward": interface.forward, "entry_for": classmethod(entry_for)}
    return type("Kernel", (interface,), members)


def gaps_of(
    kernels: dict[str, type[KernelInterface]], uses: dict[str, Uses] = PLAIN, rules: str = '"prod(B) * K > 1"'
) -> list[Gap]:
    entry = manifest.read_entries(ENTRY.replace("RULES", rules), "scale.yaml")["ScaleFwdOp"]
    with collecting():
        op: Any = type("ScaleFwdOp", (Op,), {"kernel_types": kernels, "interfaces": uses}, entry=entry)
    assert [one for one in op.findings if one.kind != "may raise"] == []
    return list(gaps(entry, op.blueprint.uses, op.dispatcher.tables))


def test_what_is_served_everywhere_has_no_gap() -> None:
    assert gaps_of({"any": declared(supported_archs=at_least(80))}) == []
    halves = {"few": declared("rows * length > 4096"), "many": declared("length * rows <= 4096")}
    assert gaps_of(halves) == []


def test_a_rule_of_the_entry_keeps_the_calls_out_that_nobody_serves() -> None:
    short = {"short": declared("length > 64")}
    assert gaps_of(short, rules='"prod(B) * K > 1", "K <= 64"') == []
    (gap,) = gaps_of(short)
    assert gap.call is not None
    assert gap.call.tensors["x"] == (torch.float16, (65,))
    assert "nobody serves x=[65] float16 weight=none turned=False, on cuda, arch 80" in gap.message


def test_the_size_of_a_tensor_bounds_what_a_call_can_be() -> None:
    assert gaps_of({"all": declared("rows * length > 2**40".replace("2**40", str(2**40)))}) == []
    (gap,) = gaps_of({"most": declared(f"rows * length > {2**40 - 1}")})
    assert gap.call is not None
    assert gap.call.binding.tensors[0] is not None
    assert torch.Size(gap.call.binding.tensors[0].shape).numel() == 2**40


def test_an_arch_that_is_claimed_and_not_served() -> None:
    (gap,) = gaps_of({"old": declared(supported_archs=exactly(80))})
    assert gap.call is not None
    assert gap.call.stated.arch == 90


def test_each_interface_has_its_own_domain() -> None:
    uses = {
        "scale": Uses(RowsInterface, when="not turned", facts=FACTS),
        "scale_turned": Uses(TurnedInterface, when="turned", facts=FACTS),
    }
    kernels = {"plain": declared(), "turned": declared("weighted", interface=TurnedInterface)}
    (gap,) = gaps_of(kernels, uses)
    assert gap.interface == "scale_turned"
    assert gap.call is not None
    assert gap.call.params == {"turned": True}
    assert gap.call.tensors["weight"] is not None


def test_calls_that_ask_no_interface_or_two() -> None:
    uses = {"scale": Uses(RowsInterface, when="turned and K > 3", facts=FACTS)}
    (gap,) = gaps_of({"any": declared()}, uses)
    assert "asks no interface" in gap.message
    both = {
        "scale": Uses(RowsInterface, when="K > 3", facts=FACTS),
        "other": Uses(TurnedInterface, when="K < 5", facts=FACTS),
    }
    (gap,) = gaps_of({"any": declared(), "other": declared(interface=TurnedInterface)}, both)
    assert "asks scale and other" in gap.message
    assert gap.call is not None
    assert gap.call.binding.values["K"] == 4


def test_calls_of_which_no_call_spec_can_be_made() -> None:
    (gap,) = gaps_of({"any": declared()}, rules="")
    assert gap.call is not None
    assert gap.call.binding.tensors[0] == (torch.float16, (1,))
    assert "of which no RowsCall can be made" in gap.message
    assert "rows * length > 1" in gap.message


def test_a_gap_of_gemm_reproduces_by_its_command_and_on_the_meta_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    op = known("GemmFwdOp")
    table = op.interfaces["gemm"].table.without(GENERAL)
    (gap,) = gaps(op.entry, op.op.blueprint.uses, {"gemm": table}, effort=(effort := Effort()))
    assert gap.call is not None
    assert effort.queries > 0
    assert table.explain(gap.call.spec).serving == ()  # type: ignore[arg-type]  # confirmed: it has a call spec
    tensors = gap.call.meta()
    trace = tileops.explain(op.op(**gap.call.params), *tensors.values())
    assert trace.op == "GemmFwdOp"  # the signature takes them
    python, module, name, *words = shlex.split(proofs.command_of(op.entry, gap.call))
    assert (python, module, name) == ("python", "-m", "tools.explain")
    asked = attrs.evolve(op, interfaces={"gemm": attrs.evolve(op.interfaces["gemm"], table=table)})
    monkeypatch.setattr("tileops.tools.explain.known", lambda name: asked)
    assert main(["explain", *words]) == 1
    assert "no implementation serves this call" in capsys.readouterr().out


def test_a_gap_is_an_error_of_the_check() -> None:
    op = known("GemmFwdOp")
    gemm = op.interfaces["gemm"]
    less = attrs.evolve(op, interfaces={"gemm": attrs.evolve(gemm, table=gemm.table.without(GENERAL))})
    found = [one for one in audit.check_op(less, Counter(), []) if one.kind == "gap"]
    assert [one.severity for one in found] == ["error"]
    assert found[0].plain()["witness"]["command"].startswith("python -m tools.explain GemmFwdOp --shapes a=")
