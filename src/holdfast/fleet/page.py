"""The fleet report: findings for people in a hurry, and every figure behind them on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.fleet import model_sections, sections
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.moments import iso, minute
from holdfast.fleet.store import Store
from holdfast.fleet.summary import findings
from holdfast.fleet.tiles import tiles
from holdfast.fleet.unknowns import unknowns
from holdfast.numbers import counted
from holdfast.report import Finding, Page, Section, warm_up, write
from holdfast.report.html import UNKNOWN

MOST_SOURCES = 12


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
            "nodes_known": analysis.nodes_known,
            "lemons": analysis.lemons.lemons if analysis.nodes_known else None,
            "clock_lag_s": None if analysis.clock_lag is None else analysis.clock_lag.lag_s,
            "unknown": [" ".join((u.text, u.remedy)).strip() for u in unknowns(analysis)],
            "ettr": {
                "expected": analysis.expected_ettr,
                "measured": analysis.measured.to_dict(),
                "levers": [{"change": v.name, "ettr": v.ettr} for v in analysis.levers],
            },
            "duplicates_flag": analysis.log.store.facts.get("duplicates_flag"),
            "assumptions": {
                **analysis.log.assumptions.to_dict(),
                "init_s": analysis.log.init_s,  # as used
            },
            "html": None if self.html is None else str(self.html),
        }


def report(log: str | Path | Store | FleetLog, *, html: str | Path | None = None) -> FleetReport:
    """Summarise a fleet's log, and write the page with every figure if asked.

    Args:
        log: a store or an open log.
        html: file to write the page to.

    Returns:
        The findings, the results behind them, and where the page is.
    """
    if html is not None:
        warm_up()
    log = open_log(log)
    analysis = Analysis(log)
    found = findings(analysis)
    path = None if html is None else write(page(analysis, found), html)
    return FleetReport(found, analysis, path)


def page(analysis: Analysis, found: Sequence[Finding]) -> Page:
    """The page of a fleet report."""
    shown = _sections(analysis)
    gaps = unknowns(analysis)
    here = {section.id for section in shown} | ({UNKNOWN} if gaps else set())
    name = analysis.log.store.facts.get("cluster")
    return Page(
        title=f"Fleet report: {name}" if name else "Fleet report",
        subtitle=_subtitle(analysis),
        inputs=_inputs(analysis),
        findings=[f if f.section_id in here else replace(f, section_id=None) for f in found],
        tiles=tiles(analysis),
        sections=shown,
        unknowns=gaps,
        footer=f"holdfast {__version__}",
    )


def _sections(analysis: Analysis) -> list[Section]:
    """The questions of an operator, in the order of their value."""
    if analysis.outages is not None and analysis.mttf is not None:
        return [
            sections.outages(analysis),
            model_sections.rate(analysis),
            model_sections.mttf(analysis),
        ]
    if not analysis.status.attempts:
        return []
    looped = [sections.loops(analysis)] if analysis.timeline_job else []
    return [
        sections.loss(analysis),
        sections.lemons(analysis),
        *looped,
        sections.causes(analysis),
        model_sections.rate(analysis),
        model_sections.mttf(analysis),
        model_sections.ettr(analysis),
        sections.preemptions(analysis),
        sections.states(analysis),
    ]


def _subtitle(analysis: Analysis) -> str:
    log = analysis.log
    begin, end = minute(log.begin_s), minute(log.end_s)
    if log.begin_s > log.end_s:
        return f"after {begin}; the log ends {end}"
    nodes = log.count("nodes") if analysis.outages is None else analysis.outages.nodes
    return f"{begin} to {end}, {counted(nodes, 'node')}"


def _inputs(analysis: Analysis) -> list[tuple[str, str]]:
    facts = analysis.log.store.facts
    counts = facts.get("counts", {})
    sources = [f"{Path(each['path']).name} ({each['format']})" for each in facts["sources"]]
    more = f" and {len(sources) - MOST_SOURCES:,} more" if len(sources) > MOST_SOURCES else ""
    rejected = counts.get("rejected", 0)
    what = ("Attempts", _attempts(counts))
    if analysis.outages is not None:
        what = ("Node outages", f"{analysis.log.count('node_outages'):,}")
    rows = [
        ("Sources", ", ".join(sources[:MOST_SOURCES]) + more),
        what,
        (
            "Set aside",
            f"{counted(rejected, 'record')} that could not be read" if rejected else "none",
        ),
        ("Health events", f"{counts.get('health_events', 0):,}"),
    ]
    if counts.get("attempts"):
        flag = {
            "present": "in the log (sacct --duplicates)",
            "missing": "HIDDEN: sacct ran without --duplicates",
        }
        unknown = "cannot be told: no job was requeued"
        rows.append(("Earlier attempts", flag.get(facts.get("duplicates_flag", ""), unknown)))
    return rows


def _attempts(counts: dict[str, int]) -> str:
    text = f"{counts.get('attempts', 0):,} of {counted(counts.get('jobs', 0), 'job')}"
    recovered = counts.get("attempts_recovered")
    return text + (f", {recovered:,} of them recovered from steps" if recovered else "")
