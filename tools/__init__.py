"""The roof: command lines over everything below, as ``python -m tools.X`` or ``tileops X``."""
