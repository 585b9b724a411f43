"""Jobs of a log: the attempts of each, chained to one row, with the productive time that they made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.log import FleetLog
from holdfast.fleet.productive_time import with_productive_time
from holdfast.fleet.simulation.records import Array

if TYPE_CHECKING:
    import ibis.expr.types as ir

OWN_ENDS = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY")
"""Ends of a job's own making."""
TIMEOUT, CUT, RUNNING, PENDING = "TIMEOUT", "CUT", "RUNNING", "PENDING"
"""Cut by its limit; ended by a failure, a preemption or a requeue and not seen again; still running;
never started."""


class JobRuns(NamedTuple):
    """One row per job that asked for GPUs, in order of arrival; shape [jobs] each."""

    arrival_s: Array
    """float64: epoch seconds from when it could start."""
    first_start_s: Array
    """float64; NaN: never."""
    stop_s: Array
    """float64: the last that was seen of it; NaN: it never started."""
    gpus: Array
    """int64."""
    node_count: Array
    """int64; 0: unknown."""
    made_s: Array
    """float64: productive time, kept from earlier attempts and made by the last one."""
    held_s: Array
    """float64: time on its nodes, all attempts together."""
    longest_s: Array
    """float64: runtime of the longest attempt."""
    limit_s: Array
    """float64: time limit; NaN: none or unknown."""
    starts: Array
    """int64."""
    end: Array
    """str: one of `OWN_ENDS`, or TIMEOUT, CUT, RUNNING, PENDING."""
    job_class: Array
    """str: what ranks it, see `class_column`."""
    user: Array
    """str."""


def class_column(log: FleetLog) -> str:
    """What ranks jobs in this log: "qos", or "partition" where only those differ."""
    t = log.executions
    found = log.rows(t.agg(qos=t.qos.nunique(), partition=t.partition.nunique()))[0]
    return "partition" if found["qos"] <= 1 < found["partition"] else "qos"


def named_class(attempts: ir.Table, column: str) -> ir.StringValue:
    """The class of each attempt; "default" where the log names none."""
    return ibis.coalesce(attempts[column].nullif(""), ibis.literal("default"))


def sized(log: FleetLog, attempts: ir.Table, processors: bool) -> ir.Table:
    """Attempts with the column `size`: GPUs, or processors where those stand in for them."""
    size = attempts.cpus if processors else attempts.gpus
    return attempts.mutate(size=size.fill_null(0)).filter(lambda t: t["size"] > 0)


def executions(log: FleetLog, processors: bool = False) -> ir.Table:
    """Attempts that ran, with `size` and the columns of `with_productive_time`."""
    return log.keep(
        f"productive_{processors}",
        lambda: with_productive_time(log, sized(log, log.executions, processors)),
    )


def job_runs(log: FleetLog, *, processors: bool = False) -> JobRuns:
    """Chain the attempts of each job.

    Args:
        log: the open log.
        processors: take the processors of a job for its GPUs.

    Returns:
        The jobs that ran or wait; those cancelled before they started left no trace on the machines
        and are left out.
    """
    column = class_column(log)
    t = executions(log, processors)
    order = [t.start_s.desc(), t.attempt.desc(), t.key]
    t = t.mutate(last=ibis.row_number().over(group_by="run", order_by=order) == 0)
    end = ibis.cases(
        (t.end_s.isnull() & (t.state == "RUNNING"), RUNNING),
        (t.cut != "none", CUT),
        (t.state.isin([*OWN_ENDS, TIMEOUT]), t.state),
        else_=CUT,
    )
    t = t.mutate(end=end)
    ran = t.group_by("run").agg(
        first_start_s=t.start_s.min(),
        stop_s=t.stop_s.max(),
        gpus=t["size"].max(),
        node_count=t.node_count.max(),
        made_s=ibis.ifelse(t["last"], t.made_s, t.kept_s).sum(),
        held_s=t.runtime_s.sum().cast("float64"),
        longest_s=t.runtime_s.max(),
        limit_s=t.time_limit_s.max(),
        starts=t.count(),
        end=t.end.max(where=t["last"]),
        job_class=named_class(t, column).max(),
        user=t.user.max(),
        arrival_s=ibis.coalesce(t.eligible_s, t.submit_s, t.start_s).min(),
    )
    waits = sized(log, log.attempts, processors)
    waits = waits.filter(~waits.ran & (waits.state == "PENDING")).anti_join(ran, "run")
    waiting = waits.group_by("run").agg(
        first_start_s=ibis.null("int64"),
        stop_s=ibis.null("int64"),
        gpus=waits["size"].max(),
        node_count=waits.node_count.max(),
        made_s=ibis.literal(0.0),
        held_s=ibis.literal(0.0),
        longest_s=ibis.null("int64"),
        limit_s=waits.time_limit_s.max(),
        starts=ibis.literal(0, "int64"),
        end=ibis.literal(PENDING),
        job_class=named_class(waits, column).max(),
        user=waits.user.max(),
        arrival_s=ibis.coalesce(waits.eligible_s, waits.submit_s).min(),
    )
    both = ran.select(*_COLUMNS).union(waiting.select(*_COLUMNS))
    table = both.filter(both.arrival_s.notnull()).to_pyarrow()
    table = table.sort_by([("arrival_s", "ascending"), ("run", "ascending")])
    reals = {name: _numbers(table[name]) for name in _REALS}
    counts = {name: _numbers(table[name], 0).astype(np.int64) for name in _COUNTS}
    texts = {name: _texts(table[name]) for name in ("end", "job_class", "user")}
    return JobRuns(**reals, **counts, **texts)


_COLUMNS = ("run", *JobRuns._fields)
_REALS = ("arrival_s", "first_start_s", "stop_s", "made_s", "held_s", "longest_s", "limit_s")
_COUNTS = ("gpus", "node_count", "starts")


def _numbers(column: pa.ChunkedArray, unknown: float = float("nan")) -> Array:
    made: Array = pc.fill_null(column.cast(pa.float64()), unknown).to_numpy()
    return made


def _texts(column: pa.ChunkedArray) -> Array:
    """Few distinct texts: expanded from their dictionary."""
    coded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    names = np.array(coded.dictionary.to_pylist() or [""], dtype=object)
    made: Array = names[coded.indices.to_numpy(zero_copy_only=False)]
    return made


def without_gpus(log: FleetLog) -> bool:
    """Whether no attempt of the log has a GPU."""
    t = log.attempts
    return not (log.rows(t.agg(n=(t.gpus > 0).sum()))[0]["n"] or 0)
