"""What past jobs emitted: a fleet store x the hourly average intensity of its grid x PUE.

    kg CO2 of an attempt = GPUs x W / 1000 x PUE x integral over its run of intensity / 1000

The integral is exact within each hour. Energy in hours without an intensity is counted apart, never
as zero. Energy that was measured goes before W x GPUs. Lost work is that of `holdfast fleet goodput`: the
last hours before a failure, and before a preemption by a job that came back from one, that no checkpoint
had kept. What ended in another way is told by end state.
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
from holdfast.carbon.energies import matched, read_energies
from holdfast.carbon.signals import HOUR_S, FloatArray, IntArray, Signal, refused
from holdfast.fleet.assumptions import Assumptions
from holdfast.numbers import brief, counted, duration, percent
from holdfast.report import figures

# Rows of a table: the largest.
MOST_ROWS = 500
KEYS = ("user", "state", "month", "job", "node")
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
        tables: by user, end state, month (of UTC), job and node (a job's share): the same columns,
            largest first, at most 500 rows.
        attempts: that ran.
        attempts_without_gpus: whose GPUs are none or unknown: their energy counts as zero.
        gpu_hours: of all attempts.
        gpu_hours_lost: to failures and the preemptions that followed them.
        measured_share: of the energy, measured rather than GPUs x W.
        checkpoint_s: time between checkpoints: a failure loses half of it.
        jobs_unmatched: of the file of measured energies, that the store does not have; None without one.
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
    measured_share: float
    checkpoint_s: float
    jobs_unmatched: int | None
    signal: Signal
    pue: float
    watts_per_gpu: float

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "CO2 of past jobs"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast carbon account``."""
        return {
            **self.totals,
            **{name: getattr(self, name) for name in _FACTS},
            **{f"by_{name}": table.to_pylist() for name, table in self.tables.items()},
            "signal": self.signal.to_dict(),
            "notes": list(self.signal.notes),
        }

    def values(self) -> Sequence[Value]:
        """The totals."""
        return [
            Value(name, value, "kg" if name.startswith("kg") else "kWh", better="lower")
            for name, value in self.totals.items()
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Signal and attempts."""
        attempts = f"{self.attempts:,}, {brief(self.gpu_hours)} GPU-hours"
        return [*self.signal.inputs(), ("Attempts", attempts)]

    def unknowns(self) -> Sequence[Unknown]:
        """Energy without intensity, attempts without GPUs, what the signal's reader changed."""
        unknowns = [Unknown(note) for note in self.signal.notes]
        energy = self.totals["energy_kwh_without_intensity"]
        if energy:
            share = percent(energy / (self.totals["energy_kwh"] or 1.0))
            text = f"{share} of the energy ({brief(energy)} kWh) is in hours without an intensity."
            remedy = "Name a file that covers them."
            unknowns.append(Unknown(f"{text} It is in no figure of CO2.", remedy))
        if self.jobs_unmatched or (self.jobs_unmatched == 0 and self.measured_share < 1):
            text = (
                f"{percent(self.measured_share)} of the energy is measured, the rest is GPUs x W; "
                f"{counted(self.jobs_unmatched, 'job')} of the file of energies are not in the store."
            )
            unknowns.append(
                Unknown(text, doubt=bool(self.jobs_unmatched) or not self.measured_share)
            )
        if self.attempts_without_gpus:
            attempts = counted(self.attempts_without_gpus, "attempt")
            text = f"{attempts} ran with no known GPUs and no measured energy: it is not counted."
            unknowns.append(Unknown(text))
        return unknowns

    def sections(self) -> Sequence[Section]:
        """Users, months, jobs and nodes."""
        total, lost = self.totals["kg_co2"], self.totals["kg_co2_failed"] or 0.0
        sentence = "None of the energy is in an hour with an intensity."
        if total is not None:
            share = percent(lost / total if total else 0.0)
            sentence = (
                f"{brief(total)} kg CO2 for {brief(self.totals['energy_kwh'])} kWh; {brief(lost)} kg "
                f"({share}) went into work that failures of machines destroyed, with a checkpoint "
                f"every {duration(self.checkpoint_s)}."
            )
        formula = "kg = GPUs x W/1000 x PUE x integral of gCO2/kWh over the run / 1000"
        hours = duration(self.checkpoint_s)
        stated = {"W per GPU": self.watts_per_gpu, "PUE": self.pue, "Between checkpoints": hours}
        how = How(formula, {**stated, "Energy measured": percent(self.measured_share)})
        drawn = figures.bars(self.tables["user"].slice(0, 20), "user", "kg_co2", "kg CO2")
        columns = {key: {key: ColumnFormat(), **COLUMNS} for key in KEYS}
        tables = {k: Table(self.tables[k], columns[k], detail=k == "node") for k in KEYS}
        whose = [tables.pop("user"), tables.pop("state")]
        question = "Who emitted how much, and how did it end?"
        sections = [Section("user", question, sentence, [drawn], whose, how)]
        for key, table in tables.items():
            rows = [row for row in self.tables[key].to_pylist() if row["kg_co2"]]
            most = max(rows, key=lambda row: row["kg_co2"], default=None)
            name = f"{key.capitalize()} with the most CO2"
            sentence = f"{name}: {most[key]}, {brief(most['kg_co2'])} kg." if most else ""
            sections.append(Section(key, f"CO2 by {key}", sentence, tables=[table]))
        return sections


def account(
    store: str | Path | fleet.FleetLog,
    signal: Signal | float,
    *,
    pue: float = 1.1,
    watts_per_gpu: float = 400.0,
    energy: str | Path | None = None,
    checkpoint_s: float | None = None,
) -> Account:
    """Account for the CO2 of every attempt in a fleet store.

    Args:
        store: a store that `holdfast fleet ingest` wrote, or an open log.
        signal: average intensity, gCO2/kWh; a number is that of every hour.
        pue: power usage effectiveness: energy at the meter over energy of the machines, at least 1.
        watts_per_gpu: mean power per allocated GPU, with its share of the server.
        energy: a file of measured energies by job, for `read_energies`; others are GPUs x W.
        checkpoint_s: time between checkpoints (default: the fleet's assumption).

    Raises:
        InputError: ``conflict`` for a signal that is not an average intensity; ``out-of-range``.
    """
    for name, value, least in (("--pue", pue, 1.0), ("--watts-per-gpu", watts_per_gpu, 0.0)):
        if not least <= value < np.inf:
            expected = f"at least {least:g}"
            raise refused("out of range", "out-of-range", None, name, f"{value:g}", expected)
    assumed = None if checkpoint_s is None else Assumptions(checkpoint_interval_s=checkpoint_s)
    log = fleet.open(store, assumptions=assumed)
    lost = fleet.goodput(log)
    log.engine.load("carbon_lost", lost.by_attempt)
    runs = log.arrow(
        f"""SELECT job_id AS job, CAST(job_id_raw AS VARCHAR) AS raw,
            coalesce("user", '') AS "user", state, nodes,
            coalesce(gpus, 0) AS gpus, CAST(stop_s - exposed_s AS DOUBLE) AS start_s,
            CAST(stop_s AS DOUBLE) AS stop_s, coalesce(carbon_lost.gpu_hours, 0) AS lost
        FROM {log.executions} AS run LEFT JOIN carbon_lost ON run.key = carbon_lost.key
        WHERE stop_s IS NOT NULL"""
    )
    start, stop, gone = (runs[name].to_numpy() for name in ("start_s", "stop_s", "lost"))
    gpus = runs["gpus"].to_numpy().astype(np.float64)
    lost_s = HOUR_S * gone / np.where(gpus > 0, gpus, np.inf)
    signal = _checked(signal, start, stop)
    hours = (stop - start) / HOUR_S
    kwh, measured = gpus * watts_per_gpu / 1000 * hours, np.zeros(len(hours), bool)
    unmatched: int | None = None
    if energy is not None:
        energies, key, whole = read_energies(energy)
        ids = runs[key].to_pylist()
        unmatched = len(set(energies) - set(ids))
        matches = matched(energies, ids, start, stop, whole)
        measured = ~np.isnan(matches) & (hours > 0)
        kwh = np.where(measured, matches, kwh)
    # A row per attempt and month: a run across midnight on the 31st is in both.
    index, begin, end, month = _by_month(start, stop)
    between = _integral(signal)
    grams, known_s = between(begin, end)
    since = np.clip((stop - lost_s)[index], begin, end)
    kilowatts = (kwh * pue / np.where(hours > 0, hours, np.inf))[index]
    columns = {
        "month": month,
        "energy_kwh": kilowatts * (end - begin) / HOUR_S,
        # To the millisecond: the last digits of a difference are no energy.
        "energy_kwh_without_intensity": kilowatts * np.round(end - begin - known_s, 3) / HOUR_S,
        "kg_co2": kilowatts * grams / 1000 / HOUR_S,
        "kg_co2_failed": kilowatts * between(since, end)[0] / 1000 / HOUR_S,
    }
    names = ("job", "user", "state", "nodes")
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
        attempts_without_gpus=int(((gpus == 0) & ~measured).sum()),
        gpu_hours=float((gpus * (stop - start)).sum()) / HOUR_S,
        gpu_hours_lost=lost.lost_gpu_hours,
        measured_share=float(kwh[measured].sum() / max(kwh.sum(), 1e-300)),
        checkpoint_s=log.assumptions.checkpoint_interval_s,
        jobs_unmatched=unmatched,
        signal=signal,
        pue=pue,
        watts_per_gpu=watts_per_gpu,
    )


