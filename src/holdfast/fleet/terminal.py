"""How the results of the fleet room read in a terminal: one screen each, `--json` for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.fleet.job_sizes import bucket_label
from holdfast.numbers import duration, interval, number, percent
from holdfast.report.terminal import table

if TYPE_CHECKING:
    from holdfast.fleet.attribution import Attribution
    from holdfast.fleet.ettr_forms import EttrResult
    from holdfast.fleet.ettr_solve import SolveResult
    from holdfast.fleet.failures import Mttf
    from holdfast.fleet.ingestion import IngestResult
    from holdfast.fleet.losses import Goodput
    from holdfast.fleet.node_ranking import Lemons
    from holdfast.fleet.page import FleetReport
    from holdfast.fleet.state_mix import Status

MOST_ROWS = 15
MOST_FINDINGS = 5
MOST_NAMES = 12
MOST_LOSSES = 10
"""Causes, and crash loops: they share a screen."""
INFINITY = float("inf")
_UNCOUNTED = (
    "Nodes that never failed are not counted, so the rate is too high: ingest an inventory, or state "
    "the total with `ingest --nodes N`."
)


def ingested(result: IngestResult) -> RenderableType:
    """What a store holds now, and what a reader must know about it."""
    rows = [
        ("attempts", f"{result.attempts:,}"),
        ("  recovered from steps", f"{result.attempts_recovered:,}"),
        ("jobs", f"{result.jobs:,}"),
        ("steps skipped", f"{result.steps_skipped:,}"),
        ("records set aside", f"{result.rejected:,}"),
        ("nodes", f"{result.nodes:,}"),
        ("health events", f"{result.health_events:,}"),
        ("node outages", f"{result.node_outages:,}"),
        ("  duplicates merged", f"{result.node_outages_merged:,}"),
    ]
    parts: list[RenderableType] = [table({"in the store": "left", "": "right"}, rows)]
    if result.time_range:
        parts.append(Text(f"from {result.time_range[0]} to {result.time_range[1]}"))
    if result.duplicates_flag == "missing":
        parts.append(
            Text(
                "WARNING: this log was written without `sacct -D`: earlier attempts of requeued jobs, "
                "and with them most node failures, are missing. Export again with -D.",
                style="bold red",
            )
        )
    if result.already_known:
        parts.append(Text(f"ingested before, skipped: {_names(result.already_known)}"))
    if result.not_recognised:
        parts.append(Text(f"no known format, skipped: {_names(result.not_recognised)}"))
    if result.unreadable:
        parts.append(
            Text(f"cannot be read, skipped: {_names(result.unreadable)}", style="bold red")
        )
    parts += [Text(sentence) for sentence in result.inferred]
    return Group(*parts)


def reported(result: FleetReport) -> RenderableType:
    """The morning summary: the most important findings."""
    lines: list[RenderableType] = []
    for place, finding in enumerate(result.findings[:MOST_FINDINGS], 1):
        line = Text(f"{place}. ")
        line.append(finding.lead, style="bold")
        lines.append(line.append(f"{' ' if finding.lead else ''}{finding.text}"))
    more = len(result.findings) - MOST_FINDINGS
    if more > 0:
        lines.append(Text(f"({more} more on the page, or with --json)"))
    return Group(*lines)


def status(result: Status) -> RenderableType:
    """The status mix."""
    rows = [
        (
            row["state"],
            f"{row['attempts']:,}",
            f"{100 * row['share_by_count']:.2f}",
            number(row["gpu_hours"], 2),
            f"{100 * row['share_by_gpu_time']:.2f}",
        )
        for row in result.table.to_pylist()
    ]
    return table(
        {
            "state": "left",
            "attempts": "right",
            "share (%)": "right",
            "GPU-hours": "right",
            "share of GPU time (%)": "right",
        },
        rows,
    )


def mttf(result: Mttf) -> RenderableType:
    """The failure rate, overall and by job size, and projections."""
    model = result.model
    scope = f"attempts above {result.min_gpus:,} GPUs" if result.min_gpus else "all attempts"
    if result.source == "node_outages":
        scope = "a log of node failures"
    parts: list[RenderableType] = [
        *([] if result.nodes_known else [Text(_UNCOUNTED, style="bold red")]),
        Text(
            f"{number(model.rate_per_1000_node_days_)} failures per 1,000 node-days "
            f"{interval(*model.ci95_)} at 95 %: {model.failures_:,} in "
            f"{number(model.node_days_)} node-days, {scope}"
        ),
    ]
    if model.buckets_:
        rows = [
            (
                bucket_label(bucket.gpus_max or 0),
                f"{bucket.failures:,}",
                number(bucket.node_days),
                number(bucket.rate_per_1000_node_days),
                "" if bucket.ci95 is None else interval(*bucket.ci95),
            )
            for bucket in model.buckets_
        ]
        parts.append(
            table(
                {
                    "GPUs": "right",
                    "failures": "right",
                    "node-days": "right",
                    "per 1,000 node-days": "right",
                    "95 %": "left",
                },
                rows,
            )
        )
        parts.append(Text(model.independence_))
    if result.project:
        projected = []
        for gpus in result.project:
            value, low, high = model.mttf_hours(gpus, result.gpus_per_node)
            projected.append(
                (f"{gpus:,}", number(value), interval(low, INFINITY if high is None else high))
            )
        parts.append(table({"GPUs": "right", "MTTF (hours)": "right", "95 %": "left"}, projected))
    return Group(*parts)


def ettr(result: EttrResult) -> RenderableType:
    """Every form of the expected ETTR and the best interval."""
    facts: dict[str, Any] = result.to_dict()
    rows = [
        ("exact", _share(facts["exact"])),
        ("full (first order)", _share(facts["full"])),
        ("v2 (the paper's approximation)", _share(facts["v2"])),
        ("best checkpoint interval (min)", number(facts["optimal_checkpoint_minutes"])),
        ("  ETTR with it", _share(facts["optimal_ettr"])),
        ("Young's interval (min)", number(facts["young_checkpoint_minutes"])),
    ]
    if result.exact_finite is not None:
        rows.insert(1, ("exact, for this productive time", _share(result.exact_finite)))
    if result.monte_carlo is not None:
        simulated = result.monte_carlo
        rows.insert(
            1, ("Monte Carlo", f"{_share(simulated.ettr)} ± {number(simulated.standard_error, 5)}")
        )
    p = result.parameters
    assumed = (
        f"assumed: {number(p.nodes, 0)} nodes, {number(p.rate_per_node_day)} failures per node-day, "
        f"checkpoint every {duration(p.checkpoint_interval_s)} taking {duration(p.write_s)}, "
        f"initialisation {duration(p.init_s)}, queue {duration(p.queue_s)}"
    )
    notes = [Text(note) for note in result.notes]
    return Group(table({"": "left", "expected": "right"}, rows), Text(assumed), *notes)


def solved(result: SolveResult) -> RenderableType:
    """The range of one parameter that reaches the target."""
    unit = result.unit
    high = "without limit" if result.high is None else f"{number(result.high)} {unit}"
    best = "no best interval without failures or a write time (--write); in the limit"
    if result.best is not None:
        best = f"best at {number(result.best)} {unit}"
    return Text(
        f"ETTR ≥ {result.target:g} ({result.form}) for {result.solved_for} from "
        f"{number(result.low)} to {high}; {best}: "
        f"{_share(result.best_ettr)}"
    )


def goodput(result: Goodput) -> RenderableType:
    """What failures cost."""
    share = result.lost_gpu_hours / result.total_gpu_hours if result.total_gpu_hours else 0.0
    head = Text(
        f"{number(result.lost_gpu_hours)} of {number(result.total_gpu_hours)} GPU-hours lost "
        f"({percent(share)}): {number(result.lost_first_order)} in {result.failures:,} failures, "
        f"{number(result.lost_second_order)} in {result.preemptions_second_order:,} preemptions by "
        "jobs that had failed"
    )
    causes = table(
        {
            "likeliest cause": "left",
            "failures": "right",
            "lost, 1st order": "right",
            "lost, 2nd order": "right",
        },
        [
            (
                row["cause"],
                f"{row['failures']:,}",
                number(row["first_order"], 2),
                number(row["second_order"], 2),
            )
            for row in result.by_cause.slice(0, MOST_LOSSES).to_pylist()
        ],
        caption="GPU-hours",
    )
    parts: list[RenderableType] = [head, causes]
    if len(result.crash_loops):
        parts.append(
            table(
                {
                    "crash loop": "left",
                    "GPUs": "right",
                    "requeues": "right",
                    "preempted": "right",
                    "GPU-hours lost": "right",
                },
                [
                    (
                        row["job_id"],
                        number(row["gpus"], 0),
                        f"{row['requeues']:,}",
                        f"{row['preempted']:,}",
                        number(row["gpu_hours_lost"], 2),
                    )
                    for row in result.crash_loops.slice(0, MOST_LOSSES).to_pylist()
                ],
            )
        )
    return Group(*parts)


def lemons(result: Lemons, verbose: bool = False) -> RenderableType:
    """The nodes, worst first."""
    rows = [
        (
            row["node"],
            number(row["failures"], 1),
            number(row["node_days"]),
            number(row["shrunk_rate"]),
            interval(row["shrunk_rate_low"], row["shrunk_rate_high"]),
            number(row["q_value"], 3),
        )
        for row in result.nodes.slice(0, None if verbose else MOST_ROWS).to_pylist()
    ]
    by_rule = _names(result.detector.rule_lemons_)
    if result.detector.missing_signals_:
        by_rule = "unknown: a log of node failures has none of them"
    return Group(
        *([] if result.nodes_known else [Text(_UNCOUNTED, style="bold red")]),
        Text(
            f"lemons at a false discovery rate of {100 * result.detector.alpha:g} %: "
            f"{_names(result.lemons)}"
        ),
        *[
            Text(f"not separable, failed in the same jobs: {_names(group)}", style="bold yellow")
            for group in result.not_separable[:MOST_ROWS]
        ],
        Text(f"nodes that meet the rule on seven signals: {by_rule}"),
        table(
            {
                "node": "left",
                "failures": "right",
                "node-days": "right",
                "shrunk rate per 1,000 node-days": "right",
                "95 %": "left",
                "q": "right",
            },
            rows,
        ),
    )


def attributed(result: Attribution) -> RenderableType:
    """The attempts of a job with the checks that explain them."""
    rows = []
    for attempt in result.attempts[-MOST_ROWS:]:
        causes = attempt["causes"]
        said = (
            f"{causes[0]['check']} on {causes[0]['node']} at {causes[0]['offset_s']:+.0f} s "
            f"({causes[0]['severity']}; {', '.join(causes[0]['domains'])})"
            if causes
            else "unattributed"
            if attempt["infrastructure"]
            else ""
        )
        more = f" + {len(causes) - 1} more" if len(causes) > 1 else ""
        rows.append(
            (
                attempt["attempt"],
                attempt["state"],
                attempt["end"] or "",
                len(attempt["nodes"]),
                _names(attempt["failed_nodes"], none=""),
                said + more,
            )
        )
    hidden = len(result.attempts) - len(rows)
    left_out = f" (the last {len(rows)} attempts; --json has {hidden:,} more)" if hidden else ""
    return table(
        {
            "attempt": "right",
            "state": "left",
            "end (UTC)": "left",
            "nodes": "right",
            "failed node": "left",
            "likeliest cause": "left",
        },
        rows,
        title=f"Job {result.job_id}{left_out}",
    )


def _names(names: Sequence[str], none: str = "none") -> str:
    """The first names of a list that may be long."""
    more = len(names) - MOST_NAMES
    return (", ".join(names[:MOST_NAMES]) or none) + (f" and {more:,} more" if more > 0 else "")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
