"""Forks: a child has the op as the parent left it, whatever another thread of the parent was doing."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: a fork after torch has used threads is torch's own trap, and pytest's process has used some.
SCRIPT = """
import os, sys, threading
import torch
torch.set_num_threads(1)
from tileops import backend
from tileops.norm import RMSNormFwdOp

building, go_on = threading.Event(), threading.Event()

def build(x, weight, **params):
    if x.shape[0] == 5 and os.getpid() == parent:
        building.set()
        go_on.wait()
    return lambda x, weight: x * 2

parent = os.getpid()
backend.register_kernel_builder("RMSNormFwdOp", "acme", build)
op = RMSNormFwdOp([8], target="acme")
x, five = torch.ones(4, 8, dtype=torch.float16), torch.ones(5, 8, dtype=torch.float16)
op(x)
thread = threading.Thread(target=op, args=(five,))
thread.start()
building.wait()
held = [RMSNormFwdOp.dispatcher.plans, RMSNormFwdOp.dispatcher._lock, op._kernels._lock]
for lock in held:
    lock.acquire()
child = os.fork()
if child == 0:
    right = [torch.equal(op(t), t * 2) for t in (x, five, torch.ones(6, 8, dtype=torch.float16))]
    fresh = torch.equal(RMSNormFwdOp([8], target="acme")(x), x * 2)
    os._exit(0 if all(right) and fresh else 1)
for lock in held:
    lock.release()
go_on.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_waits_for_no_thread_of_its_parent():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (done.stdout.split(), done.returncode) == (["0"], 0), done.stderr
