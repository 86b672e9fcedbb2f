"""Reading, rendering and refusing expressions, and message templates."""

from __future__ import annotations

import ast
import pickle

import pytest
import torch

from tileops.rules.errors import ExpressionError
from tileops.rules.evaluate import build
from tileops.rules.expr import (
    DTYPES,
    RESERVED,
    Const,
    Fold,
    Index,
    Lookup,
    Member,
    Name,
    Node,
    Pack,
    Parser,
    Slice,
    Star,
    Template,
    Type,
    Writer,
    children,
    parse,
)


def test_nodes() -> None:
    assert parse("(m, 2) in {(1, 2), (3, 4)}").root == Member(
        Pack((Name("m"), Const(2))), (Pack((Const(1), Const(2))), Pack((Const(3), Const(4))))
    )
    assert parse("shape[1:]").root == Slice(Name("shape"), Const(1), None)
    assert parse("shape[-1]").root == Index(Name("shape"), Const(-1))
    assert parse("{80: 1, 90: 2}[arch]").root == Lookup(((Const(80), Const(1)), (Const(90), Const(2))), Name("arch"))
    assert parse("any(i > m for i in range(3))").root == Fold("any", "i", range(3), parse("i > m").root)
    assert parse("sum((m, n))").root == Fold("sum", None, (Name("m"), Name("n")), None)


def test_dtypes_are_constants() -> None:
    assert parse("bfloat16").root == Const(torch.bfloat16)
    assert parse("dtype == bool").facts == {"dtype"}
    assert set(DTYPES) < RESERVED


def test_facts_leave_out_variables() -> None:
    assert parse("any(i > m for i in (n, 2))").facts == {"m", "n"}


def test_equality_ignores_spacing_and_tells_types_apart() -> None:
    assert parse("m>2") == parse(" m  >\n2 ")
    assert hash(parse("m>2")) == hash(parse("m > 2"))
    assert parse("m > 2") != parse("m > 2.0")
    assert Const(1) != Const(True)
    assert Const(1) == Const(1, column=7)


def test_parsing_the_same_text_is_remembered() -> None:
    assert parse("m > 2 and n > 3") is parse("m > 2 and n > 3")
    assert parse("m > 2").compile(("m",)) is parse("m > 2").compile(("m",))


def test_every_node_keeps_its_column() -> None:
    expression = parse("m + k if flag else shape[n]")
    columns = {node.name: node.column for node in _below(expression.root) if isinstance(node, Name)}
    assert columns == {"m": 0, "k": 4, "flag": 9, "shape": 19, "n": 25}
    assert expression.text[columns["n"]] == "n"


def test_columns_count_characters() -> None:
    name = next(node for node in _below(parse("'äöü' == layout").root) if isinstance(node, Name))
    assert name.column == 9
    assert parse("'äöü' == layout").render({"layout": "x"}) == "'äöü' == 'x'"


def _below(node: Node) -> list[Node]:
    return [node, *(below for child in children(node) for below in _below(child))]


def test_render_fills_in_what_is_known() -> None:
    expression = parse("m * itemsize(dtype) % 16 != 0 and mm > m")
    assert expression.render({"m": 5, "dtype": torch.bfloat16}) == "5 * itemsize(bfloat16) % 16 != 0 and mm > 5"
    assert parse("scale is None").render({"scale": None}) == "None is None"
    assert parse("len(shape) == 2").render({"shape": (3,)}) == "len((3,)) == 2"
    assert parse("layout == 'a'").render({"layout": "b"}) == "'b' == 'a'"


def test_render_leaves_variables() -> None:
    assert parse("any(m > 0 for m in (n, 2))").render({"m": 7, "n": 8}) == "any(m > 0 for m in (8, 2))"


