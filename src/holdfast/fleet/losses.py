"""GPU-hours lost to infrastructure failures, of first and second order.

First order: GPUs x min(runtime, checkpoint interval / 2) of each attempt that the infrastructure ended.
Second order: the same of each attempt that was preempted when such a job came back (Kokolis et al.,
arXiv 2410.21680v2, on goodput loss). The measured ETTR subtracts the same (`productive_time.lost_s`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.job_sizes import bucket_bottom, bucket_top
from holdfast.fleet.log import HOUR_S, FleetLog, open_log
from holdfast.fleet.moments import iso
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.productive_time import lost_s
from holdfast.fleet.store import Store
from holdfast.tables import literal


@dataclass(frozen=True)
class Goodput:
    """What failures cost, in GPU-hours."""

    total_gpu_hours: float
    """GPU-hours of all attempts in the window."""
    lost_first_order: float
    lost_second_order: float
    failures: int
    """Attempts that the infrastructure ended."""
    preemptions: int
    """Attempts that were preempted, by anybody."""
    preemptions_second_order: int
    by_job_size: pa.Table
    """gpus_min, gpus_max, gpu_hours, failures, first_order, second_order (GPU-hours)."""
    by_cause: pa.Table
    """cause, failures, first_order, second_order (GPU-hours), largest loss first."""
    crash_loops: pa.Table
    """run, job_id, gpus, requeues, preempted, gpu_hours_lost, first_s, last_s, most requeues first."""

    @property
    def lost_gpu_hours(self) -> float:
        """Both orders together."""
        return self.lost_first_order + self.lost_second_order

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast fleet goodput`` (GPU-hours)."""
        loops = [
            {**loop, "first": iso(loop.pop("first_s")), "last": iso(loop.pop("last_s"))}
            for loop in self.crash_loops.to_pylist()
        ]
        return {
            "total": self.total_gpu_hours,
            "lost_first_order": self.lost_first_order,
            "lost_second_order": self.lost_second_order,
            "failures": self.failures,
            "preemptions": self.preemptions,
            "preemptions_second_order": self.preemptions_second_order,
            "by_job_size": self.by_job_size.to_pylist(),
            "by_cause": self.by_cause.to_pylist(),
            "crash_loops": loops,
        }


def goodput(log: str | Path | Store | FleetLog) -> Goodput:
    """Count the GPU-hours that failures cost.

    Args:
        log: a store or an open log.

    Returns:
        Totals, and the losses by job size, by cause and by crash loop.
    """
    log = open_log(log)
    failures, preempted = losses(log)
    by_job_size = _by_job_size(log, failures, preempted)
    [counted] = log.rows(
        f'SELECT count(*) AS every, count(*) FILTER (WHERE "order" = 2) AS second FROM {preempted}'
    )
    by_cause = log.arrow(
        f"""SELECT cause, sum(failures) AS failures, sum(first_order) AS first_order,
            sum(second_order) AS second_order
        FROM (
            SELECT label AS cause, 1 AS failures, lost AS first_order,
                CAST(0 AS DOUBLE) AS second_order
            FROM {failures}
            UNION ALL
            SELECT cause, 0, CAST(0 AS DOUBLE), lost FROM {preempted} WHERE "order" = 2
        ) AS lost
        GROUP BY cause ORDER BY first_order DESC, second_order DESC, cause"""
    )
    first, second, failed = (
        sum(by_cause[name].to_pylist()) for name in ("first_order", "second_order", "failures")
    )
    return Goodput(
        total_gpu_hours=float(sum(by_job_size["gpu_hours"].to_pylist())),
        lost_first_order=float(first),
        lost_second_order=float(second),
        failures=failed,
        preemptions=counted["every"],
        preemptions_second_order=counted["second"],
        by_job_size=by_job_size,
        by_cause=by_cause,
        crash_loops=_crash_loops(log, failures, preempted),
    )


