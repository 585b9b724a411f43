"""A folder that appears whole or not at all, and goes on where it was interrupted.

What is made stands in a hidden folder beside the target, ``.TARGET.part``, until it is renamed. Beside
that, the journal ``.TARGET.part.jsonl`` says which steps are done; a step's files are in place before
its line is. The journal goes last: killed at any time, a run leaves what the next one goes on with.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from holdfast.errors import InputError, StoreError
from holdfast.whole_files import sync_folder

_WHAT = "holdfast export"
_SYNCS = 16


class Draft:
    """The hidden folder while it is held.

    Attributes:
        folder: where to put files.
    """

    def __init__(
        self, folder: Path, path: Path, journal: BinaryIO, pool: ThreadPoolExecutor
    ) -> None:
        self.folder = folder
        self._path = path
        self._pool = pool
        self._unsynced: list[Path] = []
        self._journal = journal

    def put(self, path: str, data: bytes) -> None:
        """Put a file in place, whole."""
        target = self.folder / path
        draft = self.folder / f".{os.getpid()}.part"
        draft.write_bytes(data)
        try:
            draft.replace(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(target)
        self._unsynced.append(target)

    def note(self, step: Mapping[str, Any]) -> None:
        """Note that a step is done: its files are on the disk."""
        # Several at a time, so that the file system puts them down together: 8 times as fast.
        list(self._pool.map(_sync, self._unsynced))
        self._unsynced.clear()
        self._journal.write(_line(step))
        self._journal.flush()

    def steps(self) -> Iterator[dict[str, Any]]:
        """The steps that are done, of this run and earlier ones, in order."""
        return islice(_read(self._path), 1, None)

    def keep(self, steps: int) -> None:
        """Forget what was noted after the first steps: they will be done again."""
        lines = islice(_read(self._path), steps + 1)
        self._journal.truncate(sum(len(_line(line)) for line in lines))


@contextlib.contextmanager
def drafting(target: Path, plan: Mapping[str, Any]) -> Iterator[Draft]:
    """Hold the draft of a folder; when the block ends without an error, the folder is there.

    Args:
        target: must not exist, or be empty.
        plan: what is made, as JSON; a draft of the same plan is gone on with, any other is begun anew.

    Raises:
        InputError: if the target holds something, or something else stands in the draft's place.
        StoreError: if another process makes it, or the disk is full.
    """
    target = target.absolute()
    _check_target(target)
    folder = target.with_name(f".{target.name}.part")
    path = target.with_name(f"{folder.name}.jsonl")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as journal, ThreadPoolExecutor(_SYNCS) as pool:
            _lock(journal, target)
            _begin(folder, path, journal, {"what": _WHAT, **plan})
            yield Draft(folder, path, journal, pool)
            _finish(folder, target)
            path.unlink()
    except OSError as error:
        raise StoreError(
            f"{target}: it cannot be written\n  found: {error.strerror or error}\n"
            "  remedy: make room, or make it writable, and run the same command again: "
            "it goes on where it stopped"
        ) from error


def _check_target(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink() or not target.name:
        raise InputError(
            "there is something already",
            path=target,
            found="a folder that is not empty" if target.is_dir() else "a file",
            expected="a new folder, or an empty one",
            remedy="name another folder, or remove this one",
        )


def _lock(journal: BinaryIO, target: Path) -> None:
    try:
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{target}: another process is writing it\n"
            "  remedy: wait until it has ended, or name another folder"
        ) from None


def _begin(folder: Path, path: Path, journal: BinaryIO, plan: dict[str, Any]) -> None:
    """Leave a draft of the same plan as it is; remove any other."""
    folder.mkdir(exist_ok=True)
    first = next(_read(path), None)
    if first == plan:
        return
    others = list(folder.iterdir())
    if others and (first is None or first.get("what") != _WHAT):
        raise InputError(
            "a folder that is none of an export stands where its draft shall be",
            path=folder,
            found=others[0].name,
            remedy="move it elsewhere",
        )
    for entry in others:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    journal.truncate(0)
    journal.write(_line(plan))
    journal.flush()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal, up to the first that is damaged."""
    with path.open("rb") as file:
        for text in file:
            try:
                line = json.loads(text) if text.endswith(b"\n") else None
            except ValueError:
                line = None
            if not isinstance(line, dict) or _line(line) != text:
                return
            yield line


def _line(step: Mapping[str, Any]) -> bytes:
    return (json.dumps(step, sort_keys=True) + "\n").encode()


def _finish(folder: Path, target: Path) -> None:
    """Put the names of all files on the disk, then give the folder its own."""
    for stray in folder.glob(".*.part"):
        stray.unlink()
    for inner, _, _ in os.walk(folder, topdown=False):
        sync_folder(Path(inner))
    folder.rename(target)
    sync_folder(target.parent)
