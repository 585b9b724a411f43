"""Events of a run that is still going, as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.lines import Block, Reject, Tail, reject
from holdfast.runs.recording.events import Process
from holdfast.runs.recording.lines import Event, decode, process_of
from holdfast.runs.recording.reading import RANK_FILES, run_folder

Happening = tuple[Process, Event]
"""An event, and the process that wrote it."""

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
        self.unreadable: dict[Path, str] = {}
        """Files that the last `poll` could not read, and why; what they hold comes when they can be."""
        self.rejects: list[Reject] = []
        """Lines that could not be used, of all polls."""
        self._files: dict[Path, _RankTail] = {}

    def poll(self) -> list[Happening]:
        """New events, file by file, each file's in the order in which they were written.

        Raises:
            InputError: there is no run in the folder, or there are several and none is chosen.
        """
        return [event for events in self._new(MOST_BYTES) for event in events]

    def history(self) -> list[Iterator[Happening]]:
        """What stands in the files now and is not read yet: one lazy iterator for each file.

        Each reads small pieces and keeps no file open between them, so that the files of a long run can be
        merged by time in little memory. What an iterator has given, `poll` does not give again.

        Raises:
            InputError: as `poll`.
        """
        return self._new(None)

    def _new(self, most: int | None) -> list[Iterator[Happening]]:
        self.unreadable = {}
        paths = sorted(run_folder(self.folder, self.run_id).glob(RANK_FILES))
        files = [self._files.setdefault(path, _RankTail(path, self)) for path in paths]
        return [file.new(most) for file in files]


class _RankTail:
    """The file of one process."""

    def __init__(self, path: Path, of: EventTail) -> None:
        self._path, self._tail, self._of = path, Tail(path), of
        self._process: Process | None = None
        self._given_up = False

    def new(self, most: int | None) -> Iterator[Happening]:
        if self._given_up:
            return
        try:
            for block in self._tail.new(most):
                yield from self._events(block)
        except OSError as error:
            self._of.unreadable[self._path] = error.strerror or str(error)

    def _events(self, block: Block) -> Iterator[Happening]:
        for number, line in enumerate(block.lines(), block.first_line):
            if self._given_up or not line.strip():
                continue
            try:
                if self._process is None:
                    self._process = process_of(line, self._path)
                    event = Event("start", 0.0)
                else:
                    event = decode(line)
            except ValueError as error:
                reason = str(error)
                if self._process is None:
                    self._given_up = True
                    reason = f"the whole file is set aside: {reason}"
                self._of.rejects.append(reject(self._path, number, reason, line))
            else:
                yield self._process, event
