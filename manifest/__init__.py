"""The ops' contracts as data: entries in YAML, read into frozen classes with a compiled signature each."""

from tileops.manifest.loader import entry, families, family, load, read_entries
from tileops.manifest.record import OpEntry
from tileops.manifest.schema import TensorShape
from tileops.manifest.signature import Binding, Checker, OutputSpec
from tileops.manifest.workload import Case
from tileops.rules.errors import ManifestError

__all__ = [
    "Binding",
    "Case",
    "Checker",
    "ManifestError",
    "OpEntry",
    "OutputSpec",
    "TensorShape",
    "entry",
    "families",
    "family",
    "load",
    "read_entries",
]
