from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tileops.rules import device
from tileops.rules.device import LIMITS, NO_FACTS, DeviceFacts, ranges, reference, unknown_device_type
from tileops.rules.errors import BackendError, FactError
from tileops.rules.spaces import holds, spaces

ACME = "privateuseone"  # a device type that torch knows and no maker owns


@pytest.fixture
def register() -> Iterator[Callable[[str, Any], None]]:
    before = set(device.registered_readers())
    yield device.register_reader
    for kind in set(device.registered_readers()) - before:
        device.unregister_reader(kind)


def board(name: str, major: int, minor: int, sm_count: int, smem: int) -> SimpleNamespace:
    return SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        multi_processor_count=sm_count,
        shared_memory_per_block_optin=smem,
    )


@pytest.mark.parametrize(
    ("values", "fact"),
    [
        ((90.0, None, 1, 1), "arch"),
        ((True, None, 1, 1), "arch"),
        ((90, 3, 1, 1), "calibration"),
        ((90, "", 1, 1), "calibration"),
        ((90, None, -1, 1), "sm_count"),
        ((90, None, True, 1), "sm_count"),
        ((90, None, 1, -1), "smem_budget"),
        ((90, None, 1, "227"), "smem_budget"),
        ((-2, None, 1, 1), "arch"),
        ((1048577, None, 1, 1), "arch"),
        ((10**5000, None, 1, 1), "arch"),
        ((90, None, 65537, 1), "sm_count"),
        ((90, None, 1, (1 << 30) + 1), "smem_budget"),
    ],
)
def test_facts_of_a_wrong_type_or_sign_are_refused_by_name(values: tuple[Any, ...], fact: str) -> None:
    with pytest.raises(FactError, match=f"device fact {fact} takes") as caught:
        DeviceFacts(*values)
    assert caught.value.fields["fact"] == fact


def test_facts_at_the_edge_are_taken() -> None:
    assert DeviceFacts(-1, None, 0, 0) == NO_FACTS
    assert DeviceFacts(arch=0, calibration="x", sm_count=0, smem_budget=0).calibration == "x"


def test_whatever_a_device_may_report_is_in_the_domain_of_a_proof() -> None:
    within = ranges("any")
    assert (LIMITS["sm_count"], LIMITS["smem_budget"]) == (within.sm_count, within.smem_budget)
    for ends in itertools.product(*LIMITS.values()):
        arch, sm_count, smem_budget = ends
        assert holds(spaces(["xpu"])["xpu"], DeviceFacts(arch, None, sm_count, smem_budget))


def test_a_reference_board_is_asked_for_by_number() -> None:
    for arch in ("90", True, 90.0, None):
        with pytest.raises(FactError, match="an arch is a number such as 90"):
            reference(arch)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["cuda", "cpu", "xpu", "rocm", "meta"])
def test_a_device_type_that_torch_knows(kind: str) -> None:
    assert unknown_device_type(kind) is None


@pytest.mark.parametrize(
    ("kind", "told"), [("cdua", "did you mean 'cuda'?"), ("zzzzzzz", "'zzzzzzz' is no device type")]
)
def test_a_device_type_that_torch_does_not_know(kind: str, told: str) -> None:
    assert told in str(unknown_device_type(kind))


def test_an_unregistered_type_has_no_facts() -> None:
    assert device.read_facts("cpu") == NO_FACTS
    assert device.read_facts(torch.device("meta")) == NO_FACTS


