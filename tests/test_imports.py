"""Hold what importing the package may load: no compiler, no solver, no graph library, no GPU runtime."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("tilelang", "tvm", "z3", "networkx", "matplotlib", "hypothesis")
PROBE = """
import json, sys
import torch
before = set(sys.modules)
{statement}
print(json.dumps([sorted({{name.split(".")[0] for name in set(sys.modules) - before}}), torch.cuda.is_initialized()]))
"""


def loaded_by(statement: str) -> tuple[set[str], bool]:
    """The top-level modules that a statement loads beyond torch, and whether the CUDA runtime was started."""
    probe = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE.format(statement=statement)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr
    names, cuda = json.loads(probe.stdout.splitlines()[-1])
    return set(names), cuda


@pytest.mark.parametrize("statement", ["import tileops", "import tileops.gemm", "import tileops.norm"])
def test_importing_an_op_loads_neither_compiler_nor_solver_nor_gpu(statement: str) -> None:
    names, cuda = loaded_by(statement)
    assert "tileops" in names
    assert names.isdisjoint(HEAVY), f"{statement} loads {sorted(names & set(HEAVY))}"
    assert not cuda, f"{statement} starts the CUDA runtime"


def test_the_command_line_answers_without_the_compiler() -> None:
    question = "['explain', 'GemmFwdOp', 'm=1', 'n=4096', 'k=4096', 'dtype=bfloat16', '--arch', '90']"
    names, cuda = loaded_by(f"from tileops.tools.cli import main; assert main({question}) == 0")
    assert names.isdisjoint({"tilelang", "tvm"})
    assert not cuda
