"""Failures and hours lost in a time to come: forecasts with intervals, kept in the store and scored.

The number of independent events (clusters of `holdfast.fleet.incidents`) is Poisson, at a rate known from
those before: Gamma(events + 1/2, time), Jeffreys' prior. Where spans of that length scatter more than
chance (p < 0.05), a Gamma factor of mean 1 has the excess variance. Each event costs what one of those
before did, drawn at random. The interval holds the middle 95 % of `DRAWS` such futures (fixed seed).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from holdfast.files import Journal
from holdfast.fleet.incidents import ended_attempts, incidents
from holdfast.fleet.live.following import Amount
from holdfast.fleet.live.journal import append, records
from holdfast.fleet.log import DAY_S, FleetLog, extent, once
from holdfast.fleet.losses import losses
from holdfast.tables import literal

SPANS = {"day": float(DAY_S), "week": 7.0 * DAY_S}  # What is forecast
KINDS = ("failures", "hours")
FILE = "forecasts.jsonl"
DRAWS, SEED = 4000, 20241
FEWEST_SPANS = 2.0  # Of so long a time before, no less, a forecast is made
FEWEST_BLOCKS = 8  # Spans from which their scatter is known


@dataclass(frozen=True)
class Forecast:
    """What is expected of one span of time, and what came."""

    span: str  # One of `SPANS`
    from_s: float
    until_s: float
    expected: dict[str, Amount]  # By `KINDS`
    clusters: str = ""  # Names of those of the fleet that it is of, with commas
    came: dict[str, float] = field(default_factory=dict)  # By `KINDS`; empty until the time is over

    @property
    def missed(self) -> list[str]:
        """Of `KINDS`, what came and was not in the interval."""
        ends = self.expected
        return [k for k, came in self.came.items() if not ends[k].low <= came <= ends[k].high]


@once
def events(log: FleetLog, cluster: str) -> pa.Table:
    """Incidents in order of time: stop_s, cluster, failures (1), hours (of the log's unit, first order).

    `cluster` of a row is what may have one reason; the argument is one of the fleet's, or "" for all.
    """
    failed, _ = losses(log)
    own = f"AND coalesce(owner, split_part(node, ':', 1)) = {literal(cluster)}" if cluster else ""
    return log.arrow(
        f"""SELECT stop_s, cluster, 1.0 AS failures, coalesce(hours, 0) AS hours
        FROM {incidents(log)} LEFT JOIN (
            SELECT incident, sum(lost) AS hours, max(cluster) AS owner FROM {failed}
            JOIN {ended_attempts(log)} AS ended USING (key) GROUP BY incident
        ) AS cost USING (incident) WHERE stop_s >= {log.begin_s} {own} ORDER BY stop_s, incident"""
    )


def losses_between(
    log: FleetLog, begin_s: float, end_s: float, cluster: str = ""
) -> dict[str, float]:
    """What was lost in a time: failures, hours."""
    rows = events(log, cluster)
    low, high = np.searchsorted(rows["stop_s"].to_numpy(), (begin_s, end_s), "right")
    return {kind: float(rows[kind].to_numpy()[low:high].sum()) for kind in KINDS}


def predict(
    log: FleetLog, at_s: float, span_s: float, cluster: str = ""
) -> dict[str, Amount] | None:
    """Failures and hours of a span that begins at a moment, from what was before it.

    None where the log before is too short.
    """
    from scipy.special import chdtri

    begin_s, _ = extent(log, cluster)
    known_s = at_s - begin_s
    if not 0 < FEWEST_SPANS * span_s <= known_s:
        return None
    rows = events(log, cluster)
    rows = rows.slice(0, int(np.searchsorted(rows["stop_s"].to_numpy(), at_s, "right")))
    _, first, group = np.unique(rows["cluster"].to_numpy(), return_index=True, return_inverse=True)
    rng = np.random.default_rng(SEED)
    rate = rng.gamma(first.size + 0.5, span_s / known_s, DRAWS)
    blocks = int(known_s / span_s)
    if blocks >= FEWEST_BLOCKS:
        ago = (at_s - rows["stop_s"].to_numpy()[first]) // span_s
        counts = np.bincount(ago[ago < blocks].astype(np.int64), minlength=blocks)
        # Fisher's index: chi-square of blocks - 1 degrees of freedom over them, if nothing else scatters
        index = float(counts.var(ddof=1) / counts.mean()) if counts.any() else 0.0
        if index > chdtri(blocks - 1, 0.05) / (blocks - 1):
            excess = (index - 1) / counts.mean()
            rate *= rng.gamma(1 / excess, excess, DRAWS)
    number = rng.poisson(rate)
    future = np.repeat(np.arange(DRAWS), number)
    drawn = rng.integers(0, max(first.size, 1), future.size)
    amounts = {}
    for kind in KINDS:
        costs = np.bincount(group, rows[kind].to_numpy()) if first.size else np.ones(1)
        totals = np.bincount(future, costs[drawn], DRAWS)
        amounts[kind] = Amount(
            float(totals.mean()), *map(float, np.quantile(totals, (0.025, 0.975)))
        )
    return amounts


def save(log: FleetLog, cluster: str = "") -> None:
    """Write down forecasts from the end of the log on, one after the other of each span.

    Raises:
        InputError: if another process is writing them, or the store cannot be written.
    """
    _, end_s = extent(log, cluster)
    for name, span_s in SPANS.items():
        ends = [each.until_s for each in forecasts(log, cluster) if each.span == name]
        expected = predict(log, end_s, span_s, cluster)
        if expected is not None and end_s >= max(ends, default=-math.inf):
            with Journal(log.store.path / FILE) as file:
                append(file, Forecast(name, end_s, end_s + span_s, expected, _names(log, cluster)))


def forecasts(log: FleetLog, cluster: str = "") -> list[Forecast]:
    """The forecasts of a store for a cluster, or for all (""), with what came."""
    _, end_s = extent(log, cluster)
    return [
        replace(each, came=losses_between(log, each.from_s, each.until_s, cluster))
        if each.until_s <= end_s
        else each
        for each in records(log.store.path / FILE, Forecast)
        if each.clusters == _names(log, cluster)
    ]


def _names(log: FleetLog, cluster: str) -> str:
    """The clusters that are meant: a forecast of one says nothing of it together with a later one."""
    return cluster or ",".join(log.store.facts["clusters"])


def scores(every: Sequence[Forecast]) -> dict[str, dict[str, float]]:
    """Of the forecasts that are over, by what was forecast; empty without any.

    Returns:
        n, coverage (share inside the interval) and bias (came over expected).
    """
    over = [each for each in every if each.came]
    by_kind = {}
    for kind in KINDS if over else ():
        expected = sum(each.expected[kind].value for each in over)
        by_kind[kind] = {
            "n": len(over),
            "coverage": sum(kind not in each.missed for each in over) / len(over),
            "bias": sum(each.came[kind] for each in over) / (expected or math.nan),
        }
    return by_kind
