"""Each error of the protocol, word for word, as a caller or a backend author meets it.

Over a registry of this process's own, so that no installed backend is in the lists.
"""

from __future__ import annotations

import re

import pytest
import torch

from tileops import backend
from tileops.backend import BUILTIN, DeviceFacts, process
from tileops.backend.discovery import Discovery
from tileops.backend.registry import Registry
from tileops.backend.settlement import TargetStage
from tileops.catalog import op_names
from tileops.gemm import GemmFwdOp
from tileops.norm import RMSNormFwdOp
from tileops.rules import device as device_facts
from tileops.rules.device import read_facts
from tileops.rules.errors import (
    AmbiguousTargetError,
    BackendError,
    OpNotAvailableError,
    SignatureError,
    UnknownTargetError,
)

A, B = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    fresh = Registry(op_names)
    discovery = Discovery(fresh, list)
    monkeypatch.setattr(process, "_registry", fresh)
    monkeypatch.setattr(process, "_discovery", discovery)
    monkeypatch.setattr(process, "_stage", TargetStage(fresh, discovery))
    monkeypatch.setattr(device_facts, "_readers", {})
    return fresh


def cpu(device):
    return device.type == "cpu"


def build(a, b, *, trans_a, trans_b):
    return lambda a, b: a @ b.mT


def places(message: str) -> str:
    """The message with the file and line of a place taken out."""
    return re.sub(r"\S*test_sentences\.py:\d+", "HERE", message).replace(f"module {__name__}", "module M")


def said(run, error=BackendError) -> str:
    with pytest.raises(error) as caught:
        run()
    assert type(caught.value) is error
    return places(str(caught.value))


# What a call meets.


def test_no_builder_for_the_op():
    backend.register_detector("torch_cpu", cpu)
    sentence = (
        "target 'torch_cpu' registers no kernel builder for GemmFwdOp; targets that do: []. There is no fall back to "
        "the in-tree implementation: those kernels do not run on this target's devices."
    )
    assert said(lambda: GemmFwdOp()(A, B), OpNotAvailableError) == sentence
    assert said(lambda: GemmFwdOp(target="torch_cpu")(A, B), OpNotAvailableError) == sentence
    backend.register_kernel_builder("GemmFwdOp", "other", build)
    assert "; targets that do: ['other']. " in said(lambda: GemmFwdOp()(A, B), OpNotAvailableError)


def test_a_target_that_nobody_registered():
    backend.register_detector("torch_cpu", cpu)
    sentence = "no backend registered target 'nope'; known targets: ['torch_cpu']"
    assert said(lambda: GemmFwdOp(target="nope")(A, B), UnknownTargetError) == sentence
    assert said(lambda: backend.set_default_target("nope"), UnknownTargetError) == sentence


def test_in_tree_kernels_where_they_do_not_run():
    sentence = "RMSNormFwdOp's in-tree kernels do not run on cpu; known targets for this op: []"
    assert said(lambda: RMSNormFwdOp([8])(A), OpNotAvailableError) == sentence
    backend.register_detector("torch_cpu", cpu)
    backend.register_kernel_builder("RMSNormFwdOp", "torch_cpu", build)
    sentence = sentence.replace("[]", "['torch_cpu']")
    assert said(lambda: RMSNormFwdOp([8], target=BUILTIN)(A), OpNotAvailableError) == sentence
    backend.set_default_target(BUILTIN)
    assert said(lambda: RMSNormFwdOp([8])(A), OpNotAvailableError) == sentence


def test_two_targets_that_claim_the_device():
    backend.register_detector("one", cpu)
    backend.register_detector("two", cpu)
    assert said(lambda: GemmFwdOp()(A, B), AmbiguousTargetError) == (
        "GemmFwdOp on cpu: 2 targets claim this device: 'one' (module M) and 'two' (module M). Pick one: "
        "GemmFwdOp(target='one') for one op, tileops.backend.set_default_target('one') for the process"
    )


def test_a_builder_that_returns_no_kernel():
    backend.register_kernel_builder("GemmFwdOp", "acme", lambda a, b, **params: "kernel")
    assert said(lambda: GemmFwdOp(target="acme")(A, B)) == (
        "GemmFwdOp: the kernel builder of target 'acme' has to return something callable, got str: 'kernel'"
    )


def test_what_a_builder_or_a_kernel_raises_arrives_unchanged():
    wrong = ValueError("position 9 is out of range")

    def fail(*_, **__):
        raise wrong

    backend.register_kernel_builder("GemmFwdOp", "refuses", fail)
    backend.register_kernel_builder("GemmFwdOp", "raises", lambda a, b, **params: fail)
    for target in ("refuses", "raises"):
        with pytest.raises(ValueError, match="position 9") as caught:
            GemmFwdOp(target=target)(A, B)
        assert caught.value is wrong


