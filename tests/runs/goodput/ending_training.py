"""A training of gloo ranks with one fault: ``ending_training.py FOLDER RANK WORLD FAULT VICTIM STEP``."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from holdfast.runs import RunRecorder

STEPS = 30
STEP_S = 0.02
TIMEOUT_S = 4


def strike(folder: Path, fault: str) -> None:
    """The fault of the victim; a mark in the folder says that it happened."""
    (folder / "struck").touch()
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        os._exit(3)
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "terminate":
        time.sleep(30)
    if fault == "raise":
        raise ValueError("the shard has no samples")
    while True:  # "freeze": its heartbeats go on
        time.sleep(0.1)


def main() -> None:
    folder, fault = Path(sys.argv[1]), sys.argv[4]
    rank, world, victim, at = (int(sys.argv[each]) for each in (2, 3, 5, 6))
    torch.set_num_threads(1)
    with RunRecorder(folder / "events", run_id="run", rank=rank, world_size=world) as run:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=120),
        )
        group = dist.new_group(timeout=timedelta(seconds=TIMEOUT_S))
        if at == 0 and rank == victim:
            strike(folder, fault)
        dist.all_reduce(torch.ones(1), group=group)
        run.ready()
        for number in range(1, STEPS + 1):
            with run.step(number):
                if number == at and rank == victim:
                    strike(folder, fault)
                time.sleep(STEP_S)
                dist.all_reduce(torch.ones(1), group=group)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
