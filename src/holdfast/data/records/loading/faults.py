"""What the processes that read a dataset found damaged, and which images are passed over for it."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import uuid4

from holdfast.data.records.reading.prefixes import Fault
from holdfast.errors import InputError, StoreError

OnFault: TypeAlias = Literal["raise", "skip", "degrade"]
"""What comes of an image that is damaged.

raise: the error. skip: the image is left out. degrade: it is served at the highest fidelity at which it is
undamaged, and left out if there is none.
"""


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
    line = json.dumps(fault.to_dict(), ensure_ascii=False) + "\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise StoreError(f"{path}: a fault cannot be written down: {error.strerror}") from error


def _read(path: Path) -> list[Fault]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    found = []
    # What follows the last line end was cut while it was written, or is being written now.
    for number, line in enumerate(lines[:-1], 1):
        if line.strip():
            found.append(_fault(path, number, line))
    return found


def _fault(path: Path, number: int, line: bytes) -> Fault:
    try:
        made = json.loads(line)
    except ValueError:
        made = None
    if (
        not isinstance(made, dict)
        or not isinstance(made.get("record"), str)
        or not isinstance(made.get("image"), str | None)
    ):
        raise InputError(
            "a line of the quarantine cannot be read",
            path=path,
            place=f"line {number}",
            found=line[:80].decode(errors="replace"),
            expected='{"record": "...", "image": "...", "group": 1, "reason": "..."}',
        )
    return Fault(made["record"], made.get("image"), made.get("group"), str(made.get("reason", "")))


def _remove(path: Path, maker: int) -> None:
    if os.getpid() == maker:
        path.unlink(missing_ok=True)
