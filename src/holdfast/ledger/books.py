"""`holdfast ledger`: where all machine time of a window went, in parts that add up to the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa

from holdfast.answer import ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.carbon.accounting import account
from holdfast.carbon.signals import Signal
from holdfast.errors import InputError
from holdfast.fleet.gaps import Doubtful
from holdfast.fleet.log import AnyLog, FleetLog, open_log
from holdfast.fleet.losses import GPU_HOURS, NODE_HOURS
from holdfast.fleet.moments import minute
from holdfast.fleet.schema import Row, schema
from holdfast.ledger.capacity import Capacity, capacity, last_s
from holdfast.ledger.changes import MONTH_S, changes, cleaner
from holdfast.ledger.parts import (
    CHECKPOINT,
    ESTIMATED,
    IDLE,
    LABELS,
    LOST,
    MEANINGS,
    OUT,
    PRODUCTIVE,
    RECORDED,
    UNRECORDED,
    UNUSED,
    USED,
    USERS,
    WAITING,
)
from holdfast.ledger.records import records
from holdfast.ledger.use import Use, use
from holdfast.numbers import brief, counted, duration, percent
from holdfast.plain import plain
from holdfast.report import figures

By = Literal["user", "partition", "account"]

_COLOURS = {
    OUT: "first",
    IDLE: "unattributed",
    WAITING: "yellow",
    PRODUCTIVE: "good",
    USERS: "user",
    UNRECORDED: "sky",
}
MOST_ROWS = 500
CHANGES = schema(
    change="string",
    hours_a_month="double",
    low="double",
    high="double",
    kg_co2_a_month="double",
    room="string",
    command="string",
)


@dataclass(frozen=True)
class Ledger(Doubtful):
    """The machine time of a window, in hours of GPUs; of nodes (`unit`) where the log has no GPUs."""

    unit: str
    begin_s: float
    """The window, seconds since 1970."""
    end_s: float
    capacity: float | None
    """Inventory x time; None without an inventory."""
    hours: dict[str, float | None]
    """Part -> hours; None: the log cannot tell. Together they are the capacity, or what was allocated."""
    measured: dict[str, float]
    """Part -> hours of it that a log or a record tells; the rest is estimated."""
    ci95: dict[str, tuple[float, float]]
    """Part -> the 95 % interval of its hours, under the assumptions, where it is estimated."""
    runs: int
    """With records."""
    model_flops: float | None
    """Hours of the productive steps that the model's products take at least, estimated; None: no run has a
    profile of its step."""
    profiled: float
    """Hours of the productive steps of the runs with a profile: `model_flops` and the rest."""
    by: pa.Table | None
    """A row per user, partition or account, most hours first: its name, hours, and those of each part."""
    kg_per_hour: float | None
    """Mean CO2 of an allocated hour; None without a signal. What idle machines draw is not known."""
    changes: tuple[Row, ...]
    """What to do next; see `holdfast.ledger.changes`."""
    assumed: dict[str, float]
    """checkpoint_interval_s, init_s, write_s."""
    gaps: tuple[Unknown, ...] = field(repr=False)

    title = "Where machine time went"

    @property
    def allocated(self) -> float:
        """Hours of all attempts."""
        return sum(self.hours[part] or 0.0 for part in USED)

    @property
    def total(self) -> float:
        """The capacity, or the allocated hours where it is not known."""
        return self.allocated if self.capacity is None else self.capacity

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast ledger``."""
        parts = {
            part: {"hours": hours, "measured": self.measured.get(part), "ci95": self.ci95.get(part)}
            for part, hours in self.hours.items()
        }
        content = {
            "unit": self.unit,
            "capacity": self.capacity,
            "allocated": self.allocated,
            "runs": self.runs,
            "kg_co2_per_hour": self.kg_per_hour,
            "parts": parts,
            "model_flops": self.model_flops,
            "profiled": self.profiled,
            "changes": self.changes,
            "by": None if self.by is None else self.by.to_pylist(),
            "assumed": self.assumed,
        }
        return cast("dict[str, Any]", plain(content))

    def values(self) -> Sequence[Value]:
        """Shares of the capacity."""
        better: dict[str, Any] = {
            PRODUCTIVE: "higher",
            **dict.fromkeys((OUT, WAITING, *LOST), "lower"),
        }
        total = self.total
        values = [
            Value("capacity", self.capacity, self.unit),
            Value("allocated", self.allocated, self.unit),
        ]
        for part, hours in self.hours.items():
            ends = self.ci95.get(part)
            values.append(
                Value(
                    f"{part}_share",
                    None if hours is None or not total else hours / total,
                    ci95=(ends[0] / total, ends[1] / total) if ends and total else None,
                    better=better.get(part, ""),
                )
            )
        return values

    def unknowns(self) -> Sequence[Unknown]:
        """What makes it doubtful, and what is not known."""
        return [*super().unknowns(), *self.gaps]

    def sections(self) -> Sequence[Section]:
        """Where the hours went; whose they were."""
        if not self.total:
            none = "The log has no hours of machines in this window."
            return [Section("where", "Where did the hours go?", none)]
        order = sorted(
            self.hours, key=lambda part: (part != PRODUCTIVE, -(self.hours[part] or 0.0))
        )
        rows = [self._row(part) for part in order if self.hours[part] != 0 or part == PRODUCTIVE]
        if self.model_flops is not None:
            halves = {"of it model FLOPs": self.model_flops}
            halves["of it the rest"] = self.profiled - self.model_flops
            rows[1:1] = [
                {"part": name, "hours": hours, "share": hours / self.total, "known": "estimated"}
                for name, hours in halves.items()
            ]
        unit = self.unit.replace("hours", "h")
        columns = {
            "part": ColumnFormat("Part"),
            "hours": ColumnFormat("Hours, 95 %", unit, interval=("low", "high")),
            "share": ColumnFormat("Share", "%", digits=1),
            "kg_co2": ColumnFormat("CO2", "kg"),
            "known": ColumnFormat("How it is known"),
            "meaning": ColumnFormat("What it is", detail=True),
        }
        if self.kg_per_hour is None:
            del columns["kg_co2"]
        drops = [(LABELS[p], -h) for p, h in self.hours.items() if h and p != PRODUCTIVE]
        drawn = figures.waterfall(
            [("Capacity" if self.capacity is not None else "Allocated", self.total), *drops],
            self.unit,
            total=LABELS[PRODUCTIVE],
            meanings={
                ("Capacity" if self.capacity is not None else "Allocated"): "measured",
                **{LABELS[part]: _COLOURS.get(part, "hardware") for part in LABELS},
            },
        )
        how = How(
            [
                "capacity = inventory x time = out of service + idle + allocated",
                "loss of an attempt = width x min(runtime, checkpoint interval / 2)",
            ],
            {name.removesuffix("_s"): duration(value) for name, value in self.assumed.items()},
            "arXiv 2410.21680v2",
            "Parts of recorded attempts are those of `holdfast runs report`; losses are those of"
            " `holdfast fleet goodput`. Intervals hold if checkpoints are written as assumed.",
        )
        table = Table(
            pa.Table.from_pylist(rows),
            columns,
            "One row per part that is not 0, steps first, then the largest.",
        )
        sections = [
            Section("where", "Where did the hours go?", self._sentence(), [drawn], [table], how)
        ]
        sections.append(self._next_section(unit))
        if self.by is not None:
            sections.append(self._by_section(unit))
        return sections

    def _row(self, part: str) -> Row:
        hours, (low, high) = self.hours[part], self.ci95.get(part, (None, None))
        used = hours is not None and part in USED
        return {
            "part": LABELS[part],
            "meaning": MEANINGS[part],
            "hours": hours,
            "share": None if hours is None else hours / self.total,
            "low": low,
            "high": high,
            "kg_co2": hours * self.kg_per_hour if used and self.kg_per_hour else None,
            "known": self._known(part),
        }

    def _known(self, part: str) -> str:
        hours, measured = self.hours[part], self.measured.get(part, 0.0)
        if hours is None or part == UNRECORDED:
            return "unknown"
        if part == IDLE and self.hours[OUT] is None:
            return "measured, with what was out of service"
        if part not in ESTIMATED or measured >= hours > 0:
            return "measured"
        return f"{percent(measured / hours)} measured" if measured else "estimated"

    def _sentence(self) -> str:
        total, share = self.total, {p: (h or 0.0) / self.total for p, h in self.hours.items()}
        what = f"{brief(total)} {self.unit}"
        since = f"since {minute(self.begin_s)}"
        unused = sum(share[part] for part in UNUSED)
        text = (
            f"Of {what} of capacity {since}, {percent(1 - unused)} were allocated"
            if self.capacity is not None
            else f"Of {what} that were allocated {since} (the capacity is unknown)"
        )
        lost = sum(share[part] for part in LOST)
        steps = f"{percent(share[PRODUCTIVE])} are recorded as productive steps, " * bool(self.runs)
        text += f", {steps}{percent(lost)} were lost"
        if share[UNRECORDED]:
            text += f", and of {percent(share[UNRECORDED])} no record says whether they trained"
        worst = max((*UNUSED, *LOST), key=lambda part: share[part])
        if share[worst]:
            text += (
                f". The largest part to win back: {percent(share[worst])}, {LABELS[worst].lower()}"
            )
        return f"{text}."

    def _next_section(self, unit: str) -> Section:
        sentence = "Nothing that this log or these records tell would win an hour."
        if self.changes and (first := self.changes[0])["hours_a_month"] is not None:
            ends = f"{brief(first['low'])}, {brief(first['high'])}"
            sentence = (
                f"{first['change']}: {brief(first['hours_a_month'])} {self.unit} a month [{ends}]."
            )
        columns = {
            "change": ColumnFormat("Change"),
            "hours_a_month": ColumnFormat("Wins a month, 95 %", unit, interval=("low", "high")),
            "kg_co2_a_month": ColumnFormat("CO2 a month", "kg"),
            "room": ColumnFormat("Says", detail=True),
            "command": ColumnFormat("Shown by"),
        }
        if not any(row["kg_co2_a_month"] for row in self.changes):
            del columns["kg_co2_a_month"]
        caption = "One row per change, each given those before it; a month is as this window."
        how = How(
            "hours = sum over parts of (share that the change wins) x (hours that earlier changes leave)",
            source="checkpoint interval: Young, CACM 17(9), 1974",
            notes="The intervals are those of the estimates, not of what a coming month will bring.",
        )
        rows = pa.Table.from_pylist(list(self.changes), CHANGES)
        question = "Which hour is the next to win?"
        return Section("next", question, sentence, [], [Table(rows, columns, caption)], how)

    def _by_section(self, unit: str) -> Section:
        assert self.by is not None
        name = self.by.column_names[0]
        shown = self.by.slice(0, MOST_ROWS)
        columns = {name: ColumnFormat(name.capitalize()), "hours": ColumnFormat("Hours", unit)}
        columns |= {
            part: ColumnFormat(LABELS[part], unit)
            for part in USED
            if any(self.by[part].to_pylist())
        }
        first = shown.slice(0, 1).to_pylist()
        sentence = "Nothing ran."
        if first and self.allocated:
            sentence = (
                f"{name.capitalize()} {first[0][name] or 'unknown'} had most: {brief(first[0]['hours'])} "
                f"{self.unit}, {percent(first[0]['hours'] / self.allocated)} of the allocated."
            )
        return Section(
            "whose", f"Whose hours were they, by {name}?", sentence, [], [Table(shown, columns)]
        )