def test_expressions_pickle() -> None:
    expression = parse("m > 2")
    expression.compile(("m",))
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression
    assert again.facts == {"m"}
    assert again.evaluate({"m": 3}) is True


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 0, "an expression is empty"),
        ("   ", 0, "an expression is empty"),
        ("m >", None, "not an expression"),
        ("m n", 2, "not an expression"),
        ("(m", 0, "was never closed"),
        ("m / 2", 0, "no '/': write '//'"),
        ("n + m ** 2", 4, "no '**'"),
        ("m & 1", 0, "no '&'"),
        ("n > 1 | m > 1", 4, "no '|'"),
        ("+m", 0, "no unary '+'"),
        ("~m", 0, "no '~'"),
        ("m << 2", 0, "no '<<'"),
        ("1 + call.m", 4, "no attribute access"),
        ("(m := 3)", 1, "no ':='"),
        ("lambda: m", 0, "no lambda"),
        ("f'{m}'", 0, "no f-strings"),
        ("[m, n]", 0, "no lists"),
        ("{1: 2}", 0, "a literal table needs a key"),
        ("{1, 2}", 0, "a literal set stands only after 'in'"),
        ("(*m, 2)", 1, "a starred item"),
        ("m is 2", 5, "compares with None only: write '=='"),
        ("m is not 2", 9, "compares with None only: write '!='"),
        ("m == None", 5, "write 'is None'"),
        ("None != m", 8, "write 'is not None'"),
        ("m < None", 4, "None has no place beside '<'"),
        ("m in n", 5, "'in' needs a literal tuple or set"),
        ("m in (5)", 6, "'in' needs a literal tuple or set"),
        ("m in ()", 5, "at least one option"),
        ("m in (n, 2)", 6, "a constant, or a tuple of constants"),
        ("1 +", 3, "it ends where more should follow"),
        ("m > ", 3, "it ends where more should follow"),
        ("é +", 3, "it ends where more should follow"),
        ("m n", 2, "not an expression: invalid syntax"),
        ("not " * 10000 + "f", 0, "nested deeper than 80 levels"),
        ("9" * 5000, 0, "an integer literal has at most 256 bits"),
        ("m in (1, (2, 3))", 5, "all tuples or none"),
        ("1 < m in (1, 2)", 9, "'in' does not chain"),
        ("m in (1, 2) == flag", 5, "'in' does not chain"),
        ("foo(m)", 0, "unknown function 'foo'"),
        ("ceildv(m, 2)", 0, "did you mean 'ceildiv'?"),
        ("min(m)", 0, "min got 1 argument: write min(a, b, ...)"),
        ("ceildiv(m, 2, 3)", 0, "ceildiv got 3 arguments"),
        ("len()", 0, "len got 0 arguments"),
        ("min(m, n, key=n)", 14, "min takes no keywords"),
        ("m.bit_length()", 0, "only the language's functions can be called"),
        ("min + 1", 0, "min is a function: write min(a, b, ...)"),
        ("range(3)", 0, "unknown function 'range'"),
        ("sum(m)", 4, "a literal tuple or a comprehension"),
        ("sum(m, n)", 0, "one literal tuple or comprehension"),
        ("any(d > 1 for d in shape)", 19, "a literal tuple or a constant range"),
        ("any(i > 1 for i in range(m))", 25, "constant integers"),
        ("any(i > 1 for i in range(5000))", 19, "at most 4096"),
        ("any(i > 1 for i in range(1, 2, 0))", 19, "a range's step is not 0"),
        ("any(i > 1 for i in range())", 19, "write range(stop)"),
        ("any(i > 1 for i in (1, 2) if m)", 29, "no 'if'"),
        ("any(i > j for i in (1, 2) for j in (3, 4))", 30, "one 'for'"),
        ("any(i > 1 for i, j in (1, 2))", 14, "one plain variable"),
        ("any(i > 1 for i in ())", 19, "at least one item"),
        ("any(min > 1 for min in (1, 2))", 16, "'min' is taken"),
        ("any(any(i > 1 for i in (1, 2)) for i in (3, 4))", 18, "'i' is taken"),
        ("(i > 1 for i in (1, 2))", 0, "only inside any(...)"),
        ("m[::2]", 4, "a slice has no step"),
        ("m['a']", 2, "an index is one integer"),
        ("m[1, 2]", 2, "an index is one integer"),
        ("3[0]", 0, "only a tuple or a literal table can be indexed"),
        ("(1 + 2)[0]", 1, "only a tuple or a literal table can be indexed"),
        ("{80: 1, 80: 2}[m]", 8, "the key 80 twice"),
        ("{80: m}[m]", 5, "a value of a table is a constant"),
        ("{m: 1}[m]", 1, "a key of a table"),
        ("{}[m]", 0, "at least one row"),
        ("{**m}[m]", 3, "no '**'"),
        ("{80: 1}[1:2]", 0, "takes one key, no slice"),
        ("b'a' == m", 0, "no constant like b'a'"),
        ("2j", 0, "no constant like 2j"),
        ("...", 0, "no constant like Ellipsis"),
        ("1e999 > m", 0, "a float literal is finite"),
        (f"m > {2**300}", 4, "at most 256 bits"),
        ("m > 1 # why", 6, "no comment"),
        ("m == '\\n'", 6, "no backslashes"),
        ("m\0", 0, "not an expression"),
        ("m == '\ud800'", 0, "not an expression"),
        ("(" * 300 + "m" + ")" * 300, None, "too many nested parentheses"),
        ("-" * 90 + "m", 80, "nested deeper than 80 levels"),
        ("await m", 0, "not an expression|no Await"),
        ("m > 2; n > 3", 5, "not an expression"),
        ("m) + (n", 1, "not an expression|unmatched"),
    ],
)
def test_refused(text: str, column: int | None, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert any(word in str(caught.value) for word in words.split("|")) or words in str(caught.value)
    if column is not None:
        assert caught.value.fields["column"] == column


def test_an_error_points_at_the_column() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("m + k2").type_in({"m": Type("int"), "k": Type("int")})
    assert str(caught.value).splitlines() == [
        "unknown fact 'k2' (did you mean 'k'?); known here: k, m, at column 5 of the expression",
        "    m + k2",
        "        ^",
    ]
    assert pickle.loads(pickle.dumps(caught.value)).fields["column"] == 4


def test_an_error_in_a_long_text_shows_the_place() -> None:
    text = "m in (" + ", ".join(map(str, range(500))) + ") and nn"
    with pytest.raises(ExpressionError) as caught:
        parse(text).type_in({"m": Type("int"), "n": Type("int")})
    _, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :].startswith("nn")
    assert len(line) < 130


