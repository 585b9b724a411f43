"""Run time: seconds since the first process of the run began, for processes on any host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import InputError
from holdfast.lines import LONGEST_LINE_BYTES
from holdfast.runs.recording.lines import process_of
from holdfast.runs.recording.reading import RANK_FILES, read_run

if TYPE_CHECKING:
    from holdfast.runs.recording.events import Process


class RunClock:
    """Places processes on one time line, those on several nodes as the report does.

    Processes of one boot of one machine are placed by its monotonic clock, so that a step of the wall clock
    between two attempts moves nothing; others by the wall clock.

    Args:
        folder: the run's own; if it has events of several nodes, all are read to compare their clocks.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.origin_s: float | None = None
        """Wall clock of run time 0, seconds since 1970."""
        self._boots: dict[str, float] = {}
        self._files: dict[Path, float] = {}
        if folder is not None and _has_several_boots(folder):
            try:
                run = read_run(folder)
            except InputError:  # nothing that can be placed; what can be is taken as it comes
                return
            self.origin_s = run.origin_s
            for process, start_s in zip(run.processes, run.start_s, strict=True):
                opened = start_s + process.lived_s
                self._files[process.file] = opened
                self._boots[process.boot_id] = opened - process.monotonic_s

    def origin(self) -> float:
        """Wall clock of run time 0; 0 before a process was placed."""
        return self.origin_s or 0.0

    def opened_at(self, process: Process) -> float:
        """Run time at which the process's recorder opened (its ``t`` 0)."""
        if process.file in self._files:
            return self._files[process.file]
        if self.origin_s is None:
            self.origin_s = process.opened_s - process.lived_s
        boot = self._boots.get(process.boot_id) if process.boot_id else None
        if boot is None:
            opened = process.opened_s - self.origin_s
            if process.boot_id:
                self._boots[process.boot_id] = opened - process.monotonic_s
            return opened
        return boot + process.monotonic_s


def _has_several_boots(folder: Path) -> bool:
    boots = set()
    for path in folder.glob(RANK_FILES):
        try:
            with path.open("rb") as file:
                boots.add(process_of(file.readline(LONGEST_LINE_BYTES), path).boot_id)
        except (OSError, ValueError):  # said by who reads the events
            continue
    return len(boots) > 1
