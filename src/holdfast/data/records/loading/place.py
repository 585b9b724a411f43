"""Index of this process among those that read a dataset."""

from __future__ import annotations

import os

from holdfast.errors import InputError, MissingExtraError

try:
    from torch import distributed
    from torch.utils.data import get_worker_info
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error


def of_ranks(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """This rank, and how many there are.

    Args:
        rank: as it was named; None for that of `torch.distributed`, if it is initialised.
        ranks: as well.
    """
    if rank is not None and ranks is not None:
        return rank, ranks
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def of_workers() -> tuple[int, int]:
    """This worker of a `DataLoader`, and how many there are; 0 of 1 outside."""
    info = get_worker_info()
    return (0, 1) if info is None else (int(info.id), int(info.num_workers))


def worker() -> int | None:
    """This worker of a `DataLoader`; None outside."""
    info = get_worker_info()
    return None if info is None else int(info.id)


def processors() -> int:
    """This process's share of the processors."""
    info = get_worker_info()
    sharers = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) * (
        1 if info is None else info.num_workers
    )
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    return max(1, (len(affinity(0)) if affinity else os.cpu_count() or 1) // sharers)


def check_rank(rank: int | None, ranks: int | None) -> tuple[int | None, int | None]:
    """A rank that was named, or None.

    Raises:
        InputError: if it is half named, or does not exist.
    """
    if (rank is None) != (ranks is None) or (
        rank is not None and ranks is not None and not 0 <= rank < ranks
    ):
        raise InputError(
            "rank must be at least 0 and less than ranks",
            code="out-of-range",
            place="rank, ranks",
            found=f"{rank} of {ranks}",
        )
    return rank, ranks
