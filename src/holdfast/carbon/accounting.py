"""What past jobs emitted: a fleet store x the hourly average intensity of its grid x PUE.

    kg CO2 of an attempt = GPUs x W / 1000 x PUE x integral over its run of intensity / 1000

The integral is exact within each hour. Energy in hours without an intensity is counted apart, never
as zero. Lost work is that of `holdfast fleet goodput`: the last hours before a failure, and before a
preemption by a job that came back from one, that no checkpoint had kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import fleet
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Tile, Unknown, Value
from holdfast.carbon.signals import HOUR_S, FloatArray, IntArray, Signal, refused, utc
from holdfast.numbers import brief, counted, percent
from holdfast.report import figures

# Rows of a table: the largest.
MOST_ROWS = 500
COLUMNS = {
    "energy_kwh": ColumnFormat("Energy", "kWh"),
    "kg_co2": ColumnFormat("CO2", "kg"),
    "kg_co2_failed": ColumnFormat("of it lost work", "kg"),
    "energy_kwh_without_intensity": ColumnFormat("Energy without intensity", "kWh", detail=True),
}
QUESTIONS = {
    "user": "Who emitted how much?",
    "month": "When?",
    "state": "How did the work end?",
    "job": "Which jobs?",
    "node": "Which nodes?",
}


@dataclass(frozen=True)
class Account(Answer):
    """CO2 of the attempts of a store.

    Attributes:
        totals: energy_kwh (at the meter: with PUE), kg_co2 and kg_co2_failed (None where no hour has an
            intensity), energy_kwh_without_intensity (in no figure of CO2), energy_kwh_typical (in hours
            that have the mean of the same month and hour of day).
        tables: by user, month (of UTC), state, job and node (a job's share): the same columns, largest
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
        return "CO2 of machine time"

    def share(self, name: str) -> float:
        """Share of the energy that one of `totals` is."""
        return (self.totals[name] or 0.0) / (self.totals["energy_kwh"] or 1.0)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast carbon account``."""
        names = ("attempts", "attempts_without_gpus", "gpu_hours", "gpu_hours_lost", "pue")
        return {
            **self.totals,
            "energy_share_without_intensity": self.share("energy_kwh_without_intensity"),
            **{name: getattr(self, name) for name in names},
            "watts_per_gpu": self.watts_per_gpu,
            **{f"by_{name}": table.to_pylist() for name, table in self.tables.items()},
            "signal": self.signal.to_dict(),
            "notes": list(self.signal.notes),
        }

    def values(self) -> Sequence[Value]:
        """The totals."""
        units = {name: "kg" if name.startswith("kg") else "kWh" for name in self.totals}
        how = "GPUs x W x PUE x intensity, hour by hour"
        return [
            Value(name, value, units[name], better="lower", how=how)
            for name, value in self.totals.items()
        ]

    def tiles(self) -> Sequence[Tile]:
        """Totals."""
        total, unknown = self.totals, self.share("energy_kwh_without_intensity")
        note = f"of {brief(total['energy_kwh'])} kWh"
        return [
            Tile("CO2", brief(total["kg_co2"]), "kg", note=note),
            Tile("CO2 of lost work", brief(total["kg_co2_failed"]), "kg", section_id="user"),
            Tile("Energy without intensity", percent(unknown)),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Signal and assumptions."""
        signal = self.signal
        hours = f"{utc(signal.start_s)} to {utc(signal.end_s)}, {signal.missing} missing"
        return [
            ("Intensity", signal.label),
            ("Its hours", hours),
            ("Attempts", f"{self.attempts:,}, {brief(self.gpu_hours)} GPU-hours"),
            ("Assumed", f"{self.watts_per_gpu:g} W per GPU, PUE {self.pue:g}"),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """Energy without intensity, attempts without GPUs, what the signal's reader changed."""
        found = [Unknown(note) for note in self.signal.notes]
        unknown, typical = (
            self.totals["energy_kwh_without_intensity"],
            self.share("energy_kwh_typical"),
        )
        if unknown:
            share = percent(self.share("energy_kwh_without_intensity"))
            text = f"{share} of the energy ({brief(unknown)} kWh) is in hours without an intensity."
            remedy = (
                "name a file that covers them, or --typical for the mean of month and hour of day"
            )
            found.append(Unknown(f"{text} It is in no figure of CO2.", remedy))
        if typical:
            text = f"{percent(round(typical, 9))} of the energy is in hours that the signal lacks."
            remedy = "Name a file that covers them."
            found.append(Unknown(f"{text} They have the mean of month and hour of day.", remedy))
        if self.attempts_without_gpus:
            attempts = counted(self.attempts_without_gpus, "attempt")
            found.append(
                Unknown(f"{attempts} ran with no known GPUs: their energy is not counted.")
            )
        return found

    def sections(self) -> Sequence[Section]:
        """Users, months, states, jobs and nodes."""
        total, lost = self.totals["kg_co2"], self.totals["kg_co2_failed"] or 0.0
        sentence = "None of the energy is in an hour with an intensity."
        if total is not None:
            share = percent(lost / total if total else 0.0)
            sentence = (
                f"{brief(total)} kg CO2 for {brief(self.totals['energy_kwh'])} kWh; {brief(lost)} kg "
                f"({share}) went into work that failures destroyed."
            )
        parts = [
            {"user": row["user"], "part": part, "kg": kg}
            for row in self.tables["user"].slice(0, 20).to_pylist()
            for gone in [row["kg_co2_failed"] or 0.0]
            for part, kg in (("kept work", (row["kg_co2"] or 0.0) - gone), ("lost work", gone))
        ]
        meanings = {"kept work": "user", "lost work": "hardware"}
        drawn = figures.bars(parts, "user", "kg", "kg CO2", part="part", meanings=meanings)
        how = How(
            "kg = GPUs x W/1000 x PUE x integral of gCO2/kWh over the run / 1000",
            {"W per GPU": self.watts_per_gpu, "PUE": self.pue},
            notes=[
                "W per GPU: mean over a run, with the GPU's share of its server.",
                "Lost work: the last min(runtime, checkpoint interval / 2) before a failure of the "
                "infrastructure, and before the preemptions that followed one (`fleet goodput`).",
            ],
        )
        found = []
        for key, question in QUESTIONS.items():
            table = self.tables[key]
            if key != "user":
                rows = [row for row in table.to_pylist() if row["kg_co2"] is not None]
                rows.sort(key=lambda row: row["kg_co2"])
                name = f"{key.capitalize()} with the most CO2"
                sentence = (
                    f"{name}: {rows[-1][key]}, {brief(rows[-1]['kg_co2'])} kg." if rows else ""
                )
            shown = Table(table, {key: ColumnFormat(key.capitalize()), **COLUMNS})
            pictures, computed = ([drawn], how) if key == "user" else ([], None)
            found.append(Section(key, question, sentence, pictures, [shown], computed))
        return found


def account(
    store: str | Path | fleet.FleetLog,
    signal: Signal,
    *,
    pue: float = 1.1,
    watts_per_gpu: float = 400.0,
    typical: bool = False,
) -> Account:
    """Account for the CO2 of every attempt in a fleet store.

    Args:
        store: a store that `holdfast fleet ingest` wrote, or an open log.
        signal: average intensity, gCO2/kWh.
        pue: power usage effectiveness: energy at the meter over energy of the machines, at least 1.
        watts_per_gpu: mean power per allocated GPU, with its share of the server.
        typical: give hours without an intensity the mean of the same month and hour of day.

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
        f"""SELECT job_id AS job, coalesce("user", '') AS "user", state, nodes,
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
    integral = _Integral(signal, begin, end, typical)
    grams, unknown_s, typical_s = integral.between(begin, end)
    since = np.clip((stop - lost_s)[index], begin, end)
    kilowatts = (gpus * watts_per_gpu / 1000 * pue)[index]
    columns = {
        "month": month,
        "energy_kwh": kilowatts * (end - begin) / HOUR_S,
        "energy_kwh_without_intensity": kilowatts * unknown_s / HOUR_S,
        "energy_kwh_typical": kilowatts * typical_s / HOUR_S,
        "kg_co2": kilowatts * grams / 1000 / HOUR_S,
        "kg_co2_failed": kilowatts * integral.between(since, end)[0] / 1000 / HOUR_S,
    }
    names = ("job", "user", "state", "nodes")
    log.engine.load("carbon_rows", pa.table({**columns, **{n: runs[n].take(index) for n in names}}))
    [totals] = log.rows(f"SELECT {_SUMS}, sum(energy_kwh_typical) AS t FROM carbon_rows")
    totals["energy_kwh_typical"] = totals.pop("t")
    split = ", ".join(f"{name} / array_length(nodes) AS {name}" for name in COLUMNS)
    source = {"node": f"(SELECT unnest(nodes) AS node, {split} FROM carbon_rows)"}
    tables = {
        key: log.arrow(
            f'SELECT "{key}", {_SUMS} FROM {source.get(key, "carbon_rows")} GROUP BY "{key}" '
            f"ORDER BY {'month' if key == 'month' else 'kg_co2 DESC NULLS LAST, energy_kwh DESC'}, "
            f'"{key}" LIMIT {MOST_ROWS}'
        )
        for key in QUESTIONS
    }
    missing = {name: 0.0 for name, value in totals.items() if value is None and "energy" in name}
    return Account(
        totals=totals | missing,
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
_SUMS = f"""sum(energy_kwh) AS energy_kwh,
    CASE WHEN {_KNOWN} THEN sum(kg_co2) END AS kg_co2,
    CASE WHEN {_KNOWN} THEN sum(kg_co2_failed) END AS kg_co2_failed,
    sum(energy_kwh_without_intensity) AS energy_kwh_without_intensity"""


class _Integral:
    """Integrals of a signal over any span of time, from its running sums at full hours."""

    def __init__(self, signal: Signal, begin: FloatArray, end: FloatArray, typical: bool) -> None:
        low = min(signal.start_s, begin.min(initial=np.inf)) // HOUR_S
        high = max(signal.end_s, end.max(initial=-np.inf)) // HOUR_S + 1
        hours = HOUR_S * np.arange(low, high, dtype=np.int64)
        own, values = signal.at(hours), signal.at(hours, typical)
        missing = np.isnan(values)
        self.edges = np.append(hours, hours[-1] + HOUR_S).astype(np.float64)
        self.sums = [
            np.concatenate([[0.0], np.cumsum(HOUR_S * each)])
            for each in (np.nan_to_num(values), missing, np.isnan(own) & ~missing)
        ]

    def between(self, begin: FloatArray, end: FloatArray) -> tuple[FloatArray, ...]:
        """(g/kWh x s, seconds without an intensity, seconds with a typical one) of each span."""
        spans = [np.interp(times, self.edges, each) for each in self.sums for times in (begin, end)]
        return tuple(last - first for first, last in zip(spans[::2], spans[1::2], strict=True))


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
