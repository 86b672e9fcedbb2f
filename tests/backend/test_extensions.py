"""Device facts and kernel types through a registry: they go with the backend that brought them."""

from __future__ import annotations

import pytest
import torch

from tileops.backend import BUILTIN, extensions
from tileops.backend.registry import Owner, Registry
from tileops.gemm import GemmFwdOp
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import NO_FACTS, Declaration, DeviceFacts, Refusal, read_facts
from tileops.rules.device import registered_readers
from tileops.rules.errors import BackendError, DeclarationError, OpNotAvailableError

FACTS = DeviceFacts(arch=7, calibration=None, sm_count=2, smem_budget=1024)
BACKEND = Owner("acme", "nowhere", "acme-dist", "1.0")


class SmallGemm(GemmInterface):
    declaration = Declaration(devices={"xpu"}, refusal=(Refusal("m > 8", "serves at most 8 rows, got m={m}"),))

    @classmethod
    def entry_for(cls, call):
        return "small", cls

    def forward(self, a, b):
        return a @ b


@pytest.fixture
def registry():
    """A registry whose backend fails in the end, so that nothing of a test stays in the process."""
    registry = Registry(lambda: {"GemmFwdOp"})
    keys, readers = set(GemmFwdOp.implementations()), registered_readers()
    with registry.loading(BACKEND):
        yield registry
    registry.forget(BACKEND)
    assert set(GemmFwdOp.implementations()) == keys
    assert registered_readers() == readers


def test_facts_are_read_until_their_backend_goes(registry):
    extensions.register_device_facts(registry, "xpu", lambda device: FACTS)
    assert read_facts("xpu") == FACTS
    registry.forget(BACKEND)
    assert read_facts("xpu") == NO_FACTS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("cuda", len), "cuda"), (("xpu", None), "cannot be called"), (("", len), "device type")],
)
def test_facts_that_nobody_may_register(registry, arguments, said):
    with pytest.raises(BackendError, match=said):
        extensions.register_device_facts(registry, *arguments)


def test_a_device_type_has_one_reader(registry):
    extensions.register_device_facts(registry, "xpu", lambda device: FACTS)
    with pytest.raises(BackendError, match="has a reader"):
        extensions.register_device_facts(registry, "xpu", lambda device: NO_FACTS)
    assert read_facts("xpu") == FACTS


@pytest.mark.parametrize("returned", [None, (7, None, 2, 1024), {"arch": 7}])
def test_a_reader_that_returns_no_facts_is_named(registry, returned):
    def read_nonsense(device: torch.device):
        return returned

    extensions.register_device_facts(registry, "xpu", read_nonsense)
    with pytest.raises(BackendError, match="read_nonsense"):
        read_facts("xpu")


def test_a_reader_that_raises_is_named(registry):
    def read_dead(device: torch.device):
        raise OSError("no driver")

    extensions.register_device_facts(registry, "xpu", read_dead)
    with pytest.raises(BackendError, match=r"read_dead.*no driver"):
        read_facts("xpu")


def test_a_kernel_type_joins_until_its_backend_goes(registry):
    extensions.register_kernel_type(registry, "GemmFwdOp", "small", SmallGemm)
    assert GemmFwdOp.implementations()["small"] is SmallGemm
    assert [entry.key for entry in registry.registered_by(BACKEND)] == [("GemmFwdOp", "small")]
    registry.forget(BACKEND)
    assert "small" not in GemmFwdOp.implementations()


def test_a_kernel_type_that_would_tie_is_refused_with_a_witness(registry):
    class Other(SmallGemm):
        declaration = Declaration(devices={"xpu"}, refusal=(Refusal("n > 8", "serves at most 8 columns, got n={n}"),))

    extensions.register_kernel_type(registry, "GemmFwdOp", "small", SmallGemm)
    with pytest.raises(DeclarationError, match="ambiguous") as caught:
        extensions.register_kernel_type(registry, "GemmFwdOp", "other", Other)
    for part in ("small", "other", "m=", "n="):
        assert part in str(caught.value)
    assert "other" not in GemmFwdOp.implementations()
    assert GemmFwdOp.implementations()["small"] is SmallGemm


@pytest.mark.parametrize(
    ("op", "key", "cls", "error", "said"),
    [
        ("GemFwdOp", "small", SmallGemm, OpNotAvailableError, "did you mean 'GemmFwdOp'"),
        ("GemmFwdOp", "gemv", SmallGemm, DeclarationError, "already"),
        ("GemmFwdOp", "small", int, DeclarationError, "no class that inherits a kernel interface"),
        ("RMSNormFwdOp", "small", SmallGemm, DeclarationError, "does not ask"),
    ],
)
def test_a_kernel_type_that_fits_nowhere(registry, op, key, cls, error, said):
    with pytest.raises(error, match=said):
        extensions.register_kernel_type(registry, op, key, cls)


def kernel_type(entry_for, declaration=None, forward=None):
    body = {
        "declaration": declaration or Declaration(devices={"meta"}),
        "entry_for": classmethod(entry_for),
        "forward": forward or (lambda self, a, b: torch.empty(len(a), len(b), dtype=a.dtype, device=a.device)),
    }
    return type("Hostile", (GemmInterface,), body)


def itself(cls, call):
    return "one", cls


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (kernel_type(lambda cls, call: 3), r"Hostile.entry_for returns \(identity, build\), got 3"),
        (kernel_type(lambda cls, call: ([], cls)), "the build identity of Hostile cannot be a key"),
        (kernel_type(lambda cls, call: ("x", 3)), r"Hostile.entry_for returns \(identity, build\), got \('x', 3\)"),
        (kernel_type(lambda cls, call: ("x", lambda: None)), "Hostile returned what cannot be called: None"),
        (
            kernel_type(itself, Declaration(devices={"meta"}, refusal=(Refusal(opaque=lambda call: 1 // 0, why="x"),))),
            "of hostile in gemm raised ZeroDivisionError",
        ),
        (kernel_type(itself, forward=lambda self, a, b: a), "kernel 'hostile' returned a wrong result"),
    ],
)
def test_an_implementation_that_misbehaves_on_a_call_is_named_and_the_next_call_finds_the_op_whole(registry, cls, said):
    operands = [torch.ones(rows, 8, dtype=torch.float16, device="meta") for rows in (4, 6)]
    extensions.register_kernel_type(registry, "GemmFwdOp", "hostile", cls)
    op = GemmFwdOp(target=BUILTIN)
    with pytest.raises(BackendError, match=said):
        op(*operands)
    registry.forget(BACKEND)
    extensions.register_kernel_type(registry, "GemmFwdOp", "sound", kernel_type(itself))
    assert op(*operands).shape == (4, 6)
    assert op.last_call.key == "sound"


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        (Declaration(devices={"cuda"}), "ambiguous: .*gemm_.* and hostile both serve GemmCall|hostile and gemm"),
        (Declaration(devices={"meta"}, general=True), "two generals"),
        (Declaration(devices={"meta"}, preferred_over={"nope"}), "unknown key"),
        (Declaration(devices={"meta", "xpu"}, supported_archs={7}), "device types"),
    ],
)
def test_a_declaration_that_does_not_hold_beside_the_others_is_refused(registry, declaration, said):
    with pytest.raises(DeclarationError, match=said):
        extensions.register_kernel_type(registry, "GemmFwdOp", "hostile", kernel_type(itself, declaration))
