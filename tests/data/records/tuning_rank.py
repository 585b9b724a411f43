"""Two ranks of a training under DDP with a probing tuner; run as a process by `test_tuning_ranks.py`.

    python tuning_rank.py FILE

Each prints a line of JSON: its own scores, the scores agreed on, the choices, the weights' digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from training_worlds import everything, image_batches

from holdfast.data.records.tuning.gradients import Probe
from holdfast.data.records.tuning.tuner import Tuner

EPOCHS = 3


def main(rank: int, meeting: str) -> None:
    """Train, probe each epoch, and print what happened."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(0)
    inner = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    )
    model = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # Only rank 1 waits for storage; each rank has batches, scores and losses of its own.
    fixed = image_batches(seed=10 + rank, noise=((3.0, 1.5)[rank], 0.3, 0.0))
    probe = Probe(model, nn.functional.cross_entropy, fixed)
    tuner = Tuner(3, EPOCHS, probe, every=1, last_full=0, storage_bound=lambda: rank == 1)
    own, untouched = [], []
    for epoch in range(EPOCHS):
        own.append([one.value for one in probe.scores([1, 2], 3)])
        before = everything(model, optimizer)
        tuner.fidelity(epoch, loss=float(rank + 1))
        untouched.append(everything(model, optimizer) == before)
        for images, labels in image_batches(seed=rank)(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    told = {"rank": rank, "own": own}
    told |= {"history": [one.to_dict() for one in tuner.history], "loss": tuner._losses}
    weights = b"".join(one.detach().numpy().tobytes() for one in inner.parameters())
    told |= {"untouched": untouched, "weights": hashlib.sha256(weights).hexdigest()}
    told["failed"] = _failing(probe, rank)
    print(
        json.dumps(told) + "\n", end="", flush=True
    )  # in one write, so that no line is cut in two
    dist.destroy_process_group()


def _failing(probe: Probe, rank: int) -> str:
    """What a rank says when the probe of rank 0 fails."""

    class Broken:
        def scores(self, *settings):
            if rank == 0:
                raise OSError("the store is gone")
            return probe.scores(*settings)

    try:
        Tuner(3, 5, Broken()).fidelity(0)
    except Exception as error:
        return type(error).__name__
    return ""


if __name__ == "__main__":
    other = os.fork()  # torch is imported once for both, and nothing of it runs yet
    main(int(other == 0), sys.argv[1])
    if other:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
