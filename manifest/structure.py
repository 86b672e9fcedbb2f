"""From YAML fields to an entry: every key is known, every value has its form, everything wrong is noted."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import torch
from attrs import define, field

from tileops.manifest.audit import Audit, cause_of
from tileops.manifest.form import parse_form
from tileops.manifest.language import RESERVED_NAMES, expression
from tileops.manifest.paramtype import REFUSED, choices, dtypes_named, parse_type
from tileops.manifest.record import OpEntry
from tileops.manifest.rows import Rows
from tileops.manifest.schema import Index, Input, Output, Param, Roofline, Signature, Step
from tileops.manifest.signature import Checker
from tileops.manifest.source import BROKEN, Field
from tileops.rules.device import unknown_device_type
from tileops.rules.errors import ExpressionError, nearest

T = TypeVar("T")

INDEX_KINDS = {"Dim": "dim", "Shape": "shape", "DType": "dtype"}
ROW_KEYS = ("label", "dtypes", "without")
_OP_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_DEVICE = re.compile(r"[a-z][a-z0-9_]*")


@define
class EntryReader:
    """Reads one entry. What is broken is noted and left out; its name goes to ``broken``, to note nothing twice."""

    family: str
    op: str
    root: Field
    ops: Collection[str]
    broken: set[str] = field(factory=set)
    names: dict[str, str] = field(factory=dict)  # name -> what it is
    fields: dict[str, Field] = field(factory=dict)  # path under the entry -> the node there
    rules_at: list[int] = field(factory=list)  # where the rules that parse stand in their list
    steps_at: list[int] = field(factory=list)

    def read(self) -> OpEntry | None:
        """Return the entry, or None when something in it was noted."""
        before = len(self.root.problems.found)
        if not _OP_NAME.fullmatch(self.op):
            self.root.complain("an op's name is letters and digits, the first a capital, such as GemmFwdOp")
        parts = self.root.members(
            "an entry", ("ref_api", "signature", "roofline"), ("serves", "workloads", "composition")
        )
        ref_api = self._dotted(parts["ref_api"]) if "ref_api" in parts else BROKEN
        signature = self._signature(parts["signature"]) if "signature" in parts else None
        work = self._roofline(parts["roofline"]) if "roofline" in parts else None
        serves = self._serves(parts["serves"]) if "serves" in parts else {}
        steps = self._steps(parts["composition"], signature) if "composition" in parts else ()
        if signature is None:
            return None
        Audit(signature, frozenset(self.broken), self._complain, self.rules_at, self.steps_at).run(work, steps)
        sound = len(self.root.problems.found) == before
        checker = Checker(self.op, signature, work) if sound and work is not None else None
        rows = Rows(signature, frozenset(self.broken), checker)
        workloads = rows.read(parts["workloads"]) if "workloads" in parts else ()
        if checker is None or work is None or len(self.root.problems.found) > before:
            return None
        return OpEntry(self.op, self.family, ref_api, signature, serves, workloads, work, steps, checker)

    def _signature(self, spot: Field) -> Signature | None:
        parts = spot.members("a signature", ("inputs",), ("forall", "params", "outputs", "rules"))
        forall = self._named(parts.get("forall"), "indices", self._index)
        params = self._named(parts.get("params"), "params", self._param)
        inputs = self._named(parts.get("inputs"), "inputs", self._input)
        outputs: dict[str, Output] = {}
        if "outputs" in parts:
            for name, node in parts["outputs"].entries("a mapping of outputs").items():
                self._remember(node)
                output = self._output(name, node, inputs)
                if output is not None:
                    outputs[name] = output
        rules = []
        for at, node in enumerate(parts["rules"].items("a list of boolean expressions") if "rules" in parts else ()):
            self._remember(node)
            rule = self._parsed(node, expression, "a boolean expression")
            if rule is not None:
                rules.append(rule)
                self.rules_at.append(at)
        self._order(spot, params, inputs)
        if not inputs and "inputs" in parts and not self.broken:
            parts["inputs"].complain("an op has at least one input")
        if "outputs" not in parts and not any(tensor.mutated for tensor in inputs.values()) and not self.broken:
            spot.complain("an op has outputs, or an input that is mutated")
        return Signature(forall, params, inputs, outputs, tuple(rules)) if parts else None

    def _named(self, spot: Field | None, what: str, read: Callable[[str, Field], T | None]) -> dict[str, T]:
        found: dict[str, T] = {}
        for name, node in spot.entries(f"a mapping of {what}").items() if spot is not None else ():
            self._remember(node)
            if name in self.names:
                node.complain(f"the name is taken: {name} is one of the {self.names[name]} too")
                continue
            self.names[name] = what
            item = read(name, node)
            if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
                node.complain(f"{name!r} is no name that an expression can write")
            elif name in RESERVED_NAMES:
                node.complain(f"{name} is a word of the expression language")
            elif what == "params" and name == "target":
                node.complain("target is what every op takes to choose its target")
            elif what != "inputs" and name in ROW_KEYS:
                node.complain(f"{name} is a key of workload rows")
            if item is None:
                self.broken.add(name)
            else:
                found[name] = item
        return found

    def _index(self, name: str, spot: Field) -> Index | None:
        text = spot.text("Dim, Shape or DType[...]")
        if text is BROKEN:
            return None
        try:
            head, members = choices(text)
            if head not in INDEX_KINDS:
                raise ValueError(
                    f"{head!r} is no kind of index{nearest(head, INDEX_KINDS)}; write Dim, Shape or DType[...]"
                )
            if members and head != "DType":
                raise ValueError(f"{head} takes no choices: only DType does")
            return Index(name, INDEX_KINDS[head], dtypes_named(members))
        except ValueError as error:
            spot.complain(str(error))
            return None

    def _param(self, name: str, spot: Field) -> Param | None:
        parts = spot.members("a param", ("type",), ("default",))
        text = parts["type"].text("a type such as bool or list[int] | None") if "type" in parts else BROKEN
        if text is BROKEN:
            return None
        try:
            type_ = parse_type(text)
        except ValueError as error:
            parts["type"].complain(str(error))
            return None
        if "default" not in parts:
            return Param(name, type_)
        plain = parts["default"].plain()
        default = REFUSED if plain is BROKEN else type_.from_plain(plain)
        if default is REFUSED:
            if plain is not BROKEN:
                parts["default"].complain(f"expected {type_}, found {plain!r}")
            return None
        return Param(name, type_, default)

    def _input(self, name: str, spot: Field) -> Input | None:
        flags = ("optional", "contiguous", "keyword_only")
        parts = spot.members("an input", ("dtype", "shape"), (*flags, "mutated", "device"))
        dtype = self._parsed(parts.get("dtype"), expression, "a dtype, or an index of dtypes")
        shape = self._parsed(parts.get("shape"), parse_form, "a shape such as [M, K]")
        given = {flag: parts[flag].flag() for flag in flags if flag in parts}
        mutated: Any = False
        if "mutated" in parts:
            plain = parts["mutated"].plain()
            mutated = (
                plain if type(plain) is bool else self._parsed(parts["mutated"], expression, "true or a condition")
            )
        device = None
        if "device" in parts:
            device = parts["device"].text("cpu")
            if device not in (BROKEN, "cpu"):
                device = parts["device"].complain(
                    f"expected cpu, found {device!r}: other inputs are on the call's device"
                )
        values = (dtype, shape, mutated, device)
        if dtype is None or shape is None or mutated is None or BROKEN in (*values, *given.values()):
            return None
        return Input(name, dtype, shape, mutated=mutated, device=device, **given)

    def _output(self, name: str, spot: Field, inputs: dict[str, Input]) -> Output | None:
        same = "same_as" in (spot.entries("an output") if spot.kind == "mapping" else ())
        required, rest = ((), ("dtype", "shape")) if same else (("dtype", "shape"), ())
        parts = spot.members("an output", required, (*rest, "same_as", "empty"))
        dtype = self._parsed(parts.get("dtype"), expression, "a dtype, or an index of dtypes")
        shape = self._parsed(parts.get("shape"), parse_form, "a shape such as [M, K]")
        same_as = parts["same_as"].text("the name of an input") if "same_as" in parts else None
        if same_as is BROKEN or same_as in self.broken:
            return None
        if same_as is not None:
            if same_as not in inputs:
                parts["same_as"].complain(f"{same_as!r} is no input{nearest(same_as, inputs)}")
                return None
            source = inputs[same_as]
            if source.mutated is False:
                parts["same_as"].complain(f"{same_as} is not mutated: an output is the same as a written input only")
            for key, stated, own in (("dtype", dtype, source.dtype), ("shape", shape, source.shape)):
                if stated is not None and stated.text != own.text:
                    parts[key].complain(f"expected {own.text}, that of {same_as}, found {stated.text}: leave it out")
            dtype, shape = source.dtype, source.shape
        elif name in self.names:
            spot.complain(f"the name is taken: {name} is one of the {self.names[name]} too")
        empty = parts["empty"].plain() if "empty" in parts else None
        if empty is not None and empty is not BROKEN and type(empty) not in (bool, int, float):
            empty = parts["empty"].complain(f"expected a number or a bool, found {empty!r}")
        if dtype is None or shape is None or empty is BROKEN:
            return None
        return Output(name, dtype, shape, same_as, empty)

    def _order(self, spot: Field, params: dict[str, Param], inputs: dict[str, Input]) -> None:
        """Hold the order in which arguments can be given by position."""
        seen = ""
        for param in params.values():
            if not param.required:
                seen = seen or param.name
            elif seen:
                self.fields[f"signature.params.{param.name}"].complain(
                    f"it has no default, and {seen} before it has one"
                )
        seen, named = "", ""
        for tensor in inputs.values():
            node = self.fields[f"signature.inputs.{tensor.name}"]
            if tensor.keyword_only:
                named = named or tensor.name
            elif named:
                node.complain(f"it is given by position, and {named} before it is keyword_only")
            elif tensor.optional:
                seen = seen or tensor.name
            elif seen:
                node.complain(f"it is required, and {seen} before it is optional")

    def _roofline(self, spot: Field) -> Roofline | None:
        parts = spot.members("a roofline", ("flops",), ("bytes",))
        flops = self._parsed(parts.get("flops"), expression, "an integer expression")
        moved = self._parsed(parts.get("bytes"), expression, "an integer expression")
        return None if flops is None else Roofline(flops, moved)

    def _serves(self, spot: Field) -> dict[str, tuple[int, ...]]:
        serves: dict[str, tuple[int, ...]] = {}
        for device, node in spot.entries("a mapping of device types to archs").items():
            if not _DEVICE.fullmatch(device):
                node.complain(f"{device!r} is no device type such as cuda")
            elif why := unknown_device_type(device):
                node.complain(why)
            archs = node.plain()
            if archs is BROKEN:
                continue
            listed = archs if isinstance(archs, list) else []
            if not listed or any(type(arch) is not int or arch < 0 for arch in listed) or len({*listed}) < len(listed):
                node.complain(f"expected a list of distinct arch numbers such as [80, 90], found {archs!r}")
            serves[device] = tuple(listed)
        return serves

    def _steps(self, spot: Field, signature: Signature | None) -> tuple[Step, ...]:
        known = set(signature.inputs) | self.broken if signature is not None else set()
        steps = []
        for at, node in enumerate(spot.items("a list of steps")):
            parts = node.members("a step", ("op", "inputs", "outputs"), ("params",))
            op = parts["op"].text("the name of an op") if "op" in parts else BROKEN
            if op is not BROKEN and op not in self.ops:
                parts["op"].complain(f"no manifest file has the op {op!r}{nearest(op, self.ops)}")
            inputs = {}
            for name, value in parts["inputs"].entries("a mapping of inputs").items() if "inputs" in parts else ():
                inputs[name] = value.text("the name of an input or of an earlier output")
                if inputs[name] is not BROKEN and signature is not None and inputs[name] not in known:
                    value.complain(f"{inputs[name]!r} is no input and no earlier output{nearest(inputs[name], known)}")
            outputs = (
                [item.text("a name") for item in parts["outputs"].items("a list of names")]
                if "outputs" in parts
                else []
            )
            for name in outputs:
                if name in known:
                    parts["outputs"].complain(f"{name} has a value already")
            known |= {name for name in outputs if name is not BROKEN}
            params = {}
            for name, value in parts["params"].entries("a mapping of params").items() if "params" in parts else ():
                self._remember(value)
                params[name] = self._parsed(value, expression, "a value, or an expression over params")
            if BROKEN not in (op, *inputs.values(), *outputs) and None not in params.values():
                steps.append(Step(op, inputs, tuple(outputs), {k: v for k, v in params.items() if v is not None}))
                self.steps_at.append(at)
        for name in signature.outputs if signature is not None else ():
            if name not in known:
                spot.complain(f"no step makes the output {name}")
        return tuple(steps)

    def _dotted(self, spot: Field) -> Any:
        text = spot.text("a dotted name such as torch.matmul")
        if text is not BROKEN and not _DOTTED.fullmatch(text):
            return spot.complain(f"expected a dotted name such as torch.matmul, found {text!r}")
        return text if text is BROKEN else self._found(spot, text)

    def _found(self, spot: Field, name: str) -> Any:
        """Return the name, after looking it up where it is torch's; other packages need not be installed."""
        head, *rest = name.split(".")
        part: Any = torch
        for at, word in enumerate(rest if head == "torch" else ()):
            if not hasattr(part, word):
                owner = ".".join([head, *rest[:at]])
                return spot.complain(f"{owner} has no {word!r}{nearest(word, dir(part))}")
            part = getattr(part, word)
        return name

    def _parsed(self, spot: Field | None, parse: Callable[[str], T], what: str) -> T | None:
        if spot is None:
            return None
        self._remember(spot)
        text = spot.expression(what)
        if text is BROKEN:
            return None
        try:
            return parse(text)
        except ExpressionError as error:
            spot.complain(cause_of(error))
            return None

    def _remember(self, spot: Field) -> None:
        self.fields[spot.path.removeprefix(f"{self.op}.")] = spot

    def _complain(self, path: str, cause: str) -> None:
        self.fields[path].complain(cause)
