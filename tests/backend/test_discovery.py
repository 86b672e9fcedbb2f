"""Discovery over real distributions, all installed at once: the good ones serve, each bad one is named once."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from tileops.backend.discovery import Discovery
from tileops.backend.registry import BackendWarning, Registry
from tileops.rules.errors import Declined

LOADED = {
    "adds_kernel",
    "claims_cpu",
    "claims_cpu_too",
    "detector_raises",
    "good",
    "not_callable",
    "slow",
    "unknown_op",
}
FAILED = {
    "ambiguous_kernel": "DeclarationError: ",
    "exits": "SystemExit: 3",
    "imports_other": "RuntimeError: not today",
    "raising_rule": "DeclarationError: ",
    "raises_late": "ImportError: libvendor.so.7: cannot open shared object file",
    "registers_twice": "BackendError: target 'twice' has a kernel builder for GemmFwdOp already",
    "steals_target": "BackendError: target 'good' belongs to tileops-good 1.0",
    "steers": "BackendError: set_default_target was called while a backend is being imported",
    "wrong_forward": "DeclarationError: ",
}
TARGETS = ["cpu_one", "cpu_two", "good", "not_callable", "slow", "touchy", "unknown_op"]

ALL = """
import sys
from tileops.gemm import GemmFwdOp
from tileops.rules.device import NO_FACTS, read_facts

plugins = {plugins!r}
result = {{"early": [name for name in plugins if name in sys.modules]}}


def error(run):
    try:
        return f"returned {{run()!r}}"
    except backend.BackendError as raised:
        return f"{{type(raised).__name__}}: {{raised}}"


