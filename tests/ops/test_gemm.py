"""GemmFwdOp: the numbers of every implementation by name, and of whoever serves the run's device.

The reference is a float32 product of the same rounded operands. Operands are scaled so that outputs are near 1.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tileops import explain, use_kernel
from tileops.backend import BUILTIN
from tileops.gemm import GemmFwdOp
from tileops.manifest import loader
from tileops.rules.errors import SignatureError

DTYPES = [torch.float16, torch.bfloat16]
FORMS = list(itertools.product([False, True], repeat=2))
KEYS = sorted(GemmFwdOp.kernel_types)
CASES = {case.label: case for case in loader.entry("GemmFwdOp").cases()}
#: Multiplications a test spends on a CPU: enough for ragged edges and long sums, a second or less each.
CPU_BUDGET = 2**27

# Where implementations differ: one and two rows, the sides of a 16-byte row (K 8, 9), of tiles of 64 and 128, and sizes
# that nothing divides.
RAGGED = [
    (1, 1, 1),
    (1, 64, 8),
    (1, 63, 9),
    (2, 129, 264),
    (3, 5, 7),
    (17, 64, 2048),
    (63, 65, 127),
    (64, 128, 64),
    (100, 100, 8192),
    (128, 129, 136),
    (257, 511, 1000),
]
# Each size in each form, dtypes alternating; and by name in one form a key, so that every key sees all four. A GPU
# build takes 3 to 4 s and has N and K compiled in: the whole product would take an hour.
RAGGED_FORMS = [(size, form, DTYPES[(i + j) % 2]) for i, size in enumerate(RAGGED) for j, form in enumerate(FORMS)]
RAGGED_BY_NAME = [
    (key, *RAGGED_FORMS[i * len(FORMS) + (i + j) % len(FORMS)])
    for j, key in enumerate(KEYS)
    for i in range(len(RAGGED))
]


def operands(m, n, k, dtype, device, trans_a=False, trans_b=True):
    generator = torch.Generator(device).manual_seed(m * 7 + n * 3 + k)
    a = torch.randn((k, m) if trans_a else (m, k), generator=generator, device=device, dtype=torch.float32)
    b = torch.randn((n, k) if trans_b else (k, n), generator=generator, device=device, dtype=torch.float32)
    return (a / math.sqrt(k)).to(dtype), b.to(dtype)


def reference(a, b, trans_a=False, trans_b=True):
    """The product in float32, exact float32 multiplications: no TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return (a.float().mT if trans_a else a.float()) @ (b.float().mT if trans_b else b.float())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def shape_of(case, device):
    """M, N and K of a manifest row; on the CPU halved, longest first, until the product fits the budget."""
    a, b = case.inputs["a"].shape, case.inputs["b"].shape
    k, m = a if case.params["trans_a"] else reversed(a)
    n = b[0] if case.params["trans_b"] else b[1]
    sizes = [m, n, k]
    while device.type == "cpu" and math.prod(sizes) > CPU_BUDGET:
        longest = sizes.index(max(sizes))
        sizes[longest] = (sizes[longest] + 1) // 2
    return tuple(sizes)


@pytest.mark.parametrize("label", CASES)
def test_manifest_rows(label, target, device, check):
    case = CASES[label]
    op = GemmFwdOp(**case.params, target=target)
    a, b = operands(*shape_of(case, device), case.case["T"], device, **case.params)
    check(op, op(a, b), reference(a, b, **case.params))
    assert op.serving_target == target


@pytest.mark.parametrize(("size", "form", "dtype"), RAGGED_FORMS, ids=str)
def test_ragged_sizes_in_every_form(size, form, dtype, target, device, check):
    (m, n, k), (trans_a, trans_b) = size, form
    op = GemmFwdOp(trans_a=trans_a, trans_b=trans_b, target=target)
    a, b = operands(m, n, k, dtype, device, trans_a, trans_b)
    d = op(a, b)
    check(op, d, reference(a, b, trans_a, trans_b))
    assert (d.dtype, d.shape, d.device, d.is_contiguous()) == (dtype, (m, n), a.device, True)


