"""What the expressions of an entry may read: indices, params and ``present(input)``, and which indices a call binds."""

from __future__ import annotations

from tileops.manifest.form import Form, Listing
from tileops.manifest.language import presence
from tileops.manifest.schema import Signature
from tileops.rules.nodes import Name
from tileops.rules.types import Type


def param_scope(signature: Signature) -> dict[str, Type]:
    """Give the type of each param that expressions can read."""
    types = {name: param.type.static for name, param in signature.params.items()}
    return {name: type_ for name, type_ in types.items() if type_ is not None}


def presence_scope(signature: Signature) -> dict[str, Type]:
    """Give ``present(x)`` for each optional input x."""
    return {presence(name): Type("bool") for name, tensor in signature.inputs.items() if tensor.optional}


def full_scope(signature: Signature) -> dict[str, Type]:
    """Give the type of everything that rules, outputs, rooflines and the op's facts read.

    An index that only optional inputs bind may be None.
    """
    always = bound_indices(signature, optional=False)
    indices = {name: index.static(optional=name not in always) for name, index in signature.forall.items()}
    return {**indices, **param_scope(signature), **presence_scope(signature)}


def bound_indices(signature: Signature, optional: bool) -> frozenset[str]:
    """Name the indices that every call binds; with ``optional``, those that a call with every input binds."""
    known = set(signature.params) | set(presence_scope(signature))
    inputs = [tensor for tensor in signature.inputs.values() if optional or not tensor.optional]
    found: set[str] = set()
    for tensor in inputs:
        root = tensor.dtype.root
        if isinstance(root, Name) and root.name in signature.forall:
            found.add(root.name)
    while True:
        before = len(found)
        for tensor in inputs:
            found |= _bound_by(tensor.shape, frozenset(known | found))
        found &= set(signature.forall)
        if len(found) == before:
            return frozenset(found)


def _bound_by(form: Form, known: frozenset[str]) -> frozenset[str]:
    """Name what a shape binds whichever of its lists applies."""
    sets = [_binds(listing, known) for listing in form.listings()]
    return frozenset.intersection(*sets) if sets else frozenset()


def _binds(listing: Listing, known: frozenset[str]) -> frozenset[str]:
    values = dict.fromkeys(known)
    open_runs = [item for item in listing.items if item.starred and item.unbound(values)]
    if len(open_runs) > 1:
        return frozenset()
    found = {item.name for item in open_runs if item.name is not None}
    for item in listing.items:
        missing = item.unbound(values)
        if not item.starred and len(missing) == 1 and missing[0] in item.linear:
            found.add(missing[0])
    return frozenset(found)
