"""The registry alone: what may be registered, what a second registration hears, what rollback takes out."""

from __future__ import annotations

import pickle
import threading

import pytest

from tileops.backend.protocol import BUILTIN
from tileops.backend.registry import BackendWarning, Owner, Registry
from tileops.rules.errors import BackendError, OpNotAvailableError, UnknownTargetError

OPS = {"GemmFwdOp", "RMSNormFwdOp"}


@pytest.fixture
def registry() -> Registry:
    return Registry(lambda: OPS)


def build(*inputs, **params):
    raise AssertionError("a registry calls no builder")


def no_device(device) -> bool:
    return False


def owner(name: str, module: str = "nowhere") -> Owner:
    return Owner(name, module, f"{name}-dist", "1.2")


def test_a_fresh_registry_knows_nobody(registry):
    assert registry.targets() == []
    assert registry.targets("GemmFwdOp") == []
    assert registry.detectors() == []
    assert not registry.has_builder("GemmFwdOp", "acme")


def test_targets_are_named_sorted_and_per_op(registry):
    registry.register_kernel_builder("GemmFwdOp", "zeta", build)
    registry.register_kernel_builder("RMSNormFwdOp", "acme", build)
    registry.register_detector("only_detects", no_device)
    assert registry.targets() == ["acme", "only_detects", "zeta"]
    assert registry.targets("GemmFwdOp") == ["zeta"]
    assert registry.ops("acme") == ["RMSNormFwdOp"]
    assert registry.builder_for("GemmFwdOp", "zeta") is build


def test_a_missing_builder_is_the_sentence_of_the_protocol(registry):
    registry.register_detector("torch_cpu", no_device)
    registry.register_kernel_builder("GemmFwdOp", "other", build)
    with pytest.raises(OpNotAvailableError) as caught:
        registry.builder_for("SoftmaxFwdOp", "torch_cpu")
    assert str(caught.value) == (
        "target 'torch_cpu' registers no kernel builder for SoftmaxFwdOp; targets that do: []. There is no fall back "
        "to the in-tree implementation: those kernels do not run on this target's devices."
    )
    with pytest.raises(OpNotAvailableError, match=r"for GemmFwdOp; targets that do: \['other'\]\."):
        registry.builder_for("GemmFwdOp", "torch_cpu")
    assert isinstance(caught.value, ValueError)
    assert pickle.loads(pickle.dumps(caught.value)).target == "torch_cpu"


def test_an_unknown_target_is_the_sentence_of_the_protocol(registry):
    registry.register_detector("torch_cpu", no_device)
    with pytest.raises(UnknownTargetError) as caught:
        registry.check_target("nope")
    assert str(caught.value) == "no backend registered target 'nope'; known targets: ['torch_cpu']"
    with pytest.raises(UnknownTargetError, match="did you mean 'torch_cpu'"):
        registry.check_target("torch_gpu")
    with pytest.raises(UnknownTargetError, match=r"tileops\.backend\.BUILTIN"):
        registry.check_target("builtin")
    with pytest.raises(UnknownTargetError, match=r"target \['torch_cpu'\]"):
        registry.check_target(["torch_cpu"])
    with pytest.raises(UnknownTargetError):
        registry.builder_for("GemmFwdOp", "nope")


def test_a_second_registration_names_both_places_and_changes_nothing(registry):
    registry.register_kernel_builder("GemmFwdOp", "acme", build)
    with pytest.raises(BackendError) as caught:
        registry.register_kernel_builder("GemmFwdOp", "acme", no_device)
    assert str(caught.value).count("test_registry.py:") == 2
    assert "GemmFwdOp" in str(caught.value)
    assert registry.builder_for("GemmFwdOp", "acme") is build
    registry.register_detector("acme", no_device)
    with pytest.raises(BackendError, match="has a detector already"):
        registry.register_detector("acme", no_device)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("", "acme", build), "name of the op is a non-empty string, got ''"),
        (("GemmFwdOp", 3, build), "target is a non-empty string, got 3"),
        (("GemmFwdOp", "acme", "build"), "callable, got str: 'build'"),
        (("GemmFwdOp", "acme ", build), "target has blanks around it: 'acme '"),
        (("GemmFwdOp", "builtin", build), "'builtin' means the in-tree kernels; give the target another name"),
        (("GemmFwdOp", BUILTIN, build), "target is a non-empty string, got BUILTIN"),
    ],
)
def test_a_malformed_registration_is_refused_and_kept_out(registry, arguments, said):
    with pytest.raises(BackendError, match=said):
        registry.register_kernel_builder(*arguments)
    assert registry.targets() == []
    with pytest.raises(BackendError):
        registry.register_detector("acme", None)


