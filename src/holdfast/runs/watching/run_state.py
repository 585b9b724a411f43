"""What a run is doing now: the events of all its ranks, folded one by one.

`at_s` is the time at which an event became known, in run time: when its line was seen to arrive, or, for a
history, when it happened by its own clock. Whatever is measured within a rank (the time between two steps,
the length of a checkpoint) comes from the rank's own monotonic clock instead, and does not depend on
how often somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.runs.watching.level_shift import SortedWindow
from holdfast.runs.watching.step_summaries import RankStep, StepSummaries, StepSummary

if TYPE_CHECKING:
    from holdfast.runs.recording.events import Process
    from holdfast.runs.recording.lines import Event

EXCUSED = ("checkpoint", "evaluation", "pause")
"""Spans other than steps, whose begin is recorded too."""
INITIALISATION = "initialisation"
"""Phase until the end of an attempt's first step; handled like `EXCUSED`."""
_SPANS_KEPT = 64


@dataclass(slots=True)
class Rank:
    """One rank of the present attempt."""

    process: Process
    opened_at: float
    """Run time of the process's ``t`` 0."""
    seen_at: float
    """Run time at which its last line arrived."""
    progress_at: float
    """... its last line that is not ``alive``."""
    t: float = 0.0
    """``t`` of its last line."""
    progress_t: float = 0.0
    beat_s: float = 0.0
    """Time before its last ``alive`` line in which it wrote nothing: its heartbeat, if it lives."""
    ended: str = ""
    """How it ended; empty: it has not."""
    end_detail: str = ""
    inside: list[str] = field(default_factory=list)
    """Spans that were begun and are not over, the outermost first."""
    step: int | None = None
    """The last completed one of this attempt."""
    step_t: float | None = None
    excused: list[tuple[float, float]] = field(default_factory=list)
    """(begin, length) of spans since that step that are not training."""
    data_wait_s: float = 0.0
    """Since that step."""

    @property
    def doing(self) -> str:
        """The span it is in, ``initialisation``, or ``training``."""
        if self.inside:
            return self.inside[-1]
        return INITIALISATION if self.step is None else "training"

    def excuse(self, begin: float, length: float) -> None:
        """Record a span that is not training; it replaces earlier ones inside it."""
        while self.excused and self.excused[-1][0] >= begin:
            self.excused.pop()
        self.excused.append((begin, length))


