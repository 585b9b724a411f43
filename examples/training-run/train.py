"""A small real training on several processes that records what it does and survives what happens to it.

    torchrun --standalone --nproc-per-node 4 train.py out

Every rank learns to predict the next byte of this file. `faults.py` makes one rank slow, kills two, and
keeps one out of a collective; started again, the training goes on from its last complete checkpoint.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faults
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from holdfast.runs import Checkpoints, RunRecorder

CONTEXT, BATCH, WIDTH = 32, 64, 768
STORAGE_S = 0.004  # what a read from a shared file system takes


def main() -> None:
    """Train, from the last complete checkpoint if there is one."""
    options = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with RunRecorder(
        options.folder / "events",
        "bytes",
        submitted_s=options.submitted_s,
        labels={"rack": f"r{rank // 2}"},
        hang_after_s=options.hang_after_s,
    ) as recorder:
        torch.manual_seed(0)
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        checkpoints = Checkpoints(options.folder / "checkpoints", keep=2, recorder=recorder)
        done = resume(checkpoints, model, optimizer)
        recorder.ready(resumed_from=done)
        batches = read_batches(seed=1000 * rank + (done or 0))
        for number in range((done or 0) + 1, options.steps + 1):
            with recorder.data_wait():
                batch = next(batches)
            with recorder.step(number, tokens=BATCH * CONTEXT) as step:
                loss = forward_backward(model, optimizer, batch)
                faults.strike(options.folder, rank, number)
                average_gradients(model)
                optimizer.step()
                step.loss = loss
            if number % options.checkpoint_every == 0:
                save(checkpoints, number, model, optimizer)
            if number % options.evaluate_every == 0:
                with recorder.evaluation(number):
                    evaluate(model, batches)
        finish(checkpoints)
    dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--evaluate-every", type=int, default=100)
    parser.add_argument("--hang-after-s", type=float, default=4.0)
    parser.add_argument("--submitted-s", type=float)
    return parser.parse_args()


def make_model() -> torch.nn.Module:
    """Bytes of the context [B, T] -> scores of the next byte [B, 256]."""
    return torch.nn.Sequential(
        torch.nn.Embedding(256, 32),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * CONTEXT, WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, 256),
    )


def read_batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Contexts [B, T] and next bytes [B], drawn from this file."""
    text = torch.frombuffer(bytearray(Path(__file__).read_bytes()), dtype=torch.uint8).long()
    windows = text.unfold(0, CONTEXT + 1, 1)
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = windows[torch.randint(len(windows), (BATCH,), generator=generator)]
        time.sleep(STORAGE_S)
        yield chosen[:, :-1], chosen[:, -1]


def forward_backward(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
) -> float:
    """Gradients of one batch in the parameters; the loss."""
    for _ in range(faults.slowness(dist.get_rank())):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
    return loss.item()


def average_gradients(model: torch.nn.Module) -> None:
    """The mean of all ranks' gradients, in place: one collective."""
    gradients = [weight.grad for weight in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def evaluate(model: torch.nn.Module, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Mean loss over fresh batches and all ranks."""
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(model(inputs), targets)
            for inputs, targets in (next(batches) for _ in range(40))
        ]
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a checkpoint holds."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def save(
    checkpoints: Checkpoints,
    number: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Copy the state; it is written in the background."""
    checkpoints.save(number, state_of(model, optimizer))


def finish(checkpoints: Checkpoints) -> None:
    """Wait until the last checkpoint is complete."""
    checkpoints.close()


def resume(
    checkpoints: Checkpoints, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> int | None:
    """Load the last complete checkpoint; its step, or None to begin from scratch."""
    state = state_of(model, optimizer)
    done = checkpoints.load(state)
    if done is not None:
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
    return done


if __name__ == "__main__":
    main()
