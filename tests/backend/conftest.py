from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _helpers() -> ModuleType:
    """Load ``distributions.py``: in importlib mode pytest puts no test folder on the path."""
    name = "tileops_test_distributions"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("distributions.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def plugins() -> ModuleType:
    """The helpers that build, lay out and probe distributions."""
    return _helpers()


@pytest.fixture(scope="session")
def wheels(plugins: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return plugins.build_wheels(tmp_path_factory.mktemp("plugins"))


@pytest.fixture(scope="session")
def installed(
    plugins: ModuleType, wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Every plugin by name, installed in a folder of its own."""
    return plugins.unpack(wheels, tmp_path_factory.mktemp("site"))
