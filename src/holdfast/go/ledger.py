"""The ledger of a training run: what its strength cost, in core-seconds by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.go.elo import elo_difference, elo_text
from holdfast.report.figures import bars, lines

PARTS = ("search", "inference", "training", "waiting")


@dataclass(frozen=True)
class Iteration:
    """One iteration: games, then steps on their samples."""

    number: int
    games: int
    samples: int
    loss: float
    search_s: float
    """CPU seconds of trees and rules."""
    inference_s: float
    """CPU seconds of the network in self-play."""
    waiting_s: float
    """Seconds in which processes of self-play had work and no core."""
    training_s: float
    rating_s: float = 0.0
    """CPU seconds of the rating match, which the strength does not depend on."""
    wins: int = 0
    losses: int = 0
    draws: int = 0

    @property
    def core_s(self) -> float:
        """Core-seconds of search, inference and training."""
        return self.search_s + self.inference_s + self.training_s

    @property
    def cost_s(self) -> float:
        """Core-seconds of all parts."""
        return self.core_s + self.waiting_s


@dataclass(frozen=True)
class Training(Answer):
    """A training run: strength over core-hours, and where these went."""

    net: str
    """File of the last network."""
    opponent: str
    """Who the ratings are against."""
    iterations: Sequence[Iteration]

    title = "Training by self-play"

    @property
    def core_hours(self) -> float:
        """What all iterations cost, ratings aside."""
        return sum(row.cost_s for row in self.iterations) / 3600

    def _points(self) -> list[dict[str, float | None]]:
        """The ratings: core-hours so far, Elo with interval, core-seconds per Elo since the one before."""
        spent = accumulate(row.cost_s for row in self.iterations)
        points, before = list[dict[str, float | None]](), None
        for row, cost_s in zip(self.iterations, spent, strict=True):
            if row.wins + row.losses + row.draws:
                elo, (low, high) = elo_difference(row.wins, row.losses, row.draws)
                point = {"iteration": row.number, "core_hours": cost_s / 3600, "elo": elo}
                point |= {"low": low, "high": high, "core_seconds_per_elo": None}
                if elo is not None and before is not None and elo > before[1]:
                    point["core_seconds_per_elo"] = (cost_s - before[0]) / (elo - before[1])
                before = (cost_s, elo) if elo is not None else before
                points.append(point)
        return points

    def _parts(self) -> list[dict[str, Any]]:
        rows = []
        for part in PARTS:
            spent = sum(getattr(row, f"{part}_s") for row in self.iterations)
            rows.append({"part": part, "core_s": spent, "share": spent / (3600 * self.core_hours)})
        return rows

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast go train``."""
        parts = {row["part"]: row["core_s"] for row in self._parts()}
        return {
            "net": self.net,
            "opponent": self.opponent,
            "core_seconds": parts | {"rating": sum(row.rating_s for row in self.iterations)},
            "ratings": self._points(),
            "iterations": [asdict(row) for row in self.iterations],
        }

    def values(self) -> Sequence[Value]:
        """The last rating and what it cost."""
        cost = Value("core_hours", self.core_hours, "h", better="lower")
        if not (points := self._points()):
            return [cost]
        last = points[-1]
        ends = last["low"], last["high"]
        return [Value("elo", last["elo"], "Elo", ends, "higher", f"above {self.opponent}"), cost]

    def sections(self) -> Sequence[Section]:
        """Strength over core-hours, then the parts."""
        points, parts = self._points(), self._parts()
        sentence = f"{len(self.iterations)} iterations took {self.core_hours:.2g} core-hours."
        figures, tables = [], []
        if points:
            last = points[-1]
            sentence = (
                f"After {last['core_hours']:.2g} core-hours the network's Elo above "
                f"{self.opponent} is {elo_text(last['elo'], (last['low'], last['high']))}."
            )
            columns = {
                "iteration": ColumnFormat("Iteration"),
                "core_hours": ColumnFormat("Cost", unit="core-hours", digits=2),
                "elo": ColumnFormat("Elo", interval=("low", "high")),
                "core_seconds_per_elo": ColumnFormat("Per Elo", unit="core-s"),
            }
            tables = [Table(pa.Table.from_pylist(points), columns)]
            drawn = [row for row in points if None not in (row["elo"], row["low"], row["high"])]
            title = f"Elo above {self.opponent}"
            if drawn:
                figures = [
                    lines(
                        drawn,
                        "core_hours",
                        "elo",
                        "Core-hours",
                        title,
                        low="low",
                        high="high",
                        points=True,
                        zero=False,
                    )
                ]
        how = How(
            "P(win) = 1 / (1 + 10^(-d / 400)); cost = search + inference + training + waiting",
            notes="Each rating is a match of its own, whose cost is not counted. Per Elo: since the rating "
            "before, where there was a gain.",
        )
        largest = max(parts, key=itemgetter("core_s"))
        split = (
            f"The largest part is {largest['part']}, {largest['share']:.0%} of the core-seconds."
        )
        columns = {
            "part": ColumnFormat("Part"),
            "core_s": ColumnFormat("Time", unit="core-s"),
            "share": ColumnFormat("Share"),
        }
        shown = [bars(parts, "part", "core_s", "core-seconds")]
        spent = Table(pa.Table.from_pylist(parts), columns)
        return [
            Section("strength", "What did the strength cost?", sentence, figures, tables, how),
            Section("parts", "Where did the core-seconds go?", split, shown, [spent]),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """Strength without a rating, or one-sided."""
        if self._points() and self._points()[-1]["elo"] is not None:
            return []
        text = f"The strength against {self.opponent} is not known."
        return [Unknown(text, "Set rating.every, or an opponent of similar strength.", doubt=True)]

    def written(self) -> dict[str, Path]:
        """The last network."""
        return {"net": Path(self.net)}