def ledger(
    store: AnyLog,
    runs: Sequence[str | Path] = (),
    *,
    since: str | None = None,
    by: By | None = None,
    signal: Signal | float | None = None,
) -> Ledger:
    """Divide all machine time of a fleet.

    Args:
        store: a store or an open log.
        runs: folders with the records of its runs, or around them.
        since: use only what happened after: "30d" (before the end of the log) or an ISO time.
        by: also by user, partition or account.
        signal: average intensity of the grid, gCO2/kWh, for the CO2 of each part; see `carbon.account`.

    Raises:
        InputError: what opening the store refuses; ``no-data`` for a folder without records, a window
            without a log.
    """
    log = open_log(store, since=since)
    if log.begin_s > last_s(log) and log.count("attempts"):
        raise InputError(
            "the window begins after the log's end",
            code="no-data",
            place="since",
            found=minute(log.begin_s),
            expected=f"a time before {minute(last_s(log.whole))}",
        )
    recorded = records(log, runs)
    kg_per_hour, unlit = (None, []) if signal is None else _kg_per_hour(log, signal)
    used = use(log, recorded.use, by)
    had = capacity(log, used.allocated)
    hours: dict[str, float | None] = {OUT: had.out, IDLE: None, WAITING: had.waiting}
    total = None
    if had.idle is not None:
        hours[IDLE] = had.idle - (had.waiting or 0.0)
        total = (had.out or 0.0) + had.idle + used.allocated
    measured = {part: hours[part] or 0.0 for part in (OUT, IDLE)}
    for part in USED:
        measured[part] = used.measured.get(part, 0.0)
        hours[part] = measured[part] + used.estimated.get(part, 0.0)
        unsaid = part in RECORDED or (part == CHECKPOINT and not log.assumptions.write_s)
        if unsaid and not recorded.by_run:
            hours[part] = None  # it is in what no record tells
    ci95 = {
        part: (max((hours[part] or 0.0) - below, measured[part]), (hours[part] or 0.0) + above)
        for part, (below, above) in used.reach.items()
        if below or above
    }
    if had.waiting:
        ci95[WAITING] = (0.0, had.waiting)
    assumptions = log.assumptions
    next_changes = changes(log, hours, ci95, used, recorded.by_run)
    if isinstance(signal, Signal) and kg_per_hour:
        months = (last_s(log) - log.begin_s) / MONTH_S
        next_changes += cleaner(log, signal, kg_per_hour * used.allocated / months)
    return Ledger(
        GPU_HOURS if log.has_gpus else NODE_HOURS,
        log.begin_s,
        float(last_s(log)),
        total,
        hours,
        measured,
        ci95,
        len(recorded.by_run),
        recorded.model_flops,
        recorded.profiled,
        used.by,
        kg_per_hour,
        tuple(next_changes),
        {
            "checkpoint_interval_s": assumptions.checkpoint_interval_s,
            "init_s": log.init_s,
            "write_s": assumptions.write_s,
        },
        tuple(_gaps(log, had, used, [*recorded.doubts, *unlit])),
        log=log,
    )


