"""The next hour to win: what changes would win a month, each given those before it.

A change wins a share of the hours of some parts. Several may win the same hours: so the one that wins most
for certain is chosen first, and the shares of the others are those of what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt

import numpy as np

from holdfast.carbon import Load, Signal, Workload, plan
from holdfast.errors import InputError
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog
from holdfast.fleet.losses import goodput
from holdfast.fleet.node_ranking import lemons
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import listed
from holdfast.ledger.capacity import last_s
from holdfast.ledger.parts import (
    CHECKPOINT,
    DATA,
    FIRST,
    INIT,
    OUT,
    PRODUCTIVE,
    RANKS,
    REPLAYED,
    SECOND,
    WAITING,
    width,
)
from holdfast.ledger.use import Use
from holdfast.numbers import counted, duration, percent
from holdfast.runs import stragglers

MONTH_S = 30 * DAY_S
MOST_RUNS = 3
"""Runs for which changes are looked for: those with most hours of a part."""
MOMENTS = 1000  # At which it is counted how many nodes are out
MOMENTS = 1000
"""At which it is counted how many nodes are out."""
FLEX = 0.4
"""Share of the power that can wait for a cleaner hour of its day, as `carbon plan` assumes."""
AFTER_FAILURES = (FIRST, SECOND, REPLAYED)
Cell = tuple[str, str]
"""A part, and the folder of the run whose hours of it these are; "": those of all others."""
Shares = Mapping[Cell, tuple[float, float, float]]
"""Cell -> share of its hours that is won, and the ends of its 95 % interval."""


@dataclass(frozen=True)
class Change:
    """Something to do, and what it wins."""

    text: str
    wins: Shares
    room: str
    """That says so."""
    command: str
    """That shows it."""
    cost: float = 0.0
    """Hours that it takes."""

    def hours(self, left: Mapping[Cell, float], end: int = 0) -> float:
        """Hours that it wins of what is left of each cell; `end` 1 and 2: those of its interval."""
        return sum(share[end] * left[cell] for cell, share in self.wins.items()) - self.cost


def changes(
    log: FleetLog,
    hours: Mapping[str, float | None],
    ci95: Mapping[str, tuple[float, float]],
    used: Use,
    by_run: Mapping[str, Mapping[str, float]],
) -> list[Row]:
    """Rows change, hours_a_month, low, high (95 %), room, command: the next one given those before it.

    Args:
        log: the open log; a month is as its window.
        hours: of each part.
        ci95: of those that are estimated.
        used: of the attempts.
        by_run: folder of a run -> its hours by part.
    """
    runs = {(part, run): value for run, parts in by_run.items() for part, value in parts.items()}
    rest = {part: (value or 0.0) - used.measured.get(part, 0.0) for part, value in hours.items()}
    left = {**{(part, ""): value for part, value in rest.items()}, **runs}
    ends = [dict(left), dict(left)]
    for part, both in ci95.items():
        for k, end in enumerate(both):
            ends[k][part, ""] = end - used.measured.get(part, 0.0)
    open_changes = [*_of_fleet(log, rest, used), *_of_runs(by_run)]
    months = (last_s(log) - log.begin_s) / MONTH_S
    rows: list[Row] = []
    while open_changes:
        best = max(open_changes, key=lambda c: (c.hours(ends[0], 1), c.hours(left), c.text))
        open_changes.remove(best)
        if best.hours(left) <= 0:
            continue
        low, high = (max(best.hours(ends[k], k + 1), 0.0) / months for k in (0, 1))
        rows.append(
            {
                "change": best.text,
                "hours_a_month": best.hours(left) / months,
                "low": low,
                "high": high,
                "kg_co2_a_month": None,
                "room": best.room,
                "command": best.command,
            }
        )
        for cell, share in best.wins.items():
            for each in (left, *ends):
                each[cell] *= 1 - share[0]
    return rows


def cleaner_hours(log: FleetLog, signal: Signal) -> float:
    """Share of the CO2 that is saved where `FLEX` of the power can wait for another hour of its day.

    Raises:
        InputError: where the log and the signal have no whole day in common.
    """
    # Used by each full hour: the time since the begin of each attempt, less that since its end.
    used = log.arrow(
        f"""SELECT CAST({width(log)} AS DOUBLE) AS wide, CAST(stop_s - exposed_s AS DOUBLE) AS low,
            CAST(stop_s AS DOUBLE) AS high FROM {log.executions} WHERE exposed_s > 0"""
    )
    start = int(log.begin_s) // HOUR_S * HOUR_S
    edges = np.arange(start, last_s(log) + HOUR_S, HOUR_S)
    total, wide = np.zeros(edges.size), used["wide"].to_numpy()
    for name, sign in (("low", 1), ("high", -1)):
        at = used[name].to_numpy()
        order = np.argsort(at)
        sums = np.cumsum([np.append(0, wide[order]), np.append(0, (wide * at)[order])], axis=1)
        weight, moment = sums[:, np.searchsorted(at[order], edges)]
        total += sign * (weight * edges - moment)
    batch = Workload("batch", np.diff(total) / HOUR_S)
    return plan(Load((batch,), start), signal, flex=FLEX).saved_share


def cleaner(log: FleetLog, signal: Signal, kg_a_month: float) -> Iterator[Row]:
    """The row of what waits for cleaner hours: it wins CO2 alone. None where nothing can be planned."""
    with suppress(InputError):
        saved = cleaner_hours(log, signal) * kg_a_month
        command = f"holdfast carbon plan --load FILE --signal {signal.source}"
        text = f"Shift {percent(FLEX)} of the power to cleaner hours of its day"
        row = {"change": text, "kg_co2_a_month": saved, "room": "carbon", "command": command}
        if saved > 0:
            yield dict.fromkeys(("hours_a_month", "low", "high")) | row


def _of_fleet(log: FleetLog, hours: Mapping[str, float], used: Use) -> Iterator[Change]:
    store = log.store.path
    # 1. Nodes that fail more than the others: their failures come down to the usual rate.
    try:
        ranking = lemons(log)
    except InputError:  # the log does not say on which nodes attempts ran
        ranking = None
    if ranking is not None and ranking.lemons:
        share = [0.0, 0.0, 0.0]
        for row in ranking.nodes.to_pylist():
            more = row["shrunk_rate"] - row["usual_rate"]
            if row["node"] in ranking.lemons and more > 0:
                for k, end in enumerate(("", "_low", "_high")):
                    times = max(row[f"shrunk_rate{end}"] - row["usual_rate"], 0.0) / more
                    share[k] -= row["fleet_rate_change"] * times
        whole = min(share[0], 1.0), min(share[1], 1.0), min(share[2], 1.0)
        text = f"Replace {listed(ranking.lemons, 4)}"
        command = f"holdfast fleet lemons {store}"
        yield Change(text, {(FIRST, ""): whole, (SECOND, ""): whole}, "fleet", command)
    # 2. Jobs that fail again and again.
    lost = hours[FIRST] + hours[SECOND]
    loops = goodput(log).crash_loops
    if len(loops) and lost:
        mine = min(sum(loops["gpu_hours_lost"].to_pylist()) / lost, 1.0)
        text = f"Stop {counted(len(loops), 'crash loop')}, first job {loops['job_id'][0]}"
        same = (mine, mine, mine)
        shares = {(FIRST, ""): same, (SECOND, ""): same}
        yield Change(text, shares, "fleet", f"holdfast fleet goodput {store}")
    # 3. Losses grow with the checkpoint interval, writes with its inverse (Young 1974).
    replays = sum(used.estimated[part] for part in AFTER_FAILURES)
    writes = used.estimated[CHECKPOINT]
    if replays and writes:
        ratio = sqrt(writes / replays)
        interval = duration(log.assumptions.checkpoint_interval_s * ratio)
        wins = dict.fromkeys(AFTER_FAILURES, 1 - ratio) | {CHECKPOINT: 1 - 1 / ratio}
        text = f"Write checkpoints every {interval}"
        shares = {(part, ""): (share, share, share) for part, share in wins.items()}
        yield Change(text, shares, "fleet", f"holdfast fleet ettr {store}")
    if writes:
        key, now_s = "checkpoint.write", log.assumptions.write_s
        faster = now_s / 2
        command = f"holdfast fleet whatif {store} {key}={faster:g}s --set {key}={now_s:g}s"
        wins = {(CHECKPOINT, ""): (0.5, 0.5, 0.5)}
        yield Change(f"Write checkpoints in {duration(faster)}", wins, "fleet", command)
    # 4. With a spare node, a job that comes back preempts nobody, at most: in 95 % of all moments no more
    # nodes than these are out of service. They cost what else would have run on them.
    nodes = log.value(f"SELECT count(*) FROM {log.table('nodes')}")
    spares = _out_at_most(log) if hours[SECOND] and nodes and hours[OUT] is not None else 0
    if spares:
        cost = spares / nodes * used.allocated
        command = f"holdfast fleet whatif {store} cluster.nodes+{spares}"
        wins = {(SECOND, ""): (1.0, 0.0, 1.0)}
        yield Change(f"Keep {counted(spares, 'spare node')}", wins, "fleet", command, cost)
    # 5. Any idle GPU may not do for a job that waits.
    text = "Start waiting jobs on idle machines"
    yield Change(text, {(WAITING, ""): (1.0, 1.0, 1.0)}, "fleet", f"holdfast fleet report {store}")


def _out_at_most(log: FleetLog) -> int:
    """Nodes that are out of service together in at most 95 % of the moments of the window."""
    step_s = (log.end_s - log.begin_s) / MOMENTS
    counts = log.rows(
        f"""SELECT count(DISTINCT node) AS n FROM (
            SELECT {log.begin_s} + {step_s} * unnest(range(0, {MOMENTS})) AS at_s
        ) AS moments LEFT JOIN {log.table("node_outages")} AS outages
            ON start_s <= at_s AND coalesce(end_s > at_s, TRUE) GROUP BY at_s"""
    )
    return int(np.quantile([row["n"] for row in counts], 0.95, method="inverted_cdf"))


def _of_runs(by_run: Mapping[str, Mapping[str, float]]) -> Iterator[Change]:
    for part, text, command in (
        (DATA, "Feed {} without waits for data", "report"),
        (RANKS, "Find what the ranks of {} wait for", "stragglers"),
        (INIT, "Start {} faster", "report"),
        (CHECKPOINT, "Write the checkpoints of {} in the background", "report"),
    ):
        for run in sorted(by_run, key=lambda run: (-by_run[run][part], run))[:MOST_RUNS]:
            name = run.rpartition("/")[2]
            wins = {(part, run): (1.0, 1.0, 1.0)}
            yield Change(text.format(name), wins, "runs", f"holdfast runs {command} {run}")
    for run in sorted(by_run, key=lambda run: (-by_run[run][PRODUCTIVE], run))[:MOST_RUNS]:
        with suppress(InputError):  # no two ranks share a step
            slow = stragglers(run)
            nodes = sorted({row["node"] for row in slow.persistent})
            if nodes:
                share = slow.recoverable_gpu_hours / slow.costs.worked
                text = f"Exclude {listed(nodes, 4)}, slow in {run.rpartition('/')[2]}"
                wins = {(PRODUCTIVE, run): (share, share, share)}
                yield Change(text, wins, "runs", f"holdfast runs stragglers {run}")
