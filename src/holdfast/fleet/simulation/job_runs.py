"""Jobs of a log: the attempts of each, chained to one row, with the productive time that they made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.log import FleetLog
from holdfast.fleet.productive_time import with_productive_time
from holdfast.fleet.simulation.records import Array, Records
from holdfast.tables import literal

OWN_ENDS = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY")  # Ends of a job's own making
# Cut by its limit; ended by a failure, a preemption or a requeue and not seen again; still running;
# never started.
TIMEOUT, CUT, RUNNING, PENDING = "TIMEOUT", "CUT", "RUNNING", "PENDING"
CLASS = "coalesce(nullif(qos, ''), 'default')"  # SQL of the class of service of an attempt


def executions(log: FleetLog) -> str:
    """Attempts with GPUs that ran, with the columns of `with_productive_time`."""
    with_gpus = f"(SELECT * FROM {log.executions} WHERE gpus > 0)"
    return log.keep("productive", lambda: with_productive_time(log, with_gpus))


def job_runs(log: FleetLog) -> Records:
    """Chain the attempts of each job.

    Args:
        log: the open log.

    Returns:
        One record per job that ran or waits, in order of arrival; jobs cancelled before they started left
        no trace on the machines and are left out. arrival_s: when it could start, epoch seconds;
        first_start_s, stop_s: first and last seen running, NaN: never; gpus; node_count, 0: unknown;
        made_s: productive time, kept from earlier attempts and made by the last one; held_s: time on
        its nodes, all attempts together; longest_s: runtime of the longest attempt; limit_s: time limit,
        NaN: none or unknown; starts; end: one of `OWN_ENDS`, or TIMEOUT, CUT, RUNNING, PENDING;
        job_class: its class of service; user.
    """
    ran = executions(log)
    own = literal([*OWN_ENDS, TIMEOUT])
    table = log.arrow(
        f"""WITH ended AS (
            SELECT *, row_number() OVER (
                    PARTITION BY run ORDER BY start_s DESC, attempt DESC, key
                ) = 1 AS last_one,
                CASE WHEN end_s IS NULL AND state = 'RUNNING' THEN '{RUNNING}'
                    WHEN cut <> 'none' THEN '{CUT}'
                    WHEN state IN {own} THEN state ELSE '{CUT}' END AS ending
            FROM {ran}
        ), jobs AS (
            SELECT run, min(coalesce(eligible_s, submit_s, start_s)) AS arrival_s,
                min(start_s) AS first_start_s, max(stop_s) AS stop_s, max(gpus) AS gpus,
                max(node_count) AS node_count,
                sum(CASE WHEN last_one THEN made_s ELSE kept_s END) AS made_s,
                CAST(sum(runtime_s) AS DOUBLE) AS held_s, max(runtime_s) AS longest_s,
                max(time_limit_s) AS limit_s, count(*) AS starts,
                max(CASE WHEN last_one THEN ending END) AS ending,
                max({CLASS}) AS job_class, max("user") AS "user"
            FROM ended GROUP BY run
            UNION ALL
            SELECT run, min(coalesce(eligible_s, submit_s)), CAST(NULL AS BIGINT),
                CAST(NULL AS BIGINT), max(gpus), max(node_count), CAST(0 AS DOUBLE),
                CAST(0 AS DOUBLE), CAST(NULL AS BIGINT), max(time_limit_s), 0, '{PENDING}',
                max({CLASS}), max("user")
            FROM {log.attempts} WHERE gpus > 0 AND NOT ran AND state = 'PENDING'
                AND run NOT IN (SELECT run FROM {ran})
            GROUP BY run
        )
        SELECT * FROM jobs WHERE arrival_s IS NOT NULL ORDER BY arrival_s, run"""
    ).rename_columns({"ending": "end"})
    columns = {name: _numbers(table[name]) for name in _REALS}
    columns |= {name: _numbers(table[name], 0).astype(np.int64) for name in _COUNTS}
    columns |= {name: _texts(table[name]) for name in ("end", "job_class", "user")}
    types = [(name, column.dtype) for name, column in columns.items()]
    return np.rec.fromarrays([*columns.values()], dtype=types)


_REALS = ("arrival_s", "first_start_s", "stop_s", "made_s", "held_s", "longest_s", "limit_s")
_COUNTS = ("gpus", "node_count", "starts")


def _numbers(column: pa.ChunkedArray, unknown: float = float("nan")) -> Array:
    values: Array = pc.fill_null(column.cast(pa.float64()), unknown).to_numpy()
    return values


def _texts(column: pa.ChunkedArray) -> Array:
    """Few distinct texts: expanded from their dictionary."""
    coded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    names = np.array(coded.dictionary.to_pylist() or [""], dtype=object)
    values: Array = names[coded.indices.to_numpy(zero_copy_only=False)]
    return values
