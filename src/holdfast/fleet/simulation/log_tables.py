"""From a simulated history to the tables that `fleet ingest` writes, as real Slurm would have filled them.

All work is done on whole columns. Times of attempts and outages are floored to seconds, so what came
first stays first; checks keep their milliseconds. Rows keep the order of the run: attempts by their ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.columns import replaced, row_key, table_of
from holdfast.fleet.ingest_commit import IDENTITY, last_of_each
from holdfast.fleet.ingest_staging import ROW_GROUP_ROWS, with_key, with_ran
from holdfast.fleet.node_signals import TICKET
from holdfast.fleet.schema import ATTEMPTS, HEALTH, NODE_OUTAGES, NODES, QOS
from holdfast.fleet.simulation.engine import Run
from holdfast.fleet.simulation.records import Array, Detected, State

PARTITION = "main"
ACCOUNT = "research"
SILENT_REASON = "Not responding"  # What Slurm writes beside a node that no longer answers

# What sacct prints of each state: exit code, exit signal, SIGTERM was sent; else zeros.
_EXITS = {
    State.FAILED: (1, 0, False),
    State.CANCELLED: (0, 0, True),
    State.OUT_OF_MEMORY: (0, 125, False),
    State.REQUEUED: (0, 0, True),
    State.PREEMPTED: (0, 15, True),
}
_REASONS = ("None", "BeginTime", "Priority")
SEVERITIES = ("HIGH", "LOW", "")


def job_ids(jobs: Array) -> pa.Array:
    """Job ids as text: the first job is "1"; shape as `jobs`."""
    return pc.cast(pa.array(jobs.astype("i8") + 1), pa.string())


def picked(values: Sequence[Any], places: Array) -> pa.Array:
    """The values at some places; shape as `places`."""
    return pa.array(values).take(pa.array(places))


def epoch_s(run: Run, ms: Array) -> pa.Array:
    """Milliseconds of the simulation as whole seconds since 1970; negative ones are null."""
    return pa.array(run.scenario.begin_s + ms.astype("i8") // 1000, mask=ms < 0)


def node_lists(run: Run, rows: slice) -> pa.Array:
    """The names of the nodes of each attempt, empty if it never started."""
    a = run.attempts
    counts = np.where(a.start_ms[rows] >= 0, a.node_count[rows], 0).astype("i8")
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.repeat(a.node_offset[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
    names = picked(run.scenario.node_names, run.nodes[place])
    return pa.ListArray.from_arrays(pa.array(offsets.astype("i4")), names)


# --- Attempts ------------------------------------------------------------------------------------


def attempt_tables(run: Run) -> Iterator[pa.Table]:
    """The attempts in `schema.ATTEMPTS`, one row group at a time."""
    a = run.attempts
    stop_ms = np.where(a.state == State.RUNNING, run.end_ms, a.end_ms)
    # What runs was last seen when the simulated time was over.
    runtime_s = (stop_ms // 1000 - a.start_ms // 1000) * (a.start_ms >= 0)
    times = _submissions(run), runtime_s, job_runtimes(a.job, a.attempt, runtime_s)
    for low in range(0, len(runtime_s), ROW_GROUP_ROWS):
        yield _attempts(run, slice(low, low + ROW_GROUP_ROWS), *times)


def _submissions(run: Run) -> Array:
    """Seconds since 1970 at which each attempt was submitted: a requeued one when the last one ended.

    No two attempts of a job share a second: job and submission are an attempt's identity.
    """
    a = run.attempts
    submit_ms = run.jobs.submit_ms[a.job].astype("i8")
    several = np.flatnonzero(np.isin(a.job, a.job[a.attempt > 1]))
    order = several[np.lexsort((a.attempt[several], a.job[several]))]
    before = order[:-1]
    after = order[1:]
    same = a.job[before] == a.job[after]
    before = before[same]
    after = after[same]
    submit_ms[after] = a.end_ms[before]
    submit_s: Array = run.scenario.begin_s + submit_ms // 1000
    while (clash := submit_s[after] <= submit_s[before]).any():
        submit_s[after[clash]] = submit_s[before[clash]] + 1
    return submit_s


def job_runtimes(job: Array, attempt: Array, runtime_s: Array) -> Array:
    """Seconds that each attempt and those of its job before it ran."""
    order = np.lexsort((attempt, job))
    jobs = job[order]
    total = np.append(0, runtime_s[order].cumsum())
    runtimes = np.empty_like(runtime_s)
    runtimes[order] = total[1:] - total[np.searchsorted(jobs, jobs)]
    return runtimes


def _attempts(
    run: Run, rows: slice, submit_s: Array, runtime_s: Array, job_runtime_s: Array
) -> pa.Table:
    """Some of the attempts."""
    scenario = run.scenario
    jobs = run.jobs
    a = run.attempts[rows]
    job = a.job.astype("i8")
    ids = job_ids(job)
    users = int(jobs.user.max(initial=0)) + 1
    names = [f"user{number:0{len(str(users))}d}" for number in range(1, users + 1)]
    logins = picked(names, jobs.user[job])
    classes = [each.name for each in scenario.qos]
    priorities = np.array([each.priority for each in scenario.qos], "i8")
    exits = np.array([_EXITS.get(state, (0, 0, False)) for state in State], "i8")[a.state]
    submit = pa.array(submit_s[rows])
    start_s = epoch_s(run, a.start_ms)
    end_s = epoch_s(run, a.end_ms)
    reason = np.where(a.attempt > 1, 1, np.where(a.state == State.PENDING, 2, 0))
    per_node = scenario.cluster.gpus_per_node
    table = table_of(
        ATTEMPTS,
        {
            "cluster": scenario.name,
            "job_id": ids,
            "job_id_raw": job + 1,
            "attempt": a.attempt,
            "db_index": np.arange(rows.start, rows.start + len(job)) + 1,
            "restarts": a.attempt - 1,
            "name": pc.binary_join_element_wise("job", ids, "-"),
            "user": logins,
            "account": ACCOUNT,
            "partition": PARTITION,
            "qos": picked(classes, jobs.qos[job]),
            "work_dir": pc.binary_join_element_wise("/home", logins, "/"),
            "priority": priorities[jobs.qos[job]],
            "state": picked([state.name for state in State], a.state),
            "reason": picked(_REASONS, reason),
            "exit_code": exits[:, 0],
            "exit_signal": exits[:, 1],
            "out_of_memory": a.state == State.OUT_OF_MEMORY,
            "sigterm": exits[:, 2] > 0,
            "submit_s": submit,
            "eligible_s": pc.max_element_wise(epoch_s(run, a.eligible_ms), submit),
            "start_s": start_s,
            "end_s": end_s,
            "runtime_s": pa.array(runtime_s[rows], mask=a.start_ms < 0),
            "job_runtime_s": job_runtime_s[rows],
            "time_limit_s": jobs.limit_ms[job] // 1000,
            "node_count": np.maximum(a.node_count, -(-a.gpus // per_node)),
            "nodes": node_lists(run, rows),
            "gpus": a.gpus,
        },
    )
    return with_key(with_ran(table))


# --- Nodes and what happens to them --------------------------------------------------------------


def node_table(run: Run) -> pa.Table:
    """The inventory at the end of the simulated time, in `schema.NODES`."""
    scenario = run.scenario
    f = run.failures
    names = scenario.node_names
    size = scenario.cluster.gpus_per_node
    states = ["UP"] * len(names)
    reasons: list[str | None] = [None] * len(names)
    said = _reasons(run)
    for row in np.flatnonzero(_noticed(run) & (_repaired_ms(run) < 0)).tolist():
        node = int(f.node[row])
        reasons[node] = said[row]
        states[node] = "DRAIN" if f.kind[row] == Detected.LOW else "DOWN"
    left = set(range(len(names))) - {names.index(name) for name in scenario.cluster.without}
    order = sorted(left, key=names.__getitem__)
    columns = {
        "cluster": scenario.name,
        "node": [names[node] for node in order],
        "gpus": size,
        "state": [states[node] for node in order],
        "reason": [reasons[node] for node in order],
        "inferred": False,
    }
    return table_of(NODES, columns)


def failure_texts(run: Run, field: str) -> list[str]:
    """Of each failure, what its component or common event says, shape [failures].

    Args:
        run: the history.
        field: "check", its health check, or "name", what broke.
    """
    f = run.failures
    failures = run.scenario.failures
    texts = [getattr(each, field) for each in (*failures.components, *failures.blasts)]
    place = np.where(f.blast >= 0, f.component.astype("i8") + len(failures.components), f.component)
    return [texts[each] for each in place.tolist()]


def _reasons(run: Run) -> list[str]:
    """Of each failure, what Slurm writes beside the node, shape [failures]."""
    kinds = run.failures.kind.tolist()
    checks = failure_texts(run, "check")
    return [
        SILENT_REASON if kind == Detected.SILENT else check
        for kind, check in zip(kinds, checks, strict=True)
    ]


def _noticed(run: Run) -> Array:
    """Which failures were noticed within the simulated time."""
    at_ms = run.failures.detected_ms
    return np.asarray((at_ms >= 0) & (at_ms <= run.end_ms))


def _repaired_ms(run: Run) -> Array:
    """`Failures.repaired_ms`, -1 where it comes after the simulated time."""
    return np.where(run.failures.repaired_ms <= run.end_ms, run.failures.repaired_ms, -1)


def health_table(run: Run) -> pa.Table:
    """A failed check for each failure that a check sees, and a ticket for each long repair."""
    f = run.failures
    failures = run.scenario.failures
    noticed = _noticed(run)
    checked = np.flatnonzero(noticed & (f.kind != Detected.SILENT))
    ticketed = np.flatnonzero(noticed & f.permanent)
    rows = np.concatenate([checked, ticketed])
    ticket = np.arange(len(rows)) >= len(checked)
    order = np.lexsort((ticket, rows, f.detected_ms[rows]))
    rows = rows[order]
    ticket = ticket[order]
    checks = failure_texts(run, "check")
    components = failure_texts(run, "name")
    xids = np.array([*(each.xid for each in failures.components), 0], "i4")
    xid = np.where(f.blast[rows] >= 0, 0, xids[np.where(f.blast[rows] >= 0, -1, f.component[rows])])
    severity = np.where(ticket, Detected.SILENT.value, f.kind[rows])
    seen = [TICKET if t else checks[row] for row, t in zip(rows, ticket, strict=True)]
    columns = {
        "time_s": run.scenario.begin_s + f.detected_ms[rows] / 1000,
        "cluster": run.scenario.name,
        "node": picked(run.scenario.node_names, f.node[rows]),
        "check": seen,
        "severity": picked(SEVERITIES, severity),
        "result": picked(["fail", "warn"], ticket.astype("i4")),
        "message": [components[row] for row in rows],
        "xid": pa.array(xid, mask=ticket | (xid == 0)),
    }
    return _distinct(table_of(HEALTH, columns), "health")


def outage_table(run: Run) -> pa.Table:
    """The periods in which nodes were down or drained, as Slurm's own events tell them."""
    f = run.failures
    drained = f.kind == Detected.LOW
    begin_ms = np.where(drained, f.detected_ms, f.out_ms)
    rows = np.flatnonzero(_noticed(run) & (begin_ms >= 0) & (begin_ms <= run.end_ms))
    rows = rows[np.lexsort((rows, begin_ms[rows]))]
    reasons = _reasons(run)
    columns = {
        "cluster": run.scenario.name,
        "node": picked(run.scenario.node_names, f.node[rows]),
        "start_s": epoch_s(run, begin_ms[rows]),
        "end_s": epoch_s(run, _repaired_ms(run)[rows]),
        "state": picked(["DOWN", "DRAIN"], drained[rows].astype("i4")),
        "reason": [reasons[row] for row in rows],
    }
    return _distinct(table_of(NODE_OUTAGES, columns), "node_outages")


def _distinct(table: pa.Table, name: str) -> pa.Table:
    """The rows with their keys, each once, as ingest leaves them."""
    keys = row_key(*(table[column] for column in IDENTITY[name]))
    return replaced(table, "key", keys).take(pa.array(last_of_each(table, keys)))


def qos_table(run: Run) -> pa.Table:
    """The classes of service, in `schema.QOS`."""
    scheduler = run.scenario.scheduler
    classes = run.scenario.qos
    on = scheduler.preemption
    lower = [[c.name for c in classes if on and c.priority < each.priority] for each in classes]
    columns = {
        "qos": [each.name for each in classes],
        "priority": [each.priority for each in classes],
        "grace_s": on * int(scheduler.grace_s),
        "preempts": pa.array(lower, pa.list_(pa.string())),
    }
    return table_of(QOS, columns)
