"""What the log holds of one node or one job; the lists of nodes, and of the jobs that a search finds."""

from __future__ import annotations

from dataclasses import replace

from holdfast.answer import Page, Section
from holdfast.errors import InputError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import (
    attribute,
    blamed_nodes,
    classified_health,
    infrastructure_failures,
)
from holdfast.fleet.log import FleetLog
from holdfast.fleet.losses import losses
from holdfast.fleet.node_signals import SIGNALS
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import RATE_UNIT, brief_interval, probability, table
from holdfast.numbers import brief, counted, number
from holdfast.tables import literal

MOST_EVENTS = 200
MOST_JOBS = 200
LONGEST_SEARCH = 200
EVENT = "time_s check severity xid message"  # Columns of a health event, as it was logged


def node_section(analysis: Analysis) -> Section:
    """All nodes: the lemon ranking where jobs ran, else their outages and events."""
    if analysis.outages is not None:
        return replace(analysis.outages.section(), id="lemons")
    (section,) = analysis.lemons.sections()
    return replace(section, tables=[analysis.lemons.table(analysis.lemons.nodes)], how=None)


def node(analysis: Analysis, node: str) -> Page | None:
    """What the log says of one node; None if it says nothing."""
    log = analysis.log
    mine = f"WHERE node = {literal(node)}"
    inventory = log.rows(f"SELECT * FROM {log.table('nodes')} {mine}")
    ran = bool(analysis.status.attempts) and analysis.outages is None
    checks = _check_section(log, mine)
    down = _outage_section(log, mine)
    if not inventory and not len(checks.tables[0].data) and not len(down.tables[0].data):
        return None
    rows = analysis.lemons.nodes.to_pylist() if ran else []
    lemon = [
        _score_section(analysis, row, n) for n, row in enumerate(rows, 1) if row["node"] == node
    ]
    sections = [*lemon, *([_failure_section(log, node)] if ran else []), checks, down]
    return Page(title=node, inputs=_facts(inventory), sections=sections)


def _facts(rows: list[Row]) -> list[tuple[str, str]]:
    if not rows:
        return [("Inventory", "not in it: seen in the health log only")]
    row = rows[0]
    return _known(
        {
            "State": row["state"] or "unknown",
            "Reason": row["reason"],
            "GPUs": number(row["gpus"]),
            "Processors": number(row["cpus"]),
            "Inventory": "inferred from the logs" if row["inferred"] else "",
        }
    )


def _known(facts: dict[str, str]) -> list[tuple[str, str]]:
    return [(label, text) for label, text in facts.items() if text]


def _score_section(analysis: Analysis, row: Row, rank: int) -> Section:
    found = analysis.lemons
    node = row["node"]
    detector = found.detector
    rate = brief_interval(row["shrunk_rate_low"], row["shrunk_rate_high"])
    signals = [
        {"signal": signal.label, "value": row[name], "threshold": limit}
        | {"over": "yes" if limit is not None and row[name] > limit else ""}
        for name, signal in SIGNALS.items()
        for limit in [detector.thresholds_.get(name)]
    ]
    tables = [
        table(
            signals,
            "signal value threshold over",
            "One row per signal; a threshold is a quantile of the fleet.",
        )
    ]
    return Section(
        "score",
        "Is it a lemon?",
        f"{node} {'is' if node in found.lemons else 'is not'} a lemon at a false discovery rate of "
        f"{100 * detector.alpha:g} % ({probability('q', row['q_value'])}): {brief(row['failures'])} "
        f"failures to blame on it, {brief(row['expected_failures'])} expected of its "
        f"{brief(row['node_days'])} node-days in use. "
        f"Its shrunk rate of {brief(row['shrunk_rate'])} {rate} {RATE_UNIT} is rank {rank:,} of "
        f"{found.nodes.num_rows:,}. It {'meets' if node in detector.rule_lemons_ else 'does not meet'} "
        "the rule on seven signals.",
        tables=tables,
    )


def _failure_section(log: FleetLog, node: str) -> Section:
    """Infrastructure failures with blame on the node, the latest first."""
    data = log.arrow(
        f"""SELECT failed.stop_s, job_id, attempt, failed.state, label, blame, CASE evidence
            WHEN 'slurm' THEN 'Slurm names it' WHEN 'check' THEN 'a check on it'
            ELSE 'shared by all its nodes' END AS evidence
        FROM {blamed_nodes(log)} AS blamed
        JOIN {infrastructure_failures(log)} AS failed ON blamed.key = failed.key
        WHERE node = {literal(node)} ORDER BY failed.stop_s DESC, job_id, blamed.key"""
    )
    count = len(data)
    blame = sum(data["blame"].to_pylist())
    sentence = f"{counted(count, 'failed attempt')}, blame {brief(blame)} in all."
    caption = _latest("One row per failed attempt", count)
    caption += " Attempts that one event of the node ended are one failure of its score."
    latest = table(
        data.slice(0, MOST_EVENTS),
        "stop_s job_id attempt state label blame evidence",
        caption,
        "No attempt failed on it.",
    )
    return Section(
        "failures",
        "Which failures are blamed on it?",
        sentence if count else "None.",
        tables=[latest],
    )


