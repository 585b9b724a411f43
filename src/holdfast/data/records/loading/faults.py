"""What the processes that read a dataset found damaged, and which images are passed over for it."""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import uuid4

import msgspec

from holdfast.data.records.reading.prefixes import Fault, TooManyDamaged
from holdfast.errors import InputError, StoreError

OnFault: TypeAlias = Literal["raise", "skip", "degrade"]
"""What comes of an image that is damaged.

raise: the error. skip: the image is left out. degrade: it is served at the highest fidelity at which it is
undamaged, and left out if there is none.
"""


class DamageBudget:
    """How many images of one process's part of an epoch may be left out.

    Each worker sees only its part, so each judges its part alone: what raises does then not depend on how
    the workers' timing interleaves. One image may be missing from any part, however small, unless the
    share is 0 or nothing would be left of the epoch.

    Args:
        share: 0 to 1, of the part.
        images: of the part.
        epoch: images of the epoch, over all workers and ranks.
        log: where the faults are.
    """

    def __init__(self, share: float, images: int, epoch: int, log: FaultLog) -> None:
        self._share, self._images, self._log = share, images, log
        allowed = math.ceil(share * images)
        self._allowed = allowed if share == 1 else min(allowed, epoch - 1)
        self._seen = self._left_out = 0

    def spend(self, seen: int, left_out: int) -> None:
        """Count images, and those of them that were left out.

        Raises:
            TooManyDamaged: if more have been left out than may be.
        """
        if self._seen >= self._images:  # the sampler continues with its next epoch
            self._seen = self._left_out = 0
        self._seen, self._left_out = self._seen + seen, self._left_out + left_out
        if self._left_out <= self._allowed:
            return
        faults = self._log.all()
        lines = [
            "too many images of the epoch were left out",
            f"found: {self._left_out:,} of the first {self._seen:,} (this process reads {self._images:,})",
            f"expected: at most {self._share:.0%} damaged (max_damaged)",
            *(f"damaged: {fault}" for fault in faults[:3]),
            "remedy: holdfast data records verify lists the damage and repair fixes it; a larger "
            "max_damaged trains without those images",
        ]
        raise TooManyDamaged("\n  ".join(lines), faults)


class FaultLog:
    """Faults, one a line, in a file to which every process that reads the dataset appends.

    A line is written with one append, so lines of several processes do not mix. The file is removed when
    the log's maker lets go of it or ends.

    Args:
        quarantine: a file that is kept: it lists the images that were left out, as JSON lines, and they
            are passed over from the next epoch on. Images are listed for damage, not for a store that
            failed. Delete the file (or a line) once the dataset is repaired.

    Raises:
        InputError: if the folder of the quarantine does not exist.
    """

    def __init__(self, quarantine: str | os.PathLike[str] | None = None) -> None:
        self.quarantine = None if quarantine is None else Path(quarantine)
        if self.quarantine is not None and not self.quarantine.parent.is_dir():
            raise InputError(
                "the folder of the quarantine does not exist",
                code="not-found",
                path=self.quarantine.parent,
                remedy="make it, or name another file",
            )
        self._file = Path(tempfile.gettempdir()) / f"holdfast-faults-{uuid4().hex}.jsonl"
        self._known: set[Fault] = set()
        weakref.finalize(self, _remove, self._file, os.getpid())

    def add(self, fault: Fault, *, left_out: bool) -> None:
        """Note a fault, once for each process that meets it.

        Args:
            fault: what is damaged.
            left_out: whether its image is not served for it.

        Raises:
            StoreError: if it cannot be written down.
        """
        if fault in self._known:
            return
        self._known.add(fault)
        _append(self._file, fault)
        if left_out and fault.image is not None and self.quarantine is not None:
            _append(self.quarantine, fault)

    def all(self) -> tuple[Fault, ...]:
        """Every fault that any process has noted, in order, each once."""
        return tuple(dict.fromkeys(_read(self._file)))

    def quarantined(self) -> dict[str, frozenset[str]]:
        """Record's path -> ids of the images to pass over.

        Raises:
            InputError: if the quarantine has a line that cannot be read.
        """
        if self.quarantine is None:
            return {}
        listed: dict[str, set[str]] = {}
        for fault in _read(self.quarantine):
            if fault.image is not None:
                listed.setdefault(fault.record, set()).add(fault.image)
        return {record: frozenset(images) for record, images in listed.items()}


def _append(path: Path, fault: Fault) -> None:
    try:
        with path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(fault) + b"\n")
    except OSError as error:
        raise StoreError(f"{path}: a fault cannot be written down: {error.strerror}") from error


def _read(path: Path) -> list[Fault]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    # What follows the last line end was cut while it was written, or is being written now.
    numbered = enumerate(lines[:-1], 1)
    return [_fault(path, number, line) for number, line in numbered if line.strip()]


def _fault(path: Path, number: int, line: bytes) -> Fault:
    try:
        return msgspec.json.decode(line, type=Fault)
    except msgspec.DecodeError as error:
        raise InputError(
            "a line of the quarantine cannot be read",
            code="unreadable",
            path=path,
            place=f"line {number}",
            found=line[:80].decode(errors="replace"),
            expected='{"record": "...", "image": "...", "group": 1, "reason": "..."}',
        ) from error


def _remove(path: Path, maker: int) -> None:
    if os.getpid() == maker:
        path.unlink(missing_ok=True)
