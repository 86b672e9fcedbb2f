"""Has a detector that raises on every device."""

from tileops.backend import register_detector, register_kernel_builder


def detect(device):
    raise OSError(f"no driver for {device}")


register_detector("touchy", detect)
register_kernel_builder("GemmFwdOp", "touchy", lambda a, b, **params: lambda a, b: a)
