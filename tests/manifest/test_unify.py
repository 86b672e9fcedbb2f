"""Unification against a brute-force reading of generated signatures."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tileops import manifest
from tileops.rules.errors import ManifestError, SignatureError

DIMS = {"A": "Dim", "B": "Dim", "C": "Dim", "R": "Shape", "S": "Shape"}
SIZES = st.integers(0, 3)
VALUES = st.fixed_dictionaries(
    {name: SIZES if kind == "Dim" else st.lists(SIZES, max_size=2).map(tuple) for name, kind in DIMS.items()}
)
ITEMS = st.sampled_from(["A", "B", "C", "*R", "*S", "2 * A", "B + 1", "3 * C + A", "A * B", "2"])
FORMS = st.lists(ITEMS, max_size=4).map(tuple)


def shape_of(form, values) -> tuple[int, ...]:
    dims: list[int] = []
    for item in form:
        value = eval(item.lstrip("*"), {}, dict(values))
        dims.extend(value if item.startswith("*") else [value])
    return tuple(dims)


def readings(forms, shapes):
    """Every assignment of small values under which the forms have these shapes."""
    names = sorted({name for form in forms for item in form for name in DIMS if name in item})
    runs = [(), *[(i,) for i in range(4)], *[(i, j) for i in range(4) for j in range(4)]]

    def extend(values, rest):
        if not rest:
            if all(shape_of(form, values) == shape for form, shape in zip(forms, shapes, strict=True)):
                yield dict(values)
            return
        for value in range(4) if DIMS[rest[0]] == "Dim" else runs:
            yield from extend({**values, rest[0]: value}, rest[1:])

    return list(extend({}, names))


def checker_of(forms):
    named = sorted({name for form in forms for item in form for name in DIMS if name in item})
    inputs = "\n".join(
        f'      x{at}: {{dtype: float16, shape: "[{", ".join(form)}]"}}' for at, form in enumerate(forms)
    )
    text = f"""
AnyFwdOp:
  ref_api: torch.any
  signature:
    forall: {{{", ".join(f"{name}: {DIMS[name]}" for name in named)}}}
    inputs:
{inputs}
    outputs: {{y: {{dtype: float16, shape: "[1]"}}}}
  roofline: {{flops: 0}}
"""
    return manifest.read_entries(text, "any.yaml")["AnyFwdOp"].checker


@settings(max_examples=300, deadline=None)
@given(st.lists(FORMS, min_size=1, max_size=3), VALUES, st.data())
def test_a_call_binds_its_only_reading_or_is_refused(forms, values, data):
    try:
        checker = checker_of(forms)
    except ManifestError:
        assume(False)
    shapes = [shape_of(form, values) for form in forms]
    if data.draw(st.booleans()) and any(shapes):
        at = data.draw(st.sampled_from([at for at, shape in enumerate(shapes) if shape]))
        dim = data.draw(st.integers(0, len(shapes[at]) - 1))
        shapes[at] = (*shapes[at][:dim], shapes[at][dim] + 1, *shapes[at][dim + 1 :])
    possible = readings(forms, shapes)
    tensors = [torch.empty(shape, dtype=torch.float16, device="meta") for shape in shapes]
    try:
        found = dict(checker.call({}, tensors).indices)
    except SignatureError:
        found = None
    if found is None:  # no reading at all, or several, between which the signature does not decide
        assert len(possible) != 1 or mixed_zero(forms, shapes), (forms, shapes)
        return
    assert all(shape_of(form, found) == shape for form, shape in zip(forms, shapes, strict=True))
    assert possible == [found] or any(outside(value) for value in found.values())


def mixed_zero(forms, shapes) -> bool:
    """Whether a dim of two names may be 0: then both are 0 only since no size is negative, which is not solved for."""
    mixed = [any(sum(name in item for name in DIMS) > 1 for item in form) for form in forms]
    return any(two and 0 in shape for two, shape in zip(mixed, shapes, strict=True))


def test_a_zero_of_two_names_is_refused_rather_than_guessed():
    checker = checker_of([("B", "3 * C + A", "A * B")])
    with pytest.raises(SignatureError, match="x0"):
        checker.call({}, [torch.empty((0, 0, 0), dtype=torch.float16, device="meta")])


def outside(value) -> bool:
    """Whether a found value lies outside those that ``readings`` tries."""
    return len(value) > 2 or any(item > 3 for item in value) if isinstance(value, tuple) else value > 3
