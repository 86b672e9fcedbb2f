"""The kernels: one folder a family, each with its call specs, interfaces, implementations and device programs."""
