"""A table at another revision: its declarations and winners as plain data, read in a process of its own.

Old code cannot be imported beside new code, so the revision is unpacked into a folder and asked there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tileops.tools.usage import UsageError

ROOT = Path(__file__).resolve().parents[1]

# Runs with the code of the revision; it uses what every revision has had.
SCRIPT = """
import json, sys
import torch
from tileops.catalog import collecting, op_class, op_names
from tileops.manifest.workload import bind
from tileops.rules.device import boards, reference

def winners(op, table, use):
    rows = {}
    for case in op.entry.cases():
        binding = bind(op.entry.checker, case, "cuda")
        if binding.empty or not use.applies(binding.values):
            continue
        facts = {name: read(binding.values) for name, read in use.facts.items()}
        call = table.request(device=torch.device("cuda", 0), stated=reference(90), **facts)
        rows[case.label] = {
            str(arch): list(table.explain(call.replace(stated=reference(arch))).contenders) for arch in sorted(boards())
        }
    return rows

told = {}
for name in sorted(op_names()):
    try:
        with collecting():
            op = op_class(name)
        uses = {use.name: use for use in op.blueprint.uses}
        told[name] = {
            interface: {
                "request": table.request.content(),
                "declarations": {key: each.content() for key, each in table.declarations.items()},
                "rows": winners(op, table, uses[interface]) if interface in uses else {},
            }
            for interface, table in op.dispatcher.tables.items()
        }
    except Exception as error:
        told[name] = {"error": f"{type(error).__name__}: {error}"}
json.dump(told, sys.stdout)
"""


def of_revision(revision: str, root: Path = ROOT) -> dict[str, Any]:
    """Return the tables of a git revision, by op and interface. Raises UsageError where git or the revision fails."""
    with tempfile.TemporaryDirectory(prefix="tileops-diff-") as folder:
        _unpack(revision, root, Path(folder))
        return of_folder(Path(folder), revision)


def of_folder(folder: Path, name: str) -> dict[str, Any]:
    """Return the tables of the checkout in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise UsageError(f"the tables of {name} cannot be read: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _unpack(revision: str, root: Path, folder: Path) -> None:
    git = ["git", "-C", str(root)]
    try:
        found = subprocess.run(
            [*git, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError("diff reads the other revision from git, which is not installed") from error
    if found.returncode != 0:
        why = found.stderr.strip()
        raise UsageError(f"git knows no revision {revision!r}" + (f": {why.splitlines()[0]}" if why else f" in {root}"))
    archive = subprocess.run([*git, "archive", found.stdout.strip()], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
