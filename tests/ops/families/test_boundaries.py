"""Every implementation, by name, on both sides of every limit that it declares: right where it serves, refused beyond.

The calls come from the declarations (`tools/boundaries.py`), so a new limit is tested when it is written.
"""

import pytest
import torch

import tileops
from tileops.backend import OpNotAvailableError
from tileops.catalog import op_class
from tileops.manifest import loader
from tileops.manifest.workload import Case
from tileops.rules.device import read_facts
from tileops.tools.boundaries import boundaries, op_call
from tileops.tools.catalogue import known

pytestmark = [pytest.mark.in_tree_kernels, pytest.mark.cuda_only]

#: Elements of all tensors of a call that is run; the reference takes eight bytes each, and more on the way.
LARGEST = 2**28

KEYS = [(op, key) for op in sorted(loader.families()) for key in sorted(op_class(op).implementations())]


@pytest.mark.parametrize(("op", "key"), KEYS, ids=[f"{op}-{key}" for op, key in KEYS])
def test_both_sides_of_every_limit(op, key, calls, device):
    facts = read_facts(device)
    ran = []
    for boundary in boundaries(known(op), facts, key):
        asked = known(op).interfaces[boundary.interface]
        for call, serves in ((boundary.served, True), (boundary.refused, False)):
            # A limit on facts of the board has its refusing side on another one.
            here = call is not None and call.device_facts == facts
            found = op_call(known(op), asked, call) if here else None
            if (
                found is None
                or sum(torch.Size(size.shape).numel() for size in found.tensors.values() if size) > LARGEST
            ):
                continue
            case = Case(boundary.rule, {}, found.tensors, found.params)
            with tileops.use_kernel(op, key):
                if serves:
                    calls.run(op, case.params, calls.inputs(op, case))
                else:
                    with pytest.raises(OpNotAvailableError, match=key):
                        calls.run(op, case.params, calls.inputs(op, case))
            ran.append((boundary.rule, serves))
    if not ran:
        pytest.skip(f"{key} refuses nothing on this device, or nothing small enough to run")
