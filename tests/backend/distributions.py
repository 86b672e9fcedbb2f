"""Builds and lays out real distributions: each plugin of ``plugins/`` as a wheel, in a folder of its own."""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PLUGINS = tuple(sorted(path.stem for path in (HERE / "plugins").glob("*.py")))

_PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "1.0"

[project.entry-points."tileops.backends"]
{entry_point} = "{module}"

[tool.setuptools]
py-modules = ["{module}"]
"""

# One process for all of them: each start of setuptools takes half a second.
_BUILD_ALL = """\
import os, sys
from setuptools import build_meta
wheels, *folders = sys.argv[1:]
for folder in folders:
    os.chdir(folder)
    build_meta.build_wheel(wheels)
"""


def distribution_of(plugin: str) -> str:
    return f"tileops-{plugin.replace('_', '-')}"


def build_wheels(root: Path) -> dict[str, Path]:
    """Build a wheel of every plugin below ``root``; return them by plugin."""
    wheels = root / "wheels"
    wheels.mkdir()
    sources = []
    for plugin in PLUGINS:
        source = root / "sources" / plugin
        source.mkdir(parents=True)
        text = _PYPROJECT.format(distribution=distribution_of(plugin), entry_point=plugin, module=plugin)
        (source / "pyproject.toml").write_text(text)
        (source / f"{plugin}.py").write_text((HERE / "plugins" / f"{plugin}.py").read_text())
        sources.append(str(source))
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _BUILD_ALL, str(wheels), *sources], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return {plugin: next(wheels.glob(f"tileops_{plugin}-*.whl")) for plugin in PLUGINS}


def unpack(wheels: dict[str, Path], root: Path) -> dict[str, Path]:
    """Install every wheel into its own folder: for pure Python without scripts, unpacking is all of it."""
    folders = {}
    for plugin, wheel in wheels.items():
        folders[plugin] = root / "installed" / plugin
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folders[plugin])
    return folders


@functools.cache
def veil() -> Path:
    """A folder that hides the backends installed around the tests: of two distributions of a name the first counts."""
    folder = Path(tempfile.mkdtemp(prefix="veil"))
    atexit.register(shutil.rmtree, folder)
    for point in importlib.metadata.entry_points(group="tileops.backends"):
        assert point.dist is not None
        info = folder / f"{point.dist.name.replace('-', '_')}-0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {point.dist.name}\nVersion: 0\n")
    return folder


def probe(folders: Sequence[Path], code: str) -> Any:
    """Run ``code`` in a process that has these backends, in this order; return what it stored in ``result``.

    ``code`` finds ``torch``, ``backend`` and ``said``, the messages of the warnings so far.
    """
    program = (
        "import json, warnings\n"
        "said = []\n"
        "warnings.showwarning = lambda message, *rest: said.append(f'{type(message).__name__}: {message}')\n"
        "import torch\nfrom tileops import backend\n"
        f"{code}\nprint('RESULT' + json.dumps(result))\n"
    )
    path = os.pathsep.join(map(str, [REPOSITORY, veil(), *folders]))
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.rpartition("RESULT")[2])
