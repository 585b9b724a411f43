"""Run time: seconds since the first process of the run began, for processes on any host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.runs.recording.events import Process


class RunClock:
    """Places processes on one time line.

    Processes of one boot of one machine are placed by its monotonic clock, so that a step of the wall clock
    between two attempts moves nothing; others by the wall clock.
    """

    def __init__(self) -> None:
        self.origin_s: float | None = None
        """Wall clock of run time 0, seconds since 1970."""
        self._boots: dict[str, float] = {}

    def opened_at(self, process: Process) -> float:
        """Run time at which the process's recorder opened (its ``t`` 0)."""
        if self.origin_s is None:
            self.origin_s = process.opened_s - process.lived_s
        boot = self._boots.get(process.boot_id) if process.boot_id else None
        if boot is None:
            opened = process.opened_s - self.origin_s
            if process.boot_id:
                self._boots[process.boot_id] = opened - process.monotonic_s
            return opened
        return boot + process.monotonic_s
