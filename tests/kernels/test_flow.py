"""What a grid of teams must hold to: all of it on the chip at once, every part of a run covered."""

import pytest
import torch

from tests.kernels.tables import Asked
from tileops.kernels import norm
from tileops.kernels.flow import GRIDS, SCRATCH, best_flow
from tileops.kernels.norm.batch_norm_train_spans import pitch
from tileops.rules.device import DeviceFacts

FP16, FP32 = torch.float16, torch.float32
BOARDS = [
    DeviceFacts(90, "H200", 132, 232448),
    DeviceFacts(80, None, 108, 166912),
    DeviceFacts(86, None, 84, 101376),
    DeviceFacts(90, None, 1, 232448),
]
AFFINE = {"weighted": True, "biased": False, "eps": 1e-5}
GROUP = Asked(norm.GROUP_NORM_IMPLEMENTATIONS, dtype=FP16, **AFFINE)
TRAIN = Asked(norm.BATCH_NORM_TRAIN_IMPLEMENTATIONS, dtype=FP16, param_dtype=FP32, momentum=0.1, **AFFINE)


def fits(flow, facts, scratch, itemsize=2):
    """Asserts that the whole grid is on the chip at once."""
    assert 1 <= flow.turns <= flow.slots - flow.lag * flow.turns
    threads = flow.lanes * flow.depth
    assert flow.blocks * threads <= 512
    assert flow.teams * flow.parts <= flow.blocks * facts.sm_count
    # What the driver takes of each block comes out of an SM's 1024 bytes beyond the budget of a block alone.
    bytes_ = flow.slots * threads * flow.width * itemsize + scratch
    assert flow.blocks * (bytes_ + 1024) <= facts.smem_budget + 1024


@pytest.mark.parametrize("facts", BOARDS)
@pytest.mark.parametrize("runs", [1, 3, 64, 100000])
@pytest.mark.parametrize("share", [0.001, 0.2, 0.999])
def test_a_run_is_covered_by_blocks_that_are_on_the_chip_together(facts, runs, share):
    rows = (facts.smem_budget - SCRATCH) // 8192
    accesses = max(1, int(share * rows * 512 * facts.sm_count))
    flow = best_flow(accesses, runs, 8, 16, facts.sm_count, facts.smem_budget)
    fits(flow, facts, SCRATCH)
    assert (flow.lanes, flow.blocks) in GRIDS
    assert flow.parts <= facts.sm_count
    assert (flow.parts - 1) * flow.lanes * flow.turns < accesses <= flow.parts * flow.lanes * flow.turns
    assert flow.teams <= runs


@pytest.mark.parametrize("facts", BOARDS)
def test_what_the_rules_admit_has_a_grid(facts):
    served = 0
    for batch in (1, 2, 31, 256, 4096, 40000):
        for channels in (1, 8, 40, 1000, 2048):
            for spatial in (1, 2, 3, 7, 49, 64, 196, 511, 512, 784, 12544):
                if batch * spatial == 1:
                    continue
                facts_of = {"batch": batch, "channels": channels, "spatial": spatial}
                for dtype in (FP16, FP32):
                    for key in ("batch_norm_train_spans", "batch_norm_train_shared"):
                        if TRAIN.reasons(key, facts, dtype=dtype, **facts_of):
                            continue
                        identity = TRAIN.identity(key, facts, dtype=dtype, **facts_of)
                        flow = identity.flow
                        served += 1
                        scratch = SCRATCH
                        if key.endswith("spans"):
                            sums = flow.depth * (flow.width * pitch(flow.lanes) + 1)
                            scratch = 4 * sums + 16 * identity.side
                            assert flow.parts * flow.depth * flow.turns >= batch
                            assert flow.turns <= flow.slots - 2
                        fits(flow, facts, scratch, dtype.itemsize)
    assert served > 0 or facts.sm_count == 1
