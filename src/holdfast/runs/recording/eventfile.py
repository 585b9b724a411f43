"""Append-only event file of one process; write errors never interrupt training."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.files import Lock, LockHeldError

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class EventFile:
    """Events as lines of JSON, each in the kernel's hands when `write` returns.

    Opening can fail, with an `InputError`. Writing cannot: an event that finds no room is counted in
    `lost`, told once on stderr, and the next one is tried again.
    """

    def __init__(self, run_folder: Path, rank: int, opened_s: float) -> None:
        name = f"rank-{rank:05d}"
        try:
            run_folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(run_folder / f"{name}.lock", rank)
            self.path, self._file = _created(run_folder, name, opened_s)
        except OSError as error:
            raise InputError(
                "cannot write events",
                code="unwritable",
                path=error.filename or run_folder,
                found=error.strerror or str(error),
                remedy="choose a folder that every rank can write to",
            ) from None
        self.lost = 0
        """Events that could not be written."""
        self._torn = False

    def write(self, event: dict[str, Any]) -> None:
        """Append an event; after `close` or in a forked child, nothing."""
        file = self._file
        if file is None:
            return
        try:
            line = (_encode(event) + "\n").encode("ascii")
            if self._torn:  # end what a full disk cut, so that only that event is lost
                line = b"\n" + line
            self._torn = os.write(file, line) < len(line)
            if self._torn:
                self._lose("no room for all of it")
        except (OSError, TypeError, ValueError) as error:
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        self.lost += 1
        if self.lost == 1:
            tell(f"{self.path}: an event is lost ({reason}); the training continues")

    def close(self) -> None:
        """Give the rank free; say what was lost."""
        if self._file is not None and self.lost:
            tell(f"{self.path}: {self.lost:,} events could not be written")
        self.abandon()

    def abandon(self) -> None:
        """Close without a word: what a forked child must do, or it would hold the lock for its parent."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file = None
        self._lock.close()


def tell(text: str) -> None:
    """A line on stderr, where there is one; never an exception."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"holdfast: {text}", file=sys.stderr, flush=True)


def _created(folder: Path, name: str, opened_s: float) -> tuple[Path, int | None]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
    opened_ms = int(opened_s * 1000)
    while True:
        path = folder / f"{name}-{opened_ms}-{os.getpid()}.jsonl"
        try:
            return path, os.open(path, flags, 0o644)
        except FileExistsError:  # two recorders within a millisecond
            opened_ms += 1


def _locked(path: Path, rank: int) -> Lock:
    try:
        lock = Lock(path)
    except LockHeldError as error:
        raise InputError(
            f"rank {rank} of this run is being recorded by another live process",
            code="conflict",
            path=path,
            found=error.holder,
            expected="one recorder per rank and run",
            remedy="end that process, choose another run id, or give each process its own rank=",
        ) from None
    lock.note_holder()
    return lock
