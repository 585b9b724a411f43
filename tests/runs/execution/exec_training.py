"""A training that knows nothing of holdfast: ``exec_training.py FAULT VICTIM STEP CHECKPOINT [STEPS]``."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FAULT, VICTIM, AT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BATCH = 4
rank = int(os.environ.get("RANK", "0"))


class Numbers(Dataset[torch.Tensor]):
    """Samples; the victim's go wrong from a step on."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        struck = rank == VICTIM and index >= (AT - 1) * BATCH
        if struck and FAULT == "freeze":
            time.sleep(1000)
        time.sleep(0.002)
        return torch.full((4,), math.nan if struck and FAULT == "nan" else 1.0)


def main() -> None:
    torch.set_num_threads(1)
    if FAULT == "start" and rank == VICTIM:
        raise ValueError("no such layer")
    model: torch.nn.Module = torch.nn.Linear(4, 1)
    distributed = "WORLD_SIZE" in os.environ
    if distributed:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    if Path(sys.argv[4]).exists():
        optimizer.load_state_dict(torch.load(sys.argv[4]))
    for step, batch in enumerate(DataLoader(Numbers(), batch_size=BATCH), 1):
        if step == AT and rank == VICTIM:
            if FAULT == "raise":
                raise ValueError("the shard has no samples")
            if FAULT == "kill":
                os.kill(os.getpid(), 9)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            torch.save(optimizer.state_dict(), sys.argv[4])
        if step == 30:
            break
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
