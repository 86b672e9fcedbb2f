"""Tries to make its target everybody's default."""

from tileops.backend import register_detector, set_default_target

register_detector("steers", lambda device: False)
set_default_target("steers")
