"""A backend on a device type of its own: PrivateUse1, renamed by torch's own means, with tensors of no memory.

In a process of its own, because torch renames the type once. The backend is an installed distribution: it brings the
type, a target for RMSNormFwdOp, device facts, and an implementation for GemmFwdOp's interface.
"""

from __future__ import annotations

import pytest

SOURCE = """
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tileops import backend
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import Declaration, Refusal

empty = torch._C._acc.create_empty_tensor
built, read = [], []


class Runtime:
    @staticmethod
    def is_available():
        return True

    @staticmethod
    def device_count():
        return 2

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def _is_in_bad_fork():
        return False


class Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self):
        return True

    def has_primary_context(self, index):
        return True

    def is_built(self):
        return True


class Guard(torch._C._acc.DeviceGuard):
    def type_(self):
        return torch._C._autograd.DeviceType.PrivateUse1


_setup_privateuseone_for_python_backend("acme", Runtime, Hooks(), Guard())


class AcmeGemm(GemmInterface):
    declaration = Declaration(
        devices={"acme"},
        supported_archs={3},
        refusal=(Refusal("m > 8 * sm_count", "serves {8 * sm_count} rows, got m={m}"),),
    )

    @classmethod
    def entry_for(cls, call):
        return (call.dtype, call.n), lambda: cls(call)

    def __init__(self, call):
        built.append(str(call.device))

    def forward(self, a, b):
        return empty((a.shape[0], b.shape[0]), a.dtype)


def build_norm(x, weight, *, normalized_shape, eps):
    built.append(f"norm on {x.device}")
    return lambda x, weight: empty(tuple(x.shape), x.dtype)


def read_acme(device):
    read.append(str(device))
    return backend.DeviceFacts(arch=3, calibration=None, sm_count=2, smem_budget=4096)


backend.register_detector("acme_norms", lambda device: device.type == "acme")
backend.register_kernel_builder("RMSNormFwdOp", "acme_norms", build_norm)
backend.register_device_facts("acme", read_acme)
backend.register_kernel_type("GemmFwdOp", "acme_gemm", AcmeGemm)
"""

PROBE = """
from tileops.gemm import GemmFwdOp
from tileops.norm import RMSNormFwdOp
from tileops.backend import BUILTIN

norm = RMSNormFwdOp([8])
import acme

def tensors(m, n):
    return acme.empty((m, 8), torch.float16), acme.empty((n, 8), torch.float16)

def error(run):
    try:
        return f"returned {run()!r}"
    except backend.BackendError as raised:
        return f"{type(raised).__name__}: {raised}"

x = acme.empty((4, 8), torch.float16)
result = {"accelerator": str(torch.accelerator.current_accelerator())}
for _ in range(3):
    y = norm(x)
result["norm"] = [str(y.device), norm.serving_target, list(acme.built)]
norm(acme.empty((5, 8), torch.float16))
cpu = torch.ones(4, 8, dtype=torch.float16)
result["norm on cpu"] = error(lambda: norm(cpu))
norm(x)
result["norm builds"] = len(acme.built)

acme.built.clear()
result["gemm by detection"] = error(lambda: GemmFwdOp()(*tensors(4, 6)))
gemm = GemmFwdOp(target=BUILTIN)
for m in (4, 5, 16):
    d = gemm(*tensors(m, 6))
result["gemm"] = [list(d.shape), str(d.device), gemm.last_call.key, acme.built, sorted(set(acme.read))]
result["refused"] = error(lambda: gemm(*tensors(17, 6)))
from tileops.kernels.gemm.call import GemmCall
second = GemmCall(device="acme:1", m=4, n=6, k=8, dtype=torch.float16, trans_a=False, trans_b=True)
for _ in range(2):
    entry = GemmFwdOp.dispatcher.resolve("gemm", second)
result["second"] = [str(entry.device), list(acme.built)]
result["state"] = [record.state for record in backend.backends()]
result["said"] = said
"""


@pytest.fixture(scope="module")
def seen(plugins, tmp_path_factory):
    folder = tmp_path_factory.mktemp("acme")
    (folder / "acme.py").write_text(SOURCE)
    info = folder / "tileops_acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tileops-acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tileops.backends]\nacme = acme\n")
    return plugins.probe([folder], PROBE)


def test_the_type_is_there_and_the_backend_loads(seen):
    assert seen["accelerator"].startswith("acme")
    assert (seen["state"], seen["said"]) == (["loaded"], [])


def test_its_target_serves_its_devices_and_builds_once_a_signature(seen):
    assert seen["norm"] == ["acme:0", "acme_norms", ["norm on acme:0"]]
    assert seen["norm builds"] == 2
    assert seen["norm on cpu"] == (
        "OpNotAvailableError: RMSNormFwdOp's in-tree kernels do not run on cpu; known targets for this op: "
        "['acme_norms']"
    ), "another device is settled for itself"


def test_an_op_that_it_does_not_serve_is_an_error_where_it_claims_the_device(seen):
    assert seen["gemm by detection"].startswith(
        "OpNotAvailableError: target 'acme_norms' registers no kernel builder for GemmFwdOp; targets that do: []. "
    )


def test_its_implementation_is_selected_by_facts_of_its_own(seen):
    shape, device, key, built, read = seen["gemm"]
    assert (shape, device, key) == ([16, 6], "acme:0", "acme_gemm")
    assert built[0] == "acme:0"
    assert "acme:0" in read, "the reader gets the device with its index"
    assert seen["refused"].startswith("OpNotAvailableError: ")
    assert "no implementation serves this call" in seen["refused"]
    assert "serves 16 rows, got m=17" in seen["refused"]


def test_a_second_device_builds_again_and_once(seen):
    assert seen["second"] == ["acme:1", ["acme:0", "acme:1"]], "three calls of the first share one build identity"
