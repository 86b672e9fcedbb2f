import pytest

from tileops.manifest.form import parse_form
from tileops.manifest.language import expression, linear_in
from tileops.rules.errors import ExpressionError


def test_a_form_is_a_list_of_dims_and_runs():
    listing = parse_form("[*B, 2 * H, 3]").choose({})
    assert [str(item) for item in listing.items] == ["*B", "2 * H", "3"]
    assert [item.starred for item in listing.items] == [True, False, False]
    assert listing.value({"B": (4, 5), "H": 6}) == (4, 5, 12, 3)


def test_conditions_nest_and_choose_by_their_values():
    form = parse_form("[K, M] if trans else ([M] if present(bias) else [])")
    assert form.read_conditions() == ("present(bias)", "trans")
    chosen = [
        form.choose({"trans": trans, "present(bias)": bias}).text
        for trans, bias in ((True, False), (False, True), (False, False))
    ]
    assert chosen == ["[K, M]", "[M]", "[]"]


def test_a_form_may_be_written_on_several_lines():
    assert parse_form("[M,\n   K]").choose({}).text == "[M, K]"


@pytest.mark.parametrize("text", ["(M, K)", "M", "[M] if a else (M,)", "M * [K]", "len([M])"])
def test_only_lists_are_shapes(text):
    with pytest.raises(ExpressionError):
        parse_form(text)


def test_the_error_of_a_form_says_what_a_shape_is():
    with pytest.raises(ExpressionError) as caught:
        parse_form("(M, K)")
    assert caught.value.fields["cause"] == (
        "a shape is a list such as [M, K] or [*B, K], or 'one list if ... else another'"
    )


def test_present_takes_one_name():
    assert expression("present(w) and not present(b)").facts == {"present(w)", "present(b)"}
    with pytest.raises(ExpressionError, match=r"present takes the name of one optional input: write present\(weight\)"):
        expression("present(1)")


@pytest.mark.parametrize(
    ("text", "name", "linear"),
    [
        ("H", "H", True),
        ("2 * H + G", "H", True),
        ("G * H - 1", "H", True),
        ("-H", "H", True),
        ("H * H", "H", False),
        ("H // 2", "H", False),
        ("(H if f else 1)", "H", False),
        ("G + 1", "H", False),
    ],
)
def test_linear_dims_are_those_that_a_received_dim_solves(text, name, linear):
    assert linear_in(expression(text).root, name) is linear
