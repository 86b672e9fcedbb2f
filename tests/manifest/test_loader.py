import pickle
import threading

import pytest

from tileops import manifest
from tileops.manifest import loader
from tileops.rules.errors import DeclarationError, ManifestError

GOOD = """\
AddFwdOp:
  ref_api: torch.add
  signature:
    forall: {S: Shape, T: "DType[float16 | float32]"}
    params:
      alpha: {type: "float | None", default: null}
    inputs:
      x: {dtype: T, shape: "[*S]"}
      y: {dtype: T, shape: "[*S]", optional: true}
    outputs:
      z: {dtype: T, shape: "[*S]"}
    rules: ["len(S) >= 1"]
  serves: {cuda: [80, 90]}
  workloads:
    - {label: small, S: [2, 3], dtypes: [{T: float16}]}
  roofline: {flops: "prod(S)"}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        manifest.read_entries(text, "add.yaml")
    return str(caught.value).split("\n")


def edited(*edits: tuple[str, str]) -> str:
    text = GOOD
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_a_good_file_loads():
    entry = manifest.read_entries(GOOD, "add.yaml")["AddFwdOp"]
    assert (entry.name, entry.family, entry.ref_api) == ("AddFwdOp", "add", "torch.add")
    assert entry.serves == {"cuda": (80, 90)}
    assert [row.label for row in entry.workloads] == ["small"]
    assert repr(entry) == "OpEntry(name='AddFwdOp', family='add', ref_api='torch.add')"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("torch.add", "torch add", "2: AddFwdOp.ref_api: expected a dotted name such as torch.matmul, found "
         "'torch add'"),
        ("S: Shape", "S: Shap", "4: AddFwdOp.signature.forall.S: 'Shap' is no kind of index (did you mean 'Shape'?); "
         "write Dim, Shape or DType[...]"),
        ("S: Shape", "S: 'Shape[a]'", "4: AddFwdOp.signature.forall.S: Shape takes no choices: only DType does"),
        ("float16 | float32", "float16 | half", "4: AddFwdOp.signature.forall.T: 'half' is no dtype; dtypes are "
         "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, "
         "float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu, complex64, complex128"),
        ("S: Shape", "S: Shape, D: Dim", "4: AddFwdOp.signature.forall.D: no input binds it: "
         "name it in some input's dtype or shape"),
        ("S: Shape", "S: Shape, alpha: Dim", "6: AddFwdOp.signature.params.alpha: the name is taken: "
         "alpha is one of the indices too"),
        ("float | None", "flot", "6: AddFwdOp.signature.params.alpha.type: 'flot' is no type (did you mean 'float'?); "
         "types are bool, int, float, str, dtype, None, list, tuple"),
        ("default: null", "default: one", "6: AddFwdOp.signature.params.alpha.default: expected float | None, "
         "found 'one'"),
        ("default: null", "defualt: null", "6: AddFwdOp.signature.params.alpha.defualt: unknown key "
         "(did you mean 'default'?); a param has the keys type, default"),
        ("alpha: {", "target: {", "6: AddFwdOp.signature.params.target: target is what every op takes to choose "
         "its target"),
        ("alpha: {", "len: {", "6: AddFwdOp.signature.params.len: len is a word of the expression language"),
        ("alpha: {", "label: {", "6: AddFwdOp.signature.params.label: label is a key of workload rows"),
        ("alpha: {", "a-b: {", "6: AddFwdOp.signature.params.a-b: 'a-b' is no name that an expression can write"),
        ("x: {dtype: T,", "x: {dtype: U,", "8: AddFwdOp.signature.inputs.x.dtype: unknown name 'U', in 'U'"),
        ("x: {dtype: T,", "x: {dtype: S,", "8: AddFwdOp.signature.inputs.x.dtype: wanted a dtype, "
         "got a tuple of 0 to 8 integers, at column 1 of 'S'"),
        ('x: {dtype: T, shape: "[*S]"', 'x: {dtype: T, shape: "[S]"', "8: AddFwdOp.signature.inputs.x.shape: "
         "wanted an integer, got a tuple of 0 to 8 integers, at column 2 of '[S]'"),
        ('x: {dtype: T, shape: "[*S]"', 'x: {dtype: T, shape: "(*S,)"', "8: AddFwdOp.signature.inputs.x.shape: "
         "a starred item has no place here, at column 2 of '(*S,)'"),
        ('x: {dtype: T, shape: "[*S]"', 'x: {dtype: T, shape: "[*S] if len(S) else [1]"',
         "8: AddFwdOp.signature.inputs.x.shape: a condition reads params and present(...) only, and S is an index "
         "of the call, in '[*S] if len(S) else [1]'"),
        ('x: {dtype: T, shape: "[*S]"', 'x: {dtype: T, shape: "[*S] if alpha else [1]"',
         "8: AddFwdOp.signature.inputs.x.shape: wanted a bool, got a float or None, at column 9 of "
         "'[*S] if alpha else [1]'"),
        ("optional: true", "optional: yes", "9: AddFwdOp.signature.inputs.y.optional: write true or false, "
         "or quote the string: yes"),
        ("optional: true", "optional: 1", "9: AddFwdOp.signature.inputs.y.optional: expected true or false, found '1'"),
        ("optional: true", "device: cuda", "9: AddFwdOp.signature.inputs.y.device: expected cpu, found 'cuda': "
         "other inputs are on the call's device"),
        ("optional: true", "mutated: alpha", "9: AddFwdOp.signature.inputs.y.mutated: wanted a bool, "
         "got a float or None, at column 1 of 'alpha'"),
        ('z: {dtype: T, shape: "[*S]"}', "z: {same_as: w}", "11: AddFwdOp.signature.outputs.z.same_as: 'w' is "
         "no input"),
        ('z: {dtype: T, shape: "[*S]"}', "z: {same_as: x}", "11: AddFwdOp.signature.outputs.z.same_as: x is not "
         "mutated: "
         "an output is the same as a written input only"),
        ('z: {dtype: T, shape: "[*S]"}', "z: {dtype: T}", "11: AddFwdOp.signature.outputs.z: the key shape is missing"),
        ('z: {dtype: T, shape: "[*S]"}', 'z: {dtype: T, shape: "[*S]", empty: zero}',
         "11: AddFwdOp.signature.outputs.z.empty: expected a number or a bool, found 'zero'"),
        ("len(S) >= 1", "len(S)", "12: AddFwdOp.signature.rules[0]: wanted a bool, got an integer, at column 1 "
         "of 'len(S)'"),
        ("len(S) >= 1", "len(S) >= n", "12: AddFwdOp.signature.rules[0]: unknown name 'n', in 'len(S) >= n'"),
        ("cuda: [80, 90]", "cuda: 80", "13: AddFwdOp.serves.cuda: expected a list of distinct arch numbers "
         "such as [80, 90], found 80"),
        ("cuda: [80, 90]", "cuda: [80, 80]", "13: AddFwdOp.serves.cuda: expected a list of distinct arch numbers "
         "such as [80, 90], found [80, 80]"),
        ("label: small", "label: Small", "15: AddFwdOp.workloads[0].label: expected lower-case words joined by "
         "hyphens, "
         "found 'Small'"),
        ("S: [2, 3]", "S: 2", "15: AddFwdOp.workloads[0].S: expected a list of at most 8 dims from 0 to "
         "2**40, found 2"),
        ("S: [2, 3]", "S: []", "15: AddFwdOp.workloads[0]: it is no call of the op: AddFwdOp: expected len(S) >= 1, "
         "received S = () from x"),
        ("S: [2, 3]", "s: [2, 3]", "15: AddFwdOp.workloads[0].s: unknown key; "
         "a workload row has the keys label, dtypes, S, alpha, without"),
        ("{T: float16}", "{T: int8}", "15: AddFwdOp.workloads[0].dtypes[0].T: expected float16 or float32, "
         "found 'int8'"),
        ("[{T: float16}]", "[]", "15: AddFwdOp.workloads[0].dtypes: expected at least one dtype case"),
        ("label: small", "label: small, without: [x]", "15: AddFwdOp.workloads[0].without[0]: 'x' is no "
         "optional input"),
        ("label: small", "label: small, alpha: yes please", "15: AddFwdOp.workloads[0].alpha: expected float | None, "
         "found 'yes please'"),
        ("prod(S)", "prod(S) / 2", "16: AddFwdOp.roofline.flops: the language has no '/': write '//' or ceildiv(a, b), "
         "at column 1 of 'prod(S) / 2'"),
        ("prod(S)", "-prod(S)", "15: AddFwdOp.workloads[0]: its roofline is negative: -6 operations, 36 bytes"),
        ("flops:", "flop:", "16: AddFwdOp.roofline.flop: unknown key (did you mean 'flops'?); "
         "a roofline has the keys flops, bytes"),
    ],
)  # fmt: skip
def test_one_mistake_is_told_with_its_line_and_path(old, new, problem):
    assert f"add.yaml:{problem}" in problems(edited((old, new)))


def test_everything_wrong_with_a_file_comes_at_once():
    text = edited(
        ("ref_api: torch.add", "ref: torch.add"),
        ("S: Shape", "S: Shap"),
        ("default: null", "default: many"),
        ('x: {dtype: T, shape: "[*S]"', 'x: {dtype: T, shape: "[*S"'),
        ("optional: true", "optinal: true"),
        ("len(S) >= 1", "T > 1"),
        ("cuda: [80, 90]", "cuda: []"),
        ("{T: float16}", "{U: float16}"),
        ("prod(S)", "prod(S, 2)"),
    )
    text += "SubFwdOp: 3\n"
    assert problems(text) == [
        "add.yaml:2: AddFwdOp.ref: unknown key (did you mean 'ref_api'?); an entry has the keys "
        "ref_api, signature, roofline, serves, workloads, composition",
        "add.yaml:2: AddFwdOp: the key ref_api is missing",
        "add.yaml:4: AddFwdOp.signature.forall.S: 'Shap' is no kind of index (did you mean 'Shape'?); "
        "write Dim, Shape or DType[...]",
        "add.yaml:6: AddFwdOp.signature.params.alpha.default: expected float | None, found 'many'",
        "add.yaml:8: AddFwdOp.signature.inputs.x.shape: not an expression: '[' was never closed, at column 1 of '[*S'",
        "add.yaml:9: AddFwdOp.signature.inputs.y.optinal: unknown key (did you mean 'optional'?); an input has "
        "the keys "
        "dtype, shape, optional, contiguous, keyword_only, mutated, device",
        "add.yaml:12: AddFwdOp.signature.rules[0]: '>' orders integers and floats, got a dtype, at column 1 of 'T > 1'",
        "add.yaml:13: AddFwdOp.serves.cuda: expected a list of distinct arch numbers such as [80, 90], found []",
        "add.yaml:15: AddFwdOp.workloads[0].dtypes[0].U: unknown key; a dtype case has the keys T",
        "add.yaml:15: AddFwdOp.workloads[0].dtypes[0]: the key T is missing",
        "add.yaml:16: AddFwdOp.roofline.flops: prod got 2 arguments: write prod(t) of a tuple of integers, "
        "at column 1 of 'prod(S, 2)'",
        "add.yaml:17: SubFwdOp: expected an entry, found '3'",
    ]


def test_the_error_keeps_its_problems_and_pickles():
    with pytest.raises(ManifestError) as caught:
        manifest.read_entries("SubFwdOp: 3\n", "add.yaml")
    again = pickle.loads(pickle.dumps(caught.value))
    assert [(problem.line, problem.path) for problem in again.problems] == [(1, "SubFwdOp")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["add.yaml:1: is empty: expected a mapping of op names to entries"]),
        ("- 1\n", ["add.yaml:1: expected a mapping of op names to entries, found a list"]),
        ("addop: {}\n", "add.yaml:1: addop: an op's name is letters and digits, the first a capital, such as "
         "GemmFwdOp"),
        ("80: {}\n", "add.yaml:1: expected a name as key, found '80'"),
        (GOOD + GOOD, "add.yaml:17: AddFwdOp: given twice, first on line 2"),
        ("AddFwdOp:\n  ref_api: torch.add\n  ref_api: torch.sub\n", "add.yaml:3: AddFwdOp.ref_api: given twice, "
         "first on line 2"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_mapping_of_entries_is_told(text, expected):
    if isinstance(expected, list):
        assert problems(text) == expected
    else:
        assert expected in problems(text)


def test_yaml_that_does_not_parse_is_told_with_its_line():
    (problem,) = problems("AddFwdOp:\n  ref_api: [torch.add\nSubFwdOp: {}\n")
    assert problem.startswith("add.yaml:3: is not YAML: ")
    assert problems("AddFwdOp: \x00\n")[0].startswith("add.yaml:1: is not YAML: ")
    (problem,) = problems("AddFwdOp: *nothing\n")
    assert problem.startswith("add.yaml:1: is not YAML: ")


@pytest.mark.parametrize(
    ("written", "read"),
    [("010", "write a plain decimal number, or quote the string: 010"), ("1:30", "write a plain decimal number"),
     ("0x10", "write a plain decimal number")],
)  # fmt: skip
def test_numbers_mean_what_they_look_like(written, read):
    (problem,) = problems(edited(("default: null", f"default: {written}")))
    assert problem.startswith(f"add.yaml:6: AddFwdOp.signature.params.alpha.default: {read}")


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e-5", 1e-5), ("1.0e-5", 1e-5), (".5", 0.5), ("-.inf", float("-inf")), ("2", 2), ("1_000", 1000)],
)
def test_floats_may_be_written_as_python_writes_them(written, value):
    entry = manifest.read_entries(edited(("default: null", f"default: {written}")), "add.yaml")["AddFwdOp"]
    default = entry.checker.bind_params((), {})["alpha"]
    assert (default, type(default)) == (value, type(value))


def test_a_quoted_number_is_a_string():
    (problem,) = problems(edited(("default: null", "default: '1.5'")))
    assert problem == "add.yaml:6: AddFwdOp.signature.params.alpha.default: expected float | None, found '1.5'"


def test_an_alias_inside_its_own_anchor_ends():
    assert problems(edited(("S: [2, 3]", "S: &s [*s]")))


def test_order_of_arguments_is_held():
    text = edited(
        ('alpha: {type: "float | None", default: null}', "alpha: {type: int, default: 1}\n      beta: {type: int}"),
        ('x: {dtype: T, shape: "[*S]"}', 'x: {dtype: T, shape: "[*S]", optional: true}'),
        (', optional: true}\n    outputs', "}\n    outputs"),
        ("label: small", "label: small, beta: 1"),
    )  # fmt: skip
    assert problems(text)[:2] == [
        "add.yaml:7: AddFwdOp.signature.params.beta: it has no default, and alpha before it has one",
        "add.yaml:10: AddFwdOp.signature.inputs.y: it is required, and x before it is optional",
    ]


def test_an_index_of_optional_inputs_cannot_shape_an_output():
    text = edited(
        ("S: Shape", "S: Shape, D: Dim"),
        ('y: {dtype: T, shape: "[*S]"', 'y: {dtype: T, shape: "[D]"'),
        ('z: {dtype: T, shape: "[*S]"', 'z: {dtype: T, shape: "[D]"'),
        ("S: [2, 3]", "S: [2, 3], D: 4"),
    )
    assert problems(text) == [
        "add.yaml:11: AddFwdOp.signature.outputs.z.shape: wanted an integer, got an integer or None, at column "
        "2 of '[D]'"
    ]


def test_a_required_input_cannot_wait_for_an_optional_one():
    text = edited(
        ("S: Shape", "S: Shape, D: Dim"),
        ('x: {dtype: T, shape: "[*S]"', 'x: {dtype: T, shape: "[*S, D // 2]"'),
        ('y: {dtype: T, shape: "[*S]"', 'y: {dtype: T, shape: "[D]"'),
        ("S: [2, 3]", "S: [2, 3], D: 4"),
    )
    assert "add.yaml:8: AddFwdOp.signature.inputs.x.shape: it reads D, which only optional inputs bind" in problems(
        text
    )


def test_a_param_that_expressions_cannot_read_is_told():
    text = edited(("float | None", "int | str"), ("default: null", "default: 1"), ("len(S) >= 1", "alpha == 1"))
    assert problems(text) == [
        "add.yaml:12: AddFwdOp.signature.rules[0]: no expression can read the param alpha of type int | str"
    ]


def test_a_row_states_what_its_shapes_bind():
    text = edited(
        ("S: Shape", "S: Shape, D: Dim"), ('x: {dtype: T, shape: "[*S]"', 'x: {dtype: T, shape: "[*S, 0 * D]"')
    )
    assert problems(text.replace("S: [2, 3]", "S: [2, 3], D: 4"))[0].startswith(
        "add.yaml:15: AddFwdOp.workloads[0]: it is no call of the op: AddFwdOp: input x: expected shape [*S, 0 * D]"
    )
    twice = edited(("label: small, S: [2, 3], dtypes: [{T: float16}]}", "label: a, S: [2], dtypes: &d [{T: float16}]}\n"
                    "    - {label: a, S: [3], dtypes: *d}"))  # fmt: skip
    assert problems(twice) == ["add.yaml:16: AddFwdOp.workloads[1]: the label a is taken by the row on line 15"]


def test_steps_of_a_composition_are_checked():
    text = (
        GOOD
        + """\
  composition:
    - {op: SubFwdOp, inputs: {x: x}, outputs: [h]}
    - {op: AddFwdOp, inputs: {x: g}, outputs: [h], params: {alpha: "beta"}}
