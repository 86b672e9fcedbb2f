"""What ``tileops explain --targets`` tells, over backends laid out on disk and loaded by a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tileops.tools.cli import main

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tools/schema/targets-1.json").read_text())

SOURCES = {
    "works": """
from tileops.backend import DeviceFacts, register_detector, register_device_facts, register_kernel_builder
from tileops.backend import register_kernel_type
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import Declaration


class XpuGemm(GemmInterface):
    declaration = Declaration(devices={"xpu"}, supported_archs={7})

    @classmethod
    def entry_for(cls, call):
        return None, cls

    def forward(self, a, b):
        return a @ b


register_detector("acme", lambda device: device.type == "meta")
register_kernel_builder("GemmFwdOp", "acme", print)
register_kernel_builder("RMSNormFwdOp", "acme", print)
register_kernel_builder("GemmFwdOps", "acme", print)
register_device_facts("xpu", lambda device: DeviceFacts(7, None, 1, 1))
register_kernel_type("GemmFwdOp", "gemm_xpu", XpuGemm)
""",
    "touchy": """
from tileops.backend import register_detector


def detect(device):
    raise OSError(f"no driver for {device}")


register_detector("touchy", detect)
""",
    "fails": """
from tileops.backend import register_detector

register_detector("gone", lambda device: True)
raise ImportError("libvendor.so.7 is missing")
""",
    "shy": """
from tileops.backend import Declined

raise Declined("no Acme card in this machine")
""",
    "idle": "",
}


def install(folder: Path, *names: str) -> dict[str, str]:
    """Lay these backends out as distributions; return the environment of a process that finds them and no other."""
    for name in names:
        (folder / f"{name}.py").write_text(SOURCES[name])
        info = folder / f"tileops_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tileops-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[tileops.backends]\n{name} = {name}\n")
    veil = folder / "tileops_backend_example-0.dist-info"  # the first of a name counts: this hides the example
    veil.mkdir()
    (veil / "METADATA").write_text("Metadata-Version: 2.1\nName: tileops-backend-example\nVersion: 0\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}


def told(environment: dict[str, str], *words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tools.explain", "--targets", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr == "", "the list has what a warning would say"
    return done.stdout


@pytest.fixture(scope="module")
def everybody(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return install(tmp_path_factory.mktemp("site"), *SOURCES)


@pytest.fixture(scope="module")
def plain(everybody: dict[str, str]) -> dict[str, Any]:
    found = json.loads(told(everybody, "--json", "--device", "meta", status=1))
    jsonschema.validate(found, SCHEMA)
    assert (found["ok"], found["devices"][0], found["devices"][-1]) == (False, "cpu", "meta")
    return {one["entry_point"]: one for one in found["backends"]}


def test_each_entry_point_with_distribution_version_and_state(plain: dict[str, Any]) -> None:
    assert list(plain) == sorted(SOURCES)
    states = {name: one["state"] for name, one in plain.items()}
    assert states == {"works": "loaded", "touchy": "loaded", "idle": "loaded", "fails": "failed", "shy": "declined"}
    assert {(name, one["distribution"], one["version"]) for name, one in plain.items()} == {
        (name, f"tileops-{name}", "1.0") for name in SOURCES
    }


def test_what_a_backend_serves_claims_and_adds(plain: dict[str, Any]) -> None:
    works = plain["works"]
    (target,) = works["targets"]
    assert target == {
        "name": "acme",
        "ops": ["GemmFwdOp", "RMSNormFwdOp"],
        "unknown_ops": ["GemmFwdOps"],
        "devices": ["meta"],
        "raised": [],
    }
    assert (works["kernel_types"], works["device_facts"]) == (["GemmFwdOp.gemm_xpu"], ["xpu"])
    assert (works["cause"], works["traceback"]) == (None, None)


def test_a_detector_that_raises_is_quoted_for_each_device(plain: dict[str, Any]) -> None:
    (target,) = plain["touchy"]["targets"]
    assert target["devices"] == []
    assert target["raised"][0] == "on cpu: OSError: no driver for cpu"
    assert target["raised"][-1] == "on meta: OSError: no driver for meta"


def test_a_failure_keeps_its_traceback_and_registers_nothing(plain: dict[str, Any]) -> None:
    fails, shy = plain["fails"], plain["shy"]
    assert (fails["cause"], fails["targets"]) == ("ImportError: libvendor.so.7 is missing", [])
    assert "fails.py" in fails["traceback"]
    assert fails["traceback"].endswith("ImportError: libvendor.so.7 is missing\n")
    assert shy["cause"] == "no Acme card in this machine"


def test_the_text_for_people(everybody: dict[str, str]) -> None:
    said = told(everybody, status=1)
    assert "fails  tileops-fails 1.0, module fails: failed\n  Traceback (most recent call last):\n" in said
    assert "shy  tileops-shy 1.0, module shy: declined\n  because: no Acme card in this machine" in said
    assert "idle  tileops-idle 1.0, module idle: loaded\n  registers  nothing" in said
    works = said.partition("works  ")[2].splitlines()
    assert works[:3] == [
        "tileops-works 1.0, module works: loaded",
        "  target       acme",
        "  serves       GemmFwdOp, RMSNormFwdOp",
    ]
    assert works[3].startswith("  claims       none of cpu")
    assert works[4:7] == ["  no such op   GemmFwdOps", "  adds         GemmFwdOp.gemm_xpu", "  reads facts  of xpu"]


def test_without_backends_and_without_failures(tmp_path: Path) -> None:
    environment = install(tmp_path)
    assert told(environment) == (
        "no backend is installed: no distribution has an entry point in the group 'tileops.backends'\n"
    )
    install_more = tmp_path / "more"
    install_more.mkdir()
    assert "registers  nothing" in told(install(install_more, "idle"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "GemmFwdOp", "--targets"], "--targets lists the backends: name no op beside it"),
        (["explain"], "name an op, such as GemmFwdOp, or give --targets"),
        (["explain", "--targets", "--device", "toaster"], "--device 'toaster' is no torch device"),
        (["explain", "--targtes"], "did you mean '--targets'?"),
    ],
)
def test_mistakes_give_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
