"""When each attempt of a run was alive, and what the run waited for in between.

Run time is counted from the first attempt's submission, where it is known, else from the start of the
first process. The attempts and the gaps before them cover it without overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.runs.recording.events import Process, RecordedRun


@dataclass(frozen=True)
class AttemptWindow:
    """The life of one attempt and the gap before it, seconds of run time."""

    processes: tuple[int, ...]
    """Indices into `RecordedRun.processes`."""
    begin_s: float
    """Its first process starts."""
    end_s: float
    """Its last sign of life, or the start of the next attempt where that came first."""
    down_s: float
    """Nothing ran before it, and it was not in a queue as far as is known."""
    queue_s: float
    """It waited in a queue, right before `begin_s`."""


@dataclass(frozen=True)
class RunWindow:
    """All attempts of a run on one axis."""

    attempts: tuple[AttemptWindow, ...]
    shift_s: float
    """What `RecordedRun` calls time 0, on this axis."""

    @property
    def wall_s(self) -> float:
        """From the first submission to the last sign of life of the last attempt."""
        return self.attempts[-1].end_s


def run_window(run: RecordedRun) -> RunWindow:
    """Lay the attempts of a run side by side, from the first submission on."""
    members: list[list[int]] = [[] for _ in range(run.attempts)]
    for index, process in enumerate(run.processes):
        members[process.attempt].append(index)
    members = [each for each in members if each]
    starts: list[float] = []
    for each in members:
        start = float(min(run.start_s[index] for index in each))
        starts.append(max(start, starts[-1]) if starts else start)
    submitted = [_submission(run, members, place) for place in range(len(members))]
    origin = starts[0]
    if submitted[0] is not None:
        origin = min(origin, submitted[0])
    windows: list[AttemptWindow] = []
    for place, each in enumerate(members):
        begin = starts[place] - origin
        lived = max(_end(run, index) for index in each) - origin
        end = max(lived, begin)
        if place + 1 < len(members):
            limit = starts[place + 1] - origin
            end = min(end, limit)
        gap_begin = windows[-1].end_s if windows else 0.0
        waiting = submitted[place]
        queued_from = begin if waiting is None else min(max(waiting - origin, gap_begin), begin)
        windows.append(
            AttemptWindow(tuple(each), begin, end, queued_from - gap_begin, begin - queued_from)
        )
    return RunWindow(tuple(windows), -origin)


def _submission(run: RecordedRun, members: Sequence[Sequence[int]], place: int) -> float | None:
    """When an attempt was submitted, in the run's own time; None where nobody said.

    A restart inside the same job repeats the job's submission: that one says nothing about it.
    """
    known = _submitted(run.processes, members[place])
    if known is None or (place and known == _submitted(run.processes, members[place - 1])):
        return None
    return known - run.origin_s


def _submitted(processes: Sequence[Process], members: Sequence[int]) -> float | None:
    known = [processes[index].submitted_s for index in members]
    return min((each for each in known if each is not None), default=None)


def _end(run: RecordedRun, index: int) -> float:
    process = run.processes[index]
    return run.start_s[index] + max(process.lived_s, 0.0) + max(process.last_t, 0.0)
