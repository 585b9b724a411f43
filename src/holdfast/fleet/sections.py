"""Sections of the report on what happened: losses, nodes, loops, causes, preemptions, states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from holdfast.fleet import figures
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.lemon_model import SIGNALS
from holdfast.fleet.moments import moment
from holdfast.fleet.wording import RATE_UNIT, brief_interval, decimals, probability
from holdfast.numbers import brief, counted, duration, percent
from holdfast.report import ColumnFormat, Figure, How, Section, Table

PAPER = (
    "Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, arXiv 2410.21680v2"
)
MOST_ROWS = 500
"""Rows of a table on the page; the commands give all with --json."""
MOST_NAMED = 10

EVIDENCE = {
    "log": "controller log",
    "label": "state PREEMPTED",
    "early_timeout": "TIMEOUT before its limit",
    "sigterm": "SIGTERM while a higher class waited",
    "co_victim": "ended with other victims",
}
LOSS_COLUMNS = ("first_order", "second_order")


def drawn(figure: Figure | None) -> list[Figure]:
    """The figures of a section that may have none."""
    return [] if figure is None else [figure]


def loss(analysis: Analysis) -> Section:
    """What did failures cost?"""
    goodput, assumed = analysis.goodput, analysis.log.assumptions
    sizes = goodput.by_job_size
    labels = [bucket_label(top) for top in sizes["gpus_max"].to_pylist()]
    sizes = sizes.append_column("size", pa.array(labels, pa.string()))
    return Section(
        "loss",
        "What did failures cost?",
        _loss_sentence(analysis),
        drawn(figures.loss_by_size(goodput)),
        [
            Table(
                sizes,
                {
                    "size": ColumnFormat("Job size", "GPUs", right=True),
                    "gpu_hours": _hours("GPU time", sizes["gpu_hours"]),
                    "failures": ColumnFormat("Failures"),
                    **_loss_columns(sizes),
                },
                caption="One row per job size. The loss of a preempted job counts in its own size.",
                empty="Nothing ran.",
            )
        ],
        How(
            [
                "lost = GPUs × min(runtime, Δt/2), summed over attempts",
                "first order: attempts that ended NODE_FAIL, or FAILED with a HIGH check",
                "second order: attempts preempted by a run that had failed before",
            ],
            {"checkpoint interval Δt (assumed)": duration(assumed.checkpoint_interval_s)},
            PAPER,
        ),
    )


def _loss_sentence(analysis: Analysis) -> str:
    goodput = analysis.goodput
    if not goodput.failures:
        return f"Nothing: no infrastructure failure in {brief(goodput.total_gpu_hours)} GPU-hours."
    if not goodput.total_gpu_hours:
        return "It cannot be told: the log records no GPUs."
    text = f"{brief(goodput.lost_gpu_hours)} of {brief(goodput.total_gpu_hours)} GPU-hours"
    failed = counted(goodput.failures, "failed attempt")
    if not goodput.lost_second_order:
        return f"{text}, in {failed}."
    second = counted(goodput.preemptions_second_order, "attempt")
    return (
        f"{text}: {brief(goodput.lost_first_order)} in {failed}, "
        f"{brief(goodput.lost_second_order)} in {second} preempted by jobs restarting after a failure."
    )


def lemons(analysis: Analysis) -> Section:
    """Which nodes should I pull?"""
    found = analysis.lemons
    nodes = found.nodes.slice(0, MOST_ROWS)
    by_rule = ", ".join(found.detector.rule_lemons_[:MOST_NAMED]) or "none"
    return Section(
        "lemons",
        "Which nodes should I pull?",
        _lemons_sentence(analysis),
        drawn(figures.lemon_cdfs(found.nodes)),
        [
            Table(
                nodes,
                _lemon_columns(nodes),
                caption="One row per node, highest shrunk rate first. The last seven columns count over "
                f"{duration(analysis.log.assumptions.lemon_window_s)} before the end of the log.",
                empty="No node is known.",
            )
        ],
        How(
            [
                "failures of a node ~ Poisson(rate × its node-days); blame 1/n where nothing tells "
                "which of n nodes failed",
                "shrunk rate = (a + failures) / (b + node-days), Gamma(a, b) prior fitted to the fleet",
                "q-value: Benjamini-Hochberg over the nodes' upper-tail p-values",
            ],
            {
                f"fleet's rate, {RATE_UNIT}": brief(found.detector.fleet_rate_per_1000_node_days_),
                "failures closer together on a node are one": duration(
                    analysis.log.assumptions.incident_gap_s
                ),
                "nodes that meet the rule on seven signals": by_rule,
            },
            PAPER,
        ),
    )


def _lemons_sentence(analysis: Analysis) -> str:
    if not analysis.nodes_known:
        return "The log does not say on which nodes attempts ran: which of them fail is unknown."
    found = analysis.lemons
    named = ", ".join(found.lemons[:MOST_NAMED])
    more = len(found.lemons) - MOST_NAMED
    text = f"At a false discovery rate of {100 * analysis.log.assumptions.lemon_fdr:g} %: "
    text += f"{named or 'none'}{f' and {more:,} more' if more > 0 else ''}."
    for group in found.not_separable[:MOST_NAMED]:
        text += f" Not separable, as they failed in the same jobs: {', '.join(group[:MOST_NAMED])}"
        text += f" and {len(group) - MOST_NAMED:,} more." if len(group) > MOST_NAMED else "."
    first = found.nodes.slice(0, 1).to_pylist()
    if first and first[0]["failures"]:
        row = first[0]
        text += (
            f" The highest shrunk rate is {brief(row['shrunk_rate'])} "
            f"{brief_interval(row['shrunk_rate_low'], row['shrunk_rate_high'])} "
            f"{RATE_UNIT}, that of {row['node']} ({probability('q', row['q_value'])})."
        )
    return text


def _lemon_columns(nodes: pa.Table) -> dict[str, ColumnFormat]:
    whole = {"excl_jobid_count", "xid_cnt", "tickets", "out_count"}
    return {
        "node": ColumnFormat("Node"),
        "failures": ColumnFormat("Blame", "failures", digits=1),
        "node_days": ColumnFormat("In use", "node-days", digits=_decimals(nodes["node_days"])),
        "shrunk_rate": ColumnFormat(
            "Shrunk rate, 95 %",
            RATE_UNIT,
            digits=_decimals(nodes["shrunk_rate"]),
            interval=("shrunk_rate_low", "shrunk_rate_high"),
        ),
        "q_value": ColumnFormat("q-value", digits=3),
        "failures_avoided_per_month": ColumnFormat(
            "Avoided", "a month", digits=_decimals(nodes["failures_avoided_per_month"])
        ),
        **{
            name: ColumnFormat(name.replace("_", " "), digits=0 if name in whole else 2)
            for name in SIGNALS
        },
    }


def loops(analysis: Analysis) -> Section:
    """Which jobs loop?"""
    found, assumed = analysis.goodput.crash_loops, analysis.log.assumptions
    attempts, causes = analysis.timeline
    job = analysis.timeline_job
    if len(found):
        sentence = (
            f"{counted(len(found), 'job')} looped; job {job} was requeued "
            f"{counted(found['requeues'][0].as_py(), 'time')} after infrastructure failures."
        )
    else:
        sentence = f"No job looped. Job {job} had the costliest failure; these are its attempts."
    table = found.drop_columns(["run", "first_s", "last_s"])
    for name in ("first", "last"):
        times = [moment(each) for each in found[f"{name}_s"].to_pylist()]
        table = table.append_column(name, pa.array(times, pa.timestamp("s", "UTC")))
    return Section(
        "loops",
        "Which jobs loop?",
        sentence,
        [figures.job_timeline(attempts, causes)] if attempts else [],
        [
            Table(
                table.slice(0, MOST_ROWS),
                {
                    "job_id": ColumnFormat("Job"),
                    "gpus": ColumnFormat("GPUs"),
                    "requeues": ColumnFormat("Requeues"),
                    "preempted": ColumnFormat("Preempted"),
                    "gpu_hours_lost": _hours("Lost", table["gpu_hours_lost"]),
                    "first": ColumnFormat("First failure"),
                    "last": ColumnFormat("Last failure"),
                },
                caption="One row per run in a crash loop, most requeues first. Lost: both orders.",
                empty="No run looped.",
            )
        ],
        How(
            f"a crash loop: {assumed.crash_loop_requeues} or more requeues of one run after "
            f"infrastructure failures within {duration(assumed.crash_loop_window_s)}",
            {"runs are chained": "by name" if assumed.chain_by_name else "by job id"},
            PAPER,
        ),
    )


def causes(analysis: Analysis) -> Section:
    """Why do attempts fail?"""
    goodput, assumed = analysis.goodput, analysis.log.assumptions
    table = goodput.by_cause
    nodes = [analysis.nodes_by_cause.get(cause) for cause in table["cause"].to_pylist()]
    table = table.append_column("nodes", pa.array(nodes, pa.int64()))
    return Section(
        "causes",
        "Why do attempts fail?",
        _causes_sentence(analysis),
        drawn(figures.loss_by_cause(goodput)),
        [
            Table(
                table,
                {
                    "cause": ColumnFormat("Likeliest cause"),
                    "failures": ColumnFormat("Failures"),
                    "nodes": ColumnFormat("Nodes"),
                    **_loss_columns(table),
                },
                caption="One row per symptom, largest first-order loss first. Every check of one job: "
                "holdfast fleet attribute STORE JOBID.",
                empty="No failures.",
            )
        ],
        How(
            "check c explains the end of an attempt if it fired on one of its nodes in "
            "[end − before, end + after]; on the node that Slurm names as failed, if it names one",
            {
                "before": duration(assumed.check_before_s),
                "after": duration(assumed.check_after_s),
                "taxonomy": str(assumed.taxonomy or "shipped with holdfast"),
            },
            PAPER,
            "The likeliest cause is the first HIGH check on the failed node. Checks overlap: a GPU "
            "that falls off the bus shows as PCIe, as XID and as missing.",
        ),
    )


def _causes_sentence(analysis: Analysis) -> str:
    none, failures = analysis.unattributed
    if not failures:
        return "No attempt was ended by the infrastructure."
    known = [
        row
        for row in analysis.goodput.by_cause.to_pylist()
        if row["cause"] != UNATTRIBUTED and row["failures"] > 0
    ]
    known = sorted(known, key=lambda row: -row["failures"])[:4]
    parts = [f"{row['cause']} {row['failures']:,}" for row in known]
    return (
        f"Of {counted(failures, 'infrastructure failure')}: "
        f"{', '.join([*parts, f'unattributed {none:,}'])}."
    )


def preemptions(analysis: Analysis) -> Section:
    """Who was preempted?"""
    goodput, mix = analysis.goodput, analysis.preemption_mix
    inferred = sum(row["attempts"] for row in mix if row["evidence"] not in ("label", "log"))
    sentence = "Nobody."
    if goodput.preemptions:
        sentence = (
            f"{counted(goodput.preemptions, 'attempt')}, {inferred:,} of them inferred; "
            f"{goodput.preemptions_second_order:,} made room for a job that had failed before."
        )
    mix = [{**row, "evidence": EVIDENCE.get(row["evidence"], row["evidence"])} for row in mix]
    kinds = {"evidence": pa.string(), "state": pa.string()}
    kinds |= {"attempts": pa.int64(), "second_order": pa.int64()}
    assumed = analysis.log.assumptions
    return Section(
        "preemptions",
        "Who was preempted?",
        sentence,
        [],
        [
            Table(
                pa.Table.from_pylist(mix, schema=pa.schema(kinds)),
                {
                    "evidence": ColumnFormat("Evidence"),
                    "state": ColumnFormat("Recorded state"),
                    "attempts": ColumnFormat("Attempts"),
                    "second_order": ColumnFormat("Of second order"),
                },
                caption="One row per kind of evidence and recorded state, most attempts first.",
                empty="No attempt was preempted.",
            )
        ],
        How(
            [
                "controller log: it names victim and preemptor; state PREEMPTED: the victim only",
                "TIMEOUT before its limit; SIGTERM reached it while a job that outranks it waited",
                "ended with other victims of a preemptor that then took its nodes",
            ],
            {
                "grace, where the QOS does not say": duration(assumed.preemption_grace_s),
                "slack until the preemptor starts": duration(assumed.preemption_slack_s),
            },
            PAPER,
        ),
    )


def states(analysis: Analysis) -> Section:
    """How do attempts end?"""
    status = analysis.status
    failed = [row for row in status.table.to_pylist() if row["state"] == "NODE_FAIL"]
    used = f" used {brief(status.gpu_hours)} GPU-hours" if status.gpu_hours else ""
    sentence = f"{counted(status.attempts, 'attempt')}{used}."
    if not used:
        sentence += " The log records no GPU time."
    if len(failed):
        sentence += f" NODE_FAIL is {percent(failed[0]['share_by_count'])} of the attempts"
        time = percent(failed[0]["share_by_gpu_time"])
        sentence += f" and {time} of the GPU time." if used else "."
    return Section(
        "status",
        "How do attempts end?",
        sentence,
        [figures.status_mix(status)],
        [
            Table(
                status.table,
                {
                    "state": ColumnFormat("State"),
                    "attempts": ColumnFormat("Attempts"),
                    "share_by_count": ColumnFormat("Share of attempts", "%", digits=2),
                    "gpu_hours": _hours("GPU time", status.table["gpu_hours"]),
                    "share_by_gpu_time": ColumnFormat("Share of GPU time", "%", digits=2),
                },
                caption="One row per state, most attempts first. Attempts that never started count.",
            )
        ],
    )


def outages(analysis: Analysis) -> Section:
    """Which nodes fail, and why (of a log of node failures)?"""
    found = analysis.outages
    assert found is not None
    by_cause = _outages_by(found.rows, "cause")
    by_node = _outages_by(found.rows, "node").slice(0, MOST_ROWS)
    shape = {
        "failures": ColumnFormat("Failures"),
        "down_hours": ColumnFormat("Down", "h", digits=1),
    }
    named = ", ".join(
        f"{cause} {count:,}"
        for cause, count in zip(
            by_cause["cause"].to_pylist()[:4], by_cause["failures"].to_pylist()[:4], strict=True
        )
    )
    return Section(
        "causes",
        "Which nodes fail, and why?",
        f"{counted(len(found.rows), 'failure')} on "
        f"{counted(len({row['node'] for row in found.rows}), 'node')}: {named}.",
        [],
        [
            Table(
                by_cause,
                {"cause": ColumnFormat("Cause"), **shape},
                caption="One row per cause, most failures first.",
                empty="No failures.",
            ),
            Table(
                by_node,
                {"node": ColumnFormat("Node"), **shape},
                caption="One row per node that failed, most failures first.",
                empty="No failures.",
            ),
        ],
    )


def _outages_by(rows: Iterable[dict[str, Any]], name: str) -> pa.Table:
    """Failures and hours down by node or cause, most failures first."""
    failures: Counter[str] = Counter()
    hours: Counter[str] = Counter()
    for row in rows:
        failures[row[name] or UNATTRIBUTED] += 1
        hours[row[name] or UNATTRIBUTED] += row["down_s"] / 3600
    order = sorted(failures, key=lambda each: (-failures[each], -hours[each], each))
    return pa.table(
        {
            name: pa.array(order, pa.string()),
            "failures": pa.array([failures[each] for each in order], pa.int64()),
            "down_hours": pa.array([hours[each] for each in order], pa.float64()),
        }
    )


def _decimals(values: pa.ChunkedArray) -> int:
    return decimals(each for each in values.to_pylist() if each is not None)


def _hours(label: str, values: pa.ChunkedArray) -> ColumnFormat:
    return ColumnFormat(label, "GPU-h", digits=_decimals(values))


def _loss_columns(table: pa.Table) -> dict[str, ColumnFormat]:
    digits = decimals(each for name in LOSS_COLUMNS for each in table[name].to_pylist())
    return {
        "first_order": ColumnFormat("Lost, first order", "GPU-h", digits=digits),
        "second_order": ColumnFormat("Lost, second order", "GPU-h", digits=digits),
    }
