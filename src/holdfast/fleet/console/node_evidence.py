"""Everything that the log holds against one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import blamed_nodes, classified_health, infrastructure_failures
from holdfast.fleet.console.addresses import JOB_LINK, NODE_LINK
from holdfast.fleet.lemon_model import SIGNALS
from holdfast.fleet.moments import moment
from holdfast.fleet.wording import RATE_UNIT, brief_interval, probability
from holdfast.numbers import brief, counted, duration, number
from holdfast.report import ColumnFormat, How, Page, Section, Table, Tile
from holdfast.tables import literal

MOST_EVENTS = 200
EVIDENCE = {"slurm": "Slurm names it", "check": "a check on it", "none": "shared by all its nodes"}
SIGNAL_TEXTS = {
    "excl_jobid_count": "jobs that exclude it",
    "xid_cnt": "distinct XIDs",
    "tickets": "repair tickets",
    "out_count": "times out of service",
    "multi_node_node_fails": "failures of jobs on several nodes",
    "single_node_node_fails": "failures of jobs on it alone",
    "single_node_node_failure_rate": "the latter per such job",
}


def evidence(analysis: Analysis, node: str) -> Page | None:
    """What the log says of one node; None if it says nothing."""
    log = analysis.log
    mine = f"WHERE node = {literal(node)}"
    health = f"FROM {classified_health(log)} {mine}"
    inventory = log.rows(f"SELECT * FROM {log.table('nodes')} {mine}")
    checks = log.rows(
        'SELECT "check", count(*) AS n, max(severity) AS severity, max(label) AS symptom, '
        f'min(time_s) AS first_s, max(time_s) AS last_s {health} GROUP BY "check"'
    )
    down = log.rows(
        f"SELECT * FROM {log.table('node_outages')} {mine} "
        f"ORDER BY start_s DESC LIMIT {MOST_EVENTS}"
    )
    if not inventory and not checks and not down:
        return None
    ran = bool(analysis.status.attempts) and analysis.outages is None
    failures = _failures(analysis, node) if ran else []
    recent = log.rows(f'SELECT * {health} ORDER BY time_s DESC, "check" LIMIT {MOST_EVENTS}')
    lemon = _score(analysis, node) if ran else None
    sections = [
        *([] if lemon is None else [_score_section(analysis, node, lemon)]),
        *([_failure_section(failures)] if ran else []),
        _check_section(checks, recent),
        _outage_section(down),
    ]
    return Page(
        title=node,
        inputs=_inventory(inventory),
        tiles=[] if lemon is None else _tiles(analysis, lemon, len(failures)),
        sections=sections,
    )


def _inventory(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    if not rows:
        return [("Inventory", "not in it: seen in the health log only")]
    row = rows[0]
    facts = [
        ("State", row["state"] or "unknown"),
        ("GPUs", number(row["gpus"])),
        ("Processors", number(row["cpus"])),
    ]
    if row["reason"]:
        facts.insert(1, ("Reason", row["reason"]))
    if row["inferred"]:
        facts.append(("Inventory", "inferred from the logs"))
    return facts


def _score(analysis: Analysis, node: str) -> dict[str, Any] | None:
    """The node's row of the ranking, with its `rank` from 1 on."""
    for rank, row in enumerate(analysis.lemons.nodes.to_pylist(), start=1):
        if row["node"] == node:
            return {**row, "rank": rank}
    return None


def _tiles(analysis: Analysis, lemon: dict[str, Any], failures: int) -> list[Tile]:
    nodes = analysis.lemons.nodes.num_rows
    low, high = lemon["shrunk_rate_low"], lemon["shrunk_rate_high"]
    return [
        Tile(
            "Shrunk rate",
            brief(lemon["shrunk_rate"]),
            RATE_UNIT,
            f"{brief_interval(low, high)} at 95 %",
            note=f"rank {lemon['rank']:,} of {nodes:,}",
        ),
        Tile(
            "Blame",
            brief(lemon["failures"]),
            "failures",
            note=f"{brief(lemon['expected_failures'])} expected; {failures:,} attempts failed on it",
        ),
        Tile(
            "Pulling it avoids",
            brief(max(lemon["failures_avoided_per_month"], 0.0)),
            "failures a month",
        ),
    ]