def _check_section(log: FleetLog, mine: str) -> Section:
    health = f"FROM {classified_health(log)} {mine}"
    summary = log.arrow(
        'SELECT "check", count(*) AS n, max(severity) AS severity, max(label) AS symptom, '
        f"min(time_s) AS first_s, max(time_s) AS last_s {health} "
        'GROUP BY "check" ORDER BY n DESC, "check"'
    )
    counts = summary["n"].to_pylist()
    caption = "One row per check, most events first."
    tables = [
        table(
            summary,
            "check n severity symptom first_s last_s",
            caption,
            "No event of a health check on it.",
        )
    ]
    sentence = "None."
    if counts:
        sentence = (
            f"{counted(sum(counts), 'event')}; most often {summary['check'][0]} ({counts[0]:,})."
        )
        caption = _latest("One row per event", sum(counts))
        tables.append(
            table(
                log.arrow(f'SELECT * {health} ORDER BY time_s DESC, "check" LIMIT {MOST_EVENTS}'),
                EVENT,
                caption,
            )
        )
    return Section("checks", "What did its health checks see?", sentence, tables=tables)


def _outage_section(log: FleetLog, mine: str) -> Section:
    data = log.arrow(
        f"""SELECT start_s, end_s, (end_s - start_s) / 3600 AS hours, state,
            coalesce(nullif(reason, ''), cause) AS reason
        FROM {log.table("node_outages")} {mine} ORDER BY start_s DESC LIMIT {MOST_EVENTS}"""
    )
    state = "it is out now" if data["end_s"].null_count else "all are over"
    sentence = f"{counted(len(data), 'outage')}; {state}." if len(data) else "None."
    caption = _latest("One row per outage", len(data))
    tables = [
        table(data, "start_s end_s hours state reason", caption, "It was never out of service.")
    ]
    return Section("outages", "When was it out of service?", sentence, tables=tables)


def _latest(what: str, count: int) -> str:
    shown = f"; the latest {MOST_EVENTS:,} of {count:,}" if count > MOST_EVENTS else ""
    return f"{what}, the latest first{shown}."


# --- Jobs -----------------------------------------------------------------------------------------


def find_jobs(analysis: Analysis, words: str) -> Section:
    """Jobs that match, the costliest first; without words, those that lost most.

    Args:
        analysis: of the log.
        words: a job id, the beginning of an array's, a user, a node, or a part of a job's name.
    """
    log = analysis.log
    words = words.strip()[:LONGEST_SEARCH]
    failures, preempted = losses(log)
    where = _matches(words) if words else f"run IN (SELECT run FROM {failures})"
    data = log.arrow(
        f"""SELECT jobs.*, coalesce(lost, CAST(0 AS DOUBLE)) AS lost,
            CAST(coalesce(failures, 0) AS BIGINT) AS failures, count(*) OVER () AS every
        FROM (
            SELECT run, max(job_id) AS job_id, max(name) AS name, max("user") AS "user", max(gpus) AS gpus,
                count(*) AS attempts, arg_max(state, attempt) AS state, max(stop_s) AS last_s
            FROM {log.attempts} WHERE {where} GROUP BY run
        ) AS jobs
        LEFT JOIN (
            SELECT run, sum(lost) AS lost, sum(failures) AS failures FROM (
                SELECT run, lost, 1 AS failures FROM {failures}
                UNION ALL SELECT run, lost, 0 FROM {preempted}
            ) AS each_loss
            GROUP BY run
        ) AS costs ON jobs.run = costs.run
        ORDER BY lost DESC, last_s DESC, jobs.job_id LIMIT {MOST_JOBS}"""
    )
    total = data["every"][0].as_py() if len(data) else 0
    what = f"match “{words}”" if words else "were ended by the infrastructure"
    shown = f"; the first {MOST_JOBS:,} are below" if total > MOST_JOBS else ""
    unit = analysis.goodput.unit.replace("hours", "h")
    tables = [
        table(
            data,
            "job_id name user gpus attempts failures lost state last_s",
            "One row per job, the largest loss first. Lost: as a failure and as a victim.",
            "No job.",
            lost={"unit": unit},
            state="Last state",
            last_s="Last seen",
        )
    ]
    question = "Jobs found" if words else "Jobs that lost most"
    return Section("found", question, f"{counted(total, 'job')} {what}{shown}.", tables=tables)


def _matches(words: str) -> str:
    """SQL: whether an attempt is of a job that the words mean."""
    word = literal(words)
    lower = literal(words.lower())
    return f"""job_id = {word} OR ends_with(job_id, ':' || {word}) -- with its cluster
        OR starts_with(job_id, {word} || '_') OR starts_with(job_id, {word} || '+')
        OR "user" = {word} OR list_contains(nodes, {word}) OR contains(lower(name), {lower})"""


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
    named = {
        "Name": facts["name"],
        "User": " / ".join(part for part in (facts["user"], facts["account"]) if part),
        "Queue": " / ".join(part for part in (facts["partition"], facts["qos"]) if part),
        "Size": f"{number(facts['gpus'])} GPUs on {number(facts['node_count'])} nodes",
        "Lost": f"{brief(lost)} {unit}" if lost else "",
    }
    return Page(title=explained.title, inputs=_known(named), sections=sections)


def _signs(analysis: Analysis, job_id: str) -> list[Section]:
    """What the checks of its nodes saw while it ran, XIDs among them."""
    log = analysis.log
    assumed = analysis.log.assumptions
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
    more = f"; the first {MOST_EVENTS:,} of {counts['n']:,}" if counts["n"] > MOST_EVENTS else ""
    tables = [
        table(
            log.arrow(f'{seen} ORDER BY time_s, node, "check" LIMIT {MOST_EVENTS}'),
            f"node {EVENT}",
            f"One row per event on a node that the job held, in order of time{more}.",
        )
    ]
    return [
        Section(
            "signs",
            "What did the checks of its nodes see?",
            f"{counted(counts['n'], 'event')} while it ran, {counts['xids']:,} of them XIDs.",
            tables=tables,
        )
    ]
