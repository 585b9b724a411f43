"""The lookout over one run: events go in as they become known, at each look alarms come out.

    lookout = Lookout(DEFAULTS)
    lookout.take(process, event, at_s, opened_at)     # for each event
    for change in lookout.look(now_s): ...            # every few seconds

No file, no clock: time is what the caller says, in seconds of run time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from holdfast.runs.watching import detectors
from holdfast.runs.watching.alarms import Change, Finding, Ledger
from holdfast.runs.watching.pace import Pace, Rates
from holdfast.runs.watching.run_state import RunState
from holdfast.runs.watching.thresholds import DEFAULTS, Thresholds

if TYPE_CHECKING:
    from holdfast.runs.goodput.attempts import AttemptAccount
    from holdfast.runs.recording.events import Process
    from holdfast.runs.recording.lines import Event
    from holdfast.runs.watching.step_summaries import StepSummary

ROLLING_S = 3600.0
"""Window of the rolling ETTR."""


class Lookout:
    """Folds a run's events and judges them."""

    def __init__(
        self,
        limits: Thresholds = DEFAULTS,
        ledger: Ledger | None = None,
        account: Callable[[int], AttemptAccount | None] = lambda attempt: None,
    ) -> None:
        self.limits = limits
        self.account = cache(account)
        """How an attempt (0, 1, ...) that is over ended."""
        self.ledger = Ledger() if ledger is None else ledger
        self.run = RunState(self._step, self._attempt, limits.silence_s)
        self.pace = Pace(limits)
        self.last: StepSummary | None = None
        """The last step that all ranks have told of."""
        self.on_step: Callable[[StepSummary, float], object] = lambda summary, at_s: None
        """Called with every such step, and the run time at which it was told."""
        self._hang = detectors.Hang(lambda: self.pace.usual_period_s())
        self._crashes = detectors.CrashLoop()
        self._losses = detectors.NotFinite()
        self._productive: deque[tuple[float, float]] = deque()

    def take(self, process: Process, event: Event, at_s: float, opened_at: float) -> None:
        """Fold one event; see `RunState.take`."""
        self.run.take(process, event, at_s, opened_at)

    def look(self, now_s: float) -> list[Change]:
        """What opened and what closed since the last look; `now_s` is the present run time."""
        run = self.run
        run.settle(now_s)
        changes = self.ledger.take(self.findings(now_s), run.attempt, now_s)
        if run.over:
            changes += self.ledger.take({}, run.attempt, now_s, "the run is over")
        return changes

    def findings(self, now_s: float) -> dict[str, Finding]:
        """All that is wrong now, by kind of alarm."""
        run, limits = self.run, self.limits
        if run.attempt < 0:
            return {}
        findings = {
            "silence": detectors.silence(run, limits, now_s),
            "hang": self._hang.look(run, limits, now_s),
            "missing": detectors.missing(run, limits, now_s),
            "down": detectors.down(run, limits, now_s, self.account),
            "crash_loop": self._crashes.look(run, limits, now_s),
            "loss_not_finite": self._losses.look(run, limits, now_s),
            "slow_steps": self.pace.slow_steps(),
            "throughput": self.pace.plunge(len(run.ranks)),
            "loss_spike": self.pace.loss_spike(),
            "grad_norm_spike": self.pace.grad_norm_spike(),
        }
        return {kind: finding for kind, finding in findings.items() if finding is not None}

    def rates(self) -> Rates | None:
        """The pace of the last steps."""
        return self.pace.rates(len(self.run.ranks))

    def ettr(self, now_s: float) -> float | None:
        """Productive over wall time since the run began; None before it lasted."""
        return self.run.ettr_seconds()[0] / now_s if now_s > 0 else None

    def recent_ettr(self, now_s: float) -> float | None:
        """The same over the last hour."""
        begun = max(0.0, now_s - ROLLING_S)
        while self._productive and self._productive[0][0] <= begun:
            self._productive.popleft()
        productive_s = sum(seconds for _, seconds in self._productive)
        return min(1.0, productive_s / (now_s - begun)) if now_s > begun else None

    def _step(self, summary: StepSummary, at_s: float) -> None:
        self.last = summary
        self.pace.take(summary)
        self._losses.take(summary.step, summary.loss, summary.not_finite)
        before = self.run.completed_before
        if before is None or summary.step > before:
            self._productive.append((at_s, summary.own_s))
            if len(self._productive) % 1024 == 0:
                self.recent_ettr(at_s)
        self.on_step(summary, at_s)

    def _attempt(self, at_s: float) -> None:
        self.pace = Pace(self.limits)
        self._losses.begin()
        self._crashes.restarted(self.run, self.limits, at_s)
