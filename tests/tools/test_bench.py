"""The measures of the host's side: that they measure what they say. The figures themselves are no test."""

import json
from pathlib import Path

import pytest
import torch

from tileops.rules.errors import BackendError
from tileops.tools import hostcost
from tileops.tools.cli import main


def test_bench_asks_for_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert "say which report: --host" in capsys.readouterr().err


def test_a_folder_without_the_peer_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--host", "--peer", str(tmp_path)]) == 2
    assert "holds no tileops/gemm.py" in capsys.readouterr().err


def test_the_wide_table_is_sound_and_every_band_serves() -> None:
    table = hostcost.wide_table(40)
    assert len(table.declarations) == 40
    assert table.check().findings == ()
    call = hostcost.ProductCall(device=torch.device("cpu"), m=1, n=8, k=64, dtype=torch.float16)
    assert table.select(call) == "band_00001"
    assert table.select(call.replace(m=17)) == "band_00017"
    assert table.select(call.replace(m=10_000)) == "general"


def test_the_in_tree_path_builds_once_for_many_instances() -> None:
    script = hostcost.IN_TREE.replace("20000", "100")
    seconds, plain, builds = json.loads(hostcost.python(script, str(hostcost.root()), "16"))
    assert builds == 1
    assert seconds > plain > 0


def test_the_measured_call_goes_through_the_target() -> None:
    seconds, plain = json.loads(
        hostcost.python(hostcost.OP_CALL.replace("20000", "100"), str(hostcost.root()), "GemmFwdOp")
    )
    assert seconds > plain > 0


def test_a_measure_that_fails_says_why() -> None:
    with pytest.raises(BackendError, match="no_such_module"):
        hostcost.python("import no_such_module")


def test_a_measure_is_told_in_its_unit() -> None:
    assert [hostcost.duration(seconds) for seconds in (3e-8, 2.5e-6, 0.0042)] == ["30 ns", "2.50 us", "4.20 ms"]