a, b = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)
GemmFwdOp()
result["states"] = {{record.entry_point: record.state for record in backend.backends()}}
result["versions"] = sorted({{record.version for record in backend.backends()}})
result["order"] = [record.entry_point for record in backend.backends()]
result["failures"] = {{record.entry_point: str(record) for record in backend.load_failures()}}
result["tracebacks"] = {{record.entry_point: record.traceback for record in backend.load_failures()}}
result["frames"] = [record.exception.__traceback__ for record in backend.load_failures()]
result["targets"] = backend.registered_targets()
result["gemm"] = backend.registered_targets("GemmFwdOp")
result["rolled back facts"] = read_facts("xpu") == NO_FACTS
result["one"] = GemmFwdOp(target="cpu_one")(a, b)[0, 0].item()
result["two"] = GemmFwdOp(target="cpu_two")(a, b)[0, 0].item()
result["ambiguous"] = error(lambda: GemmFwdOp()(a, b))
on_meta = GemmFwdOp()
result["meta"] = [on_meta(a.to("meta"), b.to("meta")).device.type, on_meta.serving_target]
result["not callable"] = error(lambda: GemmFwdOp(target="not_callable")(a, b))
result["twice"] = error(lambda: GemmFwdOp(target="twice")(a, b))
result["no builder"] = error(lambda: GemmFwdOp(target="slow")(a, b))
backend.set_default_target("cpu_two")
result["default"] = GemmFwdOp()(a, b)[0, 0].item()
backend.set_default_target(backend.BUILTIN)
result["builtin"] = error(lambda: GemmFwdOp()(a, b))
result["default of nobody"] = error(lambda: backend.set_default_target("late"))
result["kept"] = str(backend.default_target())
backend.set_default_target(None)
result["keys"] = sorted(GemmFwdOp.implementations())
added = GemmFwdOp(target=backend.BUILTIN)
result["added"] = [list(added(a.to("meta"), b.to("meta")).shape), added.last_call.key]
tall = torch.ones(65, 8, dtype=torch.float16, device="meta")
result["refused"] = error(lambda: added(tall, b.to("meta")))
result["claimants"] = backend.claimants("cpu")
result["said"] = said
"""


@pytest.fixture(scope="module")
def all_at_once(plugins, installed):
    """What one process saw with every plugin installed, for both orders of the folders on the path."""
    code = ALL.format(plugins=plugins.PLUGINS)
    folders = list(installed.values())
    return plugins.probe(folders, code), plugins.probe(folders[::-1], code)


def test_both_orders_of_installation_give_the_same(all_at_once):
    first, second = all_at_once
    assert first == second


def test_every_plugin_ends_in_its_state(all_at_once, plugins):
    seen, _ = all_at_once
    expected = dict.fromkeys(LOADED, "loaded") | dict.fromkeys(FAILED, "failed") | {"declines": "declined"}
    assert seen["states"] == expected
    assert seen["order"] == sorted(plugins.PLUGINS)
    assert seen["versions"] == ["1.0"]
    assert seen["targets"] == TARGETS
    assert seen["gemm"] == ["cpu_one", "cpu_two", "good", "not_callable", "touchy"]
    assert seen["early"] == [], "importing an op's module loads no backend"


def test_a_failed_backend_leaves_nothing(all_at_once):
    seen, _ = all_at_once
    assert not {"late", "twice", "exits", "parasite", "steers", "shy"} & set(seen["targets"])
    assert seen["rolled back facts"]
    assert seen["default of nobody"].startswith(
        "UnknownTargetError: no backend registered target 'late'; known targets: "
    )
    assert seen["kept"] == "BUILTIN"


def test_each_failure_keeps_its_cause_and_traceback(all_at_once):
    seen, _ = all_at_once
    assert set(seen["failures"]) == {*FAILED, "declines"}
    for name, cause in FAILED.items():
        assert (
            f"(tileops-{name.replace('_', '-')} 1.0, module {name}) failed to load: {cause}" in seen["failures"][name]
        )
        assert f"{name}.py" in seen["tracebacks"][name]
        assert cause.partition(":")[0] in seen["tracebacks"][name]
    assert seen["frames"] == [None] * len(seen["frames"]), "a record keeps no frames alive"
    assert seen["failures"]["declines"] == (
        "backend 'declines' (tileops-declines 1.0, module declines) is installed and declined: "
        "no Acme card in this machine"
    )


def test_each_bad_one_is_named_in_one_warning(all_at_once):
    seen, _ = all_at_once
    said = seen["said"]
    assert all(message.startswith("BackendWarning: ") for message in said)
    for name, cause in FAILED.items():
        (message,) = [message for message in said if f"backend {name!r}" in message]
        assert cause in message
    (message,) = [message for message in said if "'GemmFwdOps'" in message]
    assert "tileops-unknown-op 1.0" in message
    assert "did you mean 'GemmFwdOp'?" in message
    (message,) = [message for message in said if "'touchy'" in message]
    assert "tileops-detector-raises 1.0" in message
    assert "OSError: no driver for" in message
    assert len(said) == len(FAILED) + 2, "a rolled back builder and one that declined are not warned of"


def test_the_good_ones_serve(all_at_once):
    seen, _ = all_at_once
    assert (seen["one"], seen["two"], seen["default"]) == (1.0, 2.0, 2.0)
    assert seen["meta"] == ["meta", "good"]
    assert seen["claimants"] == ["cpu_one", "cpu_two"]


def test_two_claimants_are_named_with_their_distributions_and_the_setting(all_at_once):
    seen, _ = all_at_once
    message = seen["ambiguous"]
    assert message.startswith("AmbiguousTargetError: GemmFwdOp on cpu: 2 targets claim this device: ")
    assert "'cpu_one' (tileops-claims-cpu 1.0) and 'cpu_two' (tileops-claims-cpu-too 1.0)" in message
    assert "GemmFwdOp(target='cpu_one')" in message
    assert "set_default_target('cpu_one')" in message
    assert (
        "the detector of target 'touchy' (tileops-detector-raises 1.0) raised on cpu: OSError: no driver for cpu"
        in message
    )


def test_errors_start_with_their_sentence_and_quote_what_did_not_load(all_at_once):
    seen, _ = all_at_once
    starts = {
        "not callable": "BackendError: ",
        "twice": f"UnknownTargetError: no backend registered target 'twice'; known targets: {TARGETS}",
        "no builder": "OpNotAvailableError: target 'slow' registers no kernel builder for GemmFwdOp; targets that do: "
        "['cpu_one', 'cpu_two', 'good', 'not_callable', 'touchy']. There is no fall back to the in-tree "
        "implementation: those kernels do not run on this target's devices.",
        "builtin": "OpNotAvailableError: GemmFwdOp's in-tree kernels do not run on cpu; known targets for this op: "
        "['cpu_one', 'cpu_two', 'good', 'not_callable', 'touchy']",
    }
    for name, start in starts.items():
        assert seen[name].startswith(start), seen[name]
    assert "callable" in seen["not callable"]
    assert "'a kernel, honestly'" in seen["not callable"]
    assert "is installed and declined: no Acme card in this machine" in seen["twice"]
    assert "libvendor.so.7" in seen["builtin"]


def test_an_added_implementation_serves_and_one_that_does_not_hold_is_refused_with_a_witness(all_at_once):
    seen, _ = all_at_once
    assert seen["added"] == [[4, 6], "gemm_meta"]
    assert seen["refused"].startswith("OpNotAvailableError: ")
    assert "no implementation serves this call" in seen["refused"]
    assert "serves at most 64 rows, got m=65" in seen["refused"]
    assert "gemm_meta" in seen["keys"]
    assert not [key for key in seen["keys"] if key.startswith("xpu")], "rolled back with their backends"
    ambiguous = seen["failures"]["ambiguous_kernel"]
    assert "xpu_wide" in ambiguous
    assert "xpu_tall" in ambiguous
    assert "m=64" in ambiguous
    assert "n=64" in ambiguous
    assert "k=1" in seen["failures"]["raising_rule"]
    assert "bias" in seen["failures"]["wrong_forward"]


def test_threads_forks_and_spawned_processes_see_the_same(plugins, installed):
    code = """
