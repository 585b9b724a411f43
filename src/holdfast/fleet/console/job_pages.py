"""The jobs in a table, and one job from its first attempt to its last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet import figures
from holdfast.fleet.analysis import MOST_ATTEMPTS, Analysis, job_timeline
from holdfast.fleet.attribution import attribute, classified_health
from holdfast.fleet.console.addresses import JOB_LINK, NODE_LINK
from holdfast.fleet.console.node_evidence import MOST_EVENTS, event_table
from holdfast.fleet.losses import losses
from holdfast.fleet.moments import moment
from holdfast.fleet.wording import decimals
from holdfast.numbers import brief, counted, duration, number
from holdfast.report import ColumnFormat, Page, Section, Table

if TYPE_CHECKING:
    import ibis.expr.types as ir

MOST_JOBS = 200
LONGEST_SEARCH = 200
LONGEST_HOSTS = 60
"""Characters of a host list in a table."""


@dataclass(frozen=True)
class FoundJobs:
    """The answer to a search."""

    table: Table
    sentence: str


def find_jobs(analysis: Analysis, words: str) -> FoundJobs:
    """Jobs that match, the costliest first; without words, those that lost most.

    Args:
        analysis: of the log.
        words: a job id, the beginning of an array's, a user, a node, or a part of a job's name.
    """
    log, words = analysis.log, words.strip()[:LONGEST_SEARCH]
    failures, preempted = losses(log)
    cost = failures.select("job_id", "lost").union(preempted.select("job_id", "lost"))
    cost = cost.group_by("job_id").agg(lost=cost.lost.sum())
    failed = failures.group_by("job_id").agg(failures=failures.count())
    t = log.attempts
    t = t.filter(_matches(t, words)) if words else t.semi_join(failures, "job_id")
    jobs = t.group_by("job_id").agg(
        name=t.name.max(),
        user=t.user.max(),
        gpus=t.gpus.max(),
        attempts=t.count(),
        state=t.state.argmax(t.attempt),
        last_s=t.stop_s.max(),
    )
    jobs = jobs.left_join(cost, "job_id").drop("job_id_right")
    jobs = jobs.left_join(failed, "job_id").drop("job_id_right")
    jobs = jobs.mutate(lost=jobs.lost.fill_null(0.0), failures=jobs.failures.fill_null(0))
    total = log.rows(jobs.agg(n=jobs.count()))[0]["n"]
    found = log.rows(
        jobs.order_by(ibis.desc("lost"), ibis.desc("last_s"), "job_id").limit(MOST_JOBS)
    )
    what = f"match “{words}”" if words else "were ended by the infrastructure"
    shown = f"; the first {MOST_JOBS:,} are below" if total > MOST_JOBS else ""
    return FoundJobs(_job_table(found), f"{counted(total, 'job')} {what}{shown}.")


def _matches(t: ir.Table, words: str) -> ir.BooleanValue:
    low = words.lower()
    return (
        (t.job_id == words)
        | t.job_id.endswith(f":{words}")  # with its cluster
        | t.job_id.startswith(f"{words}_")
        | t.job_id.startswith(f"{words}+")
        | (t.user == words).fill_null(False)
        | t.nodes.contains(words).fill_null(False)
        | t.name.lower().contains(low).fill_null(False)
    )


def _job_table(jobs: Sequence[dict[str, Any]]) -> Table:
    schema = pa.schema(
        [
            ("job_id", pa.string()),
            ("name", pa.string()),
            ("user", pa.string()),
            ("gpus", pa.int64()),
            ("attempts", pa.int64()),
            ("failures", pa.int64()),
            ("lost", pa.float64()),
            ("state", pa.string()),
            ("last", pa.timestamp("s", "UTC")),
        ]
    )
    rows = [
        {**row, "last": None if row["last_s"] is None else moment(row["last_s"])} for row in jobs
    ]
    return Table(
        pa.Table.from_pylist(rows, schema=schema),
        {
            "job_id": ColumnFormat("Job", link=JOB_LINK),
            "name": ColumnFormat("Name"),
            "user": ColumnFormat("User"),
            "gpus": ColumnFormat("GPUs"),
            "attempts": ColumnFormat("Attempts"),
            "failures": ColumnFormat("Failures"),
            "lost": ColumnFormat("Lost", "GPU-h", digits=decimals(row["lost"] for row in rows)),
            "state": ColumnFormat("Last state"),
            "last": ColumnFormat("Last seen"),
        },
        caption="One row per job, the largest loss first. Lost: as a failure and as a victim.",
        empty="No job.",
    )


def job(analysis: Analysis, job_id: str) -> Page | None:
    """The attempts, checks and XIDs of one job; None if the log has no such job."""
    log = analysis.log
    try:
        explained = attribute(log, job_id)
    except InputError:
        return None
    job_id = explained.job_id
    mine = log.attempts.filter(lambda t: t.job_id == job_id)
    facts = log.rows(
        mine.order_by(ibis.desc("attempt")).select(
            *("name", "user", "account", "partition", "qos", "gpus", "node_count", "submit_s")
        )
    )[0]
    failures, preempted = losses(log)
    lost = sum(
        log.rows(t.filter(t.job_id == job_id).agg(lost=t.lost.sum()))[0]["lost"] or 0.0
        for t in (failures, preempted)
    )
    return Page(
        title=f"Job {job_id}",
        inputs=_facts(facts),
        sections=[
            _attempt_section(analysis, job_id, explained.attempts, lost),
            *_signs(analysis, mine),
        ],
    )


def _facts(row: dict[str, Any]) -> list[tuple[str, str]]:
    sized = f"{number(row['gpus'])} GPUs on {number(row['node_count'])} nodes"
    named = {
        "Name": row["name"],
        "User": " / ".join(part for part in (row["user"], row["account"]) if part),
        "Queue": " / ".join(part for part in (row["partition"], row["qos"]) if part),
        "Size": sized,
    }
    return [(label, text) for label, text in named.items() if text]


def _attempt_section(
    analysis: Analysis, job_id: str, attempts: Sequence[dict[str, Any]], lost: float
) -> Section:
    bars, causes = job_timeline(analysis.log, job_id)
    failed = sum(bool(row["infrastructure"]) for row in attempts)
    sentence = f"{counted(len(attempts), 'attempt')}, "
    sentence += (
        f"{failed:,} ended by the infrastructure" if failed else "none ended by the infrastructure"
    )
    sentence += f"; {brief(lost)} GPU-hours lost." if lost else "."
    if len(attempts) > MOST_ATTEMPTS:
        sentence += f" The figure shows the last {MOST_ATTEMPTS}."
    return Section(
        "timeline",
        "What happened to it?",
        sentence,
        [figures.job_timeline(bars, causes)] if bars else [],
        [_attempt_table(attempts), _cause_table(attempts)],
    )


def _attempt_table(attempts: Sequence[dict[str, Any]]) -> Table:
    from ClusterShell.NodeSet import NodeSet

    rows = [
        {
            "attempt": row["attempt"],
            "state": row["state"],
            "start": _when(row["start"]),
            "end": _when(row["end"]),
            "ran": duration((_when(row["end"]) - _when(row["start"])).total_seconds())
            if row["start"] and row["end"]
            else "",
            "gpus": row["gpus"],
            "failed": ", ".join(row["failed_nodes"]),
            "cause": _likeliest(row),
            "nodes": nodes,
            "shown": nodes if len(nodes) <= LONGEST_HOSTS else f"{nodes[: LONGEST_HOSTS - 1]}…",
        }
        for row in attempts
        for nodes in [str(NodeSet.fromlist(row["nodes"]))]
    ]
    seconds = pa.timestamp("s", "UTC")
    schema = pa.schema(
        [
            ("attempt", pa.int64()),
            ("state", pa.string()),
            ("start", seconds),
            ("end", seconds),
            ("ran", pa.string()),
            ("gpus", pa.int64()),
            ("failed", pa.string()),
            ("cause", pa.string()),
            ("shown", pa.string()),
            ("nodes", pa.string()),
        ]
    )
    return Table(
        pa.Table.from_pylist(rows, schema=schema),
        {
            "attempt": ColumnFormat("Attempt"),
            "state": ColumnFormat("State"),
            "start": ColumnFormat("Start"),
            "ran": ColumnFormat("Ran", right=True),
            "cause": ColumnFormat("Likeliest cause"),
            "failed": ColumnFormat("Failed node"),
            "gpus": ColumnFormat("GPUs"),
            "end": ColumnFormat("End"),
            "shown": ColumnFormat("Nodes"),
        },
        caption="One row per attempt, in order. A failed node is one that Slurm names. The CSV file "
        "has all nodes.",
    )


def _when(text: str | None) -> Any:
    """The time that `attribute` gives as ISO text; None for none."""
    from datetime import datetime

    return None if text is None else datetime.fromisoformat(text)


def _likeliest(row: dict[str, Any]) -> str:
    if row["causes"]:
        return str(row["causes"][0]["symptom"])
    return "unattributed" if row["infrastructure"] else ""


def _cause_table(attempts: Sequence[dict[str, Any]]) -> Table:
    """Every check that explains an end, ranked."""
    rows = [
        {
            "attempt": row["attempt"],
            "rank": rank,
            **{name: cause[name] for name in ("check", "node", "offset_s", "severity", "symptom")},
            "domains": ", ".join(cause["domains"]),
        }
        for row in attempts
        for rank, cause in enumerate(row["causes"], start=1)
    ]
    schema = pa.schema(
        [
            ("attempt", pa.int64()),
            ("rank", pa.int64()),
            ("symptom", pa.string()),
            ("check", pa.string()),
            ("node", pa.string()),
            ("offset_s", pa.float64()),
            ("severity", pa.string()),
            ("domains", pa.string()),
        ]
    )
    return Table(
        pa.Table.from_pylist(rows, schema=schema),
        {
            "attempt": ColumnFormat("Attempt"),
            "rank": ColumnFormat("Rank"),
            "symptom": ColumnFormat("Symptom"),
            "check": ColumnFormat("Check"),
            "node": ColumnFormat("Node", link=NODE_LINK),
            "offset_s": ColumnFormat("From the end", "s", digits=0),
            "severity": ColumnFormat("Severity"),
            "domains": ColumnFormat("Domains left"),
        },
        caption="One row per check near the end of a failed attempt, the likeliest cause first.",
        empty="No check fired near the end of a failed attempt.",
    )


def _signs(analysis: Analysis, mine: ir.Table) -> list[Section]:
    """What the checks of its nodes saw while it ran, XIDs among them."""
    log, assumed = analysis.log, analysis.log.assumptions
    held = mine.filter(mine.ran & (mine.nodes.length() > 0))
    held = held.select(
        begin_s=held.start_s - assumed.check_before_s,
        until_s=held.stop_s + assumed.check_after_s,
        node=held.nodes.unnest(),
    )
    span = log.rows(held.agg(begin=held.begin_s.min(), end=held.until_s.max()))[0]
    if span["begin"] is None:
        return []
    health = classified_health(log).filter(
        lambda t: (t.time_s >= span["begin"]) & (t.time_s <= span["end"])
    )
    seen = health.join(held, "node").filter(
        lambda t: (t.time_s >= t.begin_s) & (t.time_s <= t.until_s)
    )
    seen = seen.select("time_s", "node", "check", "severity", "xid", "message").distinct()
    counts = log.rows(seen.agg(n=seen.count(), xids=seen.xid.count()))[0]
    events = log.rows(seen.order_by("time_s", "node", "check").limit(MOST_EVENTS))
    more = f"; the first {MOST_EVENTS:,} of {counts['n']:,}" if counts["n"] > MOST_EVENTS else ""
    return [
        Section(
            "signs",
            "What did the checks of its nodes see?",
            f"{counted(counts['n'], 'event')} while it ran, {counts['xids']:,} of them XIDs.",
            tables=[
                event_table(
                    events,
                    f"One row per event on a node that the job held, in order of time{more}.",
                    with_node=True,
                )
            ],
        )
    ]
