"""Backends that try to hide, to hijack or to break: each is named, none harms another, in any order on the path."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from tileops.backend.discovery import Discovery, record_of
from tileops.backend.registry import BackendWarning, Owner, Registry
from tileops.backend.settlement import TargetStage
from tileops.rules.errors import BackendError, Declined

UNPRINTABLE = """
class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")

raise Mute
"""
# Calls from code that says it is another backend's module.
FORGER = """
code = "from tileops.backend import register_detector\\nregister_detector('forged', lambda device: True)"
exec(code, {"__name__": "good"})
raise RuntimeError("and fails")
"""
# Fails, and comes back from a thread when all is over.
LATE = """
import sys, threading
from tileops.backend import register_detector

def register():
    sys.go_late.wait()
    try:
        register_detector("zombie", lambda device: True)
    except Exception as error:
        sys.late_error = f"{type(error).__name__}: {error}"

sys.late_thread = threading.Thread(target=register)
sys.late_thread.start()
raise RuntimeError("back soon")
"""
EXITS_IN_DETECTOR = """
import sys
from tileops.backend import register_detector

register_detector("quitter", lambda device: sys.exit(1))
"""
CALLED_BUILTIN = """
from tileops.backend import register_detector

register_detector("builtin", lambda device: True)
"""
REMOVES_ITSELF = """
import sys
from tileops.backend import register_detector

register_detector("vanishing", lambda device: True)
del sys.modules[__name__]
"""
GROUPED = """
raise ExceptionGroup("two at once", [OSError("no driver"), ValueError("no board")])
"""

#: Name of the entry point: what it names, and the source of its module. Names sort before and after ``good``.
HOSTILE = {
    "aaa_alias": ("good:nope", ""),
    "called_builtin": ("called_builtin", CALLED_BUILTIN),
    "exits_in_detector": ("exits_in_detector", EXITS_IN_DETECTOR),
    "forger": ("forger", FORGER),
    "grouped": ("grouped", GROUPED),
    "late": ("late", LATE),
    "removes_itself": ("removes_itself", REMOVES_ITSELF),
    "unprintable": ("unprintable", UNPRINTABLE),
    "zzz_alias": ("good", ""),
}
PROBE = """
import sys, threading
from tileops.gemm import GemmFwdOp