def gauges(log: FleetLog, runs: Sequence[str | Path]) -> dict[str, Any]:
    """For `/metrics` of the console: name -> labels -> (value, and the ends of its 95 % interval)."""
    try:
        books = ledger(log, runs)
    except InputError:  # no usable records, or none yet: a scrape still gives what the log tells
        books = ledger(log)
    unit = books.unit
    hours = {
        (part, unit): (value, *books.ci95.get(part, (None, None)))
        for part, value in books.hours.items()
    }
    return {
        "ledger_hours": hours,
        "ledger_capacity_hours": {(unit,): (books.capacity, None, None)},
        "ledger_runs": {(): (books.runs, None, None)},
    }


def _kg_per_hour(log: FleetLog, signal: Signal | float) -> tuple[float | None, list[str]]:
    """Mean CO2 of the allocated hours that have an intensity, and what is doubtful about it."""
    emitted = account(log, signal)
    kg, energy, without = (
        emitted.totals[name] or 0.0
        for name in ("kg_co2", "energy_kwh", "energy_kwh_without_intensity")
    )
    share = without / (energy or 1.0)
    doubts = [f"The signal has no intensity for {percent(share)} of the energy"] if without else []
    hours = emitted.gpu_hours * (1 - share)
    return (kg / hours if hours > 0 else None), doubts