@pytest.mark.in_tree_kernels
@pytest.mark.cuda_only
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("label", CASES)
def test_each_implementation_by_name_on_the_manifest_rows_it_serves(label, key, device, check):
    case = CASES[label]
    op = GemmFwdOp(**case.params, target=BUILTIN)
    a, b = operands(*shape_of(case, device), case.case["T"], device, **case.params)
    run_by_name(op, key, a, b, check)


@pytest.mark.in_tree_kernels
@pytest.mark.cuda_only
@pytest.mark.parametrize(("key", "size", "form", "dtype"), RAGGED_BY_NAME, ids=str)
def test_each_implementation_by_name_on_ragged_sizes(key, size, form, dtype, device, check):
    op = GemmFwdOp(*form, target=BUILTIN)
    run_by_name(op, key, *operands(*size, dtype, device, *form), check)


def run_by_name(op, key, a, b, check):
    """Run one implementation; skip where it refuses the call, with its reasons."""
    with use_kernel("GemmFwdOp", key):
        trace = explain(op, a, b)
        if not trace.served:
            pytest.skip(f"{key} refuses: {[reason.text for reason in trace.trace.verdict(key).reasons]}")
        d = op(a, b)
    assert op.last_call.key == key
    check(op, d, reference(a, b, **op.params))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("arch", [80, 90])
def test_every_implementation_is_reached_by_name_on_an_arch_it_supports(key, arch):
    """Without a device: some manifest row or ragged size is served by each key when it is asked for by name."""
    from tileops.rules.archs import ArchSet
    from tileops.rules.device import reference as board

    archs: ArchSet | None = GemmFwdOp.implementations()[key].declaration.supported_archs
    if archs is not None and arch not in archs:
        pytest.skip(f"{key} runs on arch {archs.text()}")
    table = GemmFwdOp.dispatcher.tables["gemm"]
    request = GemmFwdOp.interfaces["gemm"].interface.request
    sizes = [shape_of(case, torch.device("cuda")) for case in CASES.values()] + RAGGED
    reached = [
        size
        for size in sizes
        if table.explain(
            request(
                device="cuda:0",
                **dict(zip("mnk", size, strict=True)),
                dtype=torch.bfloat16,
                trans_a=False,
                trans_b=True,
                stated=board(arch),
            ),
            key,
        ).winner
        == key
    ]
    assert reached, f"no manifest row and no ragged size reaches {key} on arch {arch}"


LAYOUTS = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "sliced": lambda x: torch.stack([x, x], dim=-1).flatten(-2)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", ["a", "b"])
def test_layouts_of_each_operand(which, layout, target, device, check):
    a, b = operands(24, 40, 64, torch.bfloat16, device)
    a, b = (LAYOUTS[layout](a), b) if which == "a" else (a, LAYOUTS[layout](b))
    op = GemmFwdOp(target=target)
    check(op, op(a, b), reference(a, b))


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 8), (4, 0, 8), (4, 4, 0), (0, 0, 0)])
def test_empty_operands_give_what_torch_gives(m, n, k, target, device, check):
    a, b = torch.ones(m, k, device=device, dtype=torch.float16), torch.ones(n, k, device=device, dtype=torch.float16)
    op = GemmFwdOp(target=target)
    d = op(a, b)
    check(op, d, torch.zeros(m, n))
    assert op.serving_target == target


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((4, 8), (6, 9), "GemmFwdOp: input b"),
        ((4, 8, 1), (6, 8), "GemmFwdOp: input a"),
        ((4,), (6, 8), "GemmFwdOp: input a"),
    ],
)
def test_shapes_outside_the_signature(a, b, message, target, device):
    with pytest.raises(SignatureError, match=message):
        GemmFwdOp(target=target)(
            torch.ones(a, device=device, dtype=torch.float16), torch.ones(b, device=device, dtype=torch.float16)
        )


def test_dtypes_outside_the_signature(target, device):
    op = GemmFwdOp(target=target)
    a = torch.ones(4, 8, device=device)
    with pytest.raises(SignatureError, match=r"GemmFwdOp: input a: .*float32"):
        op(a, a)
    with pytest.raises(SignatureError, match=r"GemmFwdOp: input b: .*bfloat16"):
        op(a.half(), a.bfloat16())
