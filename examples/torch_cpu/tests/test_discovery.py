"""The entry point and what importing its module registers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points

import torch
from tileops import backend
from tileops.catalog import op_names

import tileops_cpu
from tileops_cpu.ops import BUILDERS
from tileops_cpu.target import TARGET, detect


def test_the_distribution_declares_the_module():
    (point,) = entry_points(group="tileops.backends", name="torch_cpu")
    assert point.value == "tileops_cpu"
    assert point.load() is tileops_cpu


def test_it_loads_and_registers_every_op_of_the_table():
    assert TARGET in backend.registered_targets()
    assert [op for op in sorted(BUILDERS) if TARGET in backend.registered_targets(op)] == sorted(BUILDERS)
    assert backend.served_ops(TARGET) == sorted(BUILDERS)
    (record,) = [record for record in backend.backends() if record.entry_point == "torch_cpu"]
    assert (record.state, record.distribution) == ("loaded", "tileops-backend-example")
    assert record not in backend.load_failures()


def test_every_key_of_the_table_is_an_op():
    assert set(BUILDERS) <= op_names()


def test_it_claims_the_cpu_and_nothing_else():
    assert [detect(torch.device(device)) for device in ("cpu", "cpu:0")] == [True, True]
    others = ("cuda", "cuda:1", "meta", "xpu", "mps", "privateuseone")
    assert not any(detect(torch.device(device)) for device in others)


def test_importing_tileops_does_not_import_the_backend_and_the_first_op_does():
    program = (
        "import sys, json, tileops.gemm\nbefore = 'tileops_cpu' in sys.modules\n"
        "tileops.gemm.GemmFwdOp()\nprint(json.dumps([before, 'tileops_cpu' in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [False, True]
