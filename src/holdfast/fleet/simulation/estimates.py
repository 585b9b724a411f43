"""What a calibration found, key by key: estimates with their intervals, and what had to be assumed.

The same record becomes the comments of a scenario file, the table of a page and the JSON of a command.
"""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from holdfast.config import parse_config
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.wording import brief_interval, duration_interval
from holdfast.numbers import brief, duration

Interval = tuple[float, float]
Number = TypeVar("Number", float, int, None)
_MOST_WIDTH = 100

# Key -> how a log tells it; key that no log tells -> why.
_TEXTS = parse_config(Path(__file__).with_name("estimates.toml"), "the methods of estimates")
METHODS = _TEXTS["told"]
ASSUMED = _TEXTS["assumed"]
_HOURS = ("hours", "scale_hours")
_TIMES = ("grace", "preempt_after", "requeue_delay", "time_limit", "check_interval")


@dataclass(frozen=True)
class Estimate:
    """One key of a scenario and where its value comes from."""

    key: str  # As in the TOML: ``workload.sizes[0].hours``
    how: str  # How it was estimated, or why it is assumed
    value: float | None = None  # None: it is no number
    n: int | None = None  # Observations behind it
    interval: Interval | None = None
    level: str = "at 95 %"  # Of the interval
    estimated: bool = True  # Whether the log told it

    @property
    def unit(self) -> str:
        """``"s"`` reads as a duration."""
        last = self.key.rpartition(".")[2]
        if last in _TIMES or self.key in ("repair.fast_min", "repair.slow_min"):
            return "s"
        return "h" if last in _HOURS else "a day" if last == "jobs_per_day" else ""

    def estimate(self) -> str:
        """The value with its interval: ``0.0065 [0.0061, 0.0069]``; "" if it is no number."""
        text = duration if self.unit == "s" else brief
        if self.value is None:
            return "" if self.estimated else "assumed"
        unit = f" {self.unit}" if self.unit not in ("s", "") else ""
        value = f"{self.value:,}" if isinstance(self.value, int) else text(self.value)
        if self.interval is None:
            return f"{value}{unit}"
        interval = duration_interval if self.unit == "s" else brief_interval
        return f"{value}{unit} {interval(*self.interval)}"

    def comment(self) -> str:
        """The estimate in one line: ``0.0065 [0.0061, 0.0069] at 95 %, n = 812: ...``."""
        if not self.estimated:
            return f"assumed: {self.how}"
        level = f" {self.level}" if self.interval is not None else ""
        count = "" if self.n is None else f"n = {self.n:,}"
        estimate = ", ".join(part for part in (self.estimate() + level, count) if part)
        return f"{estimate}: {self.how}" if estimate else self.how

    def to_dict(self) -> dict[str, Any]:
        """A row of the JSON."""
        low, high = self.interval or (None, None)
        value = None if self.value is None else float(self.value)
        level = None if self.interval is None else self.level
        bounds = {"value": value, "low": low, "high": high, "level": level}
        return {"key": self.key, **bounds, "n": self.n, "unit": self.unit, "how": self.how}


@dataclass
class Findings:
    """Collects estimates and notes while a log is calibrated."""

    estimates: list[Estimate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def record(
        self,
        key: str,
        value: Number,
        n: int | None = None,
        interval: Interval | None = None,
        level: str = "at 95 %",
    ) -> Number:
        """Record what the log told, by the method of its key; gives the value."""
        how = METHODS[re.sub(r"\[\d+\]", "", key)]
        count = None if n is None else int(n)
        self.estimates.append(Estimate(key, how, value, count, interval, level))
        return value

    def assumed(self, key: str, why: str, value: Number = None) -> Number:
        """Record what it did not tell; gives the value that is assumed."""
        self.estimates.append(Estimate(key, why, estimated=False))
        return value

    def note(self, text: str) -> None:
        """Record something that the user should know."""
        self.notes.append(text)


def wrapped(text: str) -> list[str]:
    """A text as lines of comment; control characters of a log's names do not break out of them."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    wrapped = textwrap.wrap(clean, _MOST_WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in wrapped or [""]]


def rounded(value: float, digits: int = 4) -> float:
    """A value with so many significant digits, as a person would write it."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))


def rounded_time(seconds: float) -> float:
    """Seconds rounded to the unit in which a person would give such a time."""
    for unit, above in ((3_600, 2 * 86_400), (60, 2 * 3_600), (1, 120)):
        if seconds >= above:
            return float(round(seconds / unit) * unit)
    return rounded(seconds, 3)


def median_interval(values: Array) -> tuple[float, float, float]:
    """Median and its 95 % interval, by the normal approximation to the ranks of the order statistics.

    Args:
        values: shape [n], at least one.
    """
    half = 0.98 / math.sqrt(values.size)
    low, middle, high = np.quantile(values, [max(0.5 - half, 0), 0.5, min(0.5 + half, 1)]).tolist()
    return middle, low, high
