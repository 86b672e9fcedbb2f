"""Registers the target ``torch_cpu``. TileOps imports this module when a program constructs its first op."""

from tileops.backend import register_detector, register_kernel_builder

from tileops_cpu.ops import BUILDERS
from tileops_cpu.target import TARGET, detect

register_detector(TARGET, detect)
for _op, _builder in BUILDERS.items():
    register_kernel_builder(_op, TARGET, _builder)
