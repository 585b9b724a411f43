"""What a watcher tells: alarms as they open and close, and how the run stood in the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from holdfast.numbers import duration, number
from holdfast.runs.watching.alarms import Alarm, Change

if TYPE_CHECKING:
    from holdfast.runs.goodput.attempts import AttemptAccount


@dataclass(frozen=True)
class Notice:
    """An alarm opened or closed, at a time, in a run."""

    run_id: str
    time_s: float
    """Wall clock, seconds since 1970."""
    change: Change

    def to_dict(self) -> dict[str, Any]:
        """One flat record: ``event`` (opened, closed), ``time`` (UTC), ``run_id``, the alarm's fields."""
        return {
            "event": self.change.event,
            "time": _moment(self.time_s).isoformat(timespec="milliseconds"),
            "run_id": self.run_id,
            **self.change.alarm.to_dict(),
            "sentence": self.change.sentence,
        }

    def line(self) -> str:
        """For people."""
        alarm = self.change.alarm
        when = f"{_moment(self.time_s):%Y-%m-%d %H:%M:%S} UTC"
        severity = f" {alarm.severity}" if self.change.event == "opened" else ""
        text = f"{when}  {alarm.id} {self.change.event}{severity}: {self.change.sentence}"
        return printable(text)


@dataclass(frozen=True)
class RunStatus:
    """How a run stood when the watching ended."""

    run_id: str
    state: Literal["waiting", "going", "down", "over"]
    """``waiting``: no event yet; ``over``: all ranks ended as they meant to; ``down``: none lives, and not
    all did."""
    attempts: int
    step: int | None
    """The highest completed one."""
    run_time_s: float
    """Seconds since the run's first process began."""
    opened: int
    """Alarms that were opened in this watching."""
    open: tuple[Alarm, ...]
    """Those that are open."""
    rejected_lines: int = 0
    """Lines of the events that could not be used."""
    ended: AttemptAccount | None = None
    """How the last attempt ended, as `report` says it; None without events."""

    def to_dict(self) -> dict[str, Any]:
        """The fields; ``event`` is ``status``, so that the record can stand among those of alarms."""
        return {
            "event": "status",
            "run_id": self.run_id,
            "state": self.state,
            "attempts": self.attempts,
            "step": self.step,
            "run_time_s": round(self.run_time_s, 3),
            "alarms_opened": self.opened,
            "open": [alarm.to_dict() for alarm in self.open],
            "rejected_lines": self.rejected_lines,
            "ending": None if self.ended is None else self.ended.end(),
        }

    def line(self) -> str:
        """For people."""
        if self.state == "waiting":
            return "no event yet"
        word = {"over": "is over", "going": "is running", "down": "is down"}[self.state]
        step = "" if self.step is None else f" at step {number(self.step)}"
        attempts = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}"
        if self.open:
            alarms = f"open: {', '.join(alarm.id for alarm in self.open)}"
        else:
            alarms = "no alarm is open"
        how = f". {self.ended.sentence}" if self.ended and self.ended.interrupted else ""
        return printable(
            f"run {self.run_id} {word}{step} after {duration(max(0.0, self.run_time_s))} in {attempts}; "
            f"{number(self.opened)} alarm{'' if self.opened == 1 else 's'} raised, {alarms}{how}"
        )


def _moment(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, UTC)


def printable(text: str) -> str:
    """The text on one line, with a question mark for every character that a terminal might obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
