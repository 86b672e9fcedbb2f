"""Calls that a target serves: settling, the memo, what is checked, what a failure leaves."""

from __future__ import annotations

import threading

import pytest
import torch

from tileops import backend
from tileops.backend import BUILTIN, TensorSpec
from tileops.rules.errors import BackendError, KernelResultError, OpNotAvailableError, UnknownTargetError

CPU = torch.device("cpu")
A = torch.ones(4, 8)


def plain_kernel(a, b, bias):
    return a + b if bias is None else a + b + bias


class Acme:
    """A target of the test's own, for the CPU; keeps what its builder was asked."""

    def __init__(self, kernel=plain_kernel, detects=True):
        self.asked = []
        self.kernel = kernel
        if detects:
            backend.register_detector("acme", lambda device: device.type == "cpu")
        backend.register_kernel_builder("AddFwdOp", "acme", self.build)

    def build(self, *specs, **params):
        self.asked.append((specs, params))
        return self.kernel


@pytest.fixture
def acme():
    return Acme()


def test_a_target_serves_the_whole_op(toy, acme):
    op = toy.op(scale=2.0)
    assert torch.equal(op(A, A), A + A)
    assert op.serving_target == "acme"
    assert toy.made.launches == []
    spec = TensorSpec(CPU, torch.float32, (4, 8))
    assert acme.asked == [((spec, spec, None), {"scale": 2.0, "sizes": []})]
    op(A, A, torch.ones(8))
    assert acme.asked[1][0][2] == TensorSpec(CPU, torch.float32, (8,))


def test_one_build_a_signature(toy, acme):
    op = toy.op()
    for _ in range(2):
        op(A, A)
        op(torch.ones(8, 4).mT, A)  # strides are no part of a target's key
        op(torch.ones(5, 8), torch.ones(5, 8))
        op(A, A, A[0])
    assert len(acme.asked) == 3
    toy.op()(A, A)
    assert len(acme.asked) == 4, "kernels are an instance's own"


def test_the_builder_cannot_change_the_op(toy, acme):
    op = toy.op(sizes=[1])
    op(A, A)
    acme.asked[0][1]["sizes"].append(2)
    assert op.params["sizes"] == [1]


def test_what_a_target_gets_is_contiguous(toy):
    arrived = []

    def kernel(a, b, bias):
        arrived.append((a.is_contiguous(), a.data_ptr() % 16))
        return a + b

    Acme(kernel)
    op = toy.op()
    op(torch.ones(8, 4).mT, A)
    op(torch.ones(33)[1:].view(4, 8), A)
    assert arrived[0][0]
    assert arrived[1] == (True, 4), "alignment is the in-tree kernels' own need"


def test_every_result_of_a_target_is_checked(toy):
    results = [A + A, (A + A).half(), A]
    Acme(lambda a, b, bias: results.pop(0))
    op = toy.op()
    op(A, A)
    with pytest.raises(KernelResultError, match=r"kernel of target 'acme' returned .* received a torch.float16 tensor"):
        op(A, A)
    with pytest.raises(KernelResultError, match="shares storage with an input"):
        op(A, A)
    assert op.serving_target == "acme"


def test_the_order_of_settling(toy, acme):
    backend.register_kernel_builder("AddFwdOp", "other", lambda *specs, **params: plain_kernel)
    argument, default, detected = toy.op(target=BUILTIN), toy.op(), toy.op()
    detected(A, A)
    backend.set_default_target("other")
    argument(A, A)
    default(A, A)
    detected(torch.ones(5, 8), torch.ones(5, 8))
    assert argument.serving_target is BUILTIN
    assert default.serving_target == "other"
    assert detected.serving_target == "acme", "what is settled stays"
    backend.set_default_target(BUILTIN)
    late = toy.op()
    late(A, A)
    assert late.serving_target is BUILTIN


def test_in_tree_is_settled_too(toy):
    op = toy.op()
    op(A, A)
    Acme()
    op(torch.ones(5, 8), torch.ones(5, 8))
    assert op.serving_target is BUILTIN
    late = toy.op()
    late(A, A)
    assert late.serving_target == "acme"


def test_a_failed_first_call_binds_to_no_target(toy):
    def fail(a, b, bias):
        raise ValueError("position 7 is outside")

    acme = Acme(fail)
    op = toy.op()
    with pytest.raises(ValueError, match="position 7 is outside"):
        op(A, A)
    assert (op.serving_target, op._settled, len(op._plans), len(op._kernels)) == (None, {}, 0, 0)
    backend.set_default_target(BUILTIN)
    op(A, A)
    assert op.serving_target is BUILTIN
    assert len(acme.asked) == 1


