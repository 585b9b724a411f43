"""What a log did not allow to tell, and what would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.log import KNOWABLE
from holdfast.fleet.outage_log import all_nodes_known
from holdfast.numbers import counted, duration
from holdfast.report import Unknown


def unknowns(analysis: Analysis) -> list[Unknown]:
    """The gaps of the log, those that matter most first."""
    facts = analysis.log.store.facts
    return [
        *_hidden_attempts(facts),
        *_rejects(analysis, facts),
        *_columns(analysis),
        *_clocks(analysis),
        *_causes(analysis, facts),
        *_exposure(analysis),
        *_sizes(analysis),
        *_long_runs(analysis),
        *(Unknown(sentence) for sentence in facts.get("inferred", [])),
    ]


def _hidden_attempts(facts: Mapping[str, Any]) -> Iterator[Unknown]:
    if facts.get("duplicates_flag") == "missing":
        yield Unknown(
            "Earlier attempts of requeued jobs are hidden: the log was written without sacct "
            "--duplicates. Failure rates and losses are too low by an unknown amount.",
            "Run sacct -a -D -P --format=ALL -S START and ingest its output.",
        )


def _rejects(analysis: Analysis, facts: Mapping[str, Any]) -> Iterator[Unknown]:
    rejected = facts.get("counts", {}).get("rejected", 0)
    if rejected:
        reasons = "; ".join(f"{row['reason']} ({row['n']:,})" for row in analysis.rejects[:3])
        yield Unknown(
            f"{counted(rejected, 'record')} could not be read: {reasons}.",
            "The table rejects of the store has file, line and text of each.",
        )


def _columns(analysis: Analysis) -> Iterator[Unknown]:
    """Columns whose absence changes an answer."""
    sources = analysis.log.store.facts["sources"]
    if broken := sum(each.get("facts", {}).get("unreadable_node_lists", 0) for each in sources):
        yield Unknown(
            f"{counted(broken, 'node list')} could not be read (cut off, or of over a million nodes): "
            "those attempts have no nodes.",
            "Export with sacct --parsable2, which does not cut columns off.",
        )
    missing = analysis.log.unknown_columns
    for column, (name, consequence) in KNOWABLE.items():
        if n := missing[column]:
            of = (
                "" if n == missing["ran"] else f" for {n:,} of {counted(missing['ran'], 'attempt')}"
            )
            yield Unknown(
                f"{name} is not in the log{of}: {consequence}.", f"Add {name} to sacct --format."
            )


def _clocks(analysis: Analysis) -> Iterator[Unknown]:
    lag = analysis.clock_lag
    if lag is not None:
        hours = -lag.lag_s / 3600
        example = f" (for example Etc/GMT{-hours:+.0f})" if hours.is_integer() else ""
        yield Unknown(
            f"The clocks of jobs and health events differ by about {abs(hours):g} h: "
            f"{lag.matched:,} of {counted(lag.failures, 'failure')} have a failed check "
            f"{abs(hours):g} h {'earlier' if hours > 0 else 'later'}, {lag.matched_now:,} at their end.",
            "sacct prints local time: ingest into a new store with --timezone ZONE, likely one at "
            f"UTC{hours:+g}{example}.",
        )


def _causes(analysis: Analysis, facts: Mapping[str, Any]) -> Iterator[Unknown]:
    if not analysis.status.attempts:
        return
    if not facts.get("counts", {}).get("health_events"):
        yield Unknown(
            "No health events: no failure has a cause, and FAILED attempts that the infrastructure "
            "ended cannot be told from others.",
            "Ingest the results of health checks (JSON lines or CSV: time, node, check, severity).",
        )
        return
    none, failures = analysis.unattributed
    if none:
        yield Unknown(
            f"{none:,} of {counted(failures, 'failure')} have no failed check near their end.",
            "Add kernel logs (XIDs), or widen the window with --check-before.",
        )


def _exposure(analysis: Analysis) -> Iterator[Unknown]:
    if analysis.outages is not None and not all_nodes_known(analysis.log):
        yield Unknown(
            "Nodes that never failed are not in the log, so the failure rate is too high.",
            "Ingest an inventory, or state the number of nodes with ingest --nodes.",
        )


def _sizes(analysis: Analysis) -> Iterator[Unknown]:
    threshold = analysis.log.assumptions.min_gpus
    if analysis.status.attempts and analysis.min_gpus != threshold:
        yield Unknown(
            f"No attempt used more than {threshold:,} GPUs, so the failure rate is taken over all "
            "attempts.",
            "Set the threshold with --min-gpus.",
        )


def _long_runs(analysis: Analysis) -> Iterator[Unknown]:
    if analysis.status.attempts and not analysis.measured.runs:
        yield Unknown(
            f"No run spent {duration(analysis.log.assumptions.long_run_s)} on its nodes, so no ETTR "
            "was measured.",
            "Shorten the threshold with --long-run.",
        )
