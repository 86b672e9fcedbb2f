"""The target layer: how a package outside this repository serves whole ops, or adds an implementation to one.

`docs/adding-a-backend.md` is the guide; the package `examples/torch_cpu` is a backend that runs anywhere.
"""

from tileops.backend.discovery import LoadRecord
from tileops.backend.process import (
    backends,
    builder_for,
    claimants,
    default_target,
    detector_failures,
    device_facts_of,
    discover,
    has_builder,
    in_tree_error,
    kernel_types_of,
    load_failures,
    notes,
    register_detector,
    register_device_facts,
    register_kernel_builder,
    register_kernel_type,
    registered_targets,
    served_ops,
    set_default_target,
    settle,
    targets_of,
)
from tileops.backend.protocol import BUILTIN, GROUP, BuildKernel, Builtin, Detector, KernelResult, Target, TensorSpec
from tileops.backend.registry import BackendWarning
from tileops.backend.settlement import DetectorFailure, Settlement
from tileops.rules.device import DeviceFacts
from tileops.rules.errors import (
    AmbiguousDispatchError,
    AmbiguousTargetError,
    BackendError,
    DeclarationError,
    Declined,
    OpNotAvailableError,
    UnknownTargetError,
)

__all__ = [
    "BUILTIN",
    "GROUP",
    "AmbiguousDispatchError",
    "AmbiguousTargetError",
    "BackendError",
    "BackendWarning",
    "BuildKernel",
    "Builtin",
    "DeclarationError",
    "Declined",
    "Detector",
    "DetectorFailure",
    "DeviceFacts",
    "KernelResult",
    "LoadRecord",
    "OpNotAvailableError",
    "Settlement",
    "Target",
    "TensorSpec",
    "UnknownTargetError",
    "backends",
    "builder_for",
    "claimants",
    "default_target",
    "detector_failures",
    "device_facts_of",
    "discover",
    "has_builder",
    "in_tree_error",
    "kernel_types_of",
    "load_failures",
    "notes",
    "register_detector",
    "register_device_facts",
    "register_kernel_builder",
    "register_kernel_type",
    "registered_targets",
    "served_ops",
    "set_default_target",
    "settle",
    "targets_of",
]