@pytest.mark.parametrize("text", [None, 3, b"m"])
def test_only_strings_are_expressions(text: object) -> None:
    with pytest.raises(ExpressionError, match="an expression is a string"):
        parse(text)  # type: ignore[arg-type]


def test_compile_names_the_nearest() -> None:
    with pytest.raises(ExpressionError, match=r"unknown fact 'heds' \(did you mean 'heads'\?\)"):
        parse("heds > 2").compile(("heads", "dim"))


def test_evaluate_says_which_value_is_missing() -> None:
    with pytest.raises(ExpressionError, match="no value for n"):
        parse("m > n").evaluate({"m": 3})


def test_compiled_functions_take_any_names() -> None:
    parser = _Extended
    expression = parse("present(bias) and lambda_ > 2", parser)
    assert expression.compile(("lambda_", "present(bias)"))(3, True) is True
    assert expression.render({"present(bias)": False, "lambda_": 1}) == "False and 1 > 2"


class _Extended(Parser):
    """Adds ``present(x)`` and lists with starred runs, as the manifest does."""

    def call(self, name: str, tree: ast.Call) -> Node:
        if name == "present" and len(tree.args) == 1 and isinstance(tree.args[0], ast.Name):
            return self.name(f"present({tree.args[0].id})", tree)
        return super().call(name, tree)

    def list(self, tree: ast.List) -> Node:
        return self.pack(tree.elts, tree, stars=True)


