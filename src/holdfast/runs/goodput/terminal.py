"""How a run report reads in a terminal: one screen; `--json` for programs."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.console import table
from holdfast.numbers import brief, counted, duration, percent
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.ledger import PARTS
from holdfast.runs.goodput.page import RunReport
from holdfast.runs.goodput.wording import PARTS_IN_WORDS, ending, gpu_unit, seconds

MOST_ATTEMPTS = 8
MOST_REMARKS = 3


def reported(result: RunReport, verbose: bool = False) -> RenderableType:
    """The parts, the attempts and the findings."""
    made = result.breakdown
    lines: list[RenderableType] = [_parts(made), _attempts(made, verbose)]
    for place, finding in enumerate(result.findings, 1):
        line = Text(f"{place}. ")
        line.append(finding.lead, style="bold")
        lines.append(line.append(f"{' ' if finding.lead else ''}{finding.text}"))
    shown = len(made.remarks) if verbose else MOST_REMARKS
    lines += [Text(f"note: {remark}") for remark in made.remarks[:shown]]
    if len(made.remarks) > shown:
        lines.append(Text(f"({len(made.remarks) - shown:,} more notes with --verbose)"))
    if made.rejects:
        lines.append(Text(f"{counted(len(made.rejects), 'line')} set aside (--json names them)"))
    return Group(*lines)


def _parts(made: Breakdown) -> RenderableType:
    unit = gpu_unit(made)
    rows = [
        (
            PARTS_IN_WORDS[part].name,
            duration(made.parts[part]),
            percent(made.parts[part] / made.wall_s, 1) if made.wall_s else "–",
            brief(made.gpu_hours[part] * unit.per_hour),
        )
        for part in PARTS
        if made.parts[part] or part == "productive"
    ]
    rows.append(
        (
            "wall time",
            duration(made.wall_s),
            percent(1.0, 1) if made.wall_s else "–",
            brief(sum(made.gpu_hours.values()) * unit.per_hour),
        )
    )
    return table(
        {"part": "left", "wall time": "right", "share": "right", unit.name: "right"},
        rows,
        title=f"Run {made.run_id}: ETTR {percent(made.ettr, 1)}",
    )


def _attempts(made: Breakdown, verbose: bool) -> RenderableType:
    shown = made.attempts if verbose else made.attempts[-MOST_ATTEMPTS:]
    hidden = len(made.attempts) - len(shown)
    rows = [
        (
            each.attempt,
            duration(each.end_s - each.begin_s),
            ending(each),
            "" if each.first_rank_gone is None else f"{each.first_rank_gone:,}",
            "" if each.resumed_from is None else f"{each.resumed_from:,}",
            "" if each.last_step is None else f"{each.last_step:,}",
            f"{each.replayed_steps:,}",
            seconds(each.parts["init"]),
            seconds(each.parts["down"] + each.parts["queue"]),
        )
        for each in shown
    ]
    return table(
        {
            "attempt": "right",
            "lived": "right",
            "ended": "left",
            "first rank gone": "right",
            "resumed from step": "right",
            "last step": "right",
            "replayed": "right",
            "init": "right",
            "down or queued before": "right",
        },
        rows,
        caption=f"the last {len(shown):,} of {len(made.attempts):,} attempts" if hidden else "",
    )
