"""The peak memory of one index, in a process of its own; called by `query_compile`.

    python benchmarks/query_compile_memory.py CONTENDER VOCABULARY PATTERN FOLDER

Prints JSON: how far the resident memory rose while the index was made, in MB, the vocabulary left out.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path

from query_compile_inputs import PATTERNS, vocabulary
from query_compile_peers import OURS, installed, our_arcs

ARCS = "holdfast, every arc listed"


def main() -> None:
    """Make an index once, and print what it took."""
    name, of, pattern, folder = sys.argv[1:]
    contender = OURS if name == ARCS else next(p for p in [OURS, *installed()] if p.name == name)
    make = our_arcs if name == ARCS else contender.index
    assert make is not None
    prepared = contender.prepare(vocabulary(of, Path(folder)))
    make(prepared, "[0-9]+x")  # machine code is loaded, and pages that everyone needs are there
    gc.collect()
    # What was freed would be filled first, and hide what the index takes.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status_mb("VmRSS")
    made = make(prepared, PATTERNS[pattern])
    peak = _status_mb("VmHWM")
    print(json.dumps({"rise_mb": max(peak - before, 0.0)}))
    del made


def _status_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


if __name__ == "__main__":
    main()
