"""The peak memory of one composition, in a process of its own; called by `automata_compose`.

    python benchmarks/automata_memory.py CASE CONTENDER [--speech DIR] [--tokenizers DIR]

Prints JSON: the resident memory before, the peak of the process while it composed, the bytes of the result
and of the tables, and the peak's growth by output and tables.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from pathlib import Path

from automata_compose import TOKENIZERS, all_cases
from automata_inputs import random_case
from automata_peers import carried, installed, ours
from holdfast.automata import Fst

MB = 2**20
DENSE_BYTES = 2 << 30


def main() -> None:
    """Compose once, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case")
    parser.add_argument("contender")
    parser.add_argument("--speech", type=Path)
    parser.add_argument("--tokenizers", type=Path, default=TOKENIZERS)
    options = parser.parse_args()
    cases, _ = all_cases(options.speech, options.tokenizers)
    case = next(case for case in cases if case.name == options.case)
    contenders = [ours(), *installed()]
    contender = next(one for one in contenders if one.name == options.contender)
    is_ours = contender.distribution == "holdfast"
    if is_ours:
        contender.compose(*random_case(30, 4, 8).make())  # loads the machine code
    pair = case.make()
    pairs = pair[0].num_states * pair[1].num_states
    if not is_ours:
        with tempfile.TemporaryDirectory(prefix="automata-") as folder:
            pair = carried(pair, contender, Path(folder))
    contender.sort(*pair)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status_mb("VmRSS")
    composed = contender.compose(*pair)
    peak = _status_mb("VmHWM")
    told = {"before_mb": before, "peak_mb": peak}
    if isinstance(composed, Fst):
        tables = _table_bytes(pairs, composed.num_states)
        told |= {"result_mb": composed.nbytes / MB, "tables_mb": tables / MB}
        told["ratio"] = (peak - before) * MB / (composed.nbytes + tables)
    print(json.dumps({name: round(value, 3) for name, value in told.items()}))


def _table_bytes(pairs: int, states: int) -> int:
    """Of the table of states, and of the queue: four bytes a pair, or sixteen a slot at least half free."""
    dense = 4 * pairs
    hashed = 16 << (2 * states).bit_length()
    return (dense if dense <= DENSE_BYTES else hashed) + 8 * states


def _status_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


if __name__ == "__main__":
    main()
