"""What a calibration found, key by key: estimates with their intervals, and what had to be assumed.

The same record becomes the comments of a scenario file, the table of a page and the JSON of a command.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.fleet.wording import brief_interval
from holdfast.numbers import brief, duration

Interval = tuple[float, float]
_TABLE = re.compile(r"^\[{1,2}([a-z_.]+)\]{1,2}$")
_KEY = re.compile(r"^([a-z_]+) = ")
_MOST_WIDTH = 100

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),  # as in the scenario's TOML: "workload.sizes[0].hours"
        pa.field("value", pa.float64()),  # null for values that are no number
        pa.field("low", pa.float64()),  # interval; null without one
        pa.field("high", pa.float64()),
        pa.field("level", pa.string()),  # of the interval; null without one
        pa.field("n", pa.int64()),  # observations behind it; null without
        pa.field("unit", pa.string()),
        pa.field("how", pa.string()),
        pa.field("estimated", pa.bool_()),  # false: assumed
    ]
)


@dataclass(frozen=True)
class Estimate:
    """One key of a scenario and where its value comes from."""

    key: str
    """As in the TOML: ``workload.sizes[0].hours``."""
    how: str
    """How it was estimated, or why it is assumed."""
    value: float | None = None
    interval: Interval | None = None
    level: str = "at 95 %"
    """Of the interval."""
    n: int | None = None
    """Observations behind it."""
    unit: str = ""
    """``"s"`` reads as a duration."""
    estimated: bool = True
    """Whether the log told it."""

    def estimate(self) -> str:
        """The value with its interval: ``0.0065 [0.0061, 0.0069]``; "" if it is no number."""
        if self.value is None:
            return ""
        told = _spoken(self.value, self.unit)
        return told if self.interval is None else f"{told} {_interval(*self.interval, self.unit)}"

    def comment(self) -> str:
        """The estimate in one line: ``0.0065 [0.0061, 0.0069] at 95 %, n = 812: ...``."""
        if not self.estimated:
            return f"assumed: {self.how}"
        parts = [self.estimate()] if self.value is not None else []
        if self.interval is not None:
            parts[-1] += f" {self.level}"
        if self.n is not None:
            parts.append(f"n = {self.n:,}")
        told = ", ".join(parts)
        return f"{told}: {self.how}" if told else self.how


def _spoken(value: float, unit: str) -> str:
    if unit == "s":
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{brief(value)} {unit}".strip()


def _interval(low: float, high: float, unit: str) -> str:
    if unit == "s":
        end = "∞)" if math.isinf(high) else f"{duration(high)}]"
        return f"[{duration(low)}, {end}"
    return brief_interval(low, high)


@dataclass
class Findings:
    """Collects estimates and notes while a log is calibrated."""

    estimates: list[Estimate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def found(
        self,
        key: str,
        value: float | None,
        how: str,
        *,
        interval: Interval | None = None,
        level: str = "at 95 %",
        n: int | None = None,
        unit: str = "",
    ) -> None:
        """Record what the log told."""
        self.estimates.append(Estimate(key, how, value, interval, level, n, unit))

    def assumed(self, key: str, why: str) -> None:
        """Record what it did not tell."""
        self.estimates.append(Estimate(key, why, estimated=False))

    def note(self, text: str) -> None:
        """Record something that the user should know."""
        self.notes.append(text)


def table(estimates: Sequence[Estimate]) -> pa.Table:
    """The estimates in `SCHEMA`, in the order in which they were made."""
    rows = [
        {
            "key": each.key,
            "value": each.value,
            "low": None if each.interval is None else each.interval[0],
            "high": None if each.interval is None else each.interval[1],
            "level": None if each.interval is None else each.level,
            "n": each.n,
            "unit": each.unit,
            "how": each.how,
            "estimated": each.estimated,
        }
        for each in estimates
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def commented(toml: str, estimates: Sequence[Estimate], head: Sequence[str] = ()) -> str:
    """A scenario's TOML with a comment above each key that an estimate names.

    Args:
        toml: of `Scenario.to_toml`.
        estimates: what is known of the keys. An estimate of a table (``failures.lemons``) stands
            above the table's header.
        head: lines of comment at the beginning.
    """
    said: dict[str, list[str]] = {}
    for each in estimates:
        said.setdefault(each.key, []).append(each.comment())
    lines = [comment for text in head for comment in _wrapped(text)]
    place = ""
    count: dict[str, int] = {}
    for line in toml.splitlines():
        if header := _TABLE.match(line):
            place = header[1]
            if line.startswith("[["):
                number = count.get(place, -1) + 1
                count[place] = number
                place = f"{place}[{number}]"
            key = place
        elif assigned := _KEY.match(line):
            key = f"{place}.{assigned[1]}" if place else assigned[1]
        else:
            key = ""
        for text in said.get(key, []):
            lines += _wrapped(text)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    """A text as lines of comment; control characters of a log's names do not break out of them."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    made = [""]
    for word in clean.split():
        if made[-1] and len(made[-1]) + len(word) > _MOST_WIDTH - 3:
            made.append("")
        made[-1] += f" {word}" if made[-1] else word
    return [f"# {line}" for line in made]


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


def binomial_interval(count: float, total: float) -> Interval:
    """Exact 95 % interval of a share (Clopper and Pearson 1934); (0, 1) of nothing."""
    from scipy.special import betaincinv

    low = float(betaincinv(count, total - count + 1, 0.025)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return low, high
