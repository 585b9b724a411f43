"""Which change of a configuration is the cheapest next point: each is trained, and plays the base."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.go.elo import elo_difference, elo_text
from holdfast.go.ledger import Training
from holdfast.go.matches import match
from holdfast.go.rules import read_size
from holdfast.report.figures import bars

if TYPE_CHECKING:
    from holdfast.go.training import Config

BASE = "base"


@dataclass(frozen=True)
class Change:
    """A configuration beside the base."""

    name: str
    core_s: float
    """Core-seconds of its training: search, inference and steps."""
    extra_s: float
    """Core-seconds above those of the base."""
    wins: int
    """Games against the network of the base."""
    losses: int
    draws: int

    @property
    def row(self) -> dict[str, Any]:
        """Elo above the base with its interval, and what a core-hour more gave."""
        elo, (low, high) = elo_difference(self.wins, self.losses, self.draws)
        found = asdict(self) | {"elo": elo, "low": low, "high": high}
        # Nothing more was paid: there is no price.
        for name, value in (("", elo), ("_low", low), ("_high", high)):
            paid = self.extra_s > 0 and value is not None
            found[f"elo_per_core_hour{name}"] = 3600 * value / self.extra_s if paid else None
        return found


@dataclass(frozen=True)
class Ablation(Answer):
    """Changes of a configuration, and what a point of Elo by each costs."""

    base_core_s: float
    changes: Sequence[Change]

    title = "Ablation of a training"

    @property
    def cheapest(self) -> Change | None:
        """Of the changes that are stronger for certain the one with the lowest price; None: none is."""
        better = [one for one in self.changes if (one.row["low"] or 0.0) > 0]
        # An Elo without an upper limit is worth its lower one.
        price = {one.name: one.extra_s / (one.row["elo"] or one.row["low"]) for one in better}
        return min(better, key=lambda one: price[one.name], default=None)

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast go train`` with changes."""
        cheapest = self.cheapest
        return {
            "base_core_seconds": self.base_core_s,
            "changes": [one.row for one in self.changes],
            "cheapest": cheapest.name if cheapest else None,
        }

    def values(self) -> Sequence[Value]:
        """Elo of each change."""
        return [
            Value(
                f"elo_{one.name}",
                one.row["elo"],
                "Elo",
                (one.row["low"], one.row["high"]),
                "higher",
            )
            for one in self.changes
        ]

    def sections(self) -> Sequence[Section]:
        """The cheapest change, and all of them."""
        cheapest = self.cheapest
        if cheapest:
            row = cheapest.row
            gain = elo_text(row["elo"], (row["low"], row["high"]))
            sentence = f"The cheapest next point is by {cheapest.name}: Elo {gain} above the base "
            sentence += f"for {cheapest.extra_s:+,.0f} core-seconds."
        elif all((one.row["high"] or 0.0) < 0 for one in self.changes):
            sentence = "Every change is weaker than the base."
        else:
            sentence = "Cannot tell: no change is stronger than the base for certain."
        rows = [one.row for one in self.changes]
        columns = {
            "name": ColumnFormat("Change"),
            "core_s": ColumnFormat("Cost", unit="core-s", digits=0),
            "extra_s": ColumnFormat("Above the base", unit="core-s", digits=0),
            "elo": ColumnFormat("Elo above the base", digits=0, interval=("low", "high")),
            "elo_per_core_hour": ColumnFormat(
                "Elo per core-hour",
                digits=0,
                interval=("elo_per_core_hour_low", "elo_per_core_hour_high"),
            ),
        }
        how = How(
            "Elo per core-hour = Elo above the base / core-hours above the base",
            notes="Each network was trained once, and played the base's. Cost: search, inference and "
            "training, without waiting, which hangs on what else the machine does. A change that costs "
            "no more than the base has no price.",
        )
        drawn = [{"change": row["name"], "extra": row["extra_s"]} for row in rows]
        figure = bars(drawn, "change", "extra", "core-seconds above the base")
        table = Table(pa.Table.from_pylist(rows), columns)
        asked = "Which change is the cheapest next point?"
        return [Section("changes", asked, sentence, [figure], [table], how)]

    def unknowns(self) -> Sequence[Unknown]:
        """What the intervals leave out."""
        text = "Intervals are those of the games; another seed of a training is another network."
        return [Unknown(text, "Repeat the ablation with another seed.", doubt=True)]


def ablate(settings: Config, output: Path, ray: str | None) -> Ablation:
    """Train a configuration and each of its changes, and play each change's network against the base's.

    Args:
        settings: with changes; `rating` says how many games and simulations.
        output: a folder per training; a run that was interrupted resumes.
        ray: as of `train`.

    Raises:
        InputError: a change that is not a configuration, or whose name is not that of a folder.
    """
    from holdfast.go.training import Config, train

    def trained(name: str, change: Mapping[str, Any]) -> Training:
        one = _merged(asdict(base), change)
        one["rating"] = asdict(settings.rating) | {"every": 0}  # the matches below are the rating
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
            raise InputError(
                "invalid name of a change",
                code="invalid-value",
                place="changes",
                found=name,
                expected="small letters, digits and hyphens",
            )
        read_config(one, Config, f"the change {name}")
        return train(one, output / name, ray)  # type: ignore[return-value]

    base = replace(settings, changes={})
    first = trained(BASE, {})
    spent = sum(row.core_s for row in first.iterations)
    rating, found = settings.rating, []
    for number, (name, change) in enumerate(settings.changes.items(), 1):
        run = trained(name, change)
        cost = sum(row.core_s for row in run.iterations)
        games = match(
            f"{run.net}:{rating.visits}",
            f"{first.net}:{rating.visits}",
            rating.games,
            size=read_size(settings.size),
            komi=settings.komi,
            rules=settings.rules,
            seed=number,
        )
        found.append(Change(name, cost, cost - spent, games.wins, games.losses, games.draws))
    return Ablation(spent, found)


def _merged(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of one with the values of the other in their places."""
    both = dict(old)
    for key, value in new.items():
        deeper = isinstance(value, Mapping) and isinstance(old.get(key), dict)
        both[key] = _merged(old[key], value) if deeper else value
    return both
