"""Serves an op that no manifest has, under a name close to one that it has."""

from tileops.backend import register_kernel_builder


def build(*inputs, **params):
    raise AssertionError("never called")


register_kernel_builder("GemmFwdOps", "unknown_op", build)
