"""Failures and hours lost in a time to come: forecasts with intervals, kept in the store and scored.

The number of independent events (clusters of `holdfast.fleet.incidents`) is Poisson, at a rate known from
those before: Gamma(events + 1/2, time), Jeffreys' prior. Where spans of that length scatter more than
chance (p < 0.05), a Gamma factor of mean 1 has the excess variance. Each event costs what one of those
before did, drawn at random. The interval holds the middle 95 % of `DRAWS` such futures (fixed seed).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.files import Journal
from holdfast.fleet.incidents import ended_attempts, incidents
from holdfast.fleet.live.following import Amount
from holdfast.fleet.log import DAY_S, FleetLog, once
from holdfast.fleet.losses import losses

SPANS = {"day": float(DAY_S), "week": 7.0 * DAY_S}  # What is forecast
KINDS = ("failures", "hours")
FILE = "forecasts.jsonl"
DRAWS, SEED = 4000, 20241
FEWEST_SPANS = 2.0  # Of so long a time before, no less, a forecast is made
FEWEST_BLOCKS = 8  # Spans from which their scatter is known


@once
def events(log: FleetLog) -> pa.Table:
    """Incidents in order of time: stop_s, cluster, failures (1), hours (of the log's unit, first order)."""
    failed, _ = losses(log)
    return log.arrow(
        f"""SELECT stop_s, cluster, 1.0 AS failures, coalesce(hours, 0) AS hours
        FROM {incidents(log)} LEFT JOIN (
            SELECT incident, sum(lost) AS hours FROM {failed}
            JOIN {ended_attempts(log)} AS ended USING (key) GROUP BY incident
        ) AS cost USING (incident) WHERE stop_s >= {log.begin_s} ORDER BY stop_s, incident"""
    )


def counted_in(log: FleetLog, begin_s: float, end_s: float) -> dict[str, float]:
    """What was lost in a time: failures, hours."""
    stop_s = events(log)["stop_s"].to_numpy()
    low, high = np.searchsorted(stop_s, (begin_s, end_s), "right")
    return {kind: float(events(log)[kind].to_numpy()[low:high].sum()) for kind in KINDS}


def predict(log: FleetLog, at_s: float, span_s: float) -> dict[str, Amount] | None:
    """Failures and hours of a span that begins at a moment, from what was before it.

    None where the log before is too short.
    """
    from scipy.special import chdtri

    known_s = at_s - log.begin_s
    if known_s < FEWEST_SPANS * span_s:
        return None
    rows = events(log).slice(
        0, int(np.searchsorted(events(log)["stop_s"].to_numpy(), at_s, "right"))
    )
    _, first, cluster = np.unique(
        rows["cluster"].to_numpy(), return_index=True, return_inverse=True
    )
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
    found = {}
    for kind in KINDS:
        costs = np.bincount(cluster, rows[kind].to_numpy()) if first.size else np.ones(1)
        totals = np.bincount(future, costs[drawn], DRAWS)
        found[kind] = Amount(float(totals.mean()), *map(float, np.quantile(totals, (0.025, 0.975))))
    return found


def keep(log: FleetLog) -> None:
    """Write down forecasts from the end of the log on, one after the other of each span.

    Raises:
        InputError: if another process is writing them, or the store cannot be written.
    """
    kept = forecasts(log)
    for name, span_s in SPANS.items():
        ends = [row["until_s"] for row in kept if row["span"] == name]
        made = predict(log, log.end_s, span_s)
        if made is not None and log.end_s >= max(ends, default=-math.inf):
            row = {"span": name, "from_s": log.end_s, "until_s": log.end_s + span_s, **made}
            with Journal(log.store.path / FILE) as journal:
                journal.append(f"{json.dumps(row)}\n".encode())


def forecasts(log: FleetLog) -> list[dict[str, Any]]:
    """The forecasts of a store: span, from_s, until_s, failures and hours (`Amount`), made (what came).

    `made` is None while their time is not over.
    """
    path = log.store.path / FILE
    lines = path.read_bytes().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith(b"}")]
    return [
        {**row, **{kind: Amount(*row[kind]) for kind in KINDS}}
        | {
            "came": counted_in(log, row["from_s"], row["until_s"])
            if row["until_s"] <= log.end_s
            else None
        }
        for row in rows
    ]


def missed(row: dict[str, Any]) -> list[str]:
    """Of what a forecast that is over was wrong."""
    return [k for k in KINDS if not row[k].low <= row["came"][k] <= row[k].high]


def score(rows: Sequence[dict[str, Any]], kind: str) -> dict[str, float]:
    """Of forecasts that are over: n, coverage (share inside the interval), bias (came over expected)."""
    came = sum(row["came"][kind] for row in rows)
    expected = sum(row[kind].value for row in rows)
    inside = sum(kind not in missed(row) for row in rows)
    return {
        "n": len(rows),
        "coverage": inside / len(rows),
        "bias": came / expected if expected else math.nan,
    }