sys.go_late = threading.Event()
targets = backend.registered_targets()
sys.go_late.set()
sys.late_thread.join()
a, b = (torch.ones(m, 8, dtype=torch.float16, device="meta") for m in (4, 6))
op = GemmFwdOp()
op(a, b)
result = {
    "targets": [targets, backend.registered_targets()],
    "served by": op.serving_target,
    "source": backend.settle("GemmFwdOp", torch.device("meta")).text,
    "lines": sorted(str(record) for record in backend.load_failures()),
    "late": sys.late_error,
    "said": sorted(said),
}
"""


def lay_out(root: Path, name: str, value: str, source: str) -> Path:
    """Install a distribution by hand: one module, one entry point, what its metadata says of both."""
    folder = root / name
    info = folder / f"tileops_{name}-1.0.dist-info"
    info.mkdir(parents=True)
    if source:
        (folder / f"{name}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tileops-{name.replace('_', '-')}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tileops.backends]\n{name} = {value}\n")
    (info / "top_level.txt").write_text(f"{name}\n")
    return folder


@pytest.fixture(scope="module")
def seen(plugins, installed, tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    folders = [lay_out(root, name, *what) for name, what in HOSTILE.items()]
    folders.insert(len(folders) // 2, installed["good"])
    first, second = plugins.probe(folders, PROBE), plugins.probe(folders[::-1], PROBE)
    assert first == second
    return first


def test_the_good_one_serves_under_its_own_name(seen):
    assert seen["served by"] == "good"
    assert seen["source"] == "good: its detector claims meta (tileops-good 1.0)"
    assert seen["targets"] == [["good", "quitter"]] * 2


def test_each_hostile_one_is_named_with_its_cause(seen):
    causes = {
        "aaa_alias": "AttributeError: module 'good' has no attribute 'nope'",
        "called_builtin": "BackendError: 'builtin' means the in-tree kernels; give the target another name",
        "forger": "RuntimeError: and fails",
        "grouped": "ExceptionGroup: two at once (2 sub-exceptions)",
        "late": "RuntimeError: back soon",
        "removes_itself": "KeyError: 'removes_itself'",
        "unprintable": "Mute: (its message cannot be written)",
    }
    for line, (name, cause) in zip(seen["lines"], causes.items(), strict=True):
        module = HOSTILE[name][0].partition(":")[0]
        source = f"tileops-{name.replace('_', '-')} 1.0"
        assert line == f"backend {name!r} ({source}, module {module}) failed to load: {cause}"
        assert sum(line in message for message in seen["said"]) == 1
    assert len(seen["said"]) == len(causes) + 1
    (quit_,) = [message for message in seen["said"] if "'quitter'" in message]
    assert "raised on meta: SystemExit: 1; it claims no device on which it raises" in quit_


def test_what_failed_stays_out(seen):
    assert seen["late"].startswith("BackendError: tileops-late 1.0 registers a detector at ")
    assert seen["late"].endswith(
        "but as a backend it did not load, so nothing of it is registered; see tileops.backend.load_failures()"
    )


def test_a_distribution_whose_entry_points_cannot_be_read_hides_nobody(plugins, installed, tmp_path):
    broken = lay_out(tmp_path, "broken", "broken", "") / "tileops_broken-1.0.dist-info"
    (broken / "entry_points.txt").write_text("[tileops.backends]\nbroken\n")
    other = lay_out(tmp_path, "other", "other", "") / "tileops_other-1.0.dist-info"
    (other / "entry_points.txt").write_text("[console_scripts]\nalso broken\n")
    bytes_ = lay_out(tmp_path, "bytes", "bytes", "") / "tileops_bytes-1.0.dist-info"
    (bytes_ / "entry_points.txt").write_bytes(b"[tileops.backends]\n\xff\xfe = bytes\n")
    code = (
        "import sys\nsys.path[:0] = {}\n"  # not before: torch itself cannot be imported beside such a distribution
        "result = [backend.registered_targets(), [str(one) for one in backend.load_failures()], said]"
    )
    folders = [str(path) for path in (broken.parent, other.parent, bytes_.parent, installed["good"])]
    for order in (folders, folders[::-1]):
        targets, lines, said = plugins.probe([], code.format(order))
        assert targets == ["good"]
        (line,) = lines
        assert line.startswith("backend '(unreadable)' (tileops-broken 1.0, module ) failed to load: TypeError: ")
        assert len(said) == 1


def test_a_distribution_without_a_name_loads_all_the_same(plugins, tmp_path):
    source = "from tileops.backend import register_detector\nregister_detector('nameless', lambda device: False)\n"
    folder = lay_out(tmp_path, "nameless", "nameless", source)
    (folder / "tileops_nameless-1.0.dist-info" / "METADATA").write_text("garbage")
    code = "result = [backend.registered_targets(), [str(one) for one in backend.backends()]]"
    targets, lines = plugins.probe([folder], code)
    assert targets == ["nameless"]
    assert lines == ["backend 'nameless' (entry point 'nameless', module nameless) is loaded"]


# Within this process.


def test_declining_without_a_reason_says_so():
    owner = Owner("shy", "shy", "tileops-shy", "1.0")
    assert str(record_of(owner, Declined())).endswith("is installed and declined: no reason given")


@pytest.mark.parametrize("answer", [torch.ones(2), NotImplemented, None, "cpu", 2, [True]])
def test_a_detector_that_answers_neither_yes_nor_no_claims_nothing(answer):
    registry = Registry(set)
    registry.register_detector("vague", lambda device: answer)
    stage = TargetStage(registry, Discovery(registry, list))
    with pytest.warns(BackendWarning, match=r"raised on cpu: TypeError: it returned .*, which is neither"):
        assert stage.claimants(torch.device("cpu")) == []


def test_a_detector_that_registers_while_it_is_asked_disturbs_nobody():
    registry = Registry(set)
    names = iter(f"more_{number}" for number in range(9))

    def detect(device):
        registry.register_detector(next(names), lambda device: False)
        return True

    registry.register_detector("grows", detect)
    stage = TargetStage(registry, Discovery(registry, list))
    assert stage.claimants(torch.device("cpu")) == ["grows"]
    assert stage.claimants(torch.device("cpu")) == ["grows"]
    assert registry.targets() == ["grows", "more_0", "more_1"]


def test_a_target_name_is_a_plain_string():
    class Chameleon(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    registry = Registry(set)
    with pytest.raises(BackendError, match="the name of the target is a non-empty string, got 'acme'"):
        registry.register_detector(Chameleon("acme"), lambda device: True)


def test_two_entry_points_of_one_module_are_told_apart_the_same_way_in_any_order():
    def attributed(owners):
        registry = Registry(set)
        registry.set_owners(owners)
        return registry._owner_of("shared.ops")

    ours = Owner("ours", "shared", "ours", "1.0", frozenset({"shared"}))
    theirs = Owner("theirs", "shared.ops", "theirs", "1.0", frozenset({"theirs"}))
    unknown = Owner("unknown", "shared", "unknown", "1.0")
    for owners in ([ours, theirs, unknown], [unknown, theirs, ours]):
        assert attributed(owners) == ours, "the distribution that holds the module"
    assert attributed([theirs, unknown]) == attributed([unknown, theirs]) == unknown


def test_registrations_from_many_threads_all_count_once():
    registry = Registry(set)
    outcomes: list[str] = []

    def register(number: int) -> None:
        try:
            registry.register_detector(f"target_{number % 8}", lambda device: False)
            outcomes.append("registered")
        except BackendError:
            outcomes.append("refused")

    threads = [threading.Thread(target=register, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count("registered"), outcomes.count("refused")) == (8, 24)
    assert registry.targets() == [f"target_{number}" for number in range(8)]
