"""The jobs in a table, and one job from its first attempt to its last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from holdfast.tables import literal

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
    where = _matches(words) if words else f"job_id IN (SELECT job_id FROM {failures})"
    rows = log.rows(
        f"""SELECT jobs.*, coalesce(lost, CAST(0 AS DOUBLE)) AS lost, coalesce(failures, 0) AS failures,
            count(*) OVER () AS every
        FROM (
            SELECT job_id, max(name) AS name, max("user") AS "user", max(gpus) AS gpus,
                count(*) AS attempts, arg_max(state, attempt) AS state, max(stop_s) AS last_s
            FROM {log.attempts} WHERE {where} GROUP BY job_id
        ) AS jobs
        LEFT JOIN (
            SELECT job_id, sum(lost) AS lost, sum(failures) AS failures FROM (
                SELECT job_id, lost, 1 AS failures FROM {failures}
                UNION ALL SELECT job_id, lost, 0 FROM {preempted}
            ) AS each_loss
            GROUP BY job_id
        ) AS costs ON jobs.job_id = costs.job_id
        ORDER BY lost DESC, last_s DESC, jobs.job_id LIMIT {MOST_JOBS}"""
    )
    total = rows[0]["every"] if rows else 0
    what = f"match “{words}”" if words else "were ended by the infrastructure"
    shown = f"; the first {MOST_JOBS:,} are below" if total > MOST_JOBS else ""
    return FoundJobs(_job_table(rows), f"{counted(total, 'job')} {what}{shown}.")


def _matches(words: str) -> str:
    """SQL: whether an attempt is of a job that the words mean."""
    return " OR ".join(
        [
            f"job_id = {literal(words)}",
            f"ends_with(job_id, {literal(f':{words}')})",  # with its cluster
            f"starts_with(job_id, {literal(f'{words}_')})",
            f"starts_with(job_id, {literal(f'{words}+')})",
            f'"user" = {literal(words)}',
            f"list_contains(nodes, {literal(words)})",
            f"contains(lower(name), {literal(words.lower())})",
        ]
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
    mine = f"WHERE job_id = {literal(job_id)}"
    facts = log.rows(
        'SELECT name, "user", account, "partition", qos, gpus, node_count, submit_s '
        f"FROM {log.attempts} {mine} ORDER BY attempt DESC LIMIT 1"
    )[0]
    lost = sum(log.value(f"SELECT sum(lost) FROM {t} {mine}") or 0.0 for t in losses(log))
    return Page(
        title=f"Job {job_id}",
        inputs=_facts(facts),
        sections=[
            _attempt_section(analysis, job_id, explained.attempts, lost),
            *_signs(analysis, job_id),
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


def _signs(analysis: Analysis, job_id: str) -> list[Section]:
    """What the checks of its nodes saw while it ran, XIDs among them."""
    log, assumed = analysis.log, analysis.log.assumptions
    seen = f"""SELECT DISTINCT time_s, health.node, "check", severity, xid, message
        FROM {classified_health(log)} AS health
        JOIN (
            SELECT start_s - {literal(assumed.check_before_s)} AS begin_s,
                stop_s + {literal(assumed.check_after_s)} AS until_s, unnest(nodes) AS node
            FROM {log.executions} WHERE job_id = {literal(job_id)}
        ) AS held ON health.node = held.node AND time_s BETWEEN begin_s AND until_s"""
    [counts] = log.rows(f"SELECT count(*) AS n, count(xid) AS xids FROM ({seen}) AS seen")
    held = f"job_id = {literal(job_id)} AND array_length(nodes) > 0"
    if not counts["n"] and not log.value(f"SELECT count(*) FROM {log.executions} WHERE {held}"):
        return []
    events = log.rows(f'{seen} ORDER BY time_s, node, "check" LIMIT {MOST_EVENTS}')
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