def _score_section(analysis: Analysis, node: str, lemon: dict[str, Any]) -> Section:
    detector = analysis.lemons.detector
    bad = node in set(analysis.lemons.lemons)
    fdr = f"{100 * analysis.log.assumptions.lemon_fdr:g} %"
    verdict = "is a lemon" if bad else "is not a lemon"
    q = probability("q", lemon["q_value"])
    expected, seen = brief(lemon["expected_failures"]), brief(lemon["failures"])
    by_rule = "meets" if node in set(detector.rule_lemons_) else "does not meet"
    sentence = (
        f"{node} {verdict} at a false discovery rate of {fdr} ({q}): {seen} failures to blame on it, "
        f"{expected} expected of its time in use. It {by_rule} the rule on seven signals."
    )
    values = [float(lemon[name]) for name in SIGNALS]
    thresholds = [detector.thresholds_.get(name) for name in SIGNALS]
    over = [
        "yes" if limit is not None and value > limit else ""
        for value, limit in zip(values, thresholds, strict=True)
    ]
    signals = {
        "signal": [SIGNAL_TEXTS[name] for name in SIGNALS],
        "value": values,
        "threshold": pa.array(thresholds, pa.float64()),
        "over": over,
    }
    return Section(
        "score",
        "Is it a lemon?",
        sentence,
        tables=[
            Table(
                pa.table(signals),
                {
                    "signal": ColumnFormat("Signal, last 28 days"),
                    "value": ColumnFormat("Value", digits=2),
                    "threshold": ColumnFormat("Threshold", digits=2),
                    "over": ColumnFormat("Above it"),
                },
                caption="One row per signal; a threshold is a quantile of the fleet.",
            )
        ],
        how=How(
            "rate = (a + blame) / (b + node-days), Gamma prior (a, b) fitted to the fleet",
            {
                "p-value": brief(lemon["p_value"]),
                "q-value (Benjamini and Hochberg)": brief(lemon["q_value"]),
                "node-days in use": brief(lemon["node_days"]),
                "raw rate": _rate(lemon["raw_rate"]),
            },
        ),
    )


def _rate(value: float | None) -> str:
    return f"{brief(value)} {RATE_UNIT}"


def _failures(analysis: Analysis, node: str) -> list[dict[str, Any]]:
    """Infrastructure failures with blame on the node, the latest first."""
    log = analysis.log
    return log.rows(
        f"""SELECT blamed.key, blame, evidence, job_id, attempt, failed.state, label, failed.stop_s, gpus,
            runtime_s
        FROM {blamed_nodes(log)} AS blamed
        JOIN {infrastructure_failures(log)} AS failed ON blamed.key = failed.key
        WHERE node = {literal(node)} ORDER BY failed.stop_s DESC, job_id, blamed.key"""
    )


def _failure_section(failures: Sequence[dict[str, Any]]) -> Section:
    blame = sum(row["blame"] for row in failures)
    shown = failures[:MOST_EVENTS]
    schema = pa.schema(
        [
            ("time", pa.timestamp("s", "UTC")),
            ("job_id", pa.string()),
            ("attempt", pa.int64()),
            ("state", pa.string()),
            ("label", pa.string()),
            ("blame", pa.float64()),
            ("evidence", pa.string()),
        ]
    )
    table = [
        {
            **row,
            "time": moment(row["stop_s"]),
            "evidence": EVIDENCE.get(row["evidence"], row["evidence"]),
        }
        for row in shown
    ]
    return Section(
        "failures",
        "Which failures are blamed on it?",
        f"{counted(len(failures), 'failed attempt')}, blame {brief(blame)} in all."
        if failures
        else "None.",
        tables=[
            Table(
                pa.Table.from_pylist(table, schema=schema),
                {
                    "time": ColumnFormat("Ended"),
                    "job_id": ColumnFormat("Job", link=JOB_LINK),
                    "attempt": ColumnFormat("Attempt"),
                    "state": ColumnFormat("State"),
                    "label": ColumnFormat("Likeliest cause"),
                    "blame": ColumnFormat("Blame", digits=2),
                    "evidence": ColumnFormat("Why this node"),
                },
                caption=_latest("One row per failed attempt", len(failures))
                + " Attempts that one event of the node ended are one failure of its score.",
                empty="No attempt failed on it.",
            )
        ],
    )


