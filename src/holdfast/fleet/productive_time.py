"""Productive time of attempts: the one definition behind every ETTR and every loss that a log gives.

A log contains how long an attempt held its nodes, not what it did there. So productive time is the
runtime less initialization (`FleetLog.init_s`) and checkpoint writes. An attempt that was cut off (by
the infrastructure, a preemption or a requeue) loses what it made since its last checkpoint: half an
interval on average (Kokolis et al., arXiv 2410.21680v2). A preempted one loses nothing where
`Assumptions.save_on_signal` says that jobs save their work in the grace period.
"""

from __future__ import annotations

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.log import FleetLog
from holdfast.fleet.preemption import preemptions
from holdfast.tables import literal


def lost_s(log: FleetLog, *, preempted: bool) -> str:
    """SQL of the work that an attempt (column runtime_s) loses when it is cut off, seconds.

    Args:
        log: its assumptions give the checkpoint interval.
        preempted: by a preemption, not by a failure or a requeue.
    """
    if preempted and log.assumptions.save_on_signal:
        return literal(0.0)
    half = literal(log.assumptions.checkpoint_interval_s / 2)
    return f"least(CAST(runtime_s AS DOUBLE), {half})"


def with_productive_time(log: FleetLog, attempts: str) -> str:
    """Attempts with how they were cut off and the productive time that they made and kept.

    Args:
        log: its assumptions say what of a runtime was productive.
        attempts: a table or a query in parentheses, of `log.executions`.

    Returns:
        A query of the attempts with the columns cut ("failure", "preemption", "requeue" or "none"),
        made_s and kept_s (seconds; kept_s is what a later attempt can build on).
    """
    write = literal(float(log.assumptions.write_s))
    cycle = literal(float(log.assumptions.checkpoint_interval_s + log.assumptions.write_s))
    none = literal(0.0)
    # A failure in the grace period is a failure: `losses` counts it so, too. A completed attempt
    # writes its result at the end, too.
    return f"""SELECT *, greatest(made_s - CASE cut WHEN 'none' THEN {none}
                WHEN 'preemption' THEN {lost_s(log, preempted=True)}
                ELSE {lost_s(log, preempted=False)} END, {none}) AS kept_s
        FROM (
            SELECT *, greatest(rest_s - {write} * CASE WHEN state = 'COMPLETED'
                    THEN ceil(rest_s / {cycle}) ELSE floor(rest_s / {cycle}) END, {none}) AS made_s
            FROM (
                SELECT attempt.*,
                    greatest(CAST(attempt.runtime_s AS DOUBLE) - {literal(log.init_s)}, {none})
                        AS rest_s,
                    CASE WHEN failed.key IS NOT NULL THEN 'failure'
                        WHEN taken.key IS NOT NULL THEN 'preemption'
                        WHEN attempt.state = 'REQUEUED' THEN 'requeue' ELSE 'none' END AS cut
                FROM {attempts} AS attempt
                LEFT JOIN {infrastructure_failures(log)} AS failed ON attempt.key = failed.key
                LEFT JOIN (SELECT DISTINCT key FROM {preemptions(log)}) AS taken
                    ON attempt.key = taken.key
            ) AS ended
        ) AS productive"""
