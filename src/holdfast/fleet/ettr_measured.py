"""ETTR as it was: productive time over wall-clock time of the long job runs of a log.

W = Q + R + U: time queued while eligible, productive time, unproductive time (initialisation after
each start, replay since the last checkpoint, checkpoint writes); ETTR = R / W (Kokolis et al., arXiv
2410.21680v2, section on ETTR). A log has Q, the wait before the first start included, and R + U; U
follows from the assumptions, see `productive_time`. The ETTR that is expected of a failure rate knows the
waits between failure and restart alone: beside it, measured from the first start on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.answer import Answer, Section, Table, Value
from holdfast.fleet.job_sizes import bucket_bottom, bucket_label, bucket_top
from holdfast.fleet.log import AnyLog, FleetLog, open_log
from holdfast.fleet.productive_time import with_productive_time
from holdfast.fleet.schema import Row, schema
from holdfast.fleet.wording import PAPER, table
from holdfast.numbers import counted, duration, percent
from holdfast.stats import mean_interval
from holdfast.tables import literal

FEWEST_RUNS = 3  # Runs from which a mean has an interval

BY_SIZE = schema(
    gpus_min="int64",
    gpus_max="int64",
    runs="int64",
    gpus="double",
    ettr="double",
    started="double",
    lo="double",
    hi="double",
    queue_s="double",
    interruptions="double",
)


@dataclass(frozen=True)
class MeasuredEttr(Answer):
    """The ETTR of the long job runs."""

    runs: int  # Job runs of at least `long_run_s` on their nodes
    # gpus_min, gpus_max, runs, gpus (mean), ettr (mean), lo, hi (its 95 %, Student's t over runs), started
    # (mean ETTR from the first start on), queue_s (mean per start), interruptions (mean per run).
    by_size: pa.Table
    qos: str | None  # The only class of service that is measured; None: all of them
    # checkpoint_interval_s, init_s (as used), write_s, long_run_s, save_on_signal.
    assumptions: dict[str, float | bool]

    def values(self) -> Sequence[Value]:
        """The mean by job size."""
        rows = ((bucket_label(int(row["gpus_max"])), row) for row in self.by_size.to_pylist())
        return [
            Value(
                f"ettr_{size}_gpus",
                row["ettr"],
                ci95=(row["lo"], row["hi"]),
                better="higher",
                source=PAPER,
            )
            for size, row in rows
        ]

    def largest(self) -> Row | None:
        """The row of the largest job size with enough runs for an interval, else of the largest."""
        rows = self.by_size.to_pylist()
        return ([row for row in rows if row["runs"] >= FEWEST_RUNS] or rows or [None])[-1]

    def largest_text(self) -> str:
        """That row in words, ``"97.6 % [96.9 %, 98.4 %] over 35 long runs on 257–512 GPUs"``.

        Where it differs, "(98.9 % from their first start on)" follows.
        """
        row = self.largest()
        if row is None:
            return "no long run"
        between = f" [{percent(row['lo'], 1)}, {percent(row['hi'], 1)}]"
        between *= row["runs"] >= FEWEST_RUNS
        where = f" on {bucket_label(int(row['gpus_max']))} GPUs" * bool(row["gpus_max"])
        runs = counted(int(row["runs"]), "long run")
        alone, whole = (percent(row[name], 1) for name in ("started", "ettr"))
        started = f" ({alone} from their first start on)" if alone != whole else ""
        return f"{whole}{between} over {runs}{where}{started}"

    def sections(self) -> Sequence[Section]:
        """How much of a large run's time was productive?"""
        return [
            Section(
                "measured",
                "How much of a large run's time was productive?",
                f"{self.largest_text()}.",
                tables=[self.table()],
            )
        ]

    def table(self, expected: Sequence[float] = ()) -> Table:
        """The job sizes, beside the ETTR that is expected of each where that is known."""
        rows = self.by_size.to_pylist()
        for row, share in zip(rows, expected or [None] * len(rows), strict=True):
            row |= {"size": bucket_label(row["gpus_max"]), "expected": share}
            row["queue"] = row["queue_s"] / 60
            if row["runs"] < FEWEST_RUNS:
                row |= {"lo": None, "hi": None}
        measured = {"label": "Measured, 95 %", "interval": ("lo", "hi")}
        return table(
            rows,
            f"size runs ettr {'started expected ' if expected else ''}queue interruptions",
            "One row per job size: runs of the class that waits least.",
            f"No run spent {duration(float(self.assumptions['long_run_s']))} on its nodes.",
            ettr=measured,
        )