def _check_section(checks: Sequence[dict[str, Any]], recent: Sequence[dict[str, Any]]) -> Section:
    total = sum(row["n"] for row in checks)
    ranked = sorted(checks, key=lambda row: (-row["n"], row["check"]))
    sentence = "None."
    if ranked:
        most = ranked[0]
        sentence = f"{counted(total, 'event')}; most often {most['check']} ({most['n']:,})."
    seconds = pa.timestamp("s", "UTC")
    summary = pa.Table.from_pylist(
        [{**row, "first": moment(row["first_s"]), "last": moment(row["last_s"])} for row in ranked],
        schema=pa.schema(
            [
                ("check", pa.string()),
                ("n", pa.int64()),
                ("severity", pa.string()),
                ("symptom", pa.string()),
                ("first", seconds),
                ("last", seconds),
            ]
        ),
    )
    return Section(
        "checks",
        "What did its health checks see?",
        sentence,
        tables=[
            Table(
                summary,
                {
                    "check": ColumnFormat("Check"),
                    "n": ColumnFormat("Events"),
                    "severity": ColumnFormat("Severity"),
                    "symptom": ColumnFormat("Symptom"),
                    "first": ColumnFormat("First"),
                    "last": ColumnFormat("Last"),
                },
                caption="One row per check, most events first.",
                empty="No event of a health check on it.",
            ),
            *([event_table(recent, _latest("One row per event", total))] if recent else []),
        ],
    )


def event_table(
    events: Sequence[dict[str, Any]], caption: str, *, with_node: bool = False
) -> Table:
    """Health events, as they were logged.

    Args:
        events: rows of `classified_health`.
        caption: what a row is.
        with_node: show the node, as a link.
    """
    rows = [{**row, "time": moment(row["time_s"])} for row in events]
    schema = pa.schema(
        [
            ("time", pa.timestamp("s", "UTC")),
            ("node", pa.string()),
            ("check", pa.string()),
            ("severity", pa.string()),
            ("xid", pa.int32()),
            ("message", pa.string()),
        ]
    )
    return Table(
        pa.Table.from_pylist(rows, schema=schema),
        {
            "time": ColumnFormat("Time"),
            **({"node": ColumnFormat("Node", link=NODE_LINK)} if with_node else {}),
            "check": ColumnFormat("Check"),
            "severity": ColumnFormat("Severity"),
            "xid": ColumnFormat("XID"),
            "message": ColumnFormat("Message"),
        },
        caption=caption,
        empty="No event.",
    )


def _outage_section(down: Sequence[dict[str, Any]]) -> Section:
    rows = [
        {
            "start": moment(row["start_s"]),
            "end": None if row["end_s"] is None else moment(row["end_s"]),
            "lasted": "" if row["end_s"] is None else duration(row["end_s"] - row["start_s"]),
            "state": row["state"],
            "reason": row["reason"] or row["cause"],
        }
        for row in down
    ]
    over = [row for row in down if row["end_s"] is None]
    sentence = "None."
    if down:
        sentence = f"{counted(len(down), 'outage')}"
        sentence += "; it is out now." if over else "; all are over."
    seconds = pa.timestamp("s", "UTC")
    schema = pa.schema(
        [
            ("start", seconds),
            ("end", seconds),
            ("lasted", pa.string()),
            ("state", pa.string()),
            ("reason", pa.string()),
        ]
    )
    return Section(
        "outages",
        "When was it out of service?",
        sentence,
        tables=[
            Table(
                pa.Table.from_pylist(rows, schema=schema),
                {
                    "start": ColumnFormat("From"),
                    "end": ColumnFormat("To"),
                    "lasted": ColumnFormat("For", right=True),
                    "state": ColumnFormat("State"),
                    "reason": ColumnFormat("Reason"),
                },
                caption=_latest("One row per outage", len(down)),
                empty="It was never out of service.",
            )
        ],
    )


def _latest(what: str, count: int) -> str:
    shown = f"; the latest {MOST_EVENTS:,} of {count:,}" if count > MOST_EVENTS else ""
    return f"{what}, the latest first{shown}."
