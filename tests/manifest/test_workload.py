import pytest
import torch

from tileops import manifest
from tileops.manifest import TensorShape
from tileops.manifest.workload import bind
from tileops.rules.errors import DeclarationError

HALF = torch.float16


def test_a_row_stands_for_one_case_a_dtype():
    entry = manifest.entry("GemmFwdOp")
    float16, bfloat16 = entry.cases("llama3-8b-o-weight-grad")
    assert (float16.label, bfloat16.label) == ("llama3-8b-o-weight-grad/float16", "llama3-8b-o-weight-grad/bfloat16")
    assert float16.case == {"T": HALF}
    assert float16.params == {"trans_a": True, "trans_b": False}
    assert float16.inputs == {"a": TensorShape(HALF, (8192, 4096)), "b": TensorShape(HALF, (8192, 4096))}
    assert bind(entry.checker, bfloat16, "cuda:1").device == torch.device("cuda:1")


def test_a_row_may_leave_optional_inputs_out():
    cases = manifest.entry("RMSNormFwdOp").cases("no-weight-4k")
    assert [case.inputs["weight"] for case in cases] == [None, None]


def test_inputs_declared_on_the_cpu_stay_there():
    text = """
ScaleFwdOp:
  ref_api: torch.mul
  signature:
    forall: {S: Shape}
    inputs:
      x: {dtype: float16, shape: "[*S]"}
      scale: {dtype: float32, shape: "[]", device: cpu}
    outputs: {y: {dtype: float16, shape: "[*S]"}}
  workloads: [{label: one, S: [4]}]
  roofline: {flops: "prod(S)", bytes: "5 * prod(S)"}
"""
    entry = manifest.read_entries(text, "scale.yaml")["ScaleFwdOp"]
    (case,) = entry.cases()
    assert case.label == "one"
    binding = bind(entry.checker, case, "cuda:0")
    assert binding.device == torch.device("cuda:0")
    assert entry.checker.roofline(binding) == (4, 20)


def test_an_unknown_row_is_told_with_the_nearest():
    with pytest.raises(DeclarationError, match=r"^GemmFwdOp has no workload 'square-3k' \(did you mean 'square-"):
        manifest.entry("GemmFwdOp").cases("square-3k")
