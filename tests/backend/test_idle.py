"""Backends that are installed and not asked for: importing loads none, and no environment variable picks one."""

from __future__ import annotations

FIVE = ("claims_cpu", "claims_cpu_too", "declines", "raises_late", "slow")

IMPORTS = """
import sys
import tileops.gemm, tileops.norm, tileops.mlp
result = sorted(sys.modules)
"""

FIRST_USE = """
import sys
from tileops.gemm import GemmFwdOp

installed = {plugins!r}
before = [name for name in installed if name in sys.modules]
GemmFwdOp()
after = [name for name in installed if name in sys.modules]
a, b = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)
errors = []
for target in ("shy", backend.BUILTIN):
    try:
        GemmFwdOp(target=target)(a, b)
    except backend.BackendError as error:
        errors.append(f"{{type(error).__name__}}: {{error}}")
result = [before, after, errors]
"""

# What the program and the libraries under it read of the environment, while ops are made, called and explained.
SETTINGS = """
import os, sys
for name in ("TILEOPS_TARGET", "TILEOPS_BACKEND", "TILEOPS_DEFAULT_TARGET", "TILEOPS_KERNEL", "TILEOPS_PLUGINS"):
    os.environ[name] = "cpu_two"
read = set()


class Spy(type(os.environ)):
    def __getitem__(self, name):
        read.add(name)
        return super().__getitem__(name)


os.environ.__class__ = Spy
os.environ.get("SEEN")
from tileops.gemm import GemmFwdOp
from tileops.tools.explain import main

a, b = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)
op = GemmFwdOp()
op(a, b)
main(["GemmFwdOp", "m=1", "n=1", "k=1", "dtype=float16", "--arch", "90"])
result = [op.serving_target, sorted(name for name in read if name.startswith("TILEOPS")), "SEEN" in read]
"""


def test_importing_costs_no_more_with_five_backends_installed(plugins, installed):
    with_five = plugins.probe([installed[name] for name in FIVE], IMPORTS)
    assert with_five == plugins.probe([], IMPORTS), "the modules that are loaded are those of no backend installed"


def test_the_first_op_loads_them_and_says_of_each_what_is_the_matter(plugins, installed):
    folders = [installed[name] for name in FIVE]
    before, after, errors = plugins.probe(folders, FIRST_USE.format(plugins=FIVE))
    assert before == []
    assert after == ["claims_cpu", "claims_cpu_too", "slow"], "those that failed or declined are gone again"
    unknown, builtin = errors
    assert unknown.startswith("UnknownTargetError: no backend registered target 'shy'")
    assert builtin.startswith("OpNotAvailableError: GemmFwdOp's in-tree kernels do not run on cpu")
    for message in errors:
        assert (
            "backend 'declines' (tileops-declines 1.0, module declines) is installed and declined: no Acme" in message
        )
        assert (
            "backend 'raises_late' (tileops-raises-late 1.0, module raises_late) failed to load: ImportError" in message
        )


def test_no_environment_variable_steers(plugins, installed):
    served_by, read, spied = plugins.probe([installed["claims_cpu"]], SETTINGS)
    assert spied, "the test sees what is read"
    assert (served_by, read) == ("cpu_one", [])
