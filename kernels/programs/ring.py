"""Rows of accesses on their way through shared memory: each thread asks for its own far ahead and reads only those.

A ring has ``slots`` rows of one access a thread. What a thread copies into a slot it alone reads, once its copies up to
that one have arrived, so threads need no barrier for it. Rows are counted: a commit ends each, an empty one too.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use


@T.macro
def settle(left: int) -> None:
    """Returns once all rows but the last ``left`` that this thread asked for have arrived."""
    T.ptx_wait_group(left)
    # To the compiler a wait says nothing about memory: this keeps the reads behind it.
    T.sync_warp()
