"""Measure what dispatch itself costs: ``python -m tools.bench --host [--peer DIR]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tileops.tools import hostcost, words
from tileops.tools.usage import SERVED, Parser, UsageError, report


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return its exit status."""
    return report(_run, argv)


def _run(argv: Sequence[str]) -> int:
    parser = Parser(prog="tileops bench", description="Measure the cost of dispatch itself; needs no GPU.")
    parser.add_argument(
        "--host", action="store_true", help="the host's side of a call (the one report there is so far)"
    )
    parser.add_argument("--peer", help="folder of an unpacked tileops 0.1.0 wheel, to compare with")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, a measure each")
    options = parser.parse(argv)
    if not options.host:
        raise UsageError("say which report: --host")
    peer = None if options.peer is None else Path(options.peer)
    if peer is not None and not (peer / "tileops" / "gemm.py").is_file():
        raise UsageError(f"--peer {peer} holds no tileops/gemm.py: give the folder of an unpacked tileops 0.1.0 wheel")
    measures = hostcost.measure(peer)
    if options.json:
        for measure in measures:
            print(json.dumps(measure.plain()))
        return SERVED
    rows = [("what", "figure", "against", "reach")]
    rows += [(m.what, m.figure, m.against, m.reach) for m in measures]
    print("\n".join(words.columns(rows)))
    return SERVED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