def _gaps(log: FleetLog, had: Capacity, used: Use, doubts: Sequence[str]) -> list[Unknown]:
    """What the log and the records do not tell of the parts."""
    hours = "GPU-hours" if log.has_gpus else "node-hours"
    size = "gpus" if log.has_gpus else "node_count"
    blank = log.value(
        f"SELECT count(*) FROM {log.executions} WHERE exposed_s > 0 AND {size} IS NULL"
    )
    found = [Unknown(f"{text}.", doubt=True) for text in doubts]
    for doubtful, text, remedy in (
        (
            had.idle is None,
            "The store has no inventory: how much was idle or out of service is unknown.",
            "Ingest `scontrol show nodes` or `sinfo` too.",
        ),
        (
            had.out is None and had.idle is not None,
            "The store has no outages of nodes: those count as idle.",
            "Ingest `sacctmgr show event` too.",
        ),
        (
            had.excess > 0.01 * used.allocated,
            f"Attempts used {brief(had.excess)} {hours} more than the inventory has: it is too small,"
            " or attempts share nodes; they are added to the capacity.",
            "Ingest the inventory of the whole cluster.",
        ),
        (
            had.unsized,
            f"{counted(had.unsized, 'node')} of the inventory have no number of GPUs and count as none.",
            "Ingest `scontrol show nodes`.",
        ),
        (
            blank,
            f"{counted(blank, 'attempt')} of unknown size count as none.",
            "Export the columns NNodes, NodeList and AllocTRES of `sacct` too.",
        ),
    ):
        if doubtful:
            found.append(Unknown(text, remedy, doubt=True))
    if used.estimated[UNRECORDED]:
        text = f"For what {brief(used.estimated[UNRECORDED])} {hours} were used no record says."
        remedy = "Start trainings with `holdfast runs exec`, and give their folders with --runs."
        found.append(Unknown(text, remedy))
    return found
