"""The fleet report: findings for people in a hurry, and every figure behind them on one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.answer import Answer, Finding, Page, Section, Tile, Unknown, Value
from holdfast.fleet import ettr_outlook, gaps, timeline
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import clock_lag
from holdfast.fleet.ettr_forms import expected_ettr
from holdfast.fleet.failures import BEYOND, Mttf
from holdfast.fleet.gaps import gap
from holdfast.fleet.log import AnyLog, open_log
from holdfast.fleet.moments import iso, minute
from holdfast.fleet.wording import (
    RATE_UNIT,
    brief_interval,
    duration_interval,
    ettr_settings,
    how,
    listed,
    size,
)
from holdfast.numbers import brief, counted, duration, percent
from holdfast.report import warm_up, write
from holdfast.report.page import Trend

# The questions of an operator, in the order of their value
ORDER = (
    *("loss", "lemons", "loops", "causes", "rate", "mttf", "ettr"),
    *("owners", "preemptions", "status"),
)
FINDINGS = ("loss", "lemons", "loops", "causes", "rate", "ettr")  # Those whose answers are findings
PROJECTED_NODES = (1, 16, 128, 1024, 2048, 16_384)


@dataclass(frozen=True)
class FleetReport(Answer):
    """The morning summary of a fleet and the results behind it."""

    analysis: Analysis
    html: Path | None = None  # Where the page is; None if none was asked for

    @property
    def title(self) -> str:
        """What `holdfast diff` compares: reports of any two fleets."""
        return "Fleet report"

    def page(self) -> Page:
        """The page, with the fleet's name."""
        name = self.analysis.log.store.facts.get("cluster")
        page = super().page()
        return replace(page, title=f"{page.title}: {name}") if name else page

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet report``."""
        analysis = self.analysis
        log = analysis.log
        lag = clock_lag(log)
        return {
            "since": iso(log.begin_s),
            "until": iso(log.end_s),
            "findings": [" ".join((f.lead, f.text)).strip() for f in self.findings()],
            "status": analysis.status.to_dict(),
            "goodput": analysis.goodput.to_dict(),
            "mttf": None if analysis.mttf is None else analysis.mttf.to_dict(),
            "trend": analysis.trend.to_dict(),
            "nodes_known": log.nodes_known,
            "lemons": analysis.lemons.lemons if log.nodes_known else None,
            "clock_lag_s": lag and lag.lag_s,
            "unknown": [" ".join((u.text, u.remedy)).strip() for u in self.unknowns()],
            "ettr": {
                "expected": analysis.expected_ettr,
                "measured": analysis.measured.to_dict(),
                "levers": [{"change": v.name, "ettr": v.ettr} for v in analysis.levers],
            },
            "duplicates_flag": log.store.facts.get("duplicates_flag"),
            "assumptions": {
                **log.assumptions.to_dict(),
                "init_s": log.init_s,  # as used
            },
            "html": None if self.html is None else str(self.html),
        }

    def values(self) -> Sequence[Value]:
        """Losses, the failure rate, lemon nodes and the measured ETTR."""
        analysis = self.analysis
        none, failures = analysis.unattributed
        share = none / failures if failures else None
        return [
            *analysis.goodput.values(),
            *([] if analysis.mttf is None else analysis.mttf.values()),
            *(analysis.lemons.values() if analysis.log.nodes_known else []),
            Value("unattributed_share", share, better="lower", how="failures without a check"),
            *analysis.measured.values(),
        ]

    # What the page and the terminal show.

    def sections(self) -> Sequence[Section]:
        """The questions of an operator, in the order of their value."""
        return self._sections

    @cached_property
    def _sections(self) -> list[Section]:
        analysis = self.analysis
        if analysis.outages is not None and analysis.mttf is not None:
            return [analysis.outages.section(), self._rate(analysis.mttf), self._mttf()]
        if not analysis.status.attempts:
            return []
        sections = [
            *analysis.goodput.sections(),
            *analysis.lemons.sections(),
            self._rate(analysis.mttf),
            self._mttf(),
            ettr_outlook.section(analysis),
            *analysis.status.sections(),
        ]
        return sorted(sections, key=lambda section: ORDER.index(section.id))

    def _rate(self, fitted: Mttf | None) -> Section:
        analysis = self.analysis
        frame, unit = analysis.over_time
        if fitted is None:
            text = "Nothing ran, so there is no failure rate."
        elif fitted.blind:
            text = f"{fitted.rate_text()}."
        else:
            text = f"{fitted.rate_text()}; {self._between_failures(fitted)}."
        if analysis.trend.failures:
            text += f" {timeline.drift(analysis.trend)}"
            if new := len(analysis.new_checks):
                text += (
                    f" {counted(new, 'health check')} {'was' if new == 1 else 'were'} introduced during "
                    "this period; a jump at that time reflects better detection, not more failures."
                )
        parameters = {
            "attempts above, GPUs": analysis.min_gpus,
            "test of the trend": analysis.trend.method,
            "p-value": brief(analysis.trend.p_value),
            "p-value of scatter around the trend": brief(analysis.trend.dispersion_p_value),
        }
        computed = how("rate" if analysis.outages is None else "outage_rate", parameters)
        return timeline.section(text, frame, unit, analysis.new_checks, computed)

    def _between_failures(self, fitted: Mttf) -> str:
        """What the rate means for the largest job: "a job on 128 GPUs fails every ... [...]"."""
        value, low, high = self._largest_job_mttf(fitted)
        job = f"a job on {size(self.analysis, self.analysis.reference_nodes)}"
        if value is None:
            return f"{job} runs at least {duration(low)} between failures"
        return f"{job} fails every {duration(value)} {duration_interval(low, high)}"

    def _largest_job_mttf(self, fitted: Mttf) -> tuple[float | None, ...]:
        """Seconds: value, low, high."""
        gpus = self.analysis.reference_nodes * fitted.gpus_per_node
        hours = fitted.model.mttf_hours(gpus, fitted.gpus_per_node)
        return tuple(None if each is None else 3600 * each for each in hours)

    def _mttf(self) -> Section:
        fitted = self.analysis.mttf
        by_size = self.analysis.mttf_all
        if fitted is None:
            return Section(
                "mttf", "How long does a job run before it fails?", "Nothing ran: there is no rate."
            )
        largest = self.analysis.reference_nodes
        nodes = {each for each in PROJECTED_NODES if each <= BEYOND * largest} | {largest}
        return fitted.section(
            (by_size or fitted).model,
            [each * fitted.gpus_per_node for each in sorted(nodes)],
            largest=largest * fitted.gpus_per_node,
            in_nodes=self.analysis.without_gpus,
        )

    def findings(self) -> Sequence[Finding]:
        """Three to seven sentences, the most valuable first."""
        if not self.sections():
            return [Finding(self._nothing())]
        sections = [each for each in self.sections() if each.id in FINDINGS]
        return [Finding(each.sentence, each.id) for each in sections if self._tells(each)]

    def _tells(self, section: Section) -> bool:
        """Whether the answer is news: nothing loops, fails or is lost in a log without failures."""
        if section.id == "loops":
            return len(self.analysis.goodput.crash_loops) > 0
        quiet = self.analysis.outages is None and not self.analysis.goodput.failures
        return not (quiet and section.id in ("causes", "ettr")) and (
            section.id != "rate" or self.analysis.mttf is not None
        )

    def _nothing(self) -> str:
        log = self.analysis.log
        if log.count("attempts"):
            return (
                f"No attempt was alive after {minute(log.begin_s)}: the log ends {minute(log.end_s)}. "
                "Choose an earlier start with --since."
            )
        return "No attempt in it: ingest a scheduler log, or a log of node failures."

    def tiles(self) -> Sequence[Tile]:
        """At most six figures."""
        return list(self._tiles())

    def _tiles(self) -> Iterator[Tile]:
        analysis = self.analysis
        goodput, outages, lost = analysis.goodput, analysis.outages, analysis.goodput.lost_hours
        ran = bool(analysis.status.attempts)
        if outages is not None:
            failed = {row["node"] for row in outages.rows}
            note = f"on {len(failed):,} of {counted(outages.nodes, 'node')}"
            yield Tile("Node failures", f"{len(outages.rows):,}", note=note, section_id="causes")
        elif ran and (goodput.verdict == "unknown" or not goodput.total_hours):
            yield Tile("Lost to failures", "unknown", section_id="loss")
        elif ran:
            note = f"{percent(lost / goodput.total_hours)} of {brief(goodput.total_hours)}"
            yield Tile("Lost to failures", brief(lost), goodput.unit, note=note, section_id="loss")
        if analysis.mttf is not None and self.sections():
            yield from self._rate_tiles(analysis.mttf)
        if not ran:
            return
        named = analysis.lemons.lemons
        count, of, note = "unknown", "", "too little to tell"
        if analysis.lemons.verdict != "unknown":
            count = f"{len(named):,}"
            of = f"of {analysis.log.count('nodes'):,}"
            note = listed(named, 3) if named else ""
        yield Tile("Lemon nodes", count, of, note=note, section_id="lemons")
        none, failures = analysis.unattributed
        share = percent(none / failures) if failures else "–"
        note = f"{none:,} of {failures:,}" if failures else "no failures"
        yield Tile("Failures without a cause", share, note=note, section_id="causes")
        if analysis.expected_ettr is not None and analysis.mttf is not None:
            value = percent(expected_ettr(**ettr_settings(analysis)[0]), 1)
            value = value if analysis.mttf.model.failures_ else f"≥ {value}"
            note = f"measured {analysis.measured.largest_text()}"
            yield Tile(
                f"Expected ETTR at {size(analysis, analysis.largest_job_nodes)}",
                value,
                note=note,
                section_id="ettr",
            )

    def _rate_tiles(self, fitted: Mttf) -> Iterator[Tile]:
        if fitted.blind:
            yield Tile("Failure rate", "unknown", section_id="rate")
            return
        model = fitted.model
        drift = self.analysis.trend
        value, low, high = self._largest_job_mttf(fitted)
        words: dict[str, Trend] = {"rises": "rising", "falls": "falling", "none": "steady"}
        trend = words.get(drift.verdict)
        text = f"≤ {brief(model.ci95_[1])}"
        interval = "at 95 %"
        if model.failures_:
            text = brief(model.rate_per_1000_node_days_)
            interval = f"{brief_interval(*model.ci95_)} at 95 %"
        yield Tile("Failure rate", text, RATE_UNIT, interval, trend=trend, section_id="rate")
        at = f"MTTF at {size(self.analysis, self.analysis.reference_nodes)}"
        text = f"≥ {duration(low)}"
        interval = "at 95 %"
        if value is not None:
            text = duration(value)
            interval = f"{duration_interval(low, high)} at 95 %"
        yield Tile(at, text, interval=interval, section_id="mttf")

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Time range, sources, rows used and set aside."""
        log = self.analysis.log
        facts = self.analysis.log.store.facts
        counts = facts.get("counts", {})
        rejected = counts.get("rejected", 0)
        sources = [f"{Path(s['path']).name} ({s['format']})" for s in facts["sources"]]
        rows = ("Attempts", _attempts(counts))
        if self.analysis.outages is not None:
            rows = ("Node outages", f"{log.count('node_outages'):,}")
        aside = f"{counted(rejected, 'record')} that could not be read" if rejected else "none"
        events = ("Health events", f"{counts.get('health_events', 0):,}")
        first = [("Window", self._window()), ("Sources", listed(sources)), rows]
        return [*first, ("Set aside", aside), events]

    def _window(self) -> str:
        log = self.analysis.log
        outages = self.analysis.outages
        begin = minute(log.begin_s)
        end = minute(log.end_s)
        if log.begin_s > log.end_s:
            return f"after {begin}; the log ends {end}"
        nodes = log.count("nodes") if outages is None else outages.nodes
        return f"{begin} to {end}, {counted(nodes, 'node')}"

    def unknowns(self) -> Sequence[Unknown]:
        """The gaps of the log, those that matter most first."""
        log = self.analysis.log
        known = [Unknown(sentence) for sentence in log.store.facts.get("inferred", [])]
        return [
            *gaps.doubts(log),
            *self._unread(),
            *gaps.missing_columns(log),
            *self._thresholds(),
            *known,
        ]

    def _unread(self) -> Iterator[Unknown]:
        """Records and node lists that could not be read."""
        facts = self.analysis.log.store.facts
        if rejected := facts.get("counts", {}).get("rejected", 0):
            reasons = "; ".join(f"{r['reason']} ({r['n']:,})" for r in self.analysis.rejects[:3])
            yield gap("rejected", records=counted(rejected, "record"), reasons=reasons)
        of_sources = [each.get("facts", {}) for each in facts["sources"]]
        if broken := sum(each.get("unreadable_node_lists", 0) for each in of_sources):
            yield gap("node_lists", lists=counted(broken, "node list"))

    def _thresholds(self) -> Iterator[Unknown]:
        """What the log has too little of."""
        analysis = self.analysis
        log = analysis.log
        assumed = analysis.log.assumptions
        if not analysis.status.attempts:
            return
        none, failures = analysis.unattributed
        if not log.store.facts.get("counts", {}).get("health_events"):
            yield gap("no_health_events")
        elif none:
            yield gap("no_check", none=f"{none:,}", failures=counted(failures, "failure"))
        if analysis.min_gpus != assumed.min_gpus:
            yield gap("small_attempts", gpus=f"{assumed.min_gpus:,}")
        if not analysis.measured.runs:
            yield gap("no_long_run", time=duration(assumed.long_run_s))


def _attempts(counts: dict[str, int]) -> str:
    recovered = counts.get("attempts_recovered")
    return f"{counts.get('attempts', 0):,} of {counted(counts.get('jobs', 0), 'job')}" + (
        f", {recovered:,} of them recovered from steps" if recovered else ""
    )


def report(log: AnyLog, *, html: str | Path | None = None) -> FleetReport:
    """Summarise a fleet's log, and write the page with every figure if asked.

    Args:
        log: a store or an open log.
        html: file to write the page to.

    Returns:
        The findings, the results behind them, and where the page is.
    """
    if html is not None:
        warm_up()
    answer = FleetReport(Analysis(open_log(log)))
    answer.sections()  # a damaged store is an error of this call, not of the first look at its result
    return answer if html is None else FleetReport(answer.analysis, write(answer.page(), html))
