"""The fleet report: findings for people in a hurry, and every figure behind them on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import __version__
from holdfast.fleet import figures
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.lemon_model import SIGNALS
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.moments import iso
from holdfast.fleet.store import Store
from holdfast.fleet.summary import findings, since_text
from holdfast.numbers import interval, number
from holdfast.report import (
    ColumnFormat,
    Finding,
    How,
    Page,
    Section,
    Table,
    Tile,
    Unknown,
    write,
)

PAPER = "Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, arXiv 2410.21680v2"
MOST_NODES = 500
"""Nodes in the table of lemons; `holdfast fleet lemons --json` has all."""


@dataclass(frozen=True)
class FleetReport:
    """The morning summary of a fleet and the results behind it."""

    findings: list[Finding]
    """Three to seven sentences, the most valuable first."""
    analysis: Analysis
    html: Path | None
    """Where the page is; None if none was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet report``."""
        analysis = self.analysis
        return {
            "since": iso(analysis.log.begin_s),
            "until": iso(analysis.log.end_s),
            "findings": [" ".join((f.lead, f.text)).strip() for f in self.findings],
            "status": analysis.status.to_dict(),
            "goodput": analysis.goodput.to_dict(),
            "mttf": None if analysis.mttf is None else analysis.mttf.to_dict(),
            "trend": analysis.trend.to_dict(),
            "lemons": analysis.lemons.lemons,
            "ettr": {
                "expected": analysis.expected_ettr,
                "measured": analysis.measured.to_dict(),
                "levers": [{"change": v.name, "ettr": v.ettr} for v in analysis.levers],
            },
            "duplicates_flag": analysis.log.store.facts.get("duplicates_flag"),
            "assumptions": analysis.log.assumptions.to_dict(),
            "html": None if self.html is None else str(self.html),
        }


def report(
    log: str | Path | Store | FleetLog, *, html: str | Path | None = None
) -> FleetReport:
    """Summarise a fleet's log, and write the page with every figure if asked.

    Args:
        log: a store or an open log.
        html: file to write the page to.

    Returns:
        The findings, the results behind them, and where the page is.
    """
    log = open_log(log)
    analysis = Analysis(log)
    found = findings(analysis)
    path = None if html is None else write(page(analysis, found), html)
    return FleetReport(found, analysis, path)


def page(analysis: Analysis, found: Sequence[Finding]) -> Page:
    """The page of a fleet report."""
    if not analysis.status.attempts:
        sections = [_mttf(analysis)] if analysis.mttf else []
    else:
        sections = [
            _loss(analysis),
            _lemons(analysis),
            *([_loops(analysis)] if analysis.timeline_job else []),
            _causes(analysis),
            _rate(analysis),
            _mttf(analysis),
            _ettr(analysis),
            _preemptions(analysis),
            _status(analysis),
            _ageing(analysis),
        ]
    here = {section.id for section in sections}
    kept = [f if f.section_id in here else Finding(f.text, None, f.lead) for f in found]
    name = analysis.log.store.facts.get("cluster")
    return Page(
        title=f"Fleet report: {name}" if name else "Fleet report",
        subtitle=f"{since_text(analysis)} to "
        f"{datetime.fromtimestamp(analysis.log.end_s, UTC):%Y-%m-%d %H:%M} UTC, "
        f"{analysis.log.count('nodes'):,} nodes",
        inputs=_inputs(analysis),
        findings=kept,
        tiles=_tiles(analysis) if analysis.status.attempts else [],
        sections=sections,
        unknowns=_unknowns(analysis),
        footer=f"holdfast {__version__}",
    )


def _inputs(analysis: Analysis) -> list[tuple[str, str]]:
    facts = analysis.log.store.facts
    counts = facts.get("counts", {})
    sources = [f"{Path(each['path']).name} ({each['format']})" for each in facts["sources"]]
    shown = ", ".join(sources[:12]) + (f" and {len(sources) - 12} more" if len(sources) > 12 else "")
    flag = {
        "present": "yes (sacct --duplicates was used)",
        "missing": "NO: sacct was run without -D, node failures are hidden",
        "unknown": "cannot be told: no job was requeued",
    }
    attempts = f"{counts.get('attempts', 0):,} of {counts.get('jobs', 0):,} jobs"
    if counts.get("attempts_recovered"):
        attempts += f", and {counts['attempts_recovered']:,} recovered from steps"
    return [
        ("Sources", shown),
        ("Attempts", attempts),
        ("Set aside", f"{counts.get('rejected', 0):,} records that could not be read"),
        ("Health events", f"{counts.get('health_events', 0):,}"),
        ("All attempts of requeued jobs", flag.get(facts.get("duplicates_flag", ""), "unknown")),
    ]


def _tiles(analysis: Analysis) -> list[Tile]:
    goodput = analysis.goodput
    none, failures = analysis.unattributed
    tiles = [
        Tile(
            "GPU-hours lost to failures",
            number(goodput.lost_gpu_hours),
            "GPU-h",
            note=f"{goodput.lost_gpu_hours / goodput.total_gpu_hours:.1%} of "
            f"{number(goodput.total_gpu_hours)}"
            if goodput.total_gpu_hours
            else "",
            section_id="loss",
        ),
        Tile(
            "Lemon nodes",
            number(len(analysis.lemons.lemons)),
            f"of {analysis.log.count('nodes'):,}",
            note=", ".join(analysis.lemons.lemons[:3]),
            section_id="lemons",
        ),
        Tile(
            "Failures without a cause",
            f"{none / failures:.0%}" if failures else "–",
            note=f"{none:,} of {failures:,}",
            section_id="causes",
        ),
    ]
    if analysis.mttf is not None:
        model = analysis.mttf.model
        drift = analysis.trend
        trend = None
        if drift.p_value is not None and drift.rate_ratio_per_month is not None:
            trend = (
                "steady"
                if drift.p_value >= 0.05
                else "rising"
                if drift.rate_ratio_per_month > 1
                else "falling"
            )
        tiles.insert(
            1,
            Tile(
                "Failure rate",
                number(model.rate_per_1000_node_days_),
                "per 1,000 node-days",
                f"{interval(*model.ci95_)} at 95 %",
                trend=trend,  # type: ignore[arg-type]  # a literal by construction
                section_id="rate",
            ),
        )
        gpus = analysis.largest_job_nodes * analysis.mttf.gpus_per_node
        value, low, high = model.mttf_hours(gpus, analysis.mttf.gpus_per_node)
        tiles.insert(
            2,
            Tile(
                f"MTTF at {gpus:,} GPUs",
                number(value),
                "h",
                f"{interval(low, float('inf') if high is None else high)} at 95 %",
                section_id="mttf",
            ),
        )
    if analysis.expected_ettr is not None:
        by_size = analysis.measured.by_size
        note = ""
        if len(by_size):
            note = f"measured at {bucket_label(int(by_size['gpus_max'].iloc[-1]))} GPUs: "
            note += f"{by_size['ettr'].iloc[-1]:.1%}"
        tiles.append(
            Tile(
                "Expected ETTR of the largest job",
                f"{100 * analysis.expected_ettr:.1f}",
                "%",
                note=note,
                section_id="ettr",
            )
        )
    return tiles[:6]


def _loss(analysis: Analysis) -> Section:
    goodput, assumed = analysis.goodput, analysis.log.assumptions
    sizes = goodput.by_job_size.assign(
        size=[bucket_label(int(top)) for top in goodput.by_job_size["gpus_max"]]
    )
    return Section(
        "loss",
        "What did failures cost?",
        f"{number(goodput.lost_gpu_hours)} of {number(goodput.total_gpu_hours)} GPU-hours: "
        f"{number(goodput.lost_first_order)} in the {goodput.failures:,} attempts that failed, "
        f"{number(goodput.lost_second_order)} in {goodput.preemptions_second_order:,} attempts that "
        "were preempted when such jobs came back.",
        [figures.loss_by_size(goodput)],
        [
            Table(
                pa.Table.from_pandas(sizes, preserve_index=False),
                {
                    "size": ColumnFormat("Job size", "GPUs", right=True),
                    "gpu_hours": ColumnFormat("GPU time", "GPU-h", digits=2),
                    "failures": ColumnFormat("Failures"),
                    "first_order": ColumnFormat("Lost, first order", "GPU-h", digits=2),
                    "second_order": ColumnFormat("Lost, second order", "GPU-h", digits=2),
                },
                caption="One row a job size. A preempted job's loss counts in its own size.",
            )
        ],
        How(
            [
                "lost = GPUs × min(runtime, Δt/2), summed over attempts",
                "first order: attempts that ended NODE_FAIL, or FAILED with a HIGH check",
                "second order: attempts preempted by a run that had failed before",
            ],
            {"checkpoint interval Δt (assumed)": _span(assumed.checkpoint_interval_s)},
            PAPER,
        ),
    )


def _lemons(analysis: Analysis) -> Section:
    lemons = analysis.lemons
    rows = lemons.nodes
    fleet = lemons.detector.fleet_rate_per_1000_node_days_
    bad = ", ".join(lemons.lemons[:10]) or "none"
    first = rows.slice(0, 1).to_pylist()
    worst = (
        f" Highest shrunk rate: {first[0]['node']}, {number(first[0]['shrunk_rate'])} per 1,000 "
        f"node-days {interval(first[0]['shrunk_rate_low'], first[0]['shrunk_rate_high'])}, q = "
        f"{number(first[0]['q_value'], 3)}."
        if first
        else ""
    )
    columns = {
        "node": ColumnFormat("Node"),
        "failures": ColumnFormat("Failures to blame", digits=1),
        "node_days": ColumnFormat("In use", "node-days", digits=3),
        "shrunk_rate": ColumnFormat(
            "Shrunk rate, 95 %",
            "per 1,000 node-days",
            interval=("shrunk_rate_low", "shrunk_rate_high"),
        ),
        "q_value": ColumnFormat("q-value", digits=3),
        "failures_avoided_per_month": ColumnFormat("Failures avoided a month", digits=2),
        **{
            name: ColumnFormat(name.replace("_", " "), digits=2 if "rate" in name else 0)
            for name in SIGNALS
        },
    }
    return Section(
        "lemons",
        "Which nodes should I pull?",
        f"At a false discovery rate of {analysis.log.assumptions.lemon_fdr:.0%}: {bad}.{worst}",
        [figures.lemon_cdfs(rows, lemons.lemons)],
        [
            Table(
                rows.slice(0, MOST_NODES),
                columns,
                caption="One row a node, highest shrunk rate first. The seven signals count the "
                f"last {_span(analysis.log.assumptions.lemon_window_s)} of the log.",
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
                "fleet's rate, per 1,000 node-days": round(fleet, 3),
                "failures closer together on a node are one": _span(
                    analysis.log.assumptions.incident_gap_s
                ),
                "nodes that meet the rule on seven signals": ", ".join(
                    lemons.detector.rule_lemons_[:10]
                )
                or "none",
            },
            PAPER,
        ),
    )


def _loops(analysis: Analysis) -> Section:
    loops = analysis.goodput.crash_loops
    attempts, causes = analysis.timeline
    job = analysis.timeline_job
    assumed = analysis.log.assumptions
    if len(loops):
        sentence = (
            f"{len(loops):,} {'job loops' if len(loops) == 1 else 'jobs loop'}; job {job} was "
            f"requeued {loops['requeues'].iloc[0]} times after infrastructure failures."
        )
    else:
        sentence = f"None. Job {job} had the costliest failure; these are its attempts."
    table = pa.table(
        {
            "job_id": [str(each) for each in loops["job_id"]],
            "gpus": loops["gpus"].to_numpy(),
            "requeues": loops["requeues"].to_numpy(),
            "preempted": loops["preempted"].to_numpy(),
            "gpu_hours_lost": loops["gpu_hours_lost"].to_numpy(),
            "first": [_moment(each) for each in loops["first_s"]],
            "last": [_moment(each) for each in loops["last_s"]],
        }
    )
    return Section(
        "loops",
        "Which jobs loop?",
        sentence,
        [figures.job_timeline(attempts, causes)],
        [
            Table(
                table.slice(0, MOST_NODES),
                {
                    "job_id": ColumnFormat("Job"),
                    "gpus": ColumnFormat("GPUs"),
                    "requeues": ColumnFormat("Requeues"),
                    "preempted": ColumnFormat("Attempts preempted"),
                    "gpu_hours_lost": ColumnFormat("Lost, both orders", "GPU-h", digits=2),
                    "first": ColumnFormat("First failure", "UTC"),
                    "last": ColumnFormat("Last failure", "UTC"),
                },
                caption="One row a run in a crash loop, most requeues first.",
                empty="No run loops.",
            )
        ],
        How(
            f"a crash loop: {assumed.crash_loop_requeues} or more requeues of one run after "
            f"infrastructure failures within {_span(assumed.crash_loop_window_s)}",
            {"runs are chained": "by name" if assumed.chain_by_name else "by job id"},
            PAPER,
        ),
    )


def _causes(analysis: Analysis) -> Section:
    none, failures = analysis.unattributed
    goodput, assumed = analysis.goodput, analysis.log.assumptions
    table = goodput.by_cause.assign(
        nodes=[analysis.nodes_by_cause.get(cause, 0) for cause in goodput.by_cause["cause"]]
    )
    known = goodput.by_cause[goodput.by_cause["cause"] != UNATTRIBUTED]
    named = ", ".join(
        f"{cause} {count:,}"
        for cause, count in sorted(
            zip(known["cause"], known["failures"], strict=True), key=lambda pair: -pair[1]
        )[:4]
    )
    sentence = (
        f"Of {failures:,} infrastructure failures: {named + ', ' if named else ''}"
        f"{none:,} unattributed."
        if failures
        else "There was no infrastructure failure to explain."
    )
    return Section(
        "causes",
        "Why do attempts fail?",
        sentence,
        [],
        [
            Table(
                pa.Table.from_pandas(table, preserve_index=False),
                {
                    "cause": ColumnFormat("Likeliest cause"),
                    "failures": ColumnFormat("Failures"),
                    "nodes": ColumnFormat("Nodes"),
                    "first_order": ColumnFormat("Lost, first order", "GPU-h", digits=2),
                    "second_order": ColumnFormat("Lost, second order", "GPU-h", digits=2),
                },
                caption="One row a symptom, largest first-order loss first. "
                "`holdfast fleet attribute STORE JOBID` lists every check of one job.",
                empty="No failures.",
            )
        ],
        How(
            "check c explains the end of an attempt if it fired on one of its nodes in "
            "[end − before, end + after]; on the node that Slurm names as failed, if it names one",
            {
                "before": _span(assumed.check_before_s),
                "after": _span(assumed.check_after_s),
                "taxonomy": str(assumed.taxonomy or "shipped with holdfast"),
            },
            PAPER,
            "The likeliest cause is the first HIGH check on the failed node. Checks overlap: a GPU "
            "that falls off the bus shows as PCIe, as XID and as missing.",
        ),
    )


def _rate(analysis: Analysis) -> Section:
    frame, unit = analysis.over_time
    scope = f" of attempts above {analysis.min_gpus:,} GPUs" if analysis.min_gpus else ""
    sentence = analysis.trend.sentence
    if len(analysis.introduced):
        sentence += (
            " New checks are marked: a rise at their first event is a better view, not a worse fleet."
        )
    table = pa.table(
        {
            "begin": [_moment(each) for each in frame["begin_s"]],
            "cause": list(frame["cause"]),
            "failures": frame["failures"].to_numpy(),
            "node_days": frame["node_days"].to_numpy(),
        }
    )
    return Section(
        "rate",
        "Does the failure rate drift?",
        sentence,
        [figures.rate_over_time(frame, unit, analysis.introduced)],
        [
            Table(
                table,
                {
                    "begin": ColumnFormat(f"From ({unit})", "UTC"),
                    "cause": ColumnFormat("Cause"),
                    "failures": ColumnFormat("Failures"),
                    "node_days": ColumnFormat("Exposure", "node-days", digits=3),
                },
                caption=f"One row a {unit} and cause. The exposure is that of the whole {unit}.",
            )
        ],
        How(
            "r_f = (NODE_FAIL + FAILED with a HIGH check) / Σ node-days" + scope,
            {
                "attempts above, GPUs": analysis.min_gpus,
                "test of the trend": analysis.trend.method,
                "p-value": analysis.trend.p_value,
                "p-value of scatter around the trend": analysis.trend.dispersion_p_value,
            },
            PAPER,
        ),
    )


def _mttf(analysis: Analysis) -> Section:
    fitted = analysis.mttf
    if fitted is None:
        return Section(
            "mttf", "How long does a job run before it fails?", "Nothing ran: there is no rate."
        )
    model = fitted.model
    by_size = analysis.mttf_all if analysis.status.attempts else fitted
    assert by_size is not None
    buckets = [
        {
            "size": bucket_label(bucket.gpus_max or 0),
            "failures": bucket.failures,
            "node_days": bucket.node_days,
            "rate": bucket.rate_per_1000_node_days,
            "low": None if bucket.ci95 is None else bucket.ci95[0],
            "high": None if bucket.ci95 is None else bucket.ci95[1],
        }
        for bucket in by_size.model.buckets_
    ]
    table = Table(
        pa.Table.from_pylist(
            buckets,
            schema=pa.schema(
                [
                    ("size", pa.string()),
                    ("failures", pa.int64()),
                    ("node_days", pa.float64()),
                    ("rate", pa.float64()),
                    ("low", pa.float64()),
                    ("high", pa.float64()),
                ]
            ),
        ),
        {
            "size": ColumnFormat("Job size", "GPUs", right=True),
            "failures": ColumnFormat("Failures"),
            "node_days": ColumnFormat("Exposure", "node-days", digits=3),
            "rate": ColumnFormat("Rate, 95 %", "per 1,000 node-days", interval=("low", "high")),
        },
        caption="One row a job size, all attempts.",
        empty="A log of node failures has no job sizes.",
    )
    return Section(
        "mttf",
        "How long does a job run before it fails?",
        by_size.model.independence_,
        [figures.mttf_by_size(by_size, fitted)] if buckets else [],
        [table],
        How(
            [
                "MTTF(N nodes) = 1 / (N · r_f)",
                "95 % interval of n failures in T node-days: "
                "[2T / χ²(0.975; 2n + 2), 2T / χ²(0.025; 2n)]",
            ],
            {
                "r_f of the line, per 1,000 node-days": round(model.rate_per_1000_node_days_, 4),
                "from attempts above, GPUs": analysis.min_gpus,
                "GPUs per node": fitted.gpus_per_node,
            },
            f"{PAPER}; Garwood 1936",
            "The line assumes that nodes fail independently and that any failure ends the job; the "
            "sentence above says whether the job sizes agree with that.",
        ),
    )


def _ettr(analysis: Analysis) -> Section:
    assumed = analysis.log.assumptions
    how = How(
        [
            "measured: ETTR = R / (Q + R + U), U = initialisation + replay + checkpoint writes",
            "expected: Δt / [(1/L + q) · e^{L·u0} · (e^{L(Δt + w)} − 1)], L = N · r_f",
        ],
        {
            "checkpoint interval Δt (assumed)": _span(assumed.checkpoint_interval_s),
            "initialisation u0 (assumed)": _span(assumed.init_s),
            "checkpoint write w (assumed)": _span(assumed.write_s),
            "queue before restarts q (measured mean)": _span(analysis.restart_wait_s[0]),
            "runs measured: at least": _span(assumed.long_run_s),
        },
        PAPER,
        "The exact form holds for failures at a constant rate, also during initialisation and writes.",
    )
    if analysis.expected_ettr is None:
        return Section(
            "ettr",
            "How much of a large run's time is productive?",
            "Nothing ran: there is no failure rate to expect an ETTR from.",
            how=how,
        )
    gpus = analysis.largest_job_nodes * analysis.log.gpus_per_node
    setting = analysis.ettr_setting
    wait, restarts = analysis.restart_wait_s
    sentence = (
        f"A job on {gpus:,} GPUs is expected to spend {analysis.expected_ettr:.1%} of its time "
        f"productively; {restarts:,} restarts after failures waited {_span(wait)} on average."
    )
    levers = pa.table(
        {
            "change": [lever.name for lever in analysis.levers],
            "ettr": [lever.ettr for lever in analysis.levers],
            "gain": [lever.ettr - analysis.expected_ettr for lever in analysis.levers],
        }
    )
    return Section(
        "ettr",
        "How much of a large run's time is productive?",
        sentence,
        [
            figures.expected_and_measured(analysis.measured, setting, analysis.log.gpus_per_node),
            figures.contours(setting, gpus),
        ],
        [
            Table(
                levers,
                {
                    "change": ColumnFormat("Change"),
                    "ettr": ColumnFormat("Expected ETTR", "%", digits=2),
                    "gain": ColumnFormat("Gain", "% points", digits=2),
                },
                caption=f"What would raise the ETTR of a job on {gpus:,} GPUs, strongest first.",
            )
        ],
        how,
    )


def _preemptions(analysis: Analysis) -> Section:
    goodput = analysis.goodput
    mix = analysis.preemption_mix
    inferred = int(mix.loc[~mix["evidence"].isin(["label", "log"]), "attempts"].sum())
    return Section(
        "preemptions",
        "Who was preempted?",
        f"{goodput.preemptions:,} attempts; {inferred:,} of them are inferred, "
        f"{goodput.preemptions_second_order:,} made room for a job that had failed before.",
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
                caption="One row a kind of evidence and recorded state, most attempts first.",
                empty="No attempt was preempted.",
            )
        ],
        How(
            [
                "log: the controller log names victim and preemptor; label: the state is PREEMPTED",
                "early_timeout: TIMEOUT before the limit; sigterm: SIGTERM reached it while a job "
                "that outranks it waited",
                "co_victim: ended with other victims of a preemptor that then took its nodes",
            ],
            {
                "grace, where the QOS does not say": _span(
                    analysis.log.assumptions.preemption_grace_s
                ),
                "slack until the preemptor starts": _span(
                    analysis.log.assumptions.preemption_slack_s
                ),
            },
            PAPER,
        ),
    )


def _status(analysis: Analysis) -> Section:
    status = analysis.status
    failed = status.table[status.table["state"] == "NODE_FAIL"]
    sentence = f"{status.attempts:,} attempts used {number(status.gpu_hours)} GPU-hours."
    if len(failed):
        sentence += (
            f" NODE_FAIL is {failed['share_by_count'].iloc[0]:.1%} of the attempts and "
            f"{failed['share_by_gpu_time'].iloc[0]:.1%} of the GPU time."
        )
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
                    "gpu_hours": ColumnFormat("GPU time", "GPU-h", digits=2),
                    "share_by_gpu_time": ColumnFormat("Share of GPU time", "%", digits=2),
                },
                caption="One row a state, most attempts first. Attempts that never started count.",
            )
        ],
    )


def _ageing(analysis: Analysis) -> Section:
    ageing = analysis.ageing
    return Section(
        "ageing",
        "Do long runs fail more often?",
        ageing.sentence,
        [figures.survival(ageing.curve)] if ageing.curve.num_rows else [],
        how=How(
            "P(no failure by t) = exp(−(t / scale)^shape); shape 1 is a constant hazard",
            {
                "shape": ageing.shape,
                "scale, hours of one node": None if ageing.scale_s is None else ageing.scale_s / 3600,
                "failures": ageing.failures,
                "lifetimes of nodes": ageing.lifetimes,
            },
            "Weibull by maximum likelihood; Kaplan and Meier 1958",
            "The other parts of this report assume a constant hazard.",
        ),
    )


def _unknowns(analysis: Analysis) -> list[Unknown]:
    facts = analysis.log.store.facts
    counts = facts.get("counts", {})
    found = []
    if facts.get("duplicates_flag") == "missing":
        found.append(
            Unknown(
                "Earlier attempts of requeued jobs are hidden: the log was written without "
                "`sacct --duplicates`. Failure rates and losses are too low by an unknown amount.",
                "Run `sacct -a -D -P --format=ALL -S START` and ingest its output.",
            )
        )
    rejected = counts.get("rejected", 0)
    if rejected:
        reasons = "; ".join(f"{row['reason']} ({row['n']:,})" for row in analysis.rejects[:3])
        found.append(
            Unknown(
                f"{rejected:,} records could not be read: {reasons}.",
                "The table `rejects` of the store has file, line and text of each.",
            )
        )
    if analysis.status.attempts and not counts.get("health_events"):
        found.append(
            Unknown(
                "No health events: no failure has a cause, and FAILED attempts that the "
                "infrastructure ended cannot be told from others.",
                "Ingest the results of health checks (JSON lines or CSV: time, node, check, severity).",
            )
        )
    none, failures = analysis.unattributed
    if none and counts.get("health_events"):
        found.append(
            Unknown(
                f"{none:,} of {failures:,} failures have no failed check near their end.",
                "Add kernel logs (XIDs), or widen the window with --check-before.",
            )
        )
    if not analysis.goodput.failures and analysis.status.attempts:
        upper = "" if analysis.mttf is None else f" The rate is at most " \
            f"{number(analysis.mttf.model.ci95_[1])} per 1,000 node-days (95 %)."
        found.append(Unknown(f"The log shows no infrastructure failure.{upper}"))
    if analysis.min_gpus != analysis.log.assumptions.min_gpus:
        found.append(
            Unknown(
                f"No attempt used more than {analysis.log.assumptions.min_gpus:,} GPUs, so the failure "
                "rate is taken over all attempts.",
                "Set the threshold with --min-gpus.",
            )
        )
    if not analysis.measured.runs and analysis.status.attempts:
        found.append(
            Unknown(
                f"No run spent {_span(analysis.log.assumptions.long_run_s)} on its nodes, so no ETTR "
                "was measured.",
                "Shorten the threshold with --long-run.",
            )
        )
    found += [Unknown(sentence) for sentence in facts.get("inferred", [])]
    return found


def _span(seconds: float) -> str:
    """A length of time for people."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{number(seconds / size, 0 if seconds % size == 0 else 1)} {unit}"
    return f"{number(seconds, 0 if seconds % 1 == 0 else 1)} s"


def _moment(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(float(epoch_s), UTC)