"""
    )
    assert problems(text) == [
        "add.yaml:18: AddFwdOp.composition[0].op: no manifest file has the op 'SubFwdOp' (did you mean 'AddFwdOp'?)",
        "add.yaml:18: AddFwdOp.composition: no step makes the output z",
        "add.yaml:19: AddFwdOp.composition[1].inputs.x: 'g' is no input and no earlier output",
        "add.yaml:19: AddFwdOp.composition[1].outputs: h has a value already",
        "add.yaml:19: AddFwdOp.composition[1].params.alpha: unknown name 'beta', in 'beta'",
    ]


def test_ops_and_families_are_known_without_loading():
    known = manifest.families()
    assert known["GemmFwdOp"] == "gemm"
    assert known["RMSNormFwdOp"] == "norm"
    assert set(manifest.load()) == set(known)


def test_an_unknown_op_or_family_is_told_with_the_nearest():
    with pytest.raises(DeclarationError) as caught:
        manifest.entry("GemFwdOp")
    assert str(caught.value) == "no manifest file has the op 'GemFwdOp' (did you mean 'GemmFwdOp'?)"
    with pytest.raises(
        DeclarationError, match=r"^there is no op family 'gem' \(did you mean 'gemm'\?\); families are: "
    ):
        manifest.family("gem")
    with pytest.raises(DeclarationError, match=r"^there is no op family '../spec/gemm'"):
        manifest.family("../spec/gemm")


def test_one_op_in_two_files_is_refused(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(GOOD)
    monkeypatch.setattr(loader, "SPEC", tmp_path)
    monkeypatch.setattr(loader, "_index", {})
    with pytest.raises(
        DeclarationError, match=r"^the op AddFwdOp stands in two manifest files: one.yaml and two.yaml$"
    ):
        manifest.families()


def test_a_file_is_loaded_once_whoever_asks(monkeypatch):
    monkeypatch.setattr(loader, "_loaded", {})
    found = []
    threads = [threading.Thread(target=lambda: found.append(manifest.entry("GemmFwdOp"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(entry) for entry in found}) == 1
    assert list(loader._loaded) == ["gemm"]


def test_a_field_path_counts_what_does_not_parse_too():
    text = edited(('rules: ["len(S) >= 1"]', 'rules: ["len(S) >=", "len(S) >= 1", "alph > 1"]'))
    first, second = problems(text)
    assert first.startswith("add.yaml:12: AddFwdOp.signature.rules[0]: not an expression: it ends where more should")
    assert second.startswith("add.yaml:12: AddFwdOp.signature.rules[2]: unknown name 'alph' (did you mean 'alpha'?)")


def test_a_step_counts_though_one_before_it_is_broken():
    steps = """  composition:
    - {op: AddFwdOp, inputs: {x: x}, outputs: [z], params: {alpha: "1 +"}}
    - {op: AddFwdOp, inputs: {x: x}, outputs: [w], params: {alpha: "beta"}}