def test_a_target_argument_that_is_no_name():
    assert said(lambda: GemmFwdOp(target=3), SignatureError) == (
        "GemmFwdOp: target takes the name of a target, tileops.backend.BUILTIN or None, got 3"
    )


@pytest.mark.parametrize("config", ["fast", torch.ones(2), 3, [("tile", 64)], {}])
def test_a_config_that_is_no_dict_of_something_is_none(config):
    class Kernel:
        def __init__(self):
            self.config = config

        def __call__(self, a, b):
            return a @ b.mT

    backend.register_kernel_builder("GemmFwdOp", "acme", lambda a, b, **params: Kernel())
    op = GemmFwdOp(target="acme")
    op(A, B)
    assert op.kernel_config() == {}


# What a registration meets.


def test_a_pair_registered_twice():
    backend.register_kernel_builder("GemmFwdOp", "acme", build)
    assert said(lambda: backend.register_kernel_builder("GemmFwdOp", "acme", build)) == (
        "target 'acme' has a kernel builder for GemmFwdOp already: it was registered by module M at HERE, "
        "and again by module M at HERE; one of the two has to go"
    )


def test_a_detector_registered_twice():
    backend.register_detector("acme", cpu)
    assert said(lambda: backend.register_detector("acme", cpu)) == (
        "target 'acme' has a detector already: it was registered by module M at HERE, and again by module M at HERE; "
        "one of the two has to go"
    )


def test_what_cannot_be_called():
    assert said(lambda: backend.register_detector("acme", "cpu")) == (
        "the detector of target 'acme' has to be callable, got str: 'cpu'"
    )
    assert said(lambda: backend.register_kernel_builder("GemmFwdOp", "acme", None)) == (
        "the kernel builder of target 'acme' for GemmFwdOp has to be callable, got NoneType: None"
    )
    assert said(lambda: backend.register_device_facts("xpu", 7)) == (
        "the reader of device facts for 'xpu' cannot be called: 7"
    )


def read_acme(device):
    return DeviceFacts(1, None, 1, 1)


def test_facts_of_cuda_and_facts_registered_twice():
    assert said(lambda: backend.register_device_facts("cuda", read_acme)) == (
        "the facts of 'cuda' devices are read by TileOPs itself; no reader for it"
    )
    backend.register_device_facts("xpu", read_acme)
    again = said(lambda: backend.register_device_facts("xpu", read_acme))
    assert again.startswith("device type 'xpu' has a reader of device facts already, ")
    assert again.count("read_acme") == 2
    assert again.endswith("comes second, and only one package may register it")


@pytest.mark.parametrize(
    ("returned", "ending"),
    [
        (None, "expected DeviceFacts, got None"),
        ((1, None, 1, 1), "expected DeviceFacts, got (1, None, 1, 1)"),
        (lambda: DeviceFacts(True, None, 1, 1), "device fact arch takes an integer ... got True"),
        (lambda: DeviceFacts(1, "", 1, 1), "device fact calibration takes a board name or None, got ''"),
        (lambda: DeviceFacts(1, None, -1, 1), "device fact sm_count takes an integer ... got -1"),
        (lambda: DeviceFacts(1, None, 1, 1.5), "device fact smem_budget takes an integer ... got 1.5"),
    ],
)
def test_facts_that_are_none_name_the_reader(returned, ending):
    def read_nonsense(device):
        return returned() if callable(returned) else returned

    backend.register_device_facts("xpu", read_nonsense)
    message = said(lambda: read_facts("xpu:1"))
    assert "the facts of xpu:1 from " in message
    assert "read_nonsense" in message
    assert all(part in message for part in ending.split("..."))


def test_an_op_that_does_not_exist():
    with pytest.warns(backend.BackendWarning) as seen:
        backend.register_kernel_builder("GemmFwdOps", "acme", build)
    assert [places(str(warning.message)) for warning in seen] == [
        "target 'acme' (module M, HERE) registers a kernel builder for 'GemmFwdOps', but there is no such op "
        "(did you mean 'GemmFwdOp'?); it will never be called"
    ]


def test_a_detector_that_raises():
    def detect(device):
        raise OSError("no driver")

    backend.register_detector("touchy", detect)
    with pytest.warns(backend.BackendWarning) as seen:
        message = said(lambda: GemmFwdOp()(A, B), OpNotAvailableError)
    quoted = "the detector of target 'touchy' (module M) raised on cpu: OSError: no driver"
    assert [places(str(warning.message)) for warning in seen] == [f"{quoted}; it claims no device on which it raises"]
    assert message == f"GemmFwdOp's in-tree kernels do not run on cpu; known targets for this op: []. {quoted}"
