"""What `holdfast runs exec` adds to a training step: the same loop below it and without it, in turn.

    python benchmarks/runs_exec.py

A step of a small model in DDP with Adam, a DataLoader and one all_reduce takes about a millisecond, so that
what is added shows: events, and the measuring of waits.
Printed are medians over the processes: CPU time per step, which a loaded machine changes little, and wall
time. The target is 0.5 % of a step of 50 ms. About two minutes; writes nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import machine, run

ALLOWED_US = 250  # 0.5 % of a step of 50 ms
STEPS = 4_000
WARM = 500

LOOP = f"""
import json, os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{{sys.argv[1]}}-{{os.getpid()}}", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
loss = torch.zeros(1)
optimizer = torch.optim.Adam(model.parameters())
data = torch.randn({WARM + STEPS}, 8)
for number, batch in enumerate(DataLoader(data, batch_size=1)):
    if number == {WARM}:
        wall, cpu = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    model(batch).mean().backward()
    dist.all_reduce(loss)
    optimizer.step()
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([1e6 * wall / {STEPS}, 1e6 * cpu / {STEPS}]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    holdfast = [sys.executable, "-c", "from holdfast.cli import main; main()"]
    taken: dict[str, list[list[float]]] = {"without": [], "below": []}
    with tempfile.TemporaryDirectory() as folder:
        loop = Path(folder, "loop.py")
        loop.write_text(LOOP)
        plain = [sys.executable, loop, Path(folder, "store")]
        for number in range(repeats):
            below = [*holdfast, "runs", "exec", "-o", folder, "--run", f"run{number}", "--", *plain]
            for name, command in (("without", plain), ("below", below)):
                taken[name].append(json.loads(run(command).output.splitlines()[-1]))
        recorded = len(list(Path(folder).glob("run*/rank-*.jsonl")))
        assert recorded == repeats, f"{recorded} of {repeats} processes were recorded"
    print(f"{machine()['processor']}; {repeats} processes each, {STEPS:,} steps")
    for place, name in enumerate(("wall", "CPU")):
        without, below = (
            statistics.median(each[place] for each in taken[kind]) for kind in ("without", "below")
        )
        added = below - without
        kept = "kept" if added <= ALLOWED_US else "missed"
        print(
            f"{name}: {without:.0f} us per step without, {below:.0f} below it: {added:.0f} us added, "
            f"{added / 500:.2f} % of a step of 50 ms; target {ALLOWED_US} us {kept}"
        )


if __name__ == "__main__":
    main()
