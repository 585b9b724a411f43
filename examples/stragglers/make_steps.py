"""Own times with known faults, made up: writes steps.csv.gz beside this file.

16 ranks on 4 nodes, 300 steps. The ranks of node-c work 12 % longer, rank 6 has a bad spell from step
121 to 160, and every 100th step is long for everyone. Step lengths include waiting for the slowest, so
that they are equal but for noise of the clock.
"""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np

RANKS, STEPS = 16, 300
NODES = "abcd"


def main() -> None:
    """Draw the times and write them."""
    generator = np.random.default_rng(20)
    own = generator.normal(0.400, 0.008, (RANKS, STEPS))
    own[8:12] += 0.048
    own[6, 120:160] += 0.150
    own[:, 99::100] *= 2.5
    waited = own.max(axis=0) - own + generator.normal(0.020, 0.0005, own.shape)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["rank", "step", "seconds", "sync_s", "node"])
    for step in range(STEPS):
        for rank in range(RANKS):
            seconds = own[rank, step] + waited[rank, step]
            node = f"node-{NODES[rank // 4]}"
            table.writerow([rank, step + 1, f"{seconds:.4f}", f"{waited[rank, step]:.4f}", node])
    packed = gzip.compress(text.getvalue().encode(), mtime=0)
    Path(__file__).with_name("steps.csv.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