def test_a_failed_later_call_keeps_what_others_settled(toy, acme):
    op = toy.op()
    op(A, A)
    acme.kernel = None
    with pytest.raises(BackendError, match="has to return something callable, got NoneType"):
        op(torch.ones(5, 8), torch.ones(5, 8))
    assert (op.serving_target, len(op._plans), len(op._kernels)) == ("acme", 1, 1)
    acme.kernel = plain_kernel
    op(torch.ones(5, 8), torch.ones(5, 8))
    assert len(acme.asked) == 3
    op(A, A)
    assert len(acme.asked) == 3


def test_a_target_without_a_builder(toy, acme):
    class Bare:
        pass

    backend.register_detector("bare", lambda device: False)
    op = toy.op(target="bare")
    with pytest.raises(OpNotAvailableError, match=r"target 'bare' registers no kernel builder for AddFwdOp"):
        op(A, A)
    with pytest.raises(OpNotAvailableError):
        op(torch.ones(0, 8), torch.ones(0, 8))
    with pytest.raises(UnknownTargetError, match="no backend registered target 'nope'"):
        toy.op(target="nope")(A, A)


def test_no_device_to_run_on(toys):
    from tileops.rules.declaration import Declaration

    toy = toys.make({"only": Declaration(devices={"xpu"})})
    for tensors in ((A, A), (torch.ones(0, 8), torch.ones(0, 8))):
        with pytest.raises(OpNotAvailableError) as caught:
            toy.op()(*tensors)
        assert str(caught.value) == "AddFwdOp's in-tree kernels do not run on cpu; known targets for this op: []"
    Acme(detects=False)
    with pytest.raises(OpNotAvailableError, match=r"do not run on cpu; known targets for this op: \['acme'\]"):
        toy.op()(A, A)


def test_gemm_on_a_cpu_that_no_target_claims():
    from tileops.gemm import GemmFwdOp

    a, b = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)
    with pytest.raises(OpNotAvailableError) as caught:
        GemmFwdOp()(a, b)
    assert str(caught.value) == "GemmFwdOp's in-tree kernels do not run on cpu; known targets for this op: []"


def test_nothing_to_compute_on_a_target(toy, acme):
    op = toy.op()
    assert op(torch.ones(0, 8), torch.ones(0, 8)).shape == (0, 8)
    assert op.serving_target == "acme"
    assert acme.asked == []


def test_threads_share_one_build_and_its_failure(toy, acme):
    gate = threading.Barrier(8)
    started = threading.Event()

    def build(*specs, **params):
        acme.asked.append(specs)
        started.wait(0.2)  # the others arrive meanwhile
        raise RuntimeError("no compiler")

    backend.register_kernel_builder("AddFwdOp", "slow", build)
    op = toy.op(target="slow")
    errors = []

    def call():
        gate.wait()
        try:
            op(A, A)
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == ["no compiler"] * 8
    assert len(acme.asked) < 8
    asked = len(acme.asked)
    with pytest.raises(RuntimeError, match="no compiler"):
        op(A, A)
    assert len(acme.asked) == asked + 1


def test_two_devices_have_kernels_of_their_own(toy):
    asked = []

    def build(*specs, **params):
        asked.append(specs[0].device)
        return lambda a, b, bias: torch.empty(a.shape, dtype=a.dtype, device=a.device)

    backend.register_kernel_builder("AddFwdOp", "anywhere", build)
    op = toy.op(target="anywhere")
    for _ in range(2):
        assert op(A.to("meta"), A.to("meta")).device.type == "meta"
        assert op(A, A).device.type == "cpu"
    assert asked == [torch.device("meta"), CPU]


def test_tuning_reaches_kernels_built_before_and_after(toy):
    made = []

    class Kernel:
        def __init__(self):
            self.requests = 0
            made.append(self)

        def __call__(self, a, b, bias):
            return a + b

        def request_tune(self):
            self.requests += 1

    backend.register_kernel_builder("AddFwdOp", "tuned", lambda *specs, **params: Kernel())
    op = toy.op(target="tuned")
    op(A, A)
    op.request_tune()
    op(torch.ones(5, 8), torch.ones(5, 8))
    op.request_tune()
    assert [kernel.requests for kernel in made] == [2, 2]


def test_a_kernel_that_does_not_tune_is_told_of_once(toy, acme):
    op = toy.op()
    op.request_tune()
    with pytest.warns(UserWarning, match="AddFwdOp was asked to tune, but a kernel of it"):
        op(A, A)
    op(torch.ones(5, 8), torch.ones(5, 8))
    op.request_tune()
