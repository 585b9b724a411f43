"""A training that knows nothing of holdfast: ``scenario_training.py PLAN``, the plan in JSON.

Four layouts (DDP, FSDP, pipeline, tensor parallelism) of one small model, and a fault at one step.
"""

import json
import math
import os
import resource
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

PLAN: dict[str, Any] = json.loads(sys.argv[1])
FAULT, AT, STEPS = PLAN["fault"], PLAN["at"], PLAN["steps"]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STRUCK = RANK in PLAN["victims"]
BATCH, WIDTH = 2, 24  # each number of ranks divides the width


class Numbers(Dataset[torch.Tensor]):
    """Samples; the victim's go wrong from a step on."""

    def __len__(self) -> int:
        return BATCH * (STEPS + 10)

    def __getitem__(self, index: int) -> torch.Tensor:
        if STRUCK and index >= (AT - 1) * BATCH:
            if FAULT == "frozen-loader":
                time.sleep(1000)
            if FAULT == "nan":
                return torch.full((WIDTH,), math.nan)
        return torch.full((WIDTH,), 0.1)


def compute(step: int) -> None:
    """What a forward pass takes, with some noise; a slow rank takes longer."""
    noise = 0.1 * math.sin(97 * step + 31 * RANK)
    slow_s = PLAN["slow_s"] if STRUCK and FAULT == "slow" else 0.0
    time.sleep(PLAN["compute_s"] * (1 + noise) + slow_s)


def delayed(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A DDP hook of a network that takes its time, equally on all ranks."""
    reduced = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

    def later(done: Any) -> torch.Tensor:
        time.sleep(PLAN["slow_s"])
        return done.value()[0] / WORLD  # type: ignore[no-any-return]

    return reduced.then(later)


def strike(step: int, model: torch.nn.Module) -> None:
    """The faults that happen at a step."""
    if not STRUCK or step != AT:
        return
    if FAULT == "exception":
        raise ValueError("the shard has no samples")  # the exception's line
    if FAULT == "kill":
        os.kill(os.getpid(), 9)
    if FAULT == "exit":
        os._exit(5)
    if FAULT == "memory":
        limit = 1 << 32
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        torch.zeros(1 << 34)
    if FAULT == "corruption":
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] += 0.5


def statistics(step: int, group: Any) -> None:
    """A sum over all ranks, which a rank can leave out, or do in another way."""
    value = torch.ones(1)
    if STRUCK and step == AT and FAULT == "skip":
        return
    if STRUCK and step == AT and FAULT == "branch":
        dist.broadcast(value, 0, group=group)  # the wrong branch
        return
    dist.all_reduce(value, group=group)  # the right branch


def layers() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    )


def sharded(layout: str) -> torch.nn.Module:
    """The model in a layout."""
    model: torch.nn.Module = layers()
    if layout == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
        if FAULT == "network":
            model.register_comm_hook(None, delayed)
    elif layout == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (WORLD,))
        for layer in (*model.children(), model):
            if isinstance(layer, (torch.nn.Linear, torch.nn.Sequential)):
                fully_shard(layer, mesh=mesh)
    elif layout == "tensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        plan: Any = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        model = parallelize_module(model, init_device_mesh("cpu", (WORLD,)), plan)
    else:
        model = layers()[0 if RANK % 2 == 0 else 2]
    return model


def forward_backward(layout: str, model: torch.nn.Module, batch: torch.Tensor, step: int) -> None:
    """One pass; in a pipeline each even rank feeds the odd one after it."""
    if layout != "pipeline":
        compute(step)
        model(batch).square().mean().backward()
        return
    compute(step)
    if RANK % 2 == 0:
        hidden = model(batch)
        dist.send(hidden.detach(), RANK + 1)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, RANK + 1)
        hidden.backward(gradient)
        return
    entered = torch.empty(BATCH, WIDTH)
    dist.recv(entered, RANK - 1)
    entered.requires_grad_()
    model(entered).square().mean().backward()
    dist.send(entered.grad, RANK - 1)


def main() -> None:
    torch.set_num_threads(1)
    if FAULT == "load" and STRUCK:
        raise OSError("no checkpoint")  # the load's line
    dist.init_process_group("gloo")
    if FAULT == "kill-start" and STRUCK:
        os.kill(os.getpid(), 9)
    layout = PLAN["layout"]
    group = dist.new_group(group_desc="statistics")
    model = sharded(layout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step, batch in enumerate(DataLoader(Numbers(), batch_size=BATCH), 1):
        strike(step, model)
        optimizer.zero_grad()
        forward_backward(layout, model, batch, step)
        statistics(step, group)
        optimizer.step()
        if step == STEPS:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
