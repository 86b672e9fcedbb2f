"""Options, markers and fixtures of the op tests: one suite for the in-tree kernels and for every target.

    pytest tests/ops --tileops-target=<target> --tileops-device=<device> --junitxml=<report>

Without options: the in-tree kernels on CUDA. Everything collects anywhere; what needs a device that is not there is
skipped. A test that the run is not about is dropped: those marked ``in_tree_kernels`` when a target is named, those
marked ``cuda_only`` on another device than CUDA. ``sm<NN>`` marks a test that needs that arch; elsewhere it is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from tileops.backend import BUILTIN, OpNotAvailableError, Target
from tileops.op import Op

HERE = Path(__file__).parent
ARCH_MARK = re.compile(r"sm(\d+)")

# What a kernel may differ by from a float32 reference of the same rounded inputs, outputs being near 1: the result is
# rounded once, half a unit in the last place, and sums are taken in another order. (relative, absolute)
TOLERANCES = {
    torch.float32: (1e-5, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tileops")
    group.addoption("--tileops-target", default="builtin", help="who serves the ops: a target's name, or builtin")
    group.addoption("--tileops-device", default="cuda", help="the device of the tests' tensors")


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "in_tree_kernels: the test is about the in-tree implementations",
        "cuda_only: the test itself needs CUDA",
        *(f"sm{arch}: the test needs a CUDA device of arch {arch}" for arch in (80, 86, 89, 90, 100, 120)),
    ):
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    target, device = asked(config)
    if target == "builtin" and device.type == "cpu" and any(HERE in item.path.parents for item in items):
        raise pytest.UsageError("no in-tree kernel runs on the CPU: name a target that does, --tileops-target=...")
    dropped = [
        item
        for item in items
        if HERE in item.path.parents
        and (
            (target != "builtin" and item.get_closest_marker("in_tree_kernels"))
            or (device.type != "cuda" and item.get_closest_marker("cuda_only"))
        )
    ]
    if dropped:
        gone = set(dropped)
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in gone]


def asked(config: pytest.Config) -> tuple[str, torch.device]:
    """The options; their defaults where pytest met this file too late to offer them."""
    target = config.getoption("--tileops-target", "builtin")
    return target, torch.device(config.getoption("--tileops-device", "cuda"))


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    """Who serves the ops of this run; every op under test is constructed with ``target=target``."""
    name, _ = asked(pytestconfig)
    return BUILTIN if name == "builtin" else name


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of this run's tensors; skips the test where it is not there."""
    _, device = asked(request.config)
    if not is_here(device):
        pytest.skip(f"no {device.type} device here")
    return device


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest) -> None:
    """Skip a test marked ``cuda_only`` where CUDA is not there, one marked ``sm<NN>`` on a device of another arch."""
    if request.node.get_closest_marker("cuda_only") and not is_here(torch.device("cuda")):
        pytest.skip("no cuda device here")
    archs = [int(found[1]) for mark in request.node.iter_markers() if (found := ARCH_MARK.fullmatch(mark.name))]
    if archs:
        _, device = asked(request.config)
        here = arch_of(device)
        if here not in archs:
            pytest.skip(f"needs CUDA of arch {archs}, this is {device} of arch {here}")


@pytest.fixture(scope="session", autouse=True)
def _said(pytestconfig: pytest.Config, record_testsuite_property: Callable[[str, object], None]) -> None:
    """Let the report say whose it is, for ``tools.claim``."""
    target, device = asked(pytestconfig)
    record_testsuite_property("tileops_target", target)
    record_testsuite_property("tileops_device", device)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test that fails because the target has no builder for an op under that op, though it checked nothing."""
    error = None if call.excinfo is None else call.excinfo.value
    target, _ = asked(item.config)
    if isinstance(error, OpNotAvailableError) and getattr(error, "target", None) == target:
        item.user_properties += [("op", error.op), ("checked_outputs", 0)]
    return (yield)


def is_here(device: torch.device) -> bool:
    """Whether tensors can be made on a device: the CPU, or the process's accelerator."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return device.type == "cpu" or (accelerator is not None and accelerator.type == device.type)


def arch_of(device: torch.device) -> int | None:
    """The CUDA arch of a device, None for another one and where there is no CUDA."""
    if device.type != "cuda" or not is_here(device):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor


@attrs.define
class Checked:
    """Compares outputs with references by the tolerance table, and counts them for the report."""

    ops: set[str] = attrs.field(factory=set)
    outputs: int = 0

    def __call__(self, op: Op | type[Op], actual: Any, expected: Any) -> None:
        """Hold each output of ``op`` against a float32 reference of the same shape; None where there is no output."""
        name = (op if isinstance(op, type) else type(op)).__name__
        self.ops.add(name)
        actual = actual if isinstance(actual, tuple) else (actual,)
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert len(actual) == len(expected), f"{name} returned {len(actual)} outputs, expected {len(expected)}"
        for one, reference in zip(actual, expected, strict=True):
            relative, absolute = TOLERANCES[one.dtype]
            torch.testing.assert_close(
                one.to(torch.float32), reference.to(torch.float32), rtol=relative, atol=absolute, check_device=False
            )
            self.outputs += 1


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Iterator[Callable[[Any, Any, Any], None]]:
    """``check(op, actual, expected)``: compares, and gives the test its ``op`` and ``checked_outputs`` properties."""
    checked = Checked()
    yield checked
    if checked.ops:
        request.node.user_properties += [("op", name) for name in sorted(checked.ops)]
        request.node.user_properties.append(("checked_outputs", checked.outputs))