"""
    found = problems(GOOD + steps)
    assert any("AddFwdOp.composition[0].params.alpha: not an expression" in line for line in found)
    assert any("AddFwdOp.composition[1].params.alpha: unknown name 'beta'" in line for line in found)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("float16 | float32]", "float16 | float17]", "4: AddFwdOp.signature.forall.T: 'float17' is no dtype"),
        (
            "S: [2, 3]",
            "S: [-4]",
            "15: AddFwdOp.workloads[0].S: expected a list of at most 8 dims from 0 to 2**40, found [-4]",
        ),
        ("torch.add", "torch.ad", "2: AddFwdOp.ref_api: torch has no 'ad' (did you mean 'add'?)"),
        (
            "torch.add",
            "torch.nn.functional.gelus",
            "2: AddFwdOp.ref_api: torch.nn.functional has no 'gelus' (did you mean 'gelu'?)",
        ),
        (
            "cuda: [80, 90]",
            "cudo: [80]",
            "13: AddFwdOp.serves.cudo: 'cudo' is no device type that torch knows (did you mean 'cuda'?)",
        ),
    ],
)
def test_one_fault_is_told_once(old, new, problem):
    (found,) = problems(edited((old, new)))
    assert found.startswith(f"add.yaml:{problem}")


def test_a_device_type_and_its_archs_are_both_told():
    found = problems(edited(("cuda: [80, 90]", "bogus: 3")))
    assert [line.split("serves.")[1].split()[0] for line in found] == ["bogus:", "bogus:"]
    assert "no device type" in found[0]
    assert "expected a list of distinct arch numbers" in found[1]


def test_what_other_packages_have_is_not_looked_up():
    assert manifest.read_entries(edited(("torch.add", "elsewhere.ops.add")), "add.yaml")["AddFwdOp"].ref_api