def test_a_part_can_extend_the_language() -> None:
    expression = parse("[*B, m, 2 * n] if present(w) else [m]", _Extended)
    assert expression.facts == {"B", "m", "n", "present(w)"}
    assert expression.evaluate({"B": (7, 8), "m": 3, "n": 4, "present(w)": True}) == (7, 8, 3, 8)
    scope = {
        "B": Type("tuple", low=1, high=9, min_len=1, max_len=4),
        "m": Type("int", low=2, high=5),
        "n": Type("int", low=1, high=10),
        "present(w)": Type("bool"),
    }
    assert expression.type_in(scope) == Type("tuple", low=1, high=20, min_len=1, max_len=6)
    assert isinstance(parse("[*B]", _Extended).root.items[0], Star)  # type: ignore[attr-defined]
    with pytest.raises(ExpressionError, match="unknown function 'present'"):
        parse("present(w)")
    with pytest.raises(ExpressionError, match="unknown function 'presnt'"):
        parse("presnt(w)", _Extended)


def test_one_writer_writes_several_expressions() -> None:
    writer = Writer({"m": "m", "n": "n"})
    parts = [writer.write(parse(text).root) for text in ("m in {1, 2}", "(m, n) in {(3, 4)}", "max(m, n)")]
    function = build(f"lambda m, n: ({', '.join(parts)})", writer.environment)
    assert function(3, 4) == (False, True, 4)


def test_template_fills_expressions() -> None:
    template = Template("got m={m}, a row of {k * itemsize(dtype)} bytes of {dtype}, {layout}: {{{shape}}}")
    assert [expression.text for expression in template.expressions] == [
        "m",
        "k * itemsize(dtype)",
        "dtype",
        "layout",
        "shape",
    ]
    assert template.facts == {"m", "k", "dtype", "layout", "shape"}
    values = {"m": 3, "k": 5, "dtype": torch.bfloat16, "layout": "nhwc", "shape": (2,)}
    assert template.fill(values) == "got m=3, a row of 10 bytes of bfloat16, nhwc: {(2,)}"


def test_template_fields_hold_braces_and_strings() -> None:
    template = Template("{ {80: 1, 90: 2}[arch] } and {'}' if m in {1, 2} else '{'}")
    assert template.fill({"arch": 90, "m": 2}) == "2 and }"
    assert Template("plain {{}}").fill({}) == "plain {}"
    assert Template("plain").expressions == ()


def test_template_says_what_it_cannot_compute() -> None:
    template = Template("{m // n} and {k}")
    assert template.fill({"m": 1, "n": 0}) == "<1 // 0: ZeroDivisionError> and <k: no k>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("got {m", "a '{' without its '}'"),
        ("got m}", "a '}' without its '{'"),
        ("got {}", "an expression is empty"),
        ("got {m.x}", "no attribute access"),
        ("got {m:d}", "not an expression"),
        ("got {m!r}", "not an expression"),
    ],
)
def test_template_refused(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Template(text)
    assert words in str(caught.value)


def test_template_names_the_message() -> None:
    with pytest.raises(ExpressionError, match=r"in the message 'got \{m.x\}'"):
        Template("got {m.x}")
    with pytest.raises(ExpressionError, match="a message is a string, got 3"):
        Template(3)  # type: ignore[arg-type]


def test_template_is_checked_against_a_scope() -> None:
    Template("{m}").check({"m": Type("int")})
    with pytest.raises(ExpressionError, match="unknown fact 'mm'"):
        Template("{mm}").check({"m": Type("int")})


def test_templates_compare_and_pickle() -> None:
    template = Template("got {m}")
    assert template == Template("got {m}")
    assert template != Template("got {n}")
    assert pickle.loads(pickle.dumps(template)).fill({"m": 1}) == "got 1"
