from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# In importlib mode pytest puts no test folder on the path; the tests import the helpers under this name.
_NAME = "tileops_test_dispatching"
if _NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("dispatching.py"))
    assert _spec is not None
    assert _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    sys.modules[_NAME] = _module
    _spec.loader.exec_module(_module)