def measured_ettr(log: AnyLog) -> MeasuredEttr:
    """Measure the ETTR of the job runs that spent a day or more on their nodes.

    Only runs of the classes that wait least (highest priority) show what failures cost; the mean
    over all classes is dominated by queueing. So where a log has several qualities of service, the
    runs of the one with the highest mean priority are used if it has any.

    Args:
        log: a store or an open log.

    Returns:
        The mean by job size with its interval.
    """
    log = open_log(log)
    runs = log.keep("long_runs", lambda: _runs(log))
    classes = log.rows(
        f"SELECT qos FROM {runs} WHERE priority IS NOT NULL "
        "GROUP BY qos ORDER BY avg(priority) DESC, qos DESC LIMIT 1"
    )
    highest = classes[0]["qos"] if classes else None
    where = f"qos IS NOT DISTINCT FROM {literal(highest)}" if classes else "TRUE"
    rows = log.rows(
        f"""SELECT gpus_max, count(*) AS runs, avg(gpus) AS gpus, avg(ettr) AS ettr,
            avg(productive_s / (queued_s - first_s + runtime_s)) AS started,
            array_agg(ettr) AS each, sum(queued_s) / sum(starts) AS queue_s,
            avg(interruptions) AS interruptions
        FROM {runs} WHERE {where} GROUP BY gpus_max ORDER BY gpus_max"""
    )
    for row in rows:
        row["gpus_min"] = bucket_bottom(row["gpus_max"])
        _, (low, high) = mean_interval(sorted(row["each"]))
        row |= {"lo": max(low, 0.0), "hi": min(high, 1.0)}
    by_size = pa.Table.from_pylist(rows, schema=BY_SIZE)
    names = ("checkpoint_interval_s", "init_s", "write_s", "long_run_s", "save_on_signal")
    used = {name: getattr(log.assumptions, name) for name in names} | {"init_s": log.init_s}
    return MeasuredEttr(sum(row["runs"] for row in rows), by_size, highest, used)


def _runs(log: FleetLog) -> str:
    """Long job runs: run, qos, priority, gpus, gpus_max, starts, interruptions, queued_s, first_s, ettr.

    Those that began before the window have lost attempts that are not seen: they do not count.
    """
    long_s = literal(float(log.assumptions.long_run_s))
    chosen = f"SELECT run FROM {log.executions} GROUP BY run HAVING sum(runtime_s) >= {long_s}"
    if not log.assumptions.chain_by_name:
        least_s = math.ceil(log.assumptions.long_run_s)
        chosen = f"SELECT run FROM {log.executions} WHERE job_runtime_s >= {least_s}"
    attempts = f"(SELECT * FROM {log.executions} WHERE run IN ({chosen}))"
    waited = "greatest(start_s - coalesce(eligible_s, submit_s, start_s), 0)"
    return f"""SELECT *, {bucket_top()} AS gpus_max, productive_s / (queued_s + runtime_s) AS ettr FROM (
            SELECT run, max(qos) AS qos, max(priority) AS priority, coalesce(max(gpus), 0) AS gpus,
                count(*) AS starts,
                count(*) FILTER (WHERE cut IN ('failure', 'preemption')) AS interruptions,
                sum({waited}) AS queued_s, min_by({waited}, start_s) AS first_s,
                sum(runtime_s) AS runtime_s, sum(kept_s) AS productive_s,
                bool_or(exposed_s < runtime_s) AS begun_before
            FROM ({with_productive_time(log, attempts)}) AS attempts GROUP BY run
        ) AS runs
        WHERE runtime_s >= {long_s} AND NOT begun_before AND {log.alike}"""
