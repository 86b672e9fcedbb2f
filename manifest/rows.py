"""Reading of workload rows, each checked as the calls it stands for."""

from __future__ import annotations

import re
from typing import Any

import torch
from attrs import define

from tileops.manifest.paramtype import MAX_RUN, REFUSED, show_value
from tileops.manifest.schema import MAX_DIM, Signature, Workload
from tileops.manifest.signature import Checker
from tileops.manifest.source import BROKEN, Field
from tileops.manifest.workload import bind, cases
from tileops.rules.errors import BackendError, nearest
from tileops.rules.types import DTYPES

_LABEL = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@define
class Rows:
    """Reads the workload rows of one entry; ``checker`` is None while the signature is not sound."""

    signature: Signature
    broken: frozenset[str]
    checker: Checker | None

    def read(self, spot: Field) -> tuple[Workload, ...]:
        """Read all rows, noting what is wrong with each."""
        rows: list[Workload] = []
        lines: dict[str, int] = {}
        for node in spot.items("a list of workload rows"):
            row = self._row(node)
            if row is None:
                continue
            if row.label in lines:
                node.complain(f"the label {row.label} is taken by the row on line {lines[row.label]}")
            lines.setdefault(row.label, node.line)
            rows.append(row)
            if self.checker is not None:
                self._try(node, row, self.checker)
        return tuple(rows)

    def _row(self, spot: Field) -> Workload | None:
        before = len(spot.problems.found)
        sizes = [name for name, index in self.signature.forall.items() if index.kind != "dtype"]
        dtyped = [name for name, index in self.signature.forall.items() if index.kind == "dtype"]
        # A name that was reported may be a dim or a dtype: it can stand in either place.
        optional = [*self.signature.params, "without", *self.broken]
        if self.broken and not dtyped:
            optional.append("dtypes")
        required = ["label", *(["dtypes"] if dtyped else [])]
        left_out = "without" in (spot.entries("a workload row") if spot.kind == "mapping" else ())
        (optional if left_out else required).extend(sizes)
        parts = spot.members("a workload row", required, optional)
        label = parts["label"].text("a label such as decode-8b") if "label" in parts else BROKEN
        if label is not BROKEN and not _LABEL.fullmatch(label):
            parts["label"].complain(f"expected lower-case words joined by hyphens, found {label!r}")
        values: dict[str, Any] = {}
        for name in [*sizes, *self.signature.params]:
            if name in parts:
                values[name] = self._value(name, parts[name])
        without = self._without(parts["without"]) if "without" in parts else frozenset()
        dtypes: list[dict[str, torch.dtype]] = [] if dtyped else [{}]
        for node in parts["dtypes"].items("a list of dtype cases") if "dtypes" in parts else ():
            dtypes.append(self._dtypes(node, dtyped))
        if dtyped and "dtypes" in parts and not dtypes:
            parts["dtypes"].complain("expected at least one dtype case")
        if len(spot.problems.found) > before:
            return None
        return Workload(label, values, tuple(dtypes), without)

    def _value(self, name: str, spot: Field) -> Any:
        plain = spot.plain()
        if plain is BROKEN:
            return BROKEN
        if name in self.signature.params:
            type_ = self.signature.params[name].type
            value = type_.from_plain(plain)
            return spot.complain(f"expected {type_}, found {plain!r}") if value is REFUSED else value
        if self.signature.forall[name].kind == "dim":
            if type(plain) is int and 0 <= plain <= MAX_DIM:
                return plain
            return spot.complain(f"expected a dim from 0 to 2**40, found {plain!r}")
        fits = isinstance(plain, list) and len(plain) <= MAX_RUN
        if fits and all(type(dim) is int and 0 <= dim <= MAX_DIM for dim in plain):
            return tuple(plain)
        return spot.complain(f"expected a list of at most {MAX_RUN} dims from 0 to 2**40, found {plain!r}")

    def _without(self, spot: Field) -> frozenset[str]:
        optional = [name for name, tensor in self.signature.inputs.items() if tensor.optional]
        found = set()
        for node in spot.items("a list of optional inputs"):
            name = node.text("the name of an optional input")
            if name is not BROKEN and name not in optional and name not in self.broken:
                node.complain(f"{name!r} is no optional input{nearest(name, optional)}")
            found.add(name)
        return frozenset(found)

    def _dtypes(self, spot: Field, names: list[str]) -> dict[str, torch.dtype]:
        found = {}
        given = spot.entries("a dtype case") if spot.kind == "mapping" else {}
        for name, node in spot.members("a dtype case", names, self.broken & given.keys()).items():
            if name not in names:
                continue
            text = node.text("the name of a dtype")
            members = self.signature.forall[name].members
            if text is BROKEN:
                continue
            if text not in DTYPES or (members and DTYPES[text] not in members):
                wanted = " or ".join(map(show_value, members)) or "a dtype"
                node.complain(f"expected {wanted}, found {text!r}")
                continue
            found[name] = DTYPES[text]
        return found

    def _try(self, spot: Field, row: Workload, checker: Checker) -> None:
        """Note a row that is no call of the op, or that the call reads otherwise than the row states."""
        try:
            for case in cases(checker, row):
                binding = bind(checker, case)
                for name, value in row.values.items():
                    if name in binding.indices and binding.indices[name] != value:
                        spot.complain(f"{name} is {_plain(value)}, but its shapes bind {_plain(binding.indices[name])}")
                checker.outputs(binding)
                flops, moved = checker.roofline(binding)
                if flops < 0 or moved < 0:
                    spot.complain(f"its roofline is negative: {flops} operations, {moved} bytes")
        except (BackendError, TypeError, ArithmeticError, LookupError) as error:
            spot.complain(f"it is no call of the op: {error}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