def losses(log: FleetLog) -> tuple[str, str]:
    """Failures and preemptions with the GPU-hours that each of them lost.

    Returns:
        (infrastructure failures + `lost`; preemptions + `lost`, zero for those of first order and
        for attempts that are among the failures, and `cause`: that of the latest failure of the
        preemptor's run before the preemption, null for those of first order).
    """
    failures = log.keep(
        "failure_losses",
        f"""SELECT *, coalesce(gpus, 0) * {lost_s(log, preempted=False)} / {HOUR_S} AS lost
        FROM {infrastructure_failures(log)}""",
    )
    # Work is lost once: what a node failure ended in its grace period is lost in first order.
    return failures, log.keep(
        "preemption_losses",
        f"""WITH latest AS (
            SELECT taken.key, failed.label AS cause, row_number() OVER (
                PARTITION BY taken.key ORDER BY failed.stop_s DESC, failed.key
            ) AS place
            FROM {preemptions(log)} AS taken JOIN {failures} AS failed
                ON taken.preemptor_run = failed.run AND failed.stop_s <= taken.signal_s + 1
            WHERE taken."order" = 2
        )
        SELECT taken.*, latest.cause, CASE WHEN taken."order" = 2 AND failed.key IS NULL
            THEN coalesce(taken.gpus, 0) * taken.lost_s / {HOUR_S} ELSE CAST(0 AS DOUBLE) END AS lost
        FROM (
            SELECT *, {lost_s(log, preempted=True)} AS lost_s FROM {preemptions(log)}
        ) AS taken
        LEFT JOIN (SELECT key FROM {failures}) AS failed ON taken.key = failed.key
        LEFT JOIN latest ON taken.key = latest.key AND place = 1""",
    )


def _by_job_size(log: FleetLog, failures: str, preempted: str) -> pa.Table:
    """A job's loss counts in its own size, also where another job's failure caused it."""
    none = literal(0.0)
    table = log.arrow(
        f"""SELECT gpus_max, sum(gpu_hours) AS gpu_hours, sum(failures) AS failures,
            sum(first_order) AS first_order, sum(second_order) AS second_order
        FROM (
            SELECT {bucket_top()} AS gpus_max, gpu_hours, 0 AS failures, {none} AS first_order,
                {none} AS second_order
            FROM {log.exposure}
            UNION ALL SELECT {bucket_top()}, {none}, 1, lost, {none} FROM {failures}
            UNION ALL SELECT {bucket_top()}, {none}, 0, {none}, lost FROM {preempted}
        ) AS counted
        GROUP BY gpus_max ORDER BY gpus_max"""
    )
    bottoms = [bucket_bottom(top) for top in table["gpus_max"].to_pylist()]
    return table.add_column(0, "gpus_min", pa.array(bottoms, pa.int64()))


def _crash_loops(log: FleetLog, failures: str, preempted: str) -> pa.Table:
    """Runs that the infrastructure ended and the scheduler requeued again and again."""
    loop = log.assumptions
    return log.arrow(
        f"""WITH seen AS (
            SELECT run, max(coalesce(start_s, submit_s)) AS last_seen_s
            FROM {log.attempts} WHERE run IN (SELECT run FROM {failures}) GROUP BY run
        ), requeued AS (
            SELECT failed.run, job_id, gpus, lost, stop_s, stop_s - lag(
                stop_s, {loop.crash_loop_requeues - 1}
            ) OVER (PARTITION BY failed.run ORDER BY stop_s, key) AS within_s
            FROM {failures} AS failed JOIN seen ON failed.run = seen.run AND last_seen_s >= stop_s
        ), own AS (
            SELECT run, max(job_id) AS job_id, coalesce(max(gpus), 0) AS gpus, count(*) AS requeues,
                sum(lost) AS lost, min(stop_s) AS first_s, max(stop_s) AS last_s
            FROM requeued GROUP BY run
            HAVING min(within_s) <= {literal(float(loop.crash_loop_window_s))}
        )
        SELECT own.run, job_id, gpus, requeues, coalesce(preempted, 0) AS preempted,
            own.lost + coalesce(others.lost, 0) AS gpu_hours_lost, first_s, last_s
        FROM own LEFT JOIN (
            SELECT preemptor_run AS run, count(*) AS preempted, sum(lost) AS lost
            FROM {preempted} WHERE "order" = 2 GROUP BY preemptor_run
        ) AS others ON own.run = others.run
        ORDER BY requeues DESC, own.run"""
    )