@dataclass
class RunState:
    """State of the run, from its events."""

    on_step: Callable[[StepSummary, float], None] = lambda summary, at_s: None
    """Called with every step that all ranks have reported, and its time."""
    on_attempt: Callable[[float], None] = lambda at_s: None
    """Called when an attempt has begun."""
    silence_s: float = 60.0
    """A process without a launch id joins an attempt that wrote events this recently."""

    attempt: int = -1
    """0, 1, ...; -1 before anything was seen."""
    attempt_at: float = 0.0
    """Run time at which the present attempt's first rank was seen."""
    world_size: int = 0
    ranks: dict[int, Rank] = field(default_factory=dict)
    completed: int | None = None
    """The highest step that was ever completed."""
    completed_before: int | None = None
    """... before the present attempt: what it does again up to here is replayed."""
    first_at: float | None = None
    """Run time of the first step completed in the present attempt."""
    heard_at: float = 0.0
    """Run time at which the last line of any rank arrived."""
    spans: dict[str, SortedWindow] = field(default_factory=dict)
    """Lengths of earlier spans by kind, in seconds."""
    productive_s: float = 0.0
    """Sum over the ranks of the present attempt, in new steps."""
    replayed_s: float = 0.0
    productive_before_s: float = 0.0
    """Sum over earlier attempts, each the mean over its ranks."""
    replayed_before_s: float = 0.0
    _by_file: dict[Path, Rank] = field(default_factory=dict)
    _launch: str = ""
    _summaries: StepSummaries = field(default_factory=StepSummaries)

    def take(self, process: Process, event: Event, at_s: float, opened_at: float) -> None:
        """Fold one event.

        Args:
            process: who wrote it.
            event: what its line says.
            at_s: run time at which it became known.
            opened_at: run time of the process's ``t`` 0.
        """
        rank = self._by_file.get(process.file)
        if rank is None:
            rank = self._join(process, at_s, opened_at)
        rank.seen_at = max(rank.seen_at, at_s)
        if event.event == "alive":
            rank.beat_s = max(0.0, event.t - rank.t)
        rank.t = max(rank.t, event.t)
        if rank is not self.ranks.get(process.rank):
            return  # of an attempt that is over
        self.heard_at = max(self.heard_at, at_s)
        if event.event in ("alive", "published") or event.thread is not None:
            return  # the process is alive, which does not mean progress
        rank.progress_at, rank.progress_t = rank.seen_at, rank.t
        match event.event:
            case "begin" if event.what in EXCUSED:
                rank.inside.append(event.what)
            case "data_wait":
                rank.data_wait_s += event.own_s
            case "step" if event.step is not None:
                self._take_step(rank, event, event.step, at_s)
            case "checkpoint" | "evaluation" | "pause":
                self._take_span(rank, event)
            case "end":
                rank.ended, rank.end_detail = event.how or "exception", event.detail or ""

    def settle(self, at_s: float) -> None:
        """Hand out the steps that all ranks have told of; call it when a batch of events is taken."""
        for summary in self._summaries.due(len(self.ranks)):
            self.on_step(summary, at_s)

    @property
    def living(self) -> list[Rank]:
        """The ranks of the present attempt that have not ended."""
        return [rank for rank in self.ranks.values() if not rank.ended]

    @property
    def over(self) -> bool:
        """Whether every rank has ended its work as it meant to."""
        return (
            bool(self.ranks)
            and (self.first_at is not None or len(self.ranks) >= self.world_size)
            and all(rank.ended == "clean" for rank in self.ranks.values())
        )

    @property
    def failed(self) -> list[Rank]:
        """The ranks that ended with an exception or a signal."""
        return [rank for rank in self.ranks.values() if rank.ended not in ("", "clean")]

    def ettr_seconds(self) -> tuple[float, float]:
        """Productive and replayed seconds of the run so far, each the mean over the ranks."""
        ranks = max(1, len(self.ranks))
        return (
            self.productive_before_s + self.productive_s / ranks,
            self.replayed_before_s + self.replayed_s / ranks,
        )

    def _join(self, process: Process, at_s: float, opened_at: float) -> Rank:
        """A process that was not seen before: a rank of this attempt, or the first of the next."""
        if not self._belongs(process, at_s):
            self._begin_attempt(at_s)
            self._launch = process.launch
        self.world_size = max(self.world_size, process.world_size)
        self._launch = self._launch or process.launch
        rank = Rank(process, opened_at, at_s, at_s)
        self.ranks[process.rank] = self._by_file[process.file] = rank
        return rank

    def _belongs(self, process: Process, at_s: float) -> bool:
        if not self.ranks or process.rank in self.ranks:
            return False
        if process.launch or self._launch:
            return process.launch == self._launch
        return any(at_s - rank.seen_at <= self.silence_s for rank in self.living)

    def _begin_attempt(self, at_s: float) -> None:
        self.settle(at_s)
        self.productive_before_s, self.replayed_before_s = self.ettr_seconds()
        self.productive_s = self.replayed_s = 0.0
        self.attempt += 1
        self.attempt_at = at_s
        self.ranks = {}
        self.world_size = 0
        self.completed_before = self.completed
        self.first_at = None
        self._summaries.start_again()
        self.on_attempt(at_s)

    def _take_span(self, rank: Rank, event: Event) -> None:
        seconds = event.seconds or 0.0
        if event.event in rank.inside:
            while rank.inside.pop() != event.event:
                pass
        rank.excuse(event.t - seconds, seconds)
        self._note(event.event, seconds)

    def _take_step(self, rank: Rank, event: Event, step: int, at_s: float) -> None:
        if rank.step is None:
            self._note(INITIALISATION, event.t + rank.process.lived_s)
            self.first_at = at_s if self.first_at is None else self.first_at
        elif step <= rank.step:
            self._summaries.start_again()
        period_s = None
        if rank.step_t is not None:
            excused = sum(length for _, length in rank.excused)
            period_s = max(event.t - rank.step_t - excused, event.own_s)
        if self.completed_before is not None and step <= self.completed_before:
            self.replayed_s += event.own_s
        else:
            self.productive_s += event.own_s
        self.completed = step if self.completed is None else max(step, self.completed)
        self._summaries.add(RankStep(rank.process.rank, event, period_s, rank.data_wait_s))
        rank.step, rank.step_t, rank.data_wait_s = step, event.t, 0.0
        rank.inside.clear()
        rank.excused.clear()

    def _note(self, kind: str, seconds: float) -> None:
        self.spans.setdefault(kind, SortedWindow(_SPANS_KEPT)).add(seconds)
