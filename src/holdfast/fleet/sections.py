"""Sections of the report on what happened: losses, nodes, loops, causes, preemptions, states."""

from __future__ import annotations

import pandas as pd
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
    sizes = goodput.by_job_size.assign(
        size=[bucket_label(int(top)) for top in goodput.by_job_size["gpus_max"]]
    )
    return Section(
        "loss",
        "What did failures cost?",
        _loss_sentence(analysis),
        drawn(figures.loss_by_size(goodput)),
        [
            Table(
                pa.Table.from_pandas(sizes, preserve_index=False),
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
    frame = found.nodes.slice(0, MOST_ROWS).to_pandas()
    by_rule = ", ".join(found.detector.rule_lemons_[:MOST_NAMED]) or "none"
    return Section(
        "lemons",
        "Which nodes should I pull?",
        _lemons_sentence(analysis),
        drawn(figures.lemon_cdfs(found.nodes, found.lemons)),
        [
            Table(
                pa.Table.from_pandas(frame, preserve_index=False),
                _lemon_columns(frame),
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
    first = found.nodes.slice(0, 1).to_pylist()
    if first and first[0]["failures"]:
        row = first[0]
        text += (
            f" The highest shrunk rate is {brief(row['shrunk_rate'])} "
            f"{brief_interval(row['shrunk_rate_low'], row['shrunk_rate_high'])} "
            f"{RATE_UNIT}, that of {row['node']} ({probability('q', row['q_value'])})."
        )
    return text


def _lemon_columns(frame: pd.DataFrame) -> dict[str, ColumnFormat]:
    whole = {"excl_jobid_count", "xid_cnt", "tickets", "out_count"}
    return {
        "node": ColumnFormat("Node"),
        "failures": ColumnFormat("Blame", "failures", digits=1),
        "node_days": ColumnFormat("In use", "node-days", digits=decimals(frame["node_days"])),
        "shrunk_rate": ColumnFormat(
            "Shrunk rate, 95 %",
            RATE_UNIT,
            digits=decimals(frame["shrunk_rate"]),
            interval=("shrunk_rate_low", "shrunk_rate_high"),
        ),
        "q_value": ColumnFormat("q-value", digits=3),
        "failures_avoided_per_month": ColumnFormat(
            "Avoided", "a month", digits=decimals(frame["failures_avoided_per_month"])
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
            f"{counted(int(found['requeues'].iloc[0]), 'time')} after infrastructure failures."
        )
    else:
        sentence = f"No job looped. Job {job} had the costliest failure; these are its attempts."
    table = found.drop(columns=["run", "first_s", "last_s"]).assign(
        first=[moment(each) for each in found["first_s"]],
        last=[moment(each) for each in found["last_s"]],
    )
    return Section(
        "loops",
        "Which jobs loop?",
        sentence,
        [figures.job_timeline(attempts, causes)] if attempts else [],
        [
            Table(
                pa.Table.from_pandas(table.head(MOST_ROWS), preserve_index=False),
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
    nodes = goodput.by_cause["cause"].map(analysis.nodes_by_cause).astype("Int64")
    table = goodput.by_cause.assign(nodes=nodes)
    return Section(
        "causes",
        "Why do attempts fail?",
        _causes_sentence(analysis),
        drawn(figures.loss_by_cause(goodput)),
        [
            Table(
                pa.Table.from_pandas(table, preserve_index=False),
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
    by_cause = analysis.goodput.by_cause
    none, failures = analysis.unattributed
    if not failures:
        return "No attempt was ended by the infrastructure."
    known = by_cause[(by_cause["cause"] != UNATTRIBUTED) & (by_cause["failures"] > 0)]
    known = known.sort_values("failures", ascending=False, kind="stable").head(4)
    counts = zip(known["cause"], known["failures"], strict=True)
    parts = [f"{cause} {count:,}" for cause, count in counts]
    return (
        f"Of {counted(failures, 'infrastructure failure')}: "
        f"{', '.join([*parts, f'unattributed {none:,}'])}."
    )


def preemptions(analysis: Analysis) -> Section:
    """Who was preempted?"""
    goodput, mix = analysis.goodput, analysis.preemption_mix
    inferred = int(mix.loc[~mix["evidence"].isin(["label", "log"]), "attempts"].sum())
    sentence = "Nobody."
    if goodput.preemptions:
        sentence = (
            f"{counted(goodput.preemptions, 'attempt')}, {inferred:,} of them inferred; "
            f"{goodput.preemptions_second_order:,} made room for a job that had failed before."
        )
    mix = mix.assign(evidence=[EVIDENCE.get(each, each) for each in mix["evidence"]])
    assumed = analysis.log.assumptions
    return Section(
        "preemptions",
        "Who was preempted?",
        sentence,
        [],
        [
            Table(
                pa.Table.from_pandas(mix, preserve_index=False),
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
    failed = status.table[status.table["state"] == "NODE_FAIL"]
    used = f" used {brief(status.gpu_hours)} GPU-hours" if status.gpu_hours else ""
    sentence = f"{counted(status.attempts, 'attempt')}{used}."
    if not used:
        sentence += " The log records no GPU time."
    if len(failed):
        sentence += f" NODE_FAIL is {percent(failed['share_by_count'].iloc[0])} of the attempts"
        time = percent(failed["share_by_gpu_time"].iloc[0])
        sentence += f" and {time} of the GPU time." if used else "."
    return Section(
        "status",
        "How do attempts end?",
        sentence,
        [figures.status_mix(status)],
        [
            Table(
                pa.Table.from_pandas(status.table, preserve_index=False),
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
    frame = found.frame.assign(cause=found.frame["cause"].fillna(UNATTRIBUTED))
    by_cause = _outages_by(frame, "cause")
    by_node = _outages_by(frame, "node").head(MOST_ROWS)
    shape = {
        "failures": ColumnFormat("Failures"),
        "down_hours": ColumnFormat("Down", "h", digits=1),
    }
    named = ", ".join(
        f"{cause} {count:,}"
        for cause, count in zip(
            by_cause["cause"].head(4), by_cause["failures"].head(4), strict=True
        )
    )
    return Section(
        "causes",
        "Which nodes fail, and why?",
        f"{counted(len(frame), 'failure')} on {counted(frame['node'].nunique(), 'node')}: {named}.",
        [],
        [
            Table(
                pa.Table.from_pandas(by_cause, preserve_index=False),
                {"cause": ColumnFormat("Cause"), **shape},
                caption="One row per cause, most failures first.",
                empty="No failures.",
            ),
            Table(
                pa.Table.from_pandas(by_node, preserve_index=False),
                {"node": ColumnFormat("Node"), **shape},
                caption="One row per node that failed, most failures first.",
                empty="No failures.",
            ),
        ],
    )


def _outages_by(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    grouped = frame.groupby(name, as_index=False).agg(
        failures=("node", "size"), down_hours=("down_s", "sum")
    )
    grouped["down_hours"] = grouped["down_hours"].astype("float64") / 3600
    return grouped.sort_values(
        ["failures", "down_hours", name], ascending=[False, False, True], ignore_index=True
    )


def _hours(label: str, values: pd.Series) -> ColumnFormat:
    return ColumnFormat(label, "GPU-h", digits=decimals(values))


def _loss_columns(table: pd.DataFrame) -> dict[str, ColumnFormat]:
    digits = decimals(table[list(LOSS_COLUMNS)].max())
    return {
        "first_order": ColumnFormat("Lost, first order", "GPU-h", digits=digits),
        "second_order": ColumnFormat("Lost, second order", "GPU-h", digits=digits),
    }
