"""What past jobs emitted: a fleet store x the hourly average intensity of its grid x PUE.

    kg CO2 of an attempt = GPUs x W / 1000 x PUE x integral over its run of intensity / 1000

The integral is exact within each hour. Energy in hours without an intensity is counted apart, never
as zero. Lost work is that of `holdfast fleet goodput`: the last hours before a failure, and before a
preemption by a job that came back from one, that no checkpoint had kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import fleet
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.carbon.signals import HOUR_S, FloatArray, IntArray, Signal, refused
from holdfast.numbers import brief, counted, percent
from holdfast.report import figures

# Rows of a table: the largest.
MOST_ROWS = 500
KEYS = ("user", "month", "job", "node")
COLUMNS = {
    "energy_kwh": ColumnFormat("energy", "kWh"),
    "kg_co2": ColumnFormat("CO2", "kg"),
    "kg_co2_failed": ColumnFormat("CO2 of lost work", "kg"),
    "energy_kwh_without_intensity": ColumnFormat("energy without intensity", "kWh"),
}


@dataclass(frozen=True)
class Account(Answer):
    """CO2 of the attempts of a store.

    Attributes:
        totals: energy_kwh (at the meter: with PUE), kg_co2 and kg_co2_failed (None where no hour has an
            intensity), energy_kwh_without_intensity (in no figure of CO2).
        tables: by user, month (of UTC), job and node (a job's share): the same columns, largest
            first, at most 500 rows.
        attempts: that ran.
        attempts_without_gpus: whose GPUs are none or unknown: their energy counts as zero.
        gpu_hours: of all attempts.
        gpu_hours_lost: to failures and the preemptions that followed them.
        signal: average intensity.
        pue: energy at the meter over that of the machines.
        watts_per_gpu: mean power.
    """

    totals: dict[str, float | None]
    tables: dict[str, pa.Table]
    attempts: int
    attempts_without_gpus: int
    gpu_hours: float
    gpu_hours_lost: float
    signal: Signal
    pue: float
    watts_per_gpu: float

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "CO2 of past jobs"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast carbon account``."""
        names = ("attempts", "attempts_without_gpus", "gpu_hours", "gpu_hours_lost", "pue")
        return {
            **self.totals,
            **{name: getattr(self, name) for name in (*names, "watts_per_gpu")},
            **{f"by_{name}": table.to_pylist() for name, table in self.tables.items()},
            "signal": self.signal.to_dict(),
            "notes": list(self.signal.notes),
        }

    def values(self) -> Sequence[Value]:
        """The totals."""
        units = {name: "kg" if name.startswith("kg") else "kWh" for name in self.totals}
        return [Value(n, value, units[n], better="lower") for n, value in self.totals.items()]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Signal and attempts."""
        attempts = f"{self.attempts:,}, {brief(self.gpu_hours)} GPU-hours"
        return [*self.signal.inputs(), ("Attempts", attempts)]

    def unknowns(self) -> Sequence[Unknown]:
        """Energy without intensity, attempts without GPUs, what the signal's reader changed."""
        found = [Unknown(note) for note in self.signal.notes]
        energy = self.totals["energy_kwh_without_intensity"]
        if energy:
            share = percent(energy / (self.totals["energy_kwh"] or 1.0))
            text = f"{share} of the energy ({brief(energy)} kWh) is in hours without an intensity."
            remedy = "Name a file that covers them."
            found.append(Unknown(f"{text} It is in no figure of CO2.", remedy))
        if self.attempts_without_gpus:
            attempts = counted(self.attempts_without_gpus, "attempt")
            text = f"{attempts} ran with no known GPUs: their energy is not counted."
            found.append(Unknown(text))
        return found

    def sections(self) -> Sequence[Section]:
        """Users, months, jobs and nodes."""
        total, lost = self.totals["kg_co2"], self.totals["kg_co2_failed"] or 0.0
        sentence = "None of the energy is in an hour with an intensity."
        if total is not None:
            share = percent(lost / total if total else 0.0)
            sentence = (
                f"{brief(total)} kg CO2 for {brief(self.totals['energy_kwh'])} kWh; {brief(lost)} kg "
                f"({share}) went into work that failures destroyed."
            )
        formula = "kg = GPUs x W/1000 x PUE x integral of gCO2/kWh over the run / 1000"
        how = How(formula, {"W per GPU": self.watts_per_gpu, "PUE": self.pue})
        drawn = figures.bars(self.tables["user"].slice(0, 20), "user", "kg_co2", "kg CO2")
        found = []
        for key in KEYS:
            table = Table(self.tables[key], {key: ColumnFormat(), **COLUMNS})
            if key == "user":
                question = "Who emitted how much?"
                found.append(Section(key, question, sentence, [drawn], [table], how))
                continue
            rows = [row for row in self.tables[key].to_pylist() if row["kg_co2"] is not None]
            most = max(rows, key=lambda row: row["kg_co2"], default=None)
            name = f"{key.capitalize()} with the most CO2"
            sentence = f"{name}: {most[key]}, {brief(most['kg_co2'])} kg." if most else ""
            found.append(Section(key, f"CO2 by {key}", sentence, tables=[table]))
        return found


def account(
    store: str | Path | fleet.FleetLog,
    signal: Signal,
    *,
    pue: float = 1.1,
    watts_per_gpu: float = 400.0,
) -> Account:
    """Account for the CO2 of every attempt in a fleet store.

    Args:
        store: a store that `holdfast fleet ingest` wrote, or an open log.
        signal: average intensity, gCO2/kWh.
        pue: power usage effectiveness: energy at the meter over energy of the machines, at least 1.
        watts_per_gpu: mean power per allocated GPU, with its share of the server.

    Raises:
        InputError: ``conflict`` for a signal that is not an average intensity; ``out-of-range``.
    """
    if signal.kind != "average":
        problem = "an account needs an average intensity"
        remedy = "a marginal one says what a change would emit: use it with `carbon plan`"
        raise refused(problem, "conflict", signal.source, "kind", signal.kind, "average", remedy)
    for name, value, least in (("--pue", pue, 1.0), ("--watts-per-gpu", watts_per_gpu, 0.0)):
        if not least <= value < np.inf:
            expected = f"at least {least:g}"
            raise refused("out of range", "out-of-range", None, name, f"{value:g}", expected)
    log = fleet.open(store)
    lost = fleet.goodput(log)
    log.engine.load("carbon_lost", lost.by_attempt)
    runs = log.arrow(
        f"""SELECT job_id AS job, coalesce("user", '') AS "user", nodes,
            coalesce(gpus, 0) AS gpus, CAST(stop_s - exposed_s AS DOUBLE) AS start_s,
            CAST(stop_s AS DOUBLE) AS stop_s, coalesce(carbon_lost.gpu_hours, 0) AS lost
        FROM {log.executions} AS run LEFT JOIN carbon_lost ON run.key = carbon_lost.key
        WHERE stop_s IS NOT NULL"""
    )
    start, stop, gone = (runs[name].to_numpy() for name in ("start_s", "stop_s", "lost"))
    gpus = runs["gpus"].to_numpy().astype(np.float64)
    lost_s = HOUR_S * np.divide(gone, gpus, out=np.zeros_like(gpus), where=gpus > 0)
    # A row per attempt and month: a run across midnight on the 31st is in both.
    index, begin, end, month = _by_month(start, stop)
    between = _integral(signal, begin, end)
    grams, unknown_s = between(begin, end)
    since = np.clip((stop - lost_s)[index], begin, end)
    kilowatts = (gpus * watts_per_gpu / 1000 * pue)[index]
    columns = {
        "month": month,
        "energy_kwh": kilowatts * (end - begin) / HOUR_S,
        "energy_kwh_without_intensity": kilowatts * unknown_s / HOUR_S,
        "kg_co2": kilowatts * grams / 1000 / HOUR_S,
        "kg_co2_failed": kilowatts * between(since, end)[0] / 1000 / HOUR_S,
    }
    names = ("job", "user", "nodes")
    log.engine.load("carbon_rows", pa.table({**columns, **{n: runs[n].take(index) for n in names}}))
    [totals] = log.rows(f"SELECT {_SUMS} FROM carbon_rows")
    split = ", ".join(f"{name} / array_length(nodes) AS {name}" for name in COLUMNS)
    source = {"node": f"(SELECT unnest(nodes) AS node, {split} FROM carbon_rows)"}
    tables = {
        key: log.arrow(
            f'SELECT "{key}", {_SUMS} FROM {source.get(key, "carbon_rows")} GROUP BY "{key}" '
            f"ORDER BY {'month' if key == 'month' else 'kg_co2 DESC NULLS LAST, energy_kwh DESC'}, "
            f'"{key}" LIMIT {MOST_ROWS}'
        )
        for key in KEYS
    }
    return Account(
        totals=totals,
        tables=tables,
        attempts=runs.num_rows,
        attempts_without_gpus=int((gpus == 0).sum()),
        gpu_hours=float((gpus * (stop - start)).sum()) / HOUR_S,
        gpu_hours_lost=lost.lost_gpu_hours,
        signal=signal,
        pue=pue,
        watts_per_gpu=watts_per_gpu,
    )


# A group whose energy has no intensity at all has no CO2, rather than none: 0 would read as clean.
_KNOWN = (
    "sum(energy_kwh) = 0 OR sum(energy_kwh - energy_kwh_without_intensity) > 1e-9 * sum(energy_kwh)"
)
_SUMS = f"""coalesce(sum(energy_kwh), 0) AS energy_kwh,
    CASE WHEN {_KNOWN} THEN sum(kg_co2) END AS kg_co2,
    CASE WHEN {_KNOWN} THEN sum(kg_co2_failed) END AS kg_co2_failed,
    coalesce(sum(energy_kwh_without_intensity), 0) AS energy_kwh_without_intensity"""


def _integral(
    signal: Signal, begin: FloatArray, end: FloatArray
) -> Callable[[FloatArray, FloatArray], list[FloatArray]]:
    """What gives (g/kWh x s, seconds without an intensity) of any spans between the first and the last."""
    low = min(signal.start_s, begin.min(initial=np.inf)) // HOUR_S
    high = max(signal.end_s, end.max(initial=-np.inf)) // HOUR_S + 1
    edges = HOUR_S * np.arange(low, high + 1, dtype=np.float64)
    values = np.full(len(edges) - 1, np.nan)
    own = int(signal.start_s // HOUR_S - low)
    values[own : own + signal.hours] = signal.values
    # Running sums at full hours: straight in between.
    sums = [
        np.concatenate([[0.0], np.cumsum(HOUR_S * each)])
        for each in (np.nan_to_num(values), np.isnan(values))
    ]
    return lambda first, last: [
        np.interp(last, edges, each) - np.interp(first, edges, each) for each in sums
    ]


def _by_month(
    start: FloatArray, stop: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray, pa.Array]:
    """Spans cut at the months of UTC: index of the span, begin, end, ``"2026-11"``."""
    first = start.astype("datetime64[s]").astype("datetime64[M]")
    # A span that ends with its month does not reach into the next.
    last = np.maximum(stop - 1, start).astype("datetime64[s]").astype("datetime64[M]")
    counts = (last - first).astype(np.int64) + 1
    index = np.repeat(np.arange(len(start)), counts)
    month = first[index] + (np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts))
    begin = np.maximum(start[index], month.astype("datetime64[s]").astype(np.float64))
    end = np.minimum(stop[index], (month + 1).astype("datetime64[s]").astype(np.float64))
    return index, begin, end, pa.array(month.astype(str))
