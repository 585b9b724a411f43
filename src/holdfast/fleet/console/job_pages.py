"""One job: its attempts and the checks near them. And the jobs that a search finds."""

from __future__ import annotations

from typing import Any

from holdfast.answer import ColumnFormat, Page, Section, Table
from holdfast.errors import InputError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import attribute, classified_health
from holdfast.fleet.console.addresses import JOB_LINK
from holdfast.fleet.console.node_evidence import MOST_EVENTS, event_table
from holdfast.fleet.losses import losses
from holdfast.fleet.moments import with_times
from holdfast.fleet.wording import decimals
from holdfast.numbers import brief, counted, number
from holdfast.tables import literal

MOST_JOBS = 200
LONGEST_SEARCH = 200


def find_jobs(analysis: Analysis, words: str) -> Section:
    """Jobs that match, the costliest first; without words, those that lost most.

    Args:
        analysis: of the log.
        words: a job id, the beginning of an array's, a user, a node, or a part of a job's name.
    """
    log, words = analysis.log, words.strip()[:LONGEST_SEARCH]
    failures, preempted = losses(log)
    where = _matches(words) if words else f"job_id IN (SELECT job_id FROM {failures})"
    data = log.arrow(
        f"""SELECT jobs.*, coalesce(lost, CAST(0 AS DOUBLE)) AS lost,
            CAST(coalesce(failures, 0) AS BIGINT) AS failures, count(*) OVER () AS every
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
    total = data["every"][0].as_py() if len(data) else 0
    what = f"match “{words}”" if words else "were ended by the infrastructure"
    shown = f"; the first {MOST_JOBS:,} are below" if total > MOST_JOBS else ""
    unit = analysis.goodput.unit.replace("hours", "h")
    columns = {
        "job_id": ColumnFormat("Job", link=JOB_LINK),
        "name": ColumnFormat("Name"),
        "user": ColumnFormat("User"),
        "gpus": ColumnFormat("GPUs"),
        "attempts": ColumnFormat("Attempts"),
        "failures": ColumnFormat("Failures"),
        "lost": ColumnFormat("Lost", unit, digits=decimals(data["lost"].to_pylist())),
        "state": ColumnFormat("Last state"),
        "last_s": ColumnFormat("Last seen"),
    }
    caption = "One row per job, the largest loss first. Lost: as a failure and as a victim."
    table = Table(with_times(data, "last_s"), columns, caption, "No job.")
    question = "Jobs found" if words else "Jobs that lost most"
    return Section("found", question, f"{counted(total, 'job')} {what}{shown}.", tables=[table])


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


def job(analysis: Analysis, job_id: str) -> Page | None:
    """The attempts, checks and XIDs of one job; None if the log has no such job."""
    log = analysis.log
    try:
        explained = attribute(log, job_id)
    except InputError:
        return None
    mine = f"WHERE job_id = {literal(explained.job_id)}"
    facts = log.rows(
        'SELECT name, "user", account, "partition", qos, gpus, node_count '
        f"FROM {log.attempts} {mine} ORDER BY attempt DESC LIMIT 1"
    )[0]
    lost = sum(log.value(f"SELECT sum(lost) FROM {t} {mine}") or 0.0 for t in losses(log))
    unit = analysis.goodput.unit
    sections = [*explained.sections(), *_signs(analysis, explained.job_id)]
    inputs = _facts(facts, f"{brief(lost)} {unit}" if lost else "")
    return Page(title=explained.title, inputs=inputs, sections=sections)


def _facts(row: dict[str, Any], lost: str) -> list[tuple[str, str]]:
    named = {
        "Name": row["name"],
        "User": " / ".join(part for part in (row["user"], row["account"]) if part),
        "Queue": " / ".join(part for part in (row["partition"], row["qos"]) if part),
        "Size": f"{number(row['gpus'])} GPUs on {number(row['node_count'])} nodes",
        "Lost": lost,
    }
    return [(label, text) for label, text in named.items() if text]


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
    events = f'{seen} ORDER BY time_s, node, "check" LIMIT {MOST_EVENTS}'
    more = f"; the first {MOST_EVENTS:,} of {counts['n']:,}" if counts["n"] > MOST_EVENTS else ""
    caption = f"One row per event on a node that the job held, in order of time{more}."
    sentence = f"{counted(counts['n'], 'event')} while it ran, {counts['xids']:,} of them XIDs."
    tables = [event_table(log, events, caption, with_node=True)]
    return [Section("signs", "What did the checks of its nodes see?", sentence, tables=tables)]
