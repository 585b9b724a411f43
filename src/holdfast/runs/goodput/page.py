"""The report of a run: findings for people in a hurry, and every figure behind them on one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.fleet.moments import minute
from holdfast.numbers import counted
from holdfast.report import Finding, Page, Section, Unknown, warm_up, write
from holdfast.runs.goodput.accounting import Breakdown, account
from holdfast.runs.goodput.findings import findings, tiles
from holdfast.runs.goodput.ledger import Ledger, keep_books
from holdfast.runs.goodput.wording import rate_source, rate_text
from holdfast.runs.recording.events import RecordedRun
from holdfast.runs.recording.reading import read_run

MOST_REASONS = 3


@dataclass(frozen=True)
class RunReport:
    """The summary of a run and the breakdown behind it."""

    breakdown: Breakdown
    findings: list[Finding]
    """Three to seven sentences, the most valuable first."""
    html: Path | None
    """Where the page is; None if none was asked for."""
    page: Callable[[], Page] = field(repr=False, compare=False)
    """Makes the page."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs report``."""
        return {
            **self.breakdown.to_dict(),
            "findings": [" ".join((each.lead, each.text)).strip() for each in self.findings],
            "html": None if self.html is None else str(self.html),
        }


def report(
    run: RecordedRun | Path | str,
    run_id: str | None = None,
    *,
    html: str | Path | None = None,
    rate_per_node_day: float | None = None,
    fleet: str | Path | None = None,
    window_s: float | None = None,
    now_s: float | None = None,
) -> RunReport:
    """Summarise a run, and write the page with every figure if asked.

    Args:
        run: what `read_run` gave, or the folder that `RunRecorder` was given.
        run_id: which run, where the folder holds several.
        html: file to write the page to.
        rate_per_node_day: as `breakdown`.
        fleet: as `breakdown`.
        window_s: as `breakdown`.
        now_s: as `breakdown`.

    Returns:
        The findings, the breakdown, and where the page is.

    Raises:
        InputError: no such run, a rate that is invalid.
    """
    if html is not None:
        warm_up()
    recorded = run if isinstance(run, RecordedRun) else read_run(run, run_id)
    ledger = keep_books(recorded, window_s=window_s)
    made = account(
        ledger, rate_per_node_day=rate_per_node_day, fleet=fleet, window_s=window_s, now_s=now_s
    )
    others = _other_sections(recorded)
    found = findings(made, others)

    def drawn() -> Page:
        return page(ledger, made, found, others)

    path = None if html is None else write(drawn(), html)
    return RunReport(made, found, path, drawn)


def page(
    ledger: Ledger, made: Breakdown, found: Sequence[Finding], others: Sequence[Section]
) -> Page:
    """The page of a run report."""
    shown = _sections(ledger, made, others)
    here = {section.id for section in shown}
    return Page(
        title=f"Run report: {made.run_id}",
        subtitle=_subtitle(made),
        inputs=_inputs(ledger, made),
        findings=[
            each if each.section_id in here else Finding(each.text, None, each.lead)
            for each in found
        ],
        tiles=[each for each in tiles(made) if each.section_id in here],
        sections=shown,
        unknowns=_unknowns(made),
        footer=f"holdfast {__version__}",
    )


def _sections(ledger: Ledger, made: Breakdown, others: Sequence[Section]) -> list[Section]:
    """The questions of the owner of a run, in the order of their value."""
    from holdfast.runs.goodput import sections
    from holdfast.runs.goodput.step_figures import step_times

    if made.wall_s <= 0:
        return []
    times = step_times(ledger)
    return [
        sections.where(made),
        sections.attempts(ledger, made),
        *others,
        *([] if times is None else [sections.steps(times, made)]),
        sections.rolling(made),
    ]


def _other_sections(run: RecordedRun) -> list[Section]:
    """What other parts of the room say of the same run: what hung, which ranks are slow."""
    from holdfast.runs.flight.sections import section as hang_section
    from holdfast.runs.straggling.sections import section as straggler_section

    made = [hang_section(run.folder), straggler_section(run)]
    return [each for each in made if each is not None]


def _subtitle(made: Breakdown) -> str:
    begin, end = minute(made.began_s), minute(made.began_s + made.wall_s)
    ranks = max(each.world_size for each in made.attempts)
    nodes = len({node for each in made.attempts for node in each.nodes})
    state = ", still running" if made.running else ""
    return (
        f"{begin} to {end}{state}; {counted(len(made.attempts), 'attempt')}, "
        f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}"
    )


def _inputs(ledger: Ledger, made: Breakdown) -> list[tuple[str, str]]:
    rows = [
        ("Events", str(made.folder)),
        ("Processes", f"{len(ledger.run.processes):,}"),
        ("Events used", f"{ledger.run.events.num_rows:,}"),
        (
            "Set aside",
            f"{counted(len(made.rejects), 'line')} that could not be used"
            if made.rejects
            else "none",
        ),
    ]
    rate = made.expected.rate
    if rate is not None:
        rows.append(("Failure rate", f"{rate_text(rate)}: {rate_source(rate)}"))
    return rows


def _unknowns(made: Breakdown) -> list[Unknown]:
    gaps = []
    if made.rejects:
        reasons: dict[str, int] = {}
        for each in made.rejects:
            reasons[each.reason] = reasons.get(each.reason, 0) + 1
        most = sorted(reasons.items(), key=lambda item: -item[1])[:MOST_REASONS]
        named = "; ".join(f"{reason} ({count:,})" for reason, count in most)
        gaps.append(
            Unknown(
                f"{counted(len(made.rejects), 'line')} could not be used: {named}.",
                "--json names file and line of each.",
            )
        )
    gaps += [Unknown(remark[0].upper() + remark[1:] + ".") for remark in made.remarks]
    return gaps
