"""Data parallel training: each rank has a part of every batch, and sums go through gloo."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, distributed
from torch.distributed.nn.functional import all_reduce


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    """From 0; rank 0 writes."""
    size: int = 1
    """Number of processes."""


ALONE = Ranks()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that torchrun started (by its environment variables); alone without them."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    distributed.init_process_group("gloo")
    try:
        yield Ranks(distributed.get_rank(), size)
    finally:
        distributed.destroy_process_group()


def summed(x: Tensor) -> Tensor:
    """The sum of a tensor over ranks, with a gradient; without other ranks the tensor itself."""
    if not distributed.is_initialized():
        return x
    total: Tensor = all_reduce(
        x
    )  # its gradient is summed too, since every rank's loss depends on it
    return total


def sum_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace the gradients by their sums over ranks."""
    if distributed.is_initialized():
        for each in parameters:
            if each.grad is not None:
                distributed.all_reduce(each.grad)