def test_a_builder_for_no_op_is_kept_and_named_once_with_the_nearest(registry):
    with pytest.warns(BackendWarning, match=r"'RMSNormFwd'.*did you mean 'RMSNormFwdOp'") as seen:
        registry.register_kernel_builder("RMSNormFwd", "acme", build)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert registry.ops("acme") == ["RMSNormFwd"]


def test_a_failing_load_takes_out_all_it_registered_and_nothing_else(registry):
    undone = []
    registry.register_kernel_builder("GemmFwdOp", "stays", build)

    def load() -> None:
        registry.register_detector("bad", no_device)
        registry.register_kernel_builder("GemmFwdOp", "bad", build)
        registry.register_kernel_builder("NoOpLikeThis", "bad", build)
        registry.add("device facts", ("xpu",), None, what="xpu", undo=lambda: undone.append("facts"))
        registry.add("kernel type", ("GemmFwdOp", "k"), None, what="k", undo=lambda: undone.append("kernel"))
        assert registry.targets() == ["bad", "stays"]
        raise RuntimeError

    with pytest.raises(RuntimeError), registry.loading(owner("bad")):
        load()
    assert registry.targets() == ["stays"]
    assert undone == ["kernel", "facts"], "last registered, first taken out"
    registry.flush_warnings()  # the warning about NoOpLikeThis went with its builder: warnings are errors here


def test_what_another_thread_registers_during_a_load_is_not_the_loading_backends(registry):
    def load() -> None:
        other = threading.Thread(target=registry.register_kernel_builder, args=("GemmFwdOp", "stays", build))
        other.start()
        other.join()
        registry.register_detector("bad", no_device)
        raise RuntimeError

    with pytest.raises(RuntimeError), registry.loading(owner("bad")):
        load()
    assert registry.targets() == ["stays"]


def test_a_target_has_one_provider(registry):
    with registry.loading(owner("first")):
        registry.register_kernel_builder("GemmFwdOp", "acme", build)
    with pytest.raises(BackendError, match=r"belongs to first-dist 1\.2"), registry.loading(owner("second")):
        registry.register_kernel_builder("RMSNormFwdOp", "acme", build)
    assert registry.source("acme") == "first-dist 1.2"
    assert registry.targets("RMSNormFwdOp") == []


def test_registrations_made_before_discovery_get_their_owner_then(registry):
    registry.register_detector("acme", no_device)
    assert registry.source("acme") == f"module {__name__}"
    mine = owner("acme", __name__)
    registry.set_owners([owner("other", "other_module"), mine])
    assert registry.source("acme") == "acme-dist 1.2"
    assert [entry.key for entry in registry.registered_by(mine)] == [("acme",)]


def test_the_order_of_registration_decides_nothing(registry):
    other = Registry(lambda: OPS)
    pairs = [("GemmFwdOp", "b"), ("RMSNormFwdOp", "a"), ("GemmFwdOp", "a")]
    for op, target in pairs:
        registry.register_kernel_builder(op, target, build)
    for op, target in reversed(pairs):
        other.register_kernel_builder(op, target, build)
    assert registry.targets() == other.targets() == ["a", "b"]
    assert registry.targets("GemmFwdOp") == other.targets("GemmFwdOp") == ["a", "b"]


def test_threads_register_without_losing_anything(registry):
    def register(number: int) -> None:
        for step in range(20):
            registry.register_kernel_builder("GemmFwdOp", f"t{number}_{step}", build)

    threads = [threading.Thread(target=register, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.targets("GemmFwdOp")) == 160
