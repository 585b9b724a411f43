"""A folder of checkpoints, seen from outside: which are there, complete or damaged. Needs no torch.

step-00000020/        a checkpoint: complete from the moment at which it has this name
    __0_0.distcp      what rank 0 wrote, in the format of torch.distributed.checkpoint
    __1_0.distcp
    .metadata         where each tensor is, likewise
    manifest.json     sizes and checksums of all of them
step-00000020-2/      the same step, saved again after a return to an earlier checkpoint
.step-00000030-4f1c22d09ab3e871.unfinished/   a save that is under way, or died
.step-00000010-4f1c22d09ab3e871.removed/      being removed
.writer.lock          held by the process that publishes here
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.answer import Answer, Finding, Section, Table
from holdfast.errors import InputError
from holdfast.numbers import duration, size
from holdfast.plain import plain
from holdfast.runs.checkpointing.manifest import (
    MANIFEST,
    Manifest,
    NewerManifestError,
    WrittenFile,
    crc32_of_file,
    read_manifest,
)

LOCK = ".writer.lock"
_PUBLISHED = re.compile(r"step-(\d{8,})(?:-(\d+))?")
LEFT_OVER = re.compile(r"\.step-(\d{8,})-[0-9a-f]{16}\.(?:unfinished|removed)")
"""Folders that only a save or a removal under way may have."""


@dataclass(frozen=True)
class Damage:
    """Something in a checkpoint that is not as it was written."""

    file: str
    """Its name in the folder of the checkpoint."""
    problem: Literal["missing", "size", "checksum", "unreadable"]
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}, expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in the folder."""

    path: Path
    step: int
    status: Literal["complete", "damaged", "newer"]
    """``newer``: of a newer holdfast, not read."""
    checked: Literal["sizes", "checksums"]
    """How far it was looked at."""
    manifest: Manifest | None
    """None where it cannot be read."""
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True)
class CheckpointFolder(Answer):
    """What a folder of checkpoints holds."""

    folder: Path
    looked_s: float
    """When it was looked at, seconds since 1970."""
    checkpoints: tuple[Checkpoint, ...]
    """In order of publication."""
    unfinished: tuple[str, ...]
    """Saves and removals that are under way, or died."""
    foreign: tuple[str, ...]
    """What is not ours; left alone."""
    verified: bool = False
    """Whether checksums were compared."""

    @property
    def complete(self) -> tuple[Checkpoint, ...]:
        """Those that can be loaded, in order of publication."""
        return tuple(each for each in self.checkpoints if each.status == "complete")

    @property
    def damaged(self) -> tuple[Checkpoint, ...]:
        """Those with damage."""
        return tuple(each for each in self.checkpoints if each.status == "damaged")

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs checkpoints``."""
        complete = self.complete
        return {
            "folder": str(self.folder),
            "latest_complete_step": complete[-1].step if complete else None,
            "complete": len(complete),
            "damaged": len(self.damaged),
            "checkpoints": [self._facts(each) for each in self.checkpoints],
            "unfinished": list(self.unfinished),
            "foreign": list(self.foreign),
        }

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Checkpoints"

    @property
    def exit_code(self) -> int:
        """1: no checkpoint is complete, or checksums show damage."""
        return int(not self.complete or (self.verified and bool(self.damaged)))

    def findings(self) -> list[Finding]:
        """What can be loaded, damage, and what else is in the folder."""
        complete = self.complete
        latest = f"Latest complete: step {complete[-1].step:,}." if complete else ""
        said = [latest or "No complete checkpoint: a run would start from scratch."]
        damage = [f"{each.path.name}/{one}" for each in self.checkpoints for one in each.damage]
        said += [f"Damaged: {line}." for line in damage]
        if self.unfinished:
            dead = "the next run that saves here removes dead ones"
            said.append(f"Unfinished, under way or dead: {', '.join(self.unfinished)} ({dead}).")
        if self.foreign:
            said.append(f"Not ours, left alone: {', '.join(self.foreign)}.")
        return [Finding(text, "checkpoints") for text in said]

    def sections(self) -> list[Section]:
        """The checkpoints in order of publication."""
        import pyarrow as pa

        rows: list[dict[str, Any]] = []
        for each in self.checkpoints:
            facts, state = each.manifest, str(each.status)
            if each.status == "newer":
                state = "of a newer holdfast"
            elif each.status == "complete" and each.checked == "checksums":
                state = "complete, checksums agree"
            row: dict[str, Any] = {"step": each.step, "name": each.path.name, "state": state}
            row["size"] = size(facts.size_bytes if facts else None)
            row["files"] = len(facts.files) if facts else None
            row["ranks"] = facts.world_size if facts else None
            age = max(0.0, self.looked_s - facts.published_s) if facts else None
            rows.append({**row, "age": duration(age)})
        caption = "One row per checkpoint, in order of publication."
        tables = [Table(pa.Table.from_pylist(rows), caption=caption)] if rows else []
        return [
            Section("checkpoints", "Which checkpoints can be loaded?", self.headline, tables=tables)
        ]

    def _facts(self, each: Checkpoint) -> dict[str, Any]:
        manifest = each.manifest
        return {
            "name": each.path.name,
            "step": each.step,
            "status": each.status,
            "checked": each.checked,
            "size_bytes": manifest.size_bytes if manifest else None,
            "files": len(manifest.files) if manifest else None,
            "world_size": manifest.world_size if manifest else None,
            "published_s": manifest.published_s if manifest else None,
            "age_s": max(0.0, self.looked_s - manifest.published_s) if manifest else None,
            "damage": plain(each.damage),
        }


def name_of(step: int, generation: int = 1) -> str:
    """The name of a published checkpoint; later generations of a step count up."""
    return f"step-{step:08d}" + (f"-{generation}" if generation > 1 else "")


def look(folder: Path | str) -> CheckpointFolder:
    """What is in a folder of checkpoints; files are held against the manifests by their sizes.

    Raises:
        InputError: if there is no such folder.
    """
    folder = Path(folder)
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            "the folder of checkpoints cannot be read",
            code="unreadable",
            path=folder,
            found=error.strerror or str(error),
            expected="the folder given to Checkpoints(...)",
        ) from error
    checkpoints, unfinished, foreign = [], [], []
    for entry in entries:
        published = _PUBLISHED.fullmatch(entry.name)
        if published and entry.is_dir():
            checkpoints.append(examine(entry, int(published[1])))
        elif LEFT_OVER.fullmatch(entry.name):
            unfinished.append(entry.name)
        elif entry.name != LOCK:
            foreign.append(entry.name)
    return CheckpointFolder(
        folder, time.time(), _in_order(checkpoints), tuple(unfinished), tuple(foreign)
    )


def _in_order(checkpoints: list[Checkpoint]) -> tuple[Checkpoint, ...]:
    """In order of publication; one whose manifest is lost stands where its folder's time puts it."""
    known = sorted(
        (each.manifest.sequence, each.manifest.published_s) for each in checkpoints if each.manifest
    )

    def order(each: Checkpoint) -> tuple[float, int]:
        if each.manifest:
            return each.manifest.sequence, each.step
        try:
            written_s = each.path.stat().st_mtime
        except OSError:  # removed since
            return 0, each.step
        before = [sequence for sequence, published_s in known if published_s <= written_s]
        return max(before, default=0) + 0.5, each.step

    return tuple(sorted(checkpoints, key=order))


