"""Attempts that `sacct` lost, rebuilt from their steps.

When a node dies, Slurm may start its job again elsewhere before the dead node is given up. Then both
attempts share one row: the new Start overwrites the old one, and what is left of the first attempt
is a step that began before its job. What accounting still knows of that attempt: when it began (the
step), its size and owner (the row), and that it was over when the row's Start came. It does not know
the nodes: sacct prints the row's own nodes beside every step.

The only way to such a row is a node that was lost, so the attempt counts as NODE_FAIL. Where the
store has node outages or controller events, they decide: the nodes that went down while it ran are
its nodes if there are as many as it had, and the first outage is its end; if no node went down, it
was requeued for another reason and counts as REQUEUED.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.ingest_staging import with_key
from holdfast.fleet.node_names import own_names
from holdfast.fleet.schema import ATTEMPTS, NODE_LOST, Row

Submission = tuple[str | None, int | None, int | None]  # Cluster, number of the job, time

_SLACK_S = 2  # an outage is noted a moment after the restart that it causes


def lost_attempts(early_steps: pa.Table, jobs: pa.Table) -> pa.Table:
    """The attempts that ran before the rows whose steps began early.

    Args:
        early_steps: in the schema STEPS; each began before the job row that it stands under.
        jobs: attempts, those rows among them.

    Returns:
        attempts with `recovered`, one for each such row; nodes empty, end at the row's start.
    """
    owners = _by_submission(jobs)
    found = {}
    for step in early_steps.to_pylist():
        identity = _submission(step)
        job = _next(owners[identity], step["start_s"])
        if job is None:
            continue
        lost = found.setdefault(identity, _before(job))
        lost["start_s"] = min(lost["start_s"], step["start_s"])
        if set(step["nodes"]) - set(job["nodes"]):  # not merely the row's own nodes
            lost["nodes"] = sorted({*lost["nodes"], *step["nodes"]})
    return _table(list(found.values()))


def _submission(row: Row) -> Submission:
    return row["cluster"], row["job_id_raw"], row["submit_s"]


def _by_submission(jobs: pa.Table) -> Mapping[Submission, list[Row]]:
    """The attempts of each submission of a job: several, if it was requeued and kept its Submit."""
    owners = defaultdict(list)
    for row in jobs.to_pylist():
        if row["start_s"] is not None:
            owners[_submission(row)].append(row)
    return owners


def _next(owners: Iterable[Row], time_s: int) -> Row | None:
    """The first attempt that starts after a time; None if there is none, or one runs at that time."""
    if any(row["start_s"] <= time_s < (row["end_s"] or time_s) for row in owners):
        return None
    later = [row for row in owners if row["start_s"] > time_s]
    return min(later, key=lambda row: row["start_s"], default=None)


def _before(job: Row) -> Row:
    """The attempt that preceded `job` in its row."""
    return {
        **job,
        "attempt": 1,
        "state": "NODE_FAIL",
        "reason": "recovered from a step that began before its job",
        "exit_code": None,
        "exit_signal": None,
        "out_of_memory": False,
        "sigterm": False,
        "end_s": job["start_s"],
        "nodes": [],
        "failed_node": None,
        "recovered": True,
    }


def explain(
    lost: pa.Table,
    jobs: pa.Table,
    outages: pa.Table,
    events: pa.Table,
    known: Sequence[Collection[str]],
) -> pa.Table:
    """Give recovered attempts what outages and controller events know of them.

    Args:
        lost: recovered attempts.
        jobs: attempts, the rows that overwrote them among them.
        outages: in the schema NODE_OUTAGES.
        events: in the schema CONTROLLER_EVENTS.
        known: the names of the log's nodes, those that attempts give first (`own_names`).

    Returns:
        the attempts with state, nodes, failed node and end by the evidence.
    """
    rows = lost.to_pylist()
    owners = _by_submission(jobs)
    down = [
        row
        for row in outages.select(["cluster", "node", "start_s", "state"]).to_pylist()
        if (row["state"] or "").upper().startswith(NODE_LOST)
    ]
    failed = [row for row in events.to_pylist() if row["event"] == "node_fail" and row["node"]]
    theirs = {node for row in rows for node in row["nodes"]}
    own = own_names({row["node"] for row in (*down, *failed)}, [theirs, *known])
    for row in (*down, *failed):
        row["node"] = own[row["node"]] or row["node"]
    for row in rows:
        owner = _next(owners[_submission(row)], row["start_s"])
        last = row["end_s"] if owner is None else owner["start_s"]
        window = range(row["start_s"], last + _SLACK_S + 1)
        blamed = {
            event["node"]: int(event["time_s"])
            for event in failed
            if event["job_id_raw"] == row["job_id_raw"]
            and _same_cluster(event, row)
            and int(event["time_s"]) in window
        }
        broken = blamed or {
            each["node"]: each["start_s"]
            for each in down
            if each["start_s"] in window and _same_cluster(each, row)
        }
        if row["nodes"]:
            broken = {node: time for node, time in broken.items() if node in row["nodes"]}
        # What began to log outages later, as a live source does, does not tell that there was none.
        logged = pc.min(outages["start_s"]).as_py()
        told = logged is not None and logged <= last
        row["state"] = "REQUEUED" if told and not blamed and not broken else "NODE_FAIL"
        if broken:
            row["end_s"] = min(last, *broken.values())
            if len(broken) == 1:
                row["failed_node"] = next(iter(broken))
            if not row["nodes"] and len(broken) == row["node_count"]:
                row["nodes"] = sorted(broken)
    return _table(rows)


def _same_cluster(one: Row, other: Row) -> bool:
    names = one["cluster"], other["cluster"]
    return names[0] == names[1] or not all(names)


def _table(rows: list[Row]) -> pa.Table:
    for row in rows:
        if row["end_s"] is not None:
            row["runtime_s"] = row["end_s"] - row["start_s"]
    return with_key(pa.Table.from_pylist(rows, schema=ATTEMPTS))
