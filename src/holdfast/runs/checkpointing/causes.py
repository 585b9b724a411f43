"""What made a save or a load fail: the error of the first rank that failed, in words for the user."""

from __future__ import annotations

import errno
from pathlib import Path

from holdfast.errors import HoldfastError, StoreError

_REMEDIES = {
    errno.ENOSPC: "free space on this file system, or keep fewer checkpoints",
    errno.EDQUOT: "free space within this quota, or keep fewer checkpoints",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
    errno.EROFS: "the file system is mounted read-only",
    errno.EACCES: "give the run the right to write there",
}


def cause(error: BaseException) -> tuple[int | None, BaseException]:
    """The first error behind one of DCP's, and the rank that met it (None: not told)."""
    failures = getattr(error, "failures", None)  # of a CheckpointException: rank -> (error, trace)
    if not failures:
        return None, error
    rank = min(failures)
    return rank, failures[rank][0]


def could_not_save(folder: Path, step: int, error: BaseException) -> StoreError:
    """The error that the training gets at its next save."""
    rank, first = cause(error)
    remedy = _REMEDIES.get(first.errno or 0) if isinstance(first, OSError) else None
    return StoreError(
        f"{folder}: the checkpoint of step {step} could not be written; those before it are untouched\n"
        f"  found: {_told(rank, first)}\n"
        f"  remedy: {remedy or 'fix the cause'}; the next save will retry"
    )


def could_not_load(path: Path, error: BaseException) -> HoldfastError:
    """The error of a load: a user's error as it is."""
    rank, first = cause(error)
    if isinstance(first, HoldfastError):
        return first
    return StoreError(f"{path}: cannot be loaded\n  found: {_told(rank, first)}")


def _told(rank: int | None, error: BaseException) -> str:
    said = str(error).strip() or "without a message"
    text = said if isinstance(error, HoldfastError) else f"{type(error).__name__}: {said}"
    return text if rank is None else f"rank {rank}: {text}"