def examine(path: Path, step: int) -> Checkpoint:
    """One checkpoint: its manifest is read, its files are held against it by their sizes."""
    try:
        manifest = read_manifest(path / MANIFEST)
    except NewerManifestError:
        return Checkpoint(path, step, "newer", "sizes", None)
    except InputError as error:
        there = (path / MANIFEST).exists()
        damage = Damage(
            MANIFEST,
            "unreadable" if there else "missing",
            error.expected or "a manifest",
            error.found or "",
        )
        return Checkpoint(path, step, "damaged", "sizes", None, (damage,))
    damages = [one for file in manifest.files for one in damage_by_size(path, file)]
    if manifest.step != step:
        damages.append(Damage(MANIFEST, "unreadable", f"step {step}", f"step {manifest.step}"))
    status: Literal["complete", "damaged"] = "damaged" if damages else "complete"
    return Checkpoint(path, step, status, "sizes", manifest, tuple(damages))


def damage_by_size(path: Path, file: WrittenFile) -> list[Damage]:
    """Whether a file is missing or of another size; nothing of it is read."""
    try:
        found_bytes = (path / file.name).stat().st_size
    except OSError as error:
        found = error.strerror or str(error)
        return [Damage(file.name, "missing", f"{file.size_bytes} bytes", found)]
    if found_bytes != file.size_bytes:
        return [Damage(file.name, "size", f"{file.size_bytes} bytes", f"{found_bytes} bytes")]
    return []


def damage_by_checksum(path: Path, file: WrittenFile) -> list[Damage]:
    """Whether a file is what was written; all of it is read."""
    found = damage_by_size(path, file)
    if found:
        return found
    try:
        summed = crc32_of_file(path / file.name)
    except OSError as error:
        unreadable = error.strerror or str(error)
        return [Damage(file.name, "unreadable", f"crc32 {file.crc32}", unreadable)]
    if summed != file.crc32:
        return [Damage(file.name, "checksum", f"crc32 {file.crc32}", f"crc32 {summed}")]
    return []


def verify(checkpoint: Checkpoint, read: Callable[[int], None] = lambda size: None) -> Checkpoint:
    """The same checkpoint with every file read and summed.

    Args:
        checkpoint: from `look`; one whose manifest cannot be read stays as it is.
        read: called with the size of each file that was read.
    """
    if checkpoint.manifest is None:
        return checkpoint
    damages: list[Damage] = []
    for file in checkpoint.manifest.files:
        damages += damage_by_checksum(checkpoint.path, file)
        read(file.size_bytes)
    damages += [one for one in checkpoint.damage if one.file == MANIFEST]
    return damaged(checkpoint, damages)


def damaged(checkpoint: Checkpoint, found: Iterable[Damage]) -> Checkpoint:
    """A checkpoint after its checksums were compared."""
    damage = tuple(found)
    status: Literal["complete", "damaged"] = "damaged" if damage else "complete"
    return replace(checkpoint, status=status, checked="checksums", damage=damage)


def verify_all(
    listed: CheckpointFolder, read: Callable[[int], None] = lambda size: None
) -> CheckpointFolder:
    """The same folder with every checkpoint verified."""
    verified = tuple(verify(each, read) for each in listed.checkpoints)
    return replace(listed, checkpoints=verified, verified=True)