import json, multiprocessing, os, sys, threading, time

seen = []
threads = [threading.Thread(target=lambda: seen.append(backend.registered_targets())) for _ in range(8)]
for thread in threads:
    thread.start()
while "slow" not in sys.modules:
    time.sleep(0.001)
reader, writer = os.pipe()
child = os.fork()  # in the middle of the discovery
if child == 0:
    os.write(writer, json.dumps(backend.registered_targets()).encode())
    os._exit(0)
forked = json.loads(os.read(reader, 65536))
os.waitpid(child, 0)
for thread in threads:
    thread.join()
with multiprocessing.get_context("spawn").Pool(1) as pool:
    spawned = pool.apply(backend.registered_targets)
result = [len(seen), sorted(map(list, {tuple(targets) for targets in [*seen, forked, spawned]})), len(said)]
"""
    folders = [installed[name] for name in ("slow", "good", "raises_late", "claims_cpu")]
    assert plugins.probe(folders, code) == [8, [["cpu_one", "good", "slow"]], 1]


def test_warnings_that_a_filter_turns_into_errors_break_no_load(plugins, installed):
    code = """
import warnings
warnings.simplefilter("error", backend.BackendWarning)
raised = []
for _ in range(10):
    try:
        result = [backend.registered_targets(), raised]
        break
    except backend.BackendWarning as warning:
        raised.append(str(warning))
"""
    folders = [installed[name] for name in ("raises_late", "exits", "good", "unknown_op")]
    targets, raised = plugins.probe(folders, code)
    assert targets == ["good", "unknown_op"]
    assert len(raised) == 3
    assert len(set(raised)) == 3


def test_a_backend_that_the_program_imported_before(plugins, installed):
    code = """
import good
try:
    import raises_late
except ImportError:
    left = backend.process._registry.targets()