@pytest.mark.parametrize(
    ("properties", "calibration"),
    [
        (board("NVIDIA H200", 9, 0, 132, 232448), "H200"),
        (board("NVIDIA H200", 9, 0, 131, 232448), None),  # a slice of the board is another board
        (board("NVIDIA GH200 480GB", 9, 0, 132, 232448), None),  # the name as a part of another one is no match
        (board("NVIDIA H200", 9, 1, 132, 232448), None),
        (board("NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912), None),
        (board("NVIDIA of the year 2099", 99, 9, 4096, 1 << 20), None),
    ],
)
def test_cuda_facts_come_from_the_driver(
    monkeypatch: pytest.MonkeyPatch, properties: SimpleNamespace, calibration: str | None
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda asked: properties)
    arch = properties.major * 10 + properties.minor
    expected = DeviceFacts(
        arch, calibration, properties.multi_processor_count, properties.shared_memory_per_block_optin
    )
    assert device.read_facts("cuda:0") == expected


def test_cuda_that_cannot_be_read_says_what_to_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(asked: torch.device) -> Any:
        raise RuntimeError("no driver here")

    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", fail)
    with pytest.raises(BackendError, match=r"facts of cuda:1 .*no driver here.*stated=DeviceFacts"):
        device.read_facts("cuda:1")


def test_two_makers_that_share_a_type_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, register: Callable[[str, Any], None]
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    assert device.device_kind("cuda:0") == "cuda"
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert device.device_kind("cuda:0") == "rocm"
    assert device.device_kind("cpu") == "cpu"
    # No arch of the other maker is read as if it were of the first.
    assert device.read_facts("cuda:0") == NO_FACTS
    register("rocm", lambda asked: DeviceFacts(90, None, 304, 65536))
    assert device.read_facts("cuda:0").sm_count == 304


def test_readers_of_two_types_are_each_asked_for_their_own(register: Callable[[str, Any], None]) -> None:
    asked: list[torch.device] = []

    def read(where: torch.device) -> DeviceFacts:
        asked.append(where)
        return DeviceFacts(7, "board", 3, 4)

    register(ACME, read)
    register("xpu", lambda where: DeviceFacts(90, None, 5, 6))
    assert device.read_facts(f"{ACME}:1") == DeviceFacts(7, "board", 3, 4)
    assert device.read_facts("xpu:0") == DeviceFacts(90, None, 5, 6)
    assert asked == [torch.device(ACME, 1)]
    assert {ACME, "xpu"} <= set(device.registered_readers())
    device.unregister_reader(ACME)
    assert device.read_facts(f"{ACME}:1") == NO_FACTS


def test_a_second_reader_and_one_for_cuda_are_refused(register: Callable[[str, Any], None]) -> None:
    def first(where: torch.device) -> DeviceFacts:
        return NO_FACTS

    def second(where: torch.device) -> DeviceFacts:
        return NO_FACTS

    register("xpu", first)
    with pytest.raises(BackendError, match=r"'xpu' has a reader .*first.*second comes second"):
        register("xpu", second)
    assert device.registered_readers()["xpu"] is first
    with pytest.raises(BackendError, match="'cuda' devices are read by TileOPs"):
        register("cuda", second)
    with pytest.raises(BackendError, match="cannot be called: 3"):
        register("hpu", 3)
    with pytest.raises(BackendError, match="a device type is a word"):
        register("", second)
    assert "cuda" not in device.registered_readers()
    assert "hpu" not in device.registered_readers()


class Bent:
    """Has the fields of device facts and is none."""

    arch, calibration, sm_count, smem_budget = 1, None, 1, 1


def bent_facts() -> DeviceFacts:
    facts = DeviceFacts(1, None, 1, 1)
    object.__setattr__(facts, "sm_count", -1)
    return facts


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: (1, None, 1, 1), "expected DeviceFacts"),
        (lambda: None, "expected DeviceFacts, got None"),
        (Bent, "expected DeviceFacts"),
        (bent_facts, "sm_count takes an integer from 0 to 65536, got -1"),
        (lambda: DeviceFacts("gfx90a", None, 1, 1), "arch takes an integer from -1 to 1048576, got 'gfx90a'"),  # type: ignore[arg-type]
        (lambda: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_bad_reader_is_named(register: Callable[[str, Any], None], made: Callable[[], Any], told: str) -> None:
    def read_acme(where: torch.device) -> Any:
        return made()

    register(ACME, read_acme)
    with pytest.raises(BackendError, match=rf"(?s)read_acme.*{told}"):
        device.read_facts(f"{ACME}:0")


def test_an_index_is_filled_in_for_the_accelerator_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("xpu"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    assert device.with_index(torch.device("xpu")) == torch.device("xpu:3")
    assert device.with_index(torch.device("xpu:1")) == torch.device("xpu:1")
    assert device.with_index(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    assert device.with_index(torch.device("xpu")) == torch.device("xpu")


def test_boards_are_consistent() -> None:
    boards = device.boards("cuda")
    assert set(boards) == {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121}
    others = device.ranges("cuda")
    for arch, entry in boards.items():
        facts = device.reference(arch)
        assert facts.arch == arch
        assert entry.sm_count[0] <= facts.sm_count <= entry.sm_count[1]
        assert entry.smem_budget[0] <= facts.smem_budget <= entry.smem_budget[1]
        assert facts.calibration is None or facts.calibration in device.calibrations("cuda")
        # The catch-all covers what is known, so a proof over it holds for the boards too.
        assert others.sm_count[0] <= entry.sm_count[0]
        assert others.sm_count[1] >= entry.sm_count[1]
        assert others.smem_budget[0] <= entry.smem_budget[0]
        assert others.smem_budget[1] >= entry.smem_budget[1]
        for calibrated in entry.calibrated:
            assert entry.sm_count[0] <= calibrated.sm_count <= entry.sm_count[1]
    assert [boards[arch].smem_budget[1] for arch in (80, 86, 89, 90, 120)] == [166912, 101376, 101376, 232448, 101376]


def test_ranges_of_the_unknown() -> None:
    assert device.ranges("cuda", 90) == device.boards("cuda")[90].ranges
    assert device.ranges("cuda", 91) == device.ranges("cuda")
    assert device.ranges("acme", 90) == device.ranges("acme")
    assert dict(device.boards("acme")) == {}
    with pytest.raises(FactError, match=r"no reference board for cuda arch 91; .*nearest: 90"):
        device.reference(91)
    with pytest.raises(FactError, match="boards of this kind are not listed"):
        device.reference(90, "acme")


def test_the_digest_is_of_the_file() -> None:
    text = Path(device.__file__).with_name("boards.yaml").read_bytes()
    assert device.boards_digest() == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    ("kind", "facts", "text"),
    [
        ("cuda", DeviceFacts(90, "H200", 132, 232448), "cuda, arch 90, 132 SMs, 227 KiB (H200)"),
        ("cuda", DeviceFacts(86, None, 84, 101376), "cuda, arch 86, 84 SMs, 99 KiB (like A40)"),
        ("cuda", DeviceFacts(86, None, 83, 101376), "cuda, arch 86, 83 SMs, 99 KiB"),
        ("acme", DeviceFacts(3, None, 2, 1000), "acme, arch 3, 2 SMs, 1000 bytes"),
        ("cpu", NO_FACTS, "cpu, no device facts"),
    ],
)
def test_facts_in_words(kind: str, facts: DeviceFacts, text: str) -> None:
    assert device.describe(kind, facts) == text
