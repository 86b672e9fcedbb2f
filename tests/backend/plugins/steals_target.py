"""Registers a builder under a target that another distribution provides."""

from tileops.backend import register_kernel_builder

register_kernel_builder("RMSNormFwdOp", "good", lambda x, weight, **params: lambda x, weight: x)
