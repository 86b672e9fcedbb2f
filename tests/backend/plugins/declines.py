"""Finds nothing to serve and says so, after it registered."""

from tileops.backend import Declined, register_detector

register_detector("shy", lambda device: True)

raise Declined("no Acme card in this machine")
