"""Unification of a call's shapes and dtypes with the forms of a signature: binds indices, or says what differs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from attrs import define, field

from tileops.manifest.form import Item, Listing
from tileops.manifest.paramtype import MAX_RUN, show_value
from tileops.manifest.schema import MAX_DIM, Index, Input
from tileops.rules.errors import SignatureError


class Operand(NamedTuple):
    """A tensor that came for an input, with the list its shape must match."""

    input: Input
    dtype: torch.dtype
    shape: tuple[int, ...]
    listing: Listing


@define(eq=False)
class Unification:
    """The indices bound so far, what expressions read, and which input bound each index."""

    op: str
    forall: Mapping[str, Index]
    values: dict[str, Any]  # params and presences, then indices as they are bound
    sources: dict[str, str] = field(factory=dict)

    def dtypes(self, operands: list[Operand]) -> None:
        """Bind and compare dtypes. Raises SignatureError."""
        later = []
        values, forall = self.values, self.forall
        for operand in operands:
            name = operand.input.dtype_name
            if name is None or name not in forall:
                later.append(operand)
            elif name not in values:
                members = forall[name].members
                if members and operand.dtype not in members:
                    wanted = " or ".join(show_value(member) for member in members)
                    raise self.differs(operand, f"dtype {wanted} ({name})", show_value(operand.dtype))
                values[name] = operand.dtype
                self.sources[name] = operand.input.name
            elif values[name] is not operand.dtype:
                wanted = f"dtype {show_value(values[name])} ({name} from {self.sources[name]})"
                raise self.differs(operand, wanted, show_value(operand.dtype))
        for operand in later:
            expression = operand.input.dtype
            dtype = expression.evaluate(values)
            if dtype is not operand.dtype:
                why = f" ({expression.text})" if expression.facts else ""
                raise self.differs(operand, f"dtype {show_value(dtype)}{why}", show_value(operand.dtype))

    def shapes(self, operands: list[Operand]) -> None:
        """Bind and compare dims and runs until every shape is settled. Raises SignatureError."""
        waiting = operands
        while waiting:
            before = len(self.values)
            left = [operand for operand in waiting if not self._match(operand)]
            if len(left) == len(waiting) and len(self.values) == before:
                operand = left[0]
                cause = "more than one shape fits, these inputs do not say which"
                raise self.differs(operand, self._form(operand), f"{operand.shape}: {cause}")
            waiting = left

    def differs(self, operand: Operand, expected: str, received: str) -> SignatureError:
        """Make the error of an input: its name, the expected form, the received value."""
        return input_error(self.op, operand.input.name, expected, received)

    def _match(self, operand: Operand) -> bool:
        """Bind and check what can be; say whether nothing of this shape is left open."""
        shape, items, values = operand.shape, operand.listing.items, self.values
        rest = -1
        if operand.listing.stars:
            lengths = self._lengths(operand)
            if lengths is None:
                return False
            rest = lengths
        elif len(shape) != len(items):
            raise self._rank(operand, len(items), least=False)
        at, settled = 0, True
        for item in items:
            name = item.name
            if item.starred:
                settled &= self._run(operand, item, at, rest)
                at += len(values[name]) if name in values else len(item.value(values))
                continue
            size = shape[at]
            if name is None:
                settled &= self._dim(operand, item, at)
            elif name not in values:
                values[name] = size
                self.sources[name] = operand.input.name
            elif values[name] != size:
                raise self._unequal(operand, item, at, values[name])
            at += 1
        return settled

    def _lengths(self, operand: Operand) -> int | None:
        """Return how many dims the one open run takes (0 when none is open), or None while two are."""
        fixed, open_runs = 0, 0
        for item in operand.listing.items:
            if not item.starred:
                fixed += 1
            elif item.unbound(self.values):
                open_runs += 1
            else:
                fixed += len(item.value(self.values))
        rest = len(operand.shape) - fixed
        if rest < 0 or (open_runs == 0 and rest):
            raise self._rank(operand, fixed, least=open_runs > 0)
        if open_runs > 1:
            return None
        if rest > MAX_RUN:
            names = next(str(item) for item in operand.listing.items if item.starred and item.unbound(self.values))
            expected = f"{self._form(operand)} with at most {MAX_RUN} dims in {names}"
            raise self.differs(operand, expected, f"{operand.shape}, which has {rest}")
        return rest

    def _run(self, operand: Operand, item: Item, at: int, rest: int) -> bool:
        """Bind an open run to the dims that are left, or compare a bound one."""
        if item.name is not None and item.name not in self.values:
            self.values[item.name] = operand.shape[at : at + rest]
            self.sources[item.name] = operand.input.name
            return True
        wanted = tuple(item.value(self.values))
        found = operand.shape[at : at + len(wanted)]
        if found != wanted:
            expected = self._form(operand, item)
            raise self.differs(operand, expected, f"{operand.shape}: its {item} is {found}, not {wanted}")
        return True

    def _dim(self, operand: Operand, item: Item, at: int) -> bool:
        """Compare a dim with an expression, or solve it for its single unknown; False while that cannot be done."""
        size = operand.shape[at]
        unknown = item.unbound(self.values)
        if not unknown:
            wanted = item.value(self.values)
            if wanted != size:
                raise self._unequal(operand, item, at, wanted)
            return True
        name = unknown[0]
        if len(unknown) > 1 or name not in item.linear:
            return False
        at_zero = item.value({**self.values, name: 0})
        slope = item.value({**self.values, name: 1}) - at_zero
        if slope == 0:
            if at_zero != size:
                raise self._unequal(operand, item, at, at_zero)
            return False
        if (size - at_zero) % slope != 0 or (size - at_zero) // slope < 0:
            cause = f"its dim {at} is {size}, which is {item} for no whole {name}"
            raise self.differs(operand, self._form(operand, item), f"{operand.shape}: {cause}")
        self.values[name] = (size - at_zero) // slope
        self.sources[name] = operand.input.name
        return True

    def _rank(self, operand: Operand, dims: int, least: bool) -> SignatureError:
        runs = [item for item in operand.listing.items if item.starred and not item.unbound(self.values)]
        expected = self._form(operand, *runs) + f" ({'at least ' if least else ''}{_dims(dims)})"
        return self.differs(operand, expected, f"{operand.shape} ({_dims(len(operand.shape))})")

    def _unequal(self, operand: Operand, item: Item, at: int, wanted: Any) -> SignatureError:
        cause = f"its dim {at} is {operand.shape[at]}, not {wanted}"
        return self.differs(operand, self._form(operand, item), f"{operand.shape}: {cause}")

    def _form(self, operand: Operand, *items: Item) -> str:
        """Write the form of a shape, with the values that decided on it."""
        names = dict.fromkeys(operand.input.shape.read_conditions())
        for item in items:
            names.update(dict.fromkeys(item.facts))
        known = [f"{name} = {self.explain(name)}" for name in names if name in self.values]
        return f"shape {operand.listing.text}" + (f" with {', '.join(known)}" if known else "")

    def explain(self, name: str) -> str:
        """Write the value of a name and the input it is from: ``64 from a``."""
        source = f" from {self.sources[name]}" if name in self.sources else ""
        return show_value(self.values[name]) + source


def input_error(op: str, name: str, expected: str, received: str) -> SignatureError:
    """Make the error of an input: its name, the expected form, the received value."""
    message = f"{op}: input {name}: expected {expected}, received {received}"
    return SignatureError(message, op=op, input=name, expected=expected, received=received)


def elements(op: str, name: str, shape: tuple[int, ...]) -> int:
    """Count the elements of a tensor. Raises SignatureError beyond 2**40, the bound of every proof."""
    count = math.prod(shape)
    if count > MAX_DIM:
        raise input_error(op, name, "at most 2**40 elements", f"{shape}, which is {count}")
    return count


def _dims(count: int) -> str:
    return f"{count} dim" if count == 1 else f"{count} dims"
