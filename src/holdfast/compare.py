"""`holdfast diff`: two saved answers side by side, and whether the later one is worse.

A change counts where the 95 % interval of the difference excludes zero. Its ends come from the two
intervals (method of variance estimates recovery: Zou and Donner, Statistics in Medicine 27, 2008):
d = b - a, L = d - sqrt((b - b_low)^2 + (a_high - a)^2), U = d + sqrt((b_high - b)^2 + (a - a_low)^2).
Figures without an interval are exact: any change beyond the tolerance counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import SCHEMA, Answer, ColumnFormat, How, Section, Table
from holdfast.command import Share, room
from holdfast.errors import InputError
from holdfast.files import read_whole
from holdfast.numbers import counted

app = room("diff", "Compare two saved answers.")

WORSE, BETTER, CHANGED, SAME, UNKNOWN = "worse", "better", "changed", "same", "unknown"


@dataclass(frozen=True)
class Difference(Answer):
    """How one answer differs from an earlier one."""

    compared: str
    rows: list[dict[str, Any]]
    """One per figure: name, unit, before, after, difference, low, high (95 %), verdict."""
    gate: bool

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Comparison: {self.compared}"

    @property
    def exit_code(self) -> int:
        """1 where the gate is asked for and a figure got worse or can no longer be determined."""
        return int(self.gate and bool(self._names(WORSE, UNKNOWN)))

    def _names(self, *verdicts: str) -> list[str]:
        return [row["name"] for row in self.rows if row["verdict"] in verdicts]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast diff``."""
        names = {verdict: self._names(verdict) for verdict in (WORSE, BETTER, CHANGED, UNKNOWN)}
        return {"title": self.compared, **names, "values": self.rows}

    def sections(self) -> Sequence[Section]:
        """What changed."""
        verdicts = [row["verdict"] for row in self.rows]
        counts = {verdict: verdicts.count(verdict) for verdict in (WORSE, BETTER, CHANGED, UNKNOWN)}
        parts = [f"{count} {verdict}" for verdict, count in counts.items() if count]
        sentence = f"Of {counted(len(self.rows), 'figure')}: {', '.join(parts) or 'none changed'}."
        columns = {
            "name": ColumnFormat("Figure"),
            "unit": ColumnFormat("Unit"),
            "before": ColumnFormat("Before"),
            "after": ColumnFormat("After"),
            "difference": ColumnFormat("Difference, 95 %", interval=("low", "high")),
            "verdict": ColumnFormat("Verdict"),
        }
        how = How(
            [
                "difference d = after - before",
                "low = d - sqrt((after - its low)^2 + (before's high - before)^2), high alike",
                "a change counts where [low, high] excludes 0; of exact figures, beyond the tolerance",
            ],
            source="Zou and Donner, Statistics in Medicine 27, 2008",
        )
        table = pa.Table.from_pylist(self.rows)
        return [
            Section("changes", "What changed?", sentence, tables=[Table(table, columns)], how=how)
        ]


@app.default
def diff(
    before: Path, after: Path, /, *, gate: bool = False, tolerance: Share = 1e-6
) -> Difference:
    """Compare two answers of one command that were saved with `--save`.

    Args:
        before: The earlier answer.
        after: The later answer.
        gate: Exit with 1 if a figure got worse beyond the intervals, or can no longer be determined.
        tolerance: Relative change of a figure without an interval that does not count.
    """
    return compare(
        saved_answer(before),
        saved_answer(after),
        gate=gate,
        tolerance=tolerance,
        paths=(before, after),
    )


def compare(
    old: dict[str, Any],
    new: dict[str, Any],
    *,
    gate: bool = False,
    tolerance: float = 1e-6,
    paths: tuple[Path | None, Path | None] = (None, None),
) -> Difference:
    """Compare two answers as `Answer.document` gives them.

    Args:
        old: the earlier answer.
        new: the later answer.
        gate: whether the difference is a failure if a figure got worse.
        tolerance: relative change of a figure without an interval that does not count.
        paths: of both files, for messages.

    Raises:
        InputError: ``conflict`` for answers to different questions, ``no-data`` without figures.
    """
    if old["title"] != new["title"]:
        raise InputError(
            "two answers to different questions",
            code="conflict",
            path=paths[1],
            place="title",
            found=new["title"],
            expected=old["title"],
        )
    was, now = ({value["name"]: value for value in document["values"]} for document in (old, new))
    if not was:
        raise InputError(
            "the answer has no figures to compare",
            code="no-data",
            path=paths[0],
            place="values",
            remedy="compare the JSON of --json with a tool of your own",
        )
    rows = [
        _compare(was.get(name), now.get(name), tolerance) for name in dict.fromkeys([*was, *now])
    ]
    return Difference(old["title"], rows, gate)


def _compare(
    was: dict[str, Any] | None, now: dict[str, Any] | None, tolerance: float
) -> dict[str, Any]:
    figure = now or was
    assert figure is not None
    row = {
        "name": figure["name"],
        "unit": figure["unit"],
        "before": None if was is None else was["value"],
        "after": None if now is None else now["value"],
        "difference": None,
        "low": None,
        "high": None,
        "verdict": UNKNOWN,
    }
    a, b = row["before"], row["after"]
    if was is not None and now is not None and was["unit"] != now["unit"]:
        raise InputError(
            f"the figure {figure['name']} has two units",
            code="conflict",
            found=now["unit"],
            expected=was["unit"],
        )
    if a is None and b is None:
        return row | {"verdict": SAME}
    if a is None or b is None:
        # A value that could not be determined before is not a regression.
        return row | {"verdict": UNKNOWN if b is None else CHANGED}
    assert was is not None
    assert now is not None
    d = b - a
    (a_below, a_above), (b_below, b_above) = _reach(was), _reach(now)
    low, high = d - math.hypot(b_below, a_above), d + math.hypot(b_above, a_below)
    exact = was["ci95"] is None and now["ci95"] is None
    counts = abs(d) > tolerance * abs(a) if exact else low > 0 or high < 0
    improves = {"lower": d < 0, "higher": d > 0}.get(figure["better"])
    verdict = SAME if not counts else CHANGED if improves is None else BETTER if improves else WORSE
    return row | {"difference": d, "low": low, "high": high, "verdict": verdict}


def _reach(value: dict[str, Any]) -> tuple[float, float]:
    """How far the 95 % interval reaches below and above the value; an open end reaches without limit."""
    if value["ci95"] is None:
        return 0.0, 0.0
    low, high = value["ci95"]
    return (
        math.inf if low is None else max(0.0, value["value"] - low),
        math.inf if high is None else max(0.0, high - value["value"]),
    )


def saved_answer(path: Path) -> dict[str, Any]:
    """What ``--save`` wrote: `Answer.document`.

    Raises:
        InputError: ``unknown-format``; what reading a file refuses.
    """
    data = read_whole(path, "an answer that --save wrote")
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if isinstance(document, dict) and document.get("schema") == SCHEMA:
        return document
    raise InputError(
        "not a saved answer",
        code="unknown-format",
        path=path,
        found=" ".join(data[:60].decode("utf-8", "replace").split()),
        expected=f'JSON with "schema": "{SCHEMA}"',
        remedy="run the command again with --save FILE",
    )
