"""Shares runs out among blocks that are on the chip together, and through which the runs flow. No device code."""

from __future__ import annotations

from attrs import frozen

from tileops.kernels.rows import ACCESS

EARLY_ARCH = 90
"""The first arch on which a kernel may start before the one before it has ended."""

GRIDS = ((512, 1), (256, 2))
"""Threads of a block, blocks an SM."""

LANES = 512
"""Threads of an SM."""

RESERVED = 1024
"""Bytes of shared memory that the driver takes of each block after the first."""

SCRATCH = 1024
"""Bytes of shared memory for what threads and blocks tell each other, at most."""

ROUND, PIPED, WAITED = 2.4, 5.0, 7.0
"""What costs time beside a thread's accesses, in accesses of a full SM, half a microsecond on an H200, where GroupNorm
and BatchNorm gave these: a round of a team, filling the pipeline where a team measures ahead, a meeting waited for.

A meeting is long because its reads of records queue behind all that the block has asked for ahead. 1 x 128 x 2**20
float32 in 32 groups takes 433 us, and 282 where nobody meets. With a warp of its own that meets for the others it took
435; 352 where that warp reads records by bulk copies, which do not queue, but then 64 x 64 x 12544 float16 took 64, not
61, and 2 x 256 x 32768 float32 42, not 40.
"""


@frozen
class Flow:
    """Describes a grid: ``teams`` teams of ``parts`` blocks. A team takes a run at a time, each block of it a part."""

    lanes: int
    turns: int
    """Accesses of a thread that make up its share of a part."""
    width: int
    """Elements an access."""
    slots: int
    """Accesses of a thread in shared memory: its shares of runs, and what is asked for ahead."""
    parts: int
    teams: int
    blocks: int
    """Blocks an SM: one works while the other waits for its team. All of the grid are on the chip at once."""
    depth: int = 1
    """Levels, each with ``lanes`` threads, that share what lies side by side."""

    @property
    def lag(self) -> int:
        """Returns how many runs a team measures before it finishes the first: one where two shares fit."""
        return 1 if self.parts > 1 and self.slots >= 2 * self.turns + 2 else 0

    def __str__(self) -> str:
        threads = f"{self.lanes} lanes" if self.depth == 1 else f"{self.lanes} x {self.depth} threads"
        return (
            f"{self.teams} teams of {self.parts} blocks, {threads}, {self.turns} accesses of {self.width}, "
            f"{self.slots} in shared memory"
        )


TURNS = 32
"""Accesses of a thread that make up its share, at most: each is code of its own."""

ROW_BYTES = LANES * ACCESS


def capacity(pitch: str) -> str:
    """Returns the bytes of a run that an SM keeps, as a rule's text: ``pitch`` is the bytes between a run's pieces."""
    return f"min((smem_budget - {SCRATCH}) // {ROW_BYTES} * {ROW_BYTES}, gcd({pitch}, {ACCESS}) * {LANES * TURNS})"


def slots_of(smem_budget: int, lanes: int, blocks: int, access_bytes: int, scratch: int) -> int:
    """Returns how many accesses a thread has in shared memory, of which a block uses ``scratch`` bytes otherwise."""
    return ((smem_budget - (blocks - 1) * RESERVED) // blocks - scratch) // (lanes * access_bytes)


def best_flow(accesses: int, runs: int, width: int, access_bytes: int, sm_count: int, smem_budget: int) -> Flow:
    """Returns the grid whose slowest block takes least time for ``runs`` runs of ``accesses`` accesses."""
    choices = []
    for lanes, blocks in GRIDS:
        slots = slots_of(smem_budget, lanes, blocks, access_bytes, SCRATCH)
        for turns in range(1, min(slots, TURNS) + 1):
            parts = -(-accesses // (lanes * turns))
            if parts > sm_count:
                continue
            teams = min(runs, blocks * sm_count // parts)
            flow = Flow(lanes, turns, width, slots, parts, teams, blocks)
            rounds = -(-runs // teams)
            cost = rounds * (turns + (ROUND if flow.lag else WAITED)) + PIPED * flow.lag
            choices.append((cost, parts, flow))
    return min(choices, key=lambda choice: choice[:2])[2]
