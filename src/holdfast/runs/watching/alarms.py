"""What detectors say, and alarms: each kind opens once, closes when over, and may open again only then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from holdfast.numbers import duration

KINDS: Mapping[str, str] = {
    "silence": "a rank writes nothing any more, not even that it lives",
    "hang": "ranks live, but their training does not progress",
    "missing": "a rank has not appeared, and the others wait",
    "down": "the run failed, and nothing started it again",
    "crash_loop": "restart after restart brings no new steps",
    "loss_not_finite": "the loss is NaN or infinite",
    "slow_steps": "steps take much longer than they did",
    "throughput": "much less work is done in a second than was",
    "loss_spike": "the loss has risen much",
    "grad_norm_spike": "the norm of the gradient has risen much",
}
"""Kinds of alarms, and what each says."""


@dataclass(frozen=True)
class Alarm:
    """Something went wrong with a run, at some time, for some time."""

    id: str
    """Kind and number within the run: ``hang-2`` is its second hang."""
    kind: str
    severity: Severity
    attempt: int
    """The attempt of the run (0, 1, ...) in which it opened."""
    opened_s: float
    """Run time at which it opened: seconds since the run's first process began."""
    ranks: tuple[int, ...]
    """The ranks concerned when it opened; empty: the run as a whole."""
    sentence: str
    """Description of the problem, with figures as of its opening."""
    evidence: Mapping[str, Any]
    closed_s: float | None = None
    """Run time at which it closed; None: it is open."""
    acted: bool = False
    """Whether the user's command was run for it."""

    def to_dict(self) -> dict[str, Any]:
        """The fields; lists for tuples."""
        return {**asdict(self), "ranks": list(self.ranks), "evidence": dict(self.evidence)}


@dataclass(frozen=True)
class Change:
    """An alarm opened or closed."""

    event: Literal["opened", "closed"]
    alarm: Alarm
    sentence: str
    """The alarm's sentence when it opens; when it closes, its duration and why it closed."""


@dataclass
class Ledger:
    """The alarms of one run: those open now, and how many of each kind there were."""

    open: dict[str, Alarm] = field(default_factory=dict)
    """By kind."""
    counts: dict[str, int] = field(default_factory=dict)
    """Alarms ever opened, by kind."""

    def take(
        self, findings: Mapping[str, Finding], attempt: int, now_s: float, why: str = ""
    ) -> list[Change]:
        """Open what is found and not open, close what is open and not found any more.

        Args:
            findings: by kind, all that holds now.
            attempt: the present one.
            now_s: run time.
            why: what ended them, if something ended all that close now.
        """
        changes = []
        for kind in [kind for kind in self.open if kind not in findings]:
            alarm = replace(self.open.pop(kind), closed_s=round(now_s, 3))
            reason = why
            if not why and alarm.attempt != attempt and kind != "crash_loop":
                reason = f"attempt {attempt + 1} began"
            elif kind == "hang" and "silence" in findings:
                reason = "its ranks are silent now"
            text = f"over after {duration(max(0.0, now_s - alarm.opened_s))}"
            changes.append(Change("closed", alarm, f"{text}{f': {reason}' if reason else ''}"))
        for kind, finding in findings.items():
            if kind in self.open:
                continue
            self.counts[kind] = self.counts.get(kind, 0) + 1
            alarm = Alarm(
                f"{kind}-{self.counts[kind]}",
                kind,
                finding.severity,
                attempt,
                round(now_s, 3),
                finding.ranks,
                finding.sentence,
                finding.evidence,
            )
            self.open[kind] = alarm
            changes.append(Change("opened", alarm, finding.sentence))
        return changes

    def acted(self, kind: str) -> None:
        """Note that the command was run for the open alarm of a kind."""
        self.open[kind] = replace(self.open[kind], acted=True)


Severity = Literal["critical", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something is wrong with the run, now."""

    severity: Severity
    ranks: tuple[int, ...]
    """The ranks concerned; empty: the run as a whole."""
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Figures behind the sentence, with units in their names."""
