"""Crash loops: runs that the infrastructure ends and the scheduler requeues, again and again."""

from __future__ import annotations

import pyarrow as pa

from holdfast.answer import Section
from holdfast.fleet.attribution import attribute, failed_runs
from holdfast.fleet.log import FleetLog
from holdfast.fleet.wording import MOST_ROWS, how, table
from holdfast.numbers import brief, counted, duration
from holdfast.tables import literal


def section(log: FleetLog, loops: pa.Table, job_id: str | None, unit: str) -> Section | None:
    """Which jobs loop? None where no job failed.

    Args:
        log: the open log.
        loops: of `crash_loops`.
        job_id: the job whose attempts are drawn: the worst loop, or the costliest failure.
        unit: of what was lost, "GPU-hours" or "node-hours".
    """
    if job_id is None:
        return None
    assumed = log.assumptions
    looped = "No job looped."
    if verdict(log, loops) == "unknown":
        looped = "Cannot tell whether a job looped: the log shows no second attempt of any job."
    sentence = f"{looped} Job {job_id} had the costliest failure; these are its attempts."
    if len(loops):
        worst = loops.slice(0, 1).to_pylist()[0]
        gpus = f" on {counted(int(worst['gpus']), 'GPU')}" if worst["gpus"] > 0 else ""
        taken = counted(int(worst["preempted"]), "attempt")
        victims = f", and {taken} preempted by its restarts" if worst["preempted"] else ""
        sentence = (
            f"Job {job_id} looped: {counted(int(worst['requeues']), 'requeue')} after infrastructure "
            f"failures within {duration(worst['last_s'] - worst['first_s'])}{gpus}{victims}; it cost "
            f"{brief(float(worst['gpu_hours_lost']))} {unit}."
        )
        sentence += f" {counted(len(loops) - 1, 'more job')} looped." if len(loops) > 1 else ""
    size = "gpus " if any(loops["gpus"].to_pylist()) else ""
    shown = table(
        loops.slice(0, MOST_ROWS),
        f"job_id {size}requeues preempted gpu_hours_lost first_s last_s",
        "One row per run in a crash loop, most requeues first. Lost: both orders.",
        "No run looped.",
        gpu_hours_lost={"unit": unit.replace("hours", "h")},
        first_s="First failure",
        last_s={"label": "Last failure", "detail": True},
    )
    parameters = {
        "requeues, at least": assumed.crash_loop_requeues,
        "within": duration(assumed.crash_loop_window_s),
        "runs are chained": "by name" if assumed.chain_by_name else "by job id",
    }
    figures = attribute(log, job_id).figures()
    computed = how("loops", parameters)
    return Section("loops", "Which jobs loop?", sentence, figures, [shown], computed)


def verdict(log: FleetLog, loops: pa.Table) -> str:
    """Whether jobs "looped", "none" did, or "unknown": no job of the log has a second attempt."""
    if len(loops):
        return "looped"
    return "none" if log.store.facts.get("duplicates_flag") == "present" else "unknown"


def crash_loops(log: FleetLog, failures: str, preempted: str) -> pa.Table:
    """Runs that the infrastructure ended and the scheduler requeued again and again.

    Args:
        log: its assumptions say what a loop is.
        failures: of `losses.losses`.
        preempted: of `losses.losses`.

    Returns:
        run, job_id, gpus, requeues, preempted, gpu_hours_lost, first_s, last_s, most requeues first.
    """
    loop = log.assumptions
    return log.arrow(
        f"""WITH seen AS (
            SELECT run, max(coalesce(start_s, submit_s)) AS last_seen_s
            FROM {failed_runs(log)} GROUP BY run
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
