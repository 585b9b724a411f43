"""Publish the files of a save as a checkpoint: manifest, sync, one rename. And delete old checkpoints.

A save writes into a separate folder with a hidden name, which is never taken for a checkpoint. When all
files are complete and synced, the first rank writes the manifest and renames the folder: rename(2) is
atomic. So a process that dies before it leaves no checkpoint, and one that dies after it leaves a
complete one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InputError, StoreError
from holdfast.files import Lock, LockHeldError, atomic_file, sync
from holdfast.runs.checkpointing.folder import (
    LOCK,
    Checkpoint,
    CheckpointFolder,
    damage_by_size,
    look,
    name_of,
)
from holdfast.runs.checkpointing.manifest import MANIFEST, Manifest, WrittenFile


@dataclass(frozen=True)
class Draft:
    """A save before its publication."""

    folder: Path
    """The folder of the checkpoints."""
    step: int
    token: str
    """Sixteen hexadecimal digits of this writer: no other process uses the same draft."""

    @property
    def path(self) -> Path:
        """Where its files are written."""
        return self.folder / f".step-{self.step:08d}-{self.token}.unfinished"

    def publish(
        self, files: Iterable[WrittenFile], world_size: int, versions: Mapping[str, str]
    ) -> Checkpoint:
        """Make it a checkpoint; to be called once, when the files of all ranks are synced.

        Raises:
            StoreError: if a file is not there.
            OSError: if the disk is full or fails.
        """
        written = tuple(sorted(files, key=lambda file: file.name))
        for file in written:
            for damage in damage_by_size(self.path, file):
                raise StoreError(
                    f"{self.path}: what was written is not there\n  found: {damage}\n"
                    "  remedy: the folder must be on a file system that all ranks share"
                )
        there = look(self.folder).checkpoints
        sequence = 1 + max((each.manifest.sequence for each in there if each.manifest), default=0)
        manifest = Manifest(self.step, sequence, time.time(), world_size, written, dict(versions))
        with atomic_file(self.path / MANIFEST) as opened:
            opened.write(manifest.to_bytes())
        generation = 1
        while (target := self.folder / name_of(self.step, generation)).exists():
            generation += 1
        self.path.rename(target)
        sync(self.folder)
        return Checkpoint(target, self.step, "complete", "sizes", manifest)

    def discard(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.path, ignore_errors=True)


def claim(folder: Path) -> Lock:
    """Make this process the only one that publishes in a folder.

    Returns:
        the lock, to be held as long as it publishes.

    Raises:
        InputError: if another living process publishes there.
        OSError: if the folder cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = Lock(folder / LOCK)
    except LockHeldError as error:
        raise InputError(
            "another living process writes checkpoints here",
            code="conflict",
            path=folder,
            found=error.holder,
            expected="one run a folder",
            remedy="end that process, or use a separate folder for this run",
        ) from None
    lock.note_holder()
    return lock


def sweep(folder: Path) -> None:
    """Remove what dead saves and removals left behind; only for the holder of the lock.

    Only the first rank of a save can publish it, and only the holder of the lock is a first rank: all
    drafts that are there when the lock is taken are dead, whatever their other ranks do.
    """
    for name in look(folder).unfinished:
        shutil.rmtree(folder / name, ignore_errors=True)


def remove(checkpoint: Checkpoint, token: str) -> None:
    """Remove a checkpoint: first its name, then its files, so that nobody meets half of it.

    Raises:
        InputError: if somebody is reading it.
        OSError: if it cannot be removed.
    """
    path = checkpoint.path
    gone = path.with_name(f".step-{checkpoint.step:08d}-{token}.removed")
    try:
        if (path / MANIFEST).exists():
            with Lock(path / MANIFEST):
                path.rename(gone)
        else:
            path.rename(gone)
    except LockHeldError:
        raise InputError(
            "this checkpoint is being loaded", code="conflict", path=path, remedy="remove it later"
        ) from None
    shutil.rmtree(gone)


def expendable(
    listed: CheckpointFolder, keep: int | None, keep_every: int | None
) -> list[Checkpoint]:
    """The complete checkpoints that may go.

    Args:
        listed: the folder.
        keep: how many of the last published stay, at least 1; None: all.
        keep_every: steps that are a multiple of it stay for ever, in their last publication.
    """
    if keep is None:
        return []
    complete = listed.complete
    last_of_step = {each.step: each for each in complete}
    return [
        each
        for each in complete[: max(0, len(complete) - keep)]
        if not (keep_every and each.step % keep_every == 0 and last_of_step[each.step] is each)
    ]


def retain(
    folder: Path, keep: int | None, keep_every: int | None, token: str, say: Callable[[str], None]
) -> None:
    """Remove what may go; what is being loaded, or cannot be removed, waits for the next time."""
    for each in expendable(look(folder), keep, keep_every):
        try:
            remove(each, token)
        except InputError:
            continue
        except OSError as error:
            say(f"{each.path}: cannot be removed: {error.strerror or error}")
