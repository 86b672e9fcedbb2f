"""Ends the process on import, or tries to."""

import sys

from tileops.backend import register_detector

register_detector("exits", lambda device: True)
sys.exit(3)
