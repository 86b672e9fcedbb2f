"""One op of the manifest: its entry, with the compiled signature."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from tileops.manifest.schema import Roofline, Signature, Step, Workload
from tileops.manifest.signature import Checker
from tileops.manifest.workload import Case, cases
from tileops.rules.errors import DeclarationError, nearest


@frozen(eq=False)
class OpEntry:
    """The contract of an op, as its manifest file states it."""

    name: str
    family: str
    ref_api: str  # dotted name of the function whose semantics the op follows
    signature: Signature = field(repr=False)
    serves: Mapping[str, tuple[int, ...]] = field(repr=False)  # device type -> archs that in-tree implementations claim
    workloads: tuple[Workload, ...] = field(repr=False)
    roofline: Roofline = field(repr=False)
    composition: tuple[Step, ...] = field(repr=False)  # empty for an op with kernels of its own
    checker: Checker = field(repr=False)

    def workload(self, label: str) -> Workload:
        """Return the row of this label. Raises DeclarationError with the nearest label."""
        for row in self.workloads:
            if row.label == label:
                return row
        labels = [row.label for row in self.workloads]
        known = ", ".join(labels) or "none"
        raise DeclarationError(
            f"{self.name} has no workload {label!r}{nearest(label, labels)}; its workloads are: {known}",
            op=self.name,
            label=label,
        )

    def cases(self, label: str | None = None) -> tuple[Case, ...]:
        """List the calls that the workload rows stand for, or those of one row. Raises DeclarationError."""
        rows = self.workloads if label is None else (self.workload(label),)
        return tuple(case for row in rows for case in cases(self.checker, row))
