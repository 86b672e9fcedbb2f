"""The manifest files that ship: what they say, and what loading and checking cost."""

import ast
import importlib
import time
from functools import reduce
from pathlib import Path

import pytest
import torch

from tileops import manifest
from tileops.manifest import loader
from tileops.manifest.workload import bind

CASES = [(name, case) for name, entry in manifest.load().items() for case in entry.cases()]


@pytest.mark.parametrize("name", manifest.families())
def test_the_reference_exists(name):
    """In torch; where torch has no such function, among the executable references of the op tests."""
    ref_api = manifest.entry(name).ref_api
    module, _, attribute = ref_api.rpartition(".")
    if module == "tests.ops.references":
        source = Path(__file__).parents[1] / "ops" / "references.py"
        defined = {node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.FunctionDef)}
        assert attribute in defined
        return
    module, _, attribute = ref_api.partition(".")
    reference = reduce(getattr, attribute.split("."), importlib.import_module(module))
    assert callable(reference)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}-{case.label}" for name, case in CASES])
def test_every_case_is_a_call_that_moves_and_computes_something(name, case):
    checker = manifest.entry(name).checker
    binding = bind(checker, case, "cuda:0")
    flops, moved = checker.roofline(binding)
    assert flops > 0
    assert moved > 0
    assert binding.device == torch.device("cuda:0")
    assert not binding.empty


def test_gemm_covers_the_calls_it_is_judged_by():
    entry = manifest.entry("GemmFwdOp")
    rows = entry.workloads
    assert 18 <= len(rows) <= 24
    assert {1, 2, 8, 16, 32, 64, 96, 128} <= {row.values["M"] for row in rows}
    assert {1024, 2048, 4096, 8192} <= {
        row.values["M"] for row in rows if row.values["M"] == row.values["N"] == row.values["K"]
    }
    forms = {(bool(row.values.get("trans_a")), row.values.get("trans_b", True)) for row in rows}
    assert forms == {(False, True), (True, False), (False, False), (True, True)}
    assert all(row.dtypes == ({"T": torch.float16}, {"T": torch.bfloat16}) for row in rows)
    assert entry.serves == {"cuda": (80, 86, 89, 90, 100, 120)}
    assert entry.signature.outputs["d"].empty == 0


def test_rms_norm_reads_as_its_published_entry():
    entry = manifest.entry("RMSNormFwdOp")
    signature = entry.signature
    assert {name: str(index) for name, index in signature.forall.items()} == {
        "B": "Shape",
        "T": "DType[float16 | bfloat16]",
    }
    assert {name: (str(param.type), param.required) for name, param in signature.params.items()} == {
        "normalized_shape": ("list[int] | tuple[int, ...]", True),
        "eps": ("float | None", False),
    }
    assert signature.params["eps"].default is None
    assert {name: (tensor.shape.text, tensor.optional) for name, tensor in signature.inputs.items()} == {
        "x": ("[*B, *normalized_shape]", False),
        "weight": ("[*normalized_shape]", True),
    }
    assert dict(entry.serves) == {"cuda": (80, 86, 89, 90, 100, 120)}
    assert 6 <= len(entry.workloads) <= 8


def fastest(function, repeat: int, count: int = 1) -> float:
    """Seconds of one call, in the quietest of some runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - start) / count)
    return min(times)


def test_loading_gemm_costs_less_than_15_ms():
    path = loader.SPEC / "gemm.yaml"
    assert fastest(lambda: manifest.read_entries(path.read_text(), str(path)), repeat=20) < 15e-3


def test_checking_a_call_of_two_tensors_costs_less_than_30_us():
    checker = manifest.entry("GemmFwdOp").checker
    params = checker.bind_params((), {})
    tensors = (torch.empty(64, 128, dtype=torch.float16), torch.empty(32, 128, dtype=torch.float16))
    assert fastest(lambda: checker.call(params, tensors), repeat=100, count=20) < 30e-6
