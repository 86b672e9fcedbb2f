"""Registers one thing of every kind, then fails: all of it has to go again."""

from tileops.backend import DeviceFacts, register_detector, register_device_facts, register_kernel_builder

register_detector("late", lambda device: device.type == "cpu")
register_kernel_builder("GemmFwdOp", "late", lambda a, b, **params: None)
register_kernel_builder("NoSuchOpAtAll", "late", lambda a, b, **params: None)
register_device_facts("xpu", lambda device: DeviceFacts(1, None, 1, 1))

raise ImportError("libvendor.so.7: cannot open shared object file")
