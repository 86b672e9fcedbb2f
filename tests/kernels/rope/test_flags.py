"""The flags that kernels raise: lent to one call at a time, 0 while nobody has one, lost with a call that failed."""

import ctypes
import threading
from types import SimpleNamespace

import pytest
import torch

from tileops.kernels.rope import RoPETokenKernel, rope_tokens
from tileops.kernels.rope.flags import BLOCK, Flags

Q, K = torch.zeros(3, 2, 8), torch.zeros(3, 1, 8)
TABLE = torch.zeros(5, 8)


def plain(count):
    """Stands for page-locked memory where there is no GPU."""
    return torch.zeros(count, dtype=torch.int32)


def write(address, value):
    """Does what a kernel does."""
    ctypes.c_int32.from_address(address).value = value


def test_a_flag_is_lent_once_and_comes_back_lowered():
    flags = Flags(plain)
    first, second = flags.take(), flags.take()
    assert first.address != second.address
    assert first.cell.value == 0
    write(first.address, 1)
    assert flags.give_back(first)
    assert flags.take() is first
    assert first.cell.value == 0
    assert not flags.give_back(first)
    assert not flags.give_back(second)


def test_more_flags_than_a_block_has():
    flags = Flags(plain)
    taken = [flags.take() for _ in range(2 * BLOCK + 1)]
    assert len({flag.address for flag in taken}) == len(taken)


def test_threads_share_no_flag():
    flags, met = Flags(plain), []

    def call(mark):
        for _ in range(300):
            flag = flags.take()
            met.append(flag.cell.value)
            write(flag.address, mark)
            met.append(flag.cell.value - mark)
            flags.give_back(flag)

    threads = [threading.Thread(target=call, args=(mark,)) for mark in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(met) == {0}


class Host:
    """Stands for the device: launches do at once what a kernel does to the flag."""

    def __init__(self, monkeypatch, capturing=False, checked=True):
        self.flags, self.waits, self.addresses, self.error = Flags(plain), 0, [], None
        monkeypatch.setattr(rope_tokens, "flags", self.flags)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
        monkeypatch.setattr(torch.accelerator, "current_stream", lambda index: SimpleNamespace(synchronize=self.wait))
        self.kernel = RoPETokenKernel.__new__(RoPETokenKernel)
        self.kernel._launch, self.kernel._checked = self.launch, checked
        self.kernel._q_heads, self.kernel._k_heads = (2, 8), (1, 8)

    def wait(self):
        self.waits += 1
        if self.error:
            raise self.error

    def launch(self, q, k, positions, cos_sin, outside, q_out, k_out):
        assert q.shape == (positions.numel(), 2, 8)
        assert k_out.shape == (positions.numel(), 1, 8)
        self.addresses.append(outside)
        if outside and ((positions < 0) | (positions >= cos_sin.shape[0])).any():
            write(outside, 1)

    def call(self, *positions, shape=(3,)):
        heads = (Q.view(*shape, 2, 8), K.view(*shape, 1, 8))
        return self.kernel.forward(*heads, torch.tensor(positions).view(shape), TABLE)


@pytest.mark.parametrize("shape", [(3,), (1, 3)])
def test_a_call_waits_raises_and_leaves_its_flag_lowered(monkeypatch, shape):
    host = Host(monkeypatch)
    for _ in range(3):
        assert host.call(0, 4, 2, shape=shape)[0].shape == (*shape, 2, 8)
        with pytest.raises(ValueError, match="positions go from -1 to 5, but cos_sin has rows for 0 to 4"):
            host.call(5, -1, 0, shape=shape)
    assert host.waits == 6
    assert len(set(host.addresses)) == 1
    assert host.flags.take().cell.value == 0


@pytest.mark.parametrize(("capturing", "checked"), [(True, True), (False, False)])
def test_nobody_waits_while_a_graph_is_captured_or_unchecked(monkeypatch, capturing, checked):
    host = Host(monkeypatch, capturing, checked)
    host.call(9, 9, 9)
    assert host.addresses == [0]
    assert host.waits == 0


def test_the_flag_of_a_failed_call_is_not_lent_again(monkeypatch):
    host = Host(monkeypatch)
    host.error = RuntimeError("the device is gone")
    with pytest.raises(RuntimeError, match="gone"):
        host.call(0, 1, 2)
    host.error = None
    host.call(0, 1, 2)
    assert len(set(host.addresses)) == 2
