"""Imports another backend, which keeps its own registrations, and then fails."""

import good  # noqa: F401 - imported for its registrations

from tileops.backend import register_detector

register_detector("parasite", lambda device: True)

raise RuntimeError("not today")
