"""Outputs: what is refused before the work, what is replaced, and what is written to."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tileops.tools import outputs
from tileops.tools.usage import UsageError


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    for text in ("old\n", "new\n"):
        outputs.check(path)
        outputs.write(path, text)
        assert path.read_text() == text
    assert os.listdir(tmp_path) == ["bench.json"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one_and_its_target_is_written(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "folder" / "target.json", tmp_path / "link.json"
    target.parent.mkdir()
    if there:
        target.write_text("old\n")
    link.symlink_to(target)
    outputs.check(link)
    outputs.write(link, "new\n")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    assert os.listdir(target.parent) == ["target.json"]


@pytest.mark.parametrize("through", ["itself", "a link", "a descriptor"])
def test_a_pipe_is_written_to_and_stays_a_pipe(through: str, tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    held = os.open(pipe, os.O_WRONLY) if through == "a descriptor" else None
    path = pipe
    if held is not None:
        path = Path(f"/dev/fd/{held}")
    elif through == "a link":
        path = tmp_path / "link"
        path.symlink_to(pipe)
    assert not outputs.is_replaced(path)
    outputs.check(path)
    outputs.write(path, "figures\n")
    if held is not None:
        os.close(held)
    reader.join()
    assert got == ["figures\n"]
    assert pipe.is_fifo()
    assert not list(tmp_path.glob("*.part"))


def test_a_terminal_is_written_to() -> None:
    master, slave = os.openpty()
    path = Path(os.ttyname(slave))
    outputs.check(path)
    outputs.write(path, "figures")
    assert os.read(master, 100) == b"figures"
    assert path.is_char_device()
    os.close(master)
    os.close(slave)


def _folder(path: Path) -> None:
    path.mkdir()


def _link_to_a_folder(path: Path) -> None:
    path.symlink_to(path.parent)


@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        (_folder, "there", "it is a folder"),
        (_link_to_a_folder, "there", "it is a folder"),
        (None, "no/such/file.json", "there is no folder .*no/such"),
        (None, "file/below.json", "there is no folder .*file"),
    ],
)
def test_what_cannot_be_written_is_refused_before_and_leaves_nothing(
    make: Callable[[Path], None] | None, name: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("kept")
    path = tmp_path / name
    if make is not None:
        make(path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=f"cannot write {path}: {said}"):
        outputs.check(path)
    with pytest.raises(UsageError, match=f"cannot write {path}: "):
        outputs.write(path, "figures")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_that_takes_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # for root may write everywhere
    with pytest.raises(UsageError, match=f"no file can be made in {tmp_path}"):
        outputs.check(tmp_path / "bench.json")


def test_the_file_that_stdout_goes_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "printed").open("w") as stream:
        monkeypatch.setattr(outputs, "STDOUT", stream.fileno())
        with pytest.raises(UsageError, match="it is where the printed output goes"):
            outputs.check(Path(f"/dev/fd/{stream.fileno()}"))


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bench.json"
    path.write_text("old\n")

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match=f"cannot write {path}: No space left on device"):
        outputs.write(path, "new\n")
    assert os.listdir(tmp_path) == ["bench.json"]
    assert path.read_text() == "old\n"


def test_options_that_would_destroy_each_other_s_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "one")
    one, other, link = (tmp_path / name for name in ("one", "other", "link"))
    outputs.check_apart({"--json": [one], "-o": [other], "--from": [tmp_path / "a", tmp_path / "a"]}, ["--json", "-o"])
    with pytest.raises(UsageError, match="--json and -o name one file"):
        outputs.check_apart({"--json": [one], "-o": [one]}, ["--json", "-o"])
    with pytest.raises(UsageError, match="--page and --peer name one file"):
        outputs.check_apart({"--page": [link], "--peer": [other, one]}, ["--page"])
