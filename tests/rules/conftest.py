from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# In importlib mode pytest puts no test folder on the path; the tests import the helpers under these names.
for _file in ("dispatching", "random_tables"):
    _name = f"tileops_test_{_file}"
    if _name not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_file}.py"))
        assert _spec is not None
        assert _spec.loader is not None
        _module = importlib.util.module_from_spec(_spec)
        sys.modules[_name] = _module
        _spec.loader.exec_module(_module)
