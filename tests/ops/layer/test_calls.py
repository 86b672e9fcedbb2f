"""Calls of an in-tree op: what the key tells apart, what is built when, what a kernel is handed."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch

from tileops.backend import BUILTIN
from tileops.plan import PlanTable
from tileops.rules.errors import BackendError, KernelResultError, SignatureError


def matrix(m: int = 4, n: int = 8, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(m, n, dtype=dtype)


def test_a_call_is_served_by_the_winner(toy):
    op = toy.op()
    a, b = matrix(), matrix()
    assert torch.equal(op(a, b), a + b)
    assert torch.equal(op(a=a, b=b), a + b)
    assert torch.equal(op(a, b, bias=a[0]), a + b + a[0])
    assert {name for name, _ in toy.made.launches} == {"wide"}
    op(matrix(4, 2), matrix(4, 2))
    assert toy.made.launches[-1][0] == "plain"
    assert op.serving_target is BUILTIN
    assert (op.last_call.key, op.last_call.indices["N"], op.last_call.call.n) == ("plain", 2, 2)
    assert op.eval_roofline() == (16, 3 * 8 * 4)


def test_before_the_first_call_there_is_nothing_to_tell(toy):
    op = toy.op()
    assert op.serving_target is None
    assert op.last_call is None
    assert op.kernel_config() == {}
    with pytest.raises(BackendError, match="about the last call, and there was none"):
        op.eval_roofline()


def test_a_key_is_checked_and_resolved_once(toy, monkeypatch):
    op = toy.op()
    a, b = matrix(), matrix()
    seen = []
    real = type(op)._call_cold
    monkeypatch.setattr(type(op), "_call_cold", lambda self, tensors: seen.append(1) or real(self, tensors))
    for _ in range(3):
        op(a, b)
    assert len(seen) == 1
    assert len(toy.made.launches) == 3


@pytest.mark.parametrize(
    ("change", "builds"),
    [
        (lambda a, b: (a, b), 0),
        (lambda a, b: (matrix(5), matrix(5)), 0),  # M is no part of the toy's build identity
        (lambda a, b: (matrix(4, 9), matrix(4, 9)), 1),
        (lambda a, b: (a.half(), b.half()), 1),
        (lambda a, b: (a, b, a[0]), 0),
        (lambda a, b: (matrix(8, 4).mT, b), 0),
        (lambda a, b: (torch.randn(33)[1:].view(4, 8), b), 0),
    ],
    ids=["nothing", "rows", "columns", "dtype", "presence", "strides", "alignment"],
)
def test_what_the_key_tells_apart(toy, change, builds):
    op = toy.op()
    a, b = matrix(), matrix()
    op(a, b)
    plans, built = len(op._plans), len(toy.made.builds)
    tensors = change(a, b)
    expected = tensors[0] + tensors[1] + (tensors[2] if len(tensors) == 3 else 0)
    assert torch.equal(op(*tensors), expected)
    assert len(op._plans) - plans == (0 if tensors[0] is a and len(tensors) == 2 else 1)
    assert len(toy.made.builds) - built == builds


def test_a_call_like_the_one_before_is_told_from_any_other(toy):
    op = toy.op()
    a, b, bias = matrix(), matrix(), torch.randn(8)
    misaligned = torch.randn(33)[1:].view(4, 8)
    forms = [
        (a, b, None),
        (a, b, bias),
        (matrix(5), matrix(5), None),
        (matrix(4, 9), matrix(4, 9), None),
        (a.half(), b.half(), None),
        (matrix(8, 4).mT, b, None),
        (misaligned, b, None),
        (a, misaligned, bias),
    ]
    kept = {}
    for first in forms:
        for second in forms:
            for tensors in (first, first, second, first):
                expected = tensors[0] + tensors[1] + (0 if tensors[2] is None else tensors[2])
                assert torch.equal(op(*tensors), expected)
                key = type(op).blueprint.generated.key_of(*tensors)
                assert op._last is op._plans[key]
                assert kept.setdefault(key, op._last) is op._last, "a key has one plan"
    assert len(op._plans) == len(forms)
    op(a, b)
    with torch.inference_mode():
        assert op(a, b).is_inference()
        assert torch.equal(op(matrix() * 0, b), b)
    with pytest.raises(SignatureError, match="requires a gradient"):
        op(a, torch.ones(4, 8, requires_grad=True))


def test_the_guard_follows_into_inference_mode_and_out_of_it(toy):
    op = toy.op()
    a, b, bias = matrix(), matrix(), torch.randn(8)
    for mode in (False, True, False):
        with torch.inference_mode(mode):
            for _ in range(3):
                assert torch.equal(op(a, b, bias), a + b + bias)
            assert op._recent.like(a, b, bias)
    assert len(op._plans) == 1


def test_a_plan_that_was_dropped_serves_no_call(toy):
    for cls in toy.classes.values():
        cls.request_tune = lambda self: None
    op = toy.op()
    a = matrix()
    for drop in (op.forget_plans, toy.op.dispatcher.clear, op.request_tune):
        for _ in range(3):
            op(a, a)
        before = op._last
        drop()
        op(a, a)
        assert op._last is not before
    op._plans = PlanTable(limit=1)
    for _ in range(3):
        op(a, a)
    before = op._last
    op(matrix(5), matrix(5))
    op(a, a)
    assert op._last is not before


def test_64_instances_of_one_shape_build_one_kernel(toy):
    a, b = matrix(), matrix()
    for op in [toy.op(scale=float(number)) for number in range(64)]:
        op(a, b)
    assert len(toy.made.builds) == 1


def test_threads_on_a_cold_op_build_each_entry_once(toy):
    op = toy.op()
    shapes = [(4, 8), (4, 16)]
    gate = threading.Barrier(16)
    failures: list[BaseException] = []

    def call(number: int) -> None:
        gate.wait()
        a = matrix(*shapes[number % 2])
        try:
            assert torch.equal(op(a, a), a + a)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=call, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(toy.made.builds) == 2


def test_kernels_get_contiguous_aligned_tensors(toy):
    op = toy.op()
    b = matrix()
    base = torch.randn(64)
    forms = {
        "transposed": torch.randn(8, 4).mT,
        "sliced": torch.randn(4, 16)[:, ::2],
        "expanded": torch.randn(1, 8).expand(4, 8),
        "misaligned": base[1:33].view(4, 8),
    }
    for name, a in forms.items():
        assert torch.equal(op(a, b), a + b), name
        ((strides, offset), _, _) = toy.made.launches[-1][1]
        assert (strides, offset) == ((8, 1), 0), name
        (copied,) = op.last_call.copies
        assert copied.startswith("a copied: "), name
    assert "4 bytes past a multiple of 16" in copied
    op(b, b)
    assert op.last_call.copies == ()


def test_odd_strides_of_a_dim_of_one_reach_no_kernel(toy):
    op = toy.op()
    a = torch.randn(8, 1).mT  # contiguous, strides (1, 1)
    assert a.is_contiguous()
    assert torch.equal(op(a, a), a + a)
    assert toy.made.launches[-1][1][0][0] == (8, 1)
    assert op.last_call.copies == ()


def test_a_lazily_negated_view_is_read_as_what_it_means(toy):
    op = toy.op()
    for shape in ((4, 8), (1, 1)):
        a = torch.randn(*shape, dtype=torch.complex64).conj().imag
        assert a.is_neg()
        assert torch.equal(op(a, a), a + a)
    # The same key without the negation, and with it again.
    plain = torch.randn(1, 2)[:, ::2]
    assert torch.equal(op(plain, plain), plain + plain)


def test_a_packed_negated_view_is_told_from_a_plain_tensor(toy):
    a, seen = matrix(), []

    def note(result, *tensors):
        seen.extend(tensor.is_neg() for tensor in tensors if tensor is not None)
        return result

    toy.made.launch_hook = note
    for negated_first in (True, False):
        op = toy.op()
        for _ in range(2):
            for negated in (negated_first, negated_first, not negated_first, not negated_first):
                given = torch._neg_view(a) if negated else a
                assert torch.equal(op(given, a), given + a)
    assert seen
    assert not any(seen)  # a kernel reads memory, and knows no negation


def test_plans_hold_no_tensor_and_are_bounded(toy):
    op = toy.op()
    a, b = matrix(), matrix()
    op(a, b)
    refs = [weakref.ref(a), weakref.ref(b)]
    del a, b
    gc.collect()
    assert [ref() for ref in refs] == [None, None]

    op._plans = PlanTable(limit=4)
    for rows in range(1, 11):
        op(matrix(rows), matrix(rows))
    assert [plan.facts.indices["M"] for plan in op._plans.values()] == [7, 8, 9, 10]
    op(matrix(1), matrix(1))
    assert len(toy.made.builds) == 1


@pytest.mark.parametrize("wrong", ["none", "list", "dtype", "shape", "strides", "view", "count"])
def test_a_wrong_result_never_reaches_the_caller(toy, wrong):
    results = {
        "none": lambda result, a, b, bias: None,
        "list": lambda result, a, b, bias: [result],
        "dtype": lambda result, a, b, bias: result.half(),
        "shape": lambda result, a, b, bias: result[0],
        "strides": lambda result, a, b, bias: result.mT.contiguous().mT,
        "view": lambda result, a, b, bias: a.view(4, 8),
        "count": lambda result, a, b, bias: (result, result),
    }
    op = toy.op()
    a, b = matrix(), matrix()
    toy.made.launch_hook = results[wrong]
    with pytest.raises(KernelResultError, match="AddFwdOp: kernel 'wide' returned a wrong result: expected output 'd'"):
        op(a, b)
    assert (len(op._plans), op.serving_target, op._settled) == (0, None, {})
    toy.made.launch_hook = lambda result, *tensors: result
    assert torch.equal(op(a, b), a + b)
    assert len(toy.made.builds) == 2, "the kernel of the failed call is not kept"


def test_a_failed_call_leaves_what_earlier_calls_settled(toy):
    op = toy.op()
    a, b = matrix(), matrix()
    op(a, b)

    def fail(result, *tensors):
        raise RuntimeError("launch failed")

    toy.made.launch_hook = fail
    with pytest.raises(RuntimeError, match="launch failed"):
        op(matrix(5), matrix(5))
    assert (len(op._plans), op.serving_target, list(op._settled)) == (1, BUILTIN, [torch.device("cpu")])
    toy.made.launch_hook = lambda result, *tensors: result
    op(matrix(5), matrix(5))
    assert len(toy.made.builds) == 1, "another call has succeeded with this kernel"


def test_a_build_that_fails_reaches_its_caller_and_is_tried_again(toy):
    op = toy.op()
    a, b = matrix(), matrix()

    def fail(identity):
        raise RuntimeError("no compiler")

    toy.made.build_hook = fail
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no compiler"):
            op(a, b)
    toy.made.build_hook = lambda identity: None
    assert torch.equal(op(a, b), a + b)


def test_calls_with_nothing_to_compute_build_nothing(toy, toys):
    op = toy.op()
    assert op(matrix(0, 8), matrix(0, 8)).shape == (0, 8)
    assert op.serving_target is BUILTIN
    assert op(matrix(4, 0), matrix(4, 0), torch.randn(0)).shape == (4, 0)
    assert (toy.made.builds, toy.made.launches) == ([], [])


def test_signature_errors_come_before_anything_is_built(toy):
    op = toy.op()
    a = matrix()
    for tensors, message in [
        ((a, matrix(4, 9)), "AddFwdOp: input b"),
        ((a, a.half()), "AddFwdOp: input b"),
        ((a.long(), a.long()), "AddFwdOp: input a"),
        ((a[0], a), "AddFwdOp: input a"),
        ((a, a, torch.randn(9)), "AddFwdOp: input bias"),
        ((a, a.to("meta")), "AddFwdOp: input b"),
    ]:
        with pytest.raises(SignatureError, match=message):
            op(*tensors)
    assert (toy.made.builds, len(op._plans), op._settled) == ([], 0, {})


def test_a_warm_op_still_tells_mixed_devices_apart(toy):
    op = toy.op()
    a = matrix()
    op(a, a)
    with pytest.raises(SignatureError, match="input b: expected device cpu"):
        op(a, a.to("meta"))


def test_arguments_in_the_wrong_number(toy):
    op = toy.op()
    with pytest.raises(TypeError, match=r"AddFwdOp.__call__.* missing 1 required positional argument: 'b'"):
        op(matrix())
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        op(matrix(), matrix(), c=matrix())


def test_constructor_arguments(toy):
    sizes = [1, 2]
    op = toy.op(2.0, sizes=sizes)
    sizes.append(3)
    assert dict(op.params) == {"scale": 2.0, "sizes": [1, 2]}
    assert repr(op) == "AddFwdOp(scale=2.0, sizes=[1, 2])"
    with pytest.raises(TypeError, match=r"AddFwdOp has no param 'scael' \(did you mean 'scale'\?\)"):
        toy.op(scael=1.0)
    with pytest.raises(TypeError, match=r"no param 'tagret' \(did you mean 'target'\?\)"):
        toy.op(tagret="x")
    with pytest.raises(SignatureError, match="param scale: expected float, received str 'x'"):
        toy.op(scale="x")
    with pytest.raises(SignatureError, match="target takes the name of a target"):
        toy.op(target=3)


def test_a_registration_after_the_first_call_is_seen_by_the_next(toy, toys):
    from tileops.rules.declaration import Declaration
    from tileops.rules.errors import DeclarationError

    op = toy.op()
    a = matrix()
    op(a, a)
    better = toys.kernel(toy.made, "better", Declaration(devices={"cpu"}, preferred_over={"wide"}))
    assert toy.op.dispatcher.add_kernel_type("better", better) == "add"
    op(a, a)
    assert toy.made.launches[-1][0] == "better"
    with pytest.raises(DeclarationError, match="has an implementation 'better' already"):
        toy.op.dispatcher.add_kernel_type("better", better)
    toy.op.dispatcher.remove("add", "better")
    op(a, a)
    assert toy.made.launches[-1][0] == "wide"


def test_a_plan_made_during_a_registration_is_not_kept(toy, toys):
    from tileops.rules.declaration import Declaration

    op = toy.op()
    a = matrix()
    better = toys.kernel(toy.made, "better", Declaration(devices={"cpu"}, preferred_over={"wide"}))

    def register(result, *tensors):
        toy.made.launch_hook = lambda result, *tensors: result
        toy.op.dispatcher.add_kernel_type("better", better)
        return result

    toy.made.launch_hook = register
    op(a, a)
    op(a, a)
    assert [name for name, _ in toy.made.launches] == ["wide", "better"]


def test_copies_of_an_op_start_afresh():
    from tileops.norm import RMSNormFwdOp

    op = RMSNormFwdOp([8], eps=1e-3, target=BUILTIN)
    for twin in (pickle.loads(pickle.dumps(op)), copy.deepcopy(op), copy.copy(op)):
        assert repr(twin) == repr(op) == "RMSNormFwdOp(normalized_shape=[8], eps=0.001, target=BUILTIN)"
        assert twin.params == op.params
        assert twin._plans is not op._plans
        assert twin.target is BUILTIN


def test_tuned_and_untuned_kernels_are_distinct(toy):
    tuned = []
    for cls in toy.classes.values():
        cls.request_tune = lambda self: tuned.append(self)
    plain, op = toy.op(), toy.op()
    a = matrix()
    plain(a, a)
    op(a, a)
    op.request_tune()
    op(a, a)
    assert (len(toy.made.builds), len(tuned)) == (2, 1)
    op.request_tune()
    assert len(tuned) == 2
    plain(a, a)
    assert op.kernel_config() == {"name": "wide"}
    assert len(toy.made.builds) == 2
