"""What the tools ask about: the ops of the manifest, with their interfaces and tables, whatever their findings."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from tileops.catalog import collecting, op_class, op_names
from tileops.manifest.record import OpEntry
from tileops.op import Op
from tileops.rules.errors import nearest
from tileops.rules.interface import KernelInterface
from tileops.rules.report import Finding
from tileops.rules.table import RuleTable
from tileops.tools.usage import UsageError
from tileops.uses import LinkedUse


@attrs.frozen
class Asked:
    """One kernel interface of an op: its table, the classes behind the table's keys, and when the op asks it."""

    name: str
    table: RuleTable
    implementations: Mapping[str, type[KernelInterface]]
    use: LinkedUse | None


@attrs.frozen
class Known:
    """One op: its manifest entry, its class, its interfaces by name, and what an import would raise."""

    name: str
    entry: OpEntry
    op: type[Op]
    interfaces: Mapping[str, Asked]
    findings: tuple[Finding, ...]

    def interface(self, name: str | None) -> Asked:
        """Return the interface of this name, or the only one; raises UsageError where neither does."""
        if name is None and len(self.interfaces) == 1:
            return next(iter(self.interfaces.values()))
        listed = ", ".join(sorted(self.interfaces)) or "none"
        if name is None:
            raise UsageError(f"{self.name} has {len(self.interfaces)} interfaces: say --interface, one of: {listed}")
        if name not in self.interfaces:
            raise UsageError(f"{self.name} has no interface {name!r}{nearest(name, self.interfaces)}; it has: {listed}")
        return self.interfaces[name]


def known(name: str) -> Known:
    """Return what there is to ask about an op; raises UsageError with the nearest name for one that does not exist."""
    names = op_names()
    if name not in names:
        raise UsageError(f"there is no op {name!r}{nearest(name, names)}; ops: {', '.join(sorted(names))}")
    with collecting():
        op = op_class(name)
    blueprint = op.blueprint
    uses = {use.name: use for use in blueprint.uses}
    interfaces = {
        interface: Asked(interface, table, slots[interface].implementations, uses.get(interface))
        for slots in [blueprint.dispatcher.slots]
        for interface, table in blueprint.dispatcher.tables.items()
    }
    return Known(name, blueprint.entry, op, interfaces, blueprint.findings)
