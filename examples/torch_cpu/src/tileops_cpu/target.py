"""The name of this set of kernels, and the devices they are for."""

import torch

TARGET = "torch_cpu"


def detect(device: torch.device) -> bool:
    """Claim every CPU device. The name above is ours to choose; ``"cpu"`` is torch's name for the device type."""
    return device.type == "cpu"