def _checked(signal: Signal | float, start: FloatArray, stop: FloatArray) -> Signal:
    """The signal, if it is an average intensity; a number as that of all hours of the runs."""
    if isinstance(signal, Signal):
        if signal.kind != "average":
            problem = "an account needs an average intensity"
            remedy = "a marginal one says what a change would emit: use it with `carbon plan`"
            about = (signal.source, "kind", signal.kind, "average", remedy)
            raise refused(problem, "conflict", *about)
        return signal
    if not 0 <= signal < np.inf:
        found = f"{signal:g}"
        raise refused("out of range", "out-of-range", None, "--intensity", found, "at least 0")
    hours = np.r_[start, stop, 0.0][: max(2 * len(start), 1)] // HOUR_S
    first = int(hours.min())
    values = np.full(int(hours.max()) + 1 - first, signal)
    return Signal(values, HOUR_S * first, "average", source=f"{signal:g} g, as stated")


# Of the JSON, under their own names.
_FACTS = (
    "attempts",
    "attempts_without_gpus",
    "gpu_hours",
    "gpu_hours_lost",
    "pue",
    "measured_share",
    "checkpoint_s",
    "jobs_unmatched",
    "watts_per_gpu",
)
# A group whose energy has no intensity at all has no CO2, rather than none: 0 would read as clean.
_KNOWN = (
    "sum(energy_kwh) = 0 OR sum(energy_kwh - energy_kwh_without_intensity) > 1e-9 * sum(energy_kwh)"
)
_SUMS = f"""coalesce(sum(energy_kwh), 0) AS energy_kwh,
    CASE WHEN {_KNOWN} THEN sum(kg_co2) END AS kg_co2,
    CASE WHEN {_KNOWN} THEN sum(kg_co2_failed) END AS kg_co2_failed,
    coalesce(sum(energy_kwh_without_intensity), 0) AS energy_kwh_without_intensity"""


def _integral(signal: Signal) -> Callable[[FloatArray, FloatArray], list[FloatArray]]:
    """What gives (g/kWh x s, seconds with an intensity) of spans; outside of the signal there are none."""
    edges = signal.start_s + HOUR_S * np.arange(signal.hours + 1.0)
    # Running sums at full hours: straight in between.
    sums = [
        np.concatenate([[0.0], np.cumsum(HOUR_S * each)])
        for each in (np.nan_to_num(signal.values), ~np.isnan(signal.values))
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
