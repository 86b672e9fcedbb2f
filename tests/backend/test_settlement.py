"""Settling over a registry of its own: argument, default, detection, and what goes wrong with each."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

from tileops.backend.discovery import Discovery
from tileops.backend.protocol import BUILTIN
from tileops.backend.registry import BackendWarning, Registry
from tileops.backend.settlement import TargetStage
from tileops.rules.errors import AmbiguousTargetError, UnknownTargetError

CPU, META = torch.device("cpu"), torch.device("meta")


def build(*inputs, **params):
    raise AssertionError("settling builds nothing")


def stage_with(**claims) -> TargetStage:
    registry = Registry(lambda: {"GemmFwdOp"})
    for target, detect in claims.items():
        registry.register_detector(target, detect)
    return TargetStage(registry, Discovery(registry, list))


def claims_cpu(device: torch.device) -> bool:
    return device.type == "cpu"


def claims_meta(device: torch.device) -> bool:
    return device.type == "meta"


def test_argument_before_default_before_detection():
    stage = stage_with(on_cpu=claims_cpu, on_meta=claims_meta)
    assert stage.settle("GemmFwdOp", CPU, None).target == "on_cpu"
    assert stage.settle("GemmFwdOp", CPU, None).origin == "detection"
    stage.set_default("on_meta")
    settled = stage.settle("GemmFwdOp", CPU, None)
    assert (settled.target, settled.origin) == ("on_meta", "default")
    settled = stage.settle("GemmFwdOp", CPU, "on_cpu")
    assert (settled.target, settled.origin) == ("on_cpu", "argument")
    assert stage.settle("GemmFwdOp", CPU, BUILTIN).target is BUILTIN
    stage.set_default(BUILTIN)
    assert stage.settle("GemmFwdOp", CPU, None) == stage.settle("GemmFwdOp", META, None)
    assert stage.settle("GemmFwdOp", CPU, None).target is BUILTIN
    stage.set_default(None)
    assert stage.settle("GemmFwdOp", META, None).target == "on_meta"


def test_each_device_is_asked_for_itself_and_every_detector_once():
    asked = []

    def watch(name, device_type):
        def detect(device):
            asked.append((name, device))
            return device.type == device_type

        return detect

    stage = stage_with(b=watch("b", "meta"), a=watch("a", "cpu"))
    assert [stage.settle("GemmFwdOp", device, None).target for device in (CPU, META)] == ["a", "b"]
    assert asked == [("a", CPU), ("b", CPU), ("a", META), ("b", META)]
    stage.settle("GemmFwdOp", CPU, "a")
    assert len(asked) == 4, "a named target is not detected"


def test_nobody_claims_the_device():
    settled = stage_with(on_meta=claims_meta).settle("GemmFwdOp", CPU, None)
    assert settled.target is BUILTIN
    assert settled.origin == "none"
    assert settled.text == "in-tree: no target claims cpu"


def test_two_claimants_in_any_order_of_registration():
    said = set()
    for order in itertools.permutations(["one", "two", "three"]):
        claims = {"one": claims_cpu, "two": claims_cpu, "three": claims_meta}
        stage = stage_with(**{name: claims[name] for name in order})
        with pytest.raises(AmbiguousTargetError) as caught:
            stage.settle("GemmFwdOp", CPU, None)
        assert caught.value.targets == ["one", "two"]
        said.add(str(caught.value))
        assert stage.settle("GemmFwdOp", CPU, "two").target == "two"
        stage.set_default("one")
        assert stage.settle("GemmFwdOp", CPU, None).target == "one"
    (message,) = said
    assert f"'one' (module {__name__}) and 'two' (module {__name__})" in message
    assert "target='one'" in message
    assert "tileops.backend.set_default_target('one')" in message


def test_the_setting_that_is_shown_names_a_claimant_that_serves_the_op():
    stage = stage_with(one=claims_cpu, two=claims_cpu)
    stage._registry.register_kernel_builder("GemmFwdOp", "two", build)
    with pytest.raises(AmbiguousTargetError, match=r"GemmFwdOp\(target='two'\)"):
        stage.settle("GemmFwdOp", CPU, None)


def test_unknown_names_are_refused_at_once_and_leave_the_default():
    stage = stage_with(torch_cpu=claims_cpu)
    stage.set_default("torch_cpu")
    with pytest.raises(
        UnknownTargetError, match=r"^no backend registered target 'nope'; known targets: \['torch_cpu'\]$"
    ):
        stage.set_default("nope")
    assert stage.default == "torch_cpu"
    with pytest.raises(UnknownTargetError, match="'nope'"):
        stage.settle("GemmFwdOp", CPU, "nope")


def test_a_detector_that_raises_is_named_once_claims_nothing_and_is_quoted():
    def broken(device):
        raise OSError(f"no driver for {device}")

    stage = stage_with(broken=broken, good=claims_meta)
    with pytest.warns(BackendWarning, match=r"'broken'.* raised on cpu: OSError: no driver for cpu") as seen:
        settled = stage.settle("GemmFwdOp", CPU, None)
    assert len(seen) == 1
    assert settled.target is BUILTIN
    assert "OSError: no driver for cpu" in settled.text
    assert stage.settle("GemmFwdOp", META, None).target == "good"  # said once: a second warning would fail here
    assert str(stage.in_tree_error("GemmFwdOp", CPU)) == (
        "GemmFwdOp's in-tree kernels do not run on cpu; known targets for this op: []. the detector of target "
        f"'broken' (module {__name__}) raised on cpu: OSError: no driver for cpu"
    )
    with pytest.raises(UnknownTargetError, match="no driver for cpu"):
        stage.settle("GemmFwdOp", CPU, "nope")


def test_a_detector_that_recovers_is_no_longer_quoted():
    state = {"driver": False}

    def flaky(device):
        if not state["driver"]:
            raise RuntimeError("driver is starting")
        return device.type == "cpu"

    stage = stage_with(flaky=flaky)
    with pytest.warns(BackendWarning, match="driver is starting"):
        stage.settle("GemmFwdOp", CPU, None)
    state["driver"] = True
    assert stage.settle("GemmFwdOp", CPU, None).target == "flaky"
    assert stage.notes(CPU) == ""
    state["driver"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stage.settle("GemmFwdOp", CPU, None).target is BUILTIN


def test_the_sentences_about_the_in_tree_kernels():
    stage = stage_with(torch_cpu=claims_cpu)
    assert str(stage.in_tree_error("RMSNormFwdOp", CPU)) == (
        "RMSNormFwdOp's in-tree kernels do not run on cpu; known targets for this op: []"
    )
    stage._registry.register_kernel_builder("GemmFwdOp", "torch_cpu", build)
    assert str(stage.in_tree_error("GemmFwdOp", CPU)) == (
        "GemmFwdOp's in-tree kernels do not run on cpu; known targets for this op: ['torch_cpu']"
    )
