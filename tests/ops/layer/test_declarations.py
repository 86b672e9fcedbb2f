"""Op classes: what their creation reads, and what it raises, all of it together."""

from __future__ import annotations

import inspect

import pytest
import torch

from tileops import collecting, op_class
from tileops.op import Op
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.errors import DeclarationError, ExpressionError, OpNotAvailableError
from tileops.rules.interface import KernelInterface
from tileops.uses import Uses

CPU = {"cpu"}


def declare(toys, uses, kernel_types=None):
    body = {"kernel_types": kernel_types or {}, "interfaces": uses}
    return type("AddFwdOp", (Op,), body, entry=toys.entries["AddFwdOp"])


def test_an_ambiguous_table_is_refused_at_creation_with_a_witness(toys):
    declarations = {
        "one": Declaration(devices=CPU),
        "two": Declaration(devices=CPU, refusal=(Refusal("m < 3", "m={m}"),)),
    }
    with pytest.raises(DeclarationError, match=r"the declarations of AddFwdOp do not hold:\n- ambiguous") as caught:
        toys.make(declarations)
    (finding,) = [finding for finding in caught.value.findings if finding.kind == "ambiguous"]
    assert finding.keys == ("one", "two")
    assert finding.witness.m >= 3


def test_collecting_makes_the_class_and_keeps_its_findings(toys):
    with collecting():
        toy = toys.make({"one": Declaration(devices=CPU), "two": Declaration(devices=CPU)})
    assert [finding.kind for finding in toy.op.findings] == ["ambiguous"]
    with pytest.raises(DeclarationError, match="ambiguous"):
        toy.op()


def test_everything_wrong_with_a_use_is_told_at_once(toys):
    uses = Uses(toys.interface, when="scale", facts={"m": "M + T", "n": "Q", "dtype": "T", "bias": "M"})
    with pytest.raises(DeclarationError) as caught:
        declare(toys, {"add": uses})
    message = str(caught.value)
    assert "when='scale' is a float, not a bool" in message
    assert "facts['m']='M + T'" in message
    assert "facts['n']='Q'" in message
    assert "AddCall has no fact 'bias' (did you mean 'biased'?)" in message
    assert "nothing fills the fact 'biased'" in message


def test_a_fact_takes_its_own_type_only(toys):
    uses = Uses(toys.interface, facts={"m": "M", "n": "T", "dtype": "T", "biased": "present(bias)"})
    with pytest.raises(DeclarationError, match="fact 'n' takes an integer, but 'T' is a dtype"):
        declare(toys, {"add": uses})


def test_an_expression_that_does_not_parse_says_where(toys):
    with pytest.raises(ExpressionError):
        Uses(toys.interface, facts={"m": "M +"})


def test_an_interface_that_cannot_be_called_with_the_inputs(toys):
    class Narrow(KernelInterface):
        request = toys.call

        def forward(self, a):
            raise NotImplementedError

    uses = Uses(Narrow, facts={"m": "M", "n": "N", "dtype": "T", "biased": "present(bias)"})
    with pytest.raises(DeclarationError, match=r"Narrow.forward\(self, a\) cannot be called with the op's inputs a, b"):
        declare(toys, {"add": uses})


def test_an_implementation_of_another_interface(toys):
    class Other(KernelInterface):
        request = toys.call

    class Impl(Other):
        pass

    uses = Uses(toys.interface, facts={"m": "M", "n": "N", "dtype": "T", "biased": "present(bias)"})
    with pytest.raises(DeclarationError, match="inherits Other, an interface that the op does not ask"):
        declare(toys, {"add": uses}, {"impl": Impl})
    with pytest.raises(DeclarationError, match="no class that inherits a kernel interface"):
        declare(toys, {"add": uses}, {"impl": torch.add})


def test_a_name_that_is_not_in_the_manifest():
    with pytest.raises(DeclarationError, match=r"no manifest file has the op 'GemFwdOp' \(did you mean 'GemmFwdOp'"):
        type("GemFwdOp", (Op,), {})


def test_the_constructor_shows_the_params(toys):
    signature = inspect.signature(toys.make().op)
    assert str(signature) == "(scale=1.0, sizes=[], *, target=None)"


def test_the_base_is_no_op():
    with pytest.raises(TypeError, match="construct one of its subclasses"):
        Op()


def test_ops_by_name():
    from tileops.norm import RMSNormFwdOp

    assert op_class("RMSNormFwdOp") is RMSNormFwdOp
    with pytest.raises(OpNotAvailableError, match=r"there is no op 'RmsNormFwdOp' \(did you mean 'RMSNormFwdOp'\?\)"):
        op_class("RmsNormFwdOp")
