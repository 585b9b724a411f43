"""Events of a run that is still going, as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.runs.recording.events import Process, Reject
from holdfast.runs.recording.lines import (
    LONGEST_LINE_BYTES,
    TOO_LONG,
    decode,
    decode_later,
    process_of,
)
from holdfast.runs.recording.reading import RANK_FILES, run_folder

Happening = tuple[Process, dict[str, Any]]
"""An event as its line has it, and the process that wrote it."""

FIRST_BYTES = 1 << 12
CHUNK_BYTES = 1 << 16
"""Pieces grow from the first size to the second: who merges all files of a run holds a piece of each."""
MOST_BYTES = 1 << 26
"""That one poll takes from one file; the rest waits for the next."""


class EventTail:
    """Reads what the files of one run have grown by.

    Files may appear while it follows (a restart opens new ones), and so may the run's folder. Only whole
    lines are taken; what a writer is in the middle of waits for the next `poll`. A loss that is NaN or
    infinite comes as that float. The process of an event is as its file's start event has it, the same
    object for all events of the file; the start itself comes first.

    Args:
        folder: the folder given to `RunRecorder`, or the run's own folder inside it.
        run_id: which run, where the folder holds several.
    """

    def __init__(self, folder: Path | str, run_id: str | None = None) -> None:
        self.folder = Path(folder)
        self.run_id = run_id
        self.rejects: list[Reject] = []
        """Lines that could not be used, of all polls."""
        self.unreadable: dict[Path, str] = {}
        """Files that the last `poll` could not read, and why; what they hold comes when they can be."""
        self._files: dict[Path, _Tail] = {}

    def poll(self) -> list[Happening]:
        """New events, file by file, each file's in the order in which they were written.

        Raises:
            InputError: there is no run in the folder, or there are several and none is chosen.
        """
        self.unreadable = {}
        found: list[Happening] = []
        for tail in self._tails():
            found += tail.new(MOST_BYTES)
        return found

    def history(self) -> list[Iterator[Happening]]:
        """What stands in the files now and is not read yet: one lazy iterator for each file.

        Each reads small pieces and keeps no file open between them, so that the files of a long run can be
        merged by time in little memory. What an iterator has given, `poll` does not give again.

        Raises:
            InputError: as `poll`.
        """
        self.unreadable = {}
        return [tail.new() for tail in self._tails()]

    def _tails(self) -> list[_Tail]:
        own = run_folder(self.folder, self.run_id)
        return [
            self._files.setdefault(path, _Tail(path, self)) for path in sorted(own.glob(RANK_FILES))
        ]


class _Tail:
    """One file: how far it is read."""

    def __init__(self, path: Path, of: EventTail) -> None:
        self._path = path
        self._of = of
        self._offset = 0  # of the first line not yet taken
        self._seen = 0  # size at which there was nothing more to take
        self._line = 0
        self._process: Process | None = None
        self._given_up = False

    def new(self, most_bytes: int | None = None) -> Iterator[Happening]:
        """Events of the lines that are whole now; a file that has not grown is not opened."""
        try:
            size = self._path.stat().st_size
        except OSError as error:
            self._cannot(error)
            return iter(())
        if size == self._seen or self._given_up:
            return iter(())
        return self._up_to(
            size if most_bytes is None else min(size, self._offset + most_bytes), size
        )

    def _up_to(self, end: int, size: int) -> Iterator[Happening]:
        chunk = FIRST_BYTES
        while self._offset < end and not self._given_up:
            wanted = min(chunk, end - self._offset)
            data = self._read(wanted)
            if data is None:
                return
            whole, newline, rest = data.rpartition(b"\n")
            if newline:
                chunk = min(2 * chunk, CHUNK_BYTES)
                self._offset += len(whole) + 1
                yield from self._events(whole)
            elif len(rest) > LONGEST_LINE_BYTES:
                self._line += 1
                self._give_up(TOO_LONG, rest)
            elif len(data) < chunk:  # half a line, which its writer is about to end
                break
            else:
                chunk *= 2
        if end == size:
            self._seen = size

    def _read(self, count: int) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                return file.read(count)
        except OSError as error:
            self._cannot(error)
            return None

    def _cannot(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self._of.unreadable[self._path] = error.strerror or str(error)

    def _events(self, whole: bytes) -> Iterator[Happening]:
        for line in whole.split(b"\n"):
            self._line += 1
            event = self._event(line)
            if event is not None and self._process is not None:
                yield self._process, event

    def _event(self, line: bytes) -> dict[str, Any] | None:
        if self._given_up or not line.strip():
            return None
        try:
            if self._process is None:
                self._process = process_of(line, self._path)
                return decode(line)
            return decode_later(line)
        except ValueError as error:
            if self._process is None:
                self._give_up(str(error), line)
            else:
                self._reject(str(error), line)
            return None

    def _give_up(self, reason: str, line: bytes) -> None:
        self._given_up = True
        self._reject(f"the whole file is set aside: {reason}", line)

    def _reject(self, reason: str, line: bytes) -> None:
        text = line[:120].decode("utf-8", "backslashreplace")
        self._of.rejects.append(Reject(self._path, self._line, reason, text))