targets = backend.registered_targets()
lines = [str(record) for record in backend.backends()]
result = [left, targets, lines, backend.settle("GemmFwdOp", torch.device("meta")).text]
"""
    left, targets, lines, text = plugins.probe([installed["raises_late"], installed["good"]], code)
    assert left == ["good", "late"]
    assert targets == ["good"]
    assert lines[0] == "backend 'good' (tileops-good 1.0, module good) is loaded"
    assert "libvendor.so.7" in lines[1], "the true cause, not that a detector is there already"
    assert text == "good: its detector claims meta (tileops-good 1.0)"


def test_pip_installs_and_removes_a_backend(plugins, wheels, tmp_path):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([*command, str(wheels["claims_cpu"])], check=True, capture_output=True)
    code = "result = [str(record) for record in backend.backends() if record.entry_point == 'claims_cpu']"
    assert plugins.probe([tmp_path], code) == [
        "backend 'claims_cpu' (tileops-claims-cpu 1.0, module claims_cpu) is loaded"
    ]
    assert plugins.probe([], code) == []


# Over entry points made here: what no installed package can be asked to do twice.


def points(monkeypatch, tmp_path, **sources: str) -> list[EntryPoint]:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    return [EntryPoint(name, name, "tileops.backends") for name in sources]


@pytest.fixture
def registry() -> Registry:
    return Registry(lambda: {"GemmFwdOp"})


def test_an_interrupted_discovery_is_taken_up_where_it_stopped(monkeypatch, tmp_path, registry):
    interrupt = "import os\nif not os.path.exists(__file__ + '.go'):\n    raise KeyboardInterrupt\n"
    found = points(monkeypatch, tmp_path, tgt_a="", tgt_b=interrupt, tgt_c="")
    discovery = Discovery(registry, lambda: found)
    with pytest.raises(KeyboardInterrupt):
        discovery.run()
    assert [record.entry_point for record in discovery.records()] == ["tgt_a"]
    (tmp_path / "tgt_b.py.go").touch()
    discovery.run()
    assert [(record.entry_point, record.state) for record in discovery.records()] == [
        ("tgt_a", "loaded"),
        ("tgt_b", "loaded"),
        ("tgt_c", "loaded"),
    ]


def test_a_value_that_names_no_module_is_a_failure(monkeypatch, tmp_path, registry):
    points(monkeypatch, tmp_path, tgt_d="x = 1\n")
    values = ["tgt_d:missing", "no_such_module_here", "not a module!"]
    found = [EntryPoint(f"e{number}", value, "tileops.backends") for number, value in enumerate(values)]
    discovery = Discovery(registry, lambda: found)
    with pytest.warns(BackendWarning) as seen:
        discovery.run()
    assert [type(record.exception).__name__ for record in discovery.failures()] == [
        "AttributeError",
        "ModuleNotFoundError",
        "AttributeError",
    ]
    assert [str(warning.message).split()[1] for warning in seen] == ["'e0'", "'e1'", "'e2'"]


REGISTERS = """
from __main__ import tgt_registry
tgt_registry.register_detector("mini", lambda device: True)
tgt_registry.register_kernel_builder("GemmFwdOp", "mini", print)
"""


@pytest.mark.parametrize("imported", [False, True], ids=["fresh", "imported before"])
@pytest.mark.parametrize("names", [("a_good", "z_bad"), ("z_good", "a_bad")], ids=["bad last", "bad first"])
def test_two_entry_points_of_one_module_fail_each_for_itself(monkeypatch, tmp_path, registry, names, imported):
    module = f"tgt_{names[0]}_{imported}".lower()
    monkeypatch.setattr(sys.modules["__main__"], "tgt_registry", registry, raising=False)
    points(monkeypatch, tmp_path, **{module: REGISTERS})
    if imported:
        importlib.import_module(module)
    good, bad = names
    found = [EntryPoint(good, module, "tileops.backends"), EntryPoint(bad, f"{module}:thing", "tileops.backends")]
    discovery = Discovery(registry, lambda: found)
    with pytest.warns(BackendWarning, match=f"backend '{bad}' .* failed to load: AttributeError: .*thing"):
        discovery.run()
    assert {record.entry_point: record.state for record in discovery.records()} == {good: "loaded", bad: "failed"}
    assert registry.targets("GemmFwdOp") == ["mini"]
    owners = {record.entry_point: record.owner for record in discovery.records()}
    assert [entry.kind for entry in registry.registered_by(owners[good])] == ["detector", "kernel builder"]
    assert registry.registered_by(owners[bad]) == []
    sys.modules[module].tgt_registry.register_kernel_builder("GemmFwdOp", "late", print)  # what loaded may go on
    exec("tgt_registry.register_detector('later', lambda device: False)", vars(sys.modules[module]))
    assert "later" in registry.targets()


def test_what_failed_entry_points_of_one_module_registered_goes(monkeypatch, tmp_path, registry):
    monkeypatch.setattr(sys.modules["__main__"], "tgt_registry", registry, raising=False)
    points(monkeypatch, tmp_path, tgt_both=REGISTERS, tgt_raises=REGISTERS + "raise OSError('no driver')\n")
    values = {"a": "tgt_both:thing", "b": "tgt_both:thong", "c": "tgt_raises", "d": "tgt_raises:thing"}
    discovery = Discovery(
        registry, lambda: [EntryPoint(name, value, "tileops.backends") for name, value in values.items()]
    )
    with pytest.raises(OSError, match="no driver"):
        importlib.import_module("tgt_raises")  # by the program, before; what it left is nobody's
    with pytest.warns(BackendWarning) as said:
        discovery.run()
    assert [record.cause for record in discovery.failures()][2:] == ["OSError: no driver"] * 2
    assert len(said) == 4
    assert registry.targets() == []


def test_declining_is_no_failure_and_no_warning(monkeypatch, tmp_path, registry):
    source = "from tileops.backend import Declined\nraise Declined('wrong season')\n"
    discovery = Discovery(registry, lambda: points(monkeypatch, tmp_path, tgt_e=source))
    discovery.run()
    (record,) = discovery.failures()
    assert record.state == "declined"
    assert isinstance(record.exception, Declined)
    assert "tgt_e.py" in record.traceback


def test_a_backend_may_ask_what_is_registered_while_it_loads(monkeypatch, tmp_path, registry):
    discovery = Discovery(registry, lambda: found)
    monkeypatch.setattr(sys, "tgt_discovery", discovery, raising=False)
    found = points(monkeypatch, tmp_path, tgt_f="import sys\nsys.tgt_discovery.run()\n")
    discovery.run()
    assert [record.state for record in discovery.records()] == ["loaded"]
