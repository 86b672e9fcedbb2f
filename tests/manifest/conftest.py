from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tileops import manifest
from tileops.manifest import OpEntry

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def later() -> Mapping[str, OpEntry]:
    """Ops that use all of the signature language: most are ones the project plans."""
    return manifest.read_entries((HERE / "later.yaml").read_text(), "later.yaml", manifest.families())


@pytest.fixture(scope="session")
def find(later: Mapping[str, OpEntry]) -> Callable[[str], OpEntry]:
    return lambda name: later[name] if name in later else manifest.entry(name)
