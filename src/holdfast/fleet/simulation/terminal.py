"""How the results of simulations read in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.fleet.simulation.metric_wording import wording
from holdfast.numbers import duration, number, percent
from holdfast.report.terminal import table

if TYPE_CHECKING:
    from holdfast.fleet.simulation.comparison import Difference, WhatIf
    from holdfast.fleet.simulation.simulated_log import Simulated


def simulated(result: Simulated) -> RenderableType:
    """What was simulated, and how fast."""
    rows = [
        ("jobs", f"{result.jobs:,}"),
        ("attempts that started", f"{result.attempts:,}"),
        ("utilisation", percent(result.utilisation)),
        ("events", f"{result.events:,}"),
        ("time", duration(result.seconds)),
        ("events per second", number(result.events_per_second)),
    ]
    return table({"simulated": "left", "": "right"}, rows)


SHOWN = (
    "goodput_share_of_busy_time",
    "lost_first_order_gpu_hours_per_day",
    "queue_wait_mean_s",
)
"""What the table of a what-if shows beside the metric by which changes are judged."""
MOST_CHANGES = 12
MOST_NOTES = 3


def what_if(result: WhatIf, verbose: bool = False) -> RenderableType:
    """The recommended change, and the changes by what they gain; `verbose`: every metric."""
    head = Text()
    if result.best is None:
        head.append("No gain can be told from zero; ", style="bold")
        head.append("more replicas or more days narrow the intervals.")
    else:
        head.append("Recommended: ", style="bold")
        head.append(f"{result.recommended}.")
    measured = (
        f"{result.source}: {result.replicas} replicas of {duration(86_400 * result.days)}; large runs "
        f"are {result.large_runs}"
    )
    if result.scope.long_run_hours:
        measured += f" that need {result.scope.long_run_hours} h or more"
    shown = _every_metric(result) if verbose else _changes(result)
    notes = [Text(note) for note in result.notes[:MOST_NOTES]]
    if len(result.notes) > MOST_NOTES:
        notes.append(Text(f"({len(result.notes) - MOST_NOTES} more notes on the page)"))
    return Group(head, shown, Text(measured), *notes)


def _changes(result: WhatIf) -> RenderableType:
    """One row per change: the metric by which changes are judged, and what else it does."""
    shown = [metric for metric in SHOWN if metric != result.main]
    head = [wording(metric).heading or wording(metric).label for metric in (result.main, *shown)]
    columns: dict[str, Literal["left", "right"]] = {"change": "left", head[0]: "right"}
    columns |= dict.fromkeys(["difference, 95 %", *head[1:]], "right")
    first = result.ranked[0]
    before = (_bare(each, each.baseline) for each in _of(result, first, shown))
    rows = [["as it is", _bare(first, first.baseline), "", *before]]
    for each in result.ranked[:MOST_CHANGES]:
        low, high = (_signed(each, end) for end in each.ci95)
        rows.append(
            [
                each.change,
                _bare(each, each.value),
                f"{_signed(each, each.difference)}\u00a0[{low},\u00a0{high}]",
                *(
                    _signed(other, other.difference) + ("" if other.told else "\u00a0~")
                    for other in _of(result, each, shown)
                ),
            ]
        )
    caption = "all simulated; below the first row: differences; ~ may be chance; all metrics with --verbose"
    more = len(result.ranked) - MOST_CHANGES
    if more > 0:
        caption = f"{more} more changes; {caption}"
    return table(columns, rows, caption=caption)


def _of(result: WhatIf, each: Difference, metrics: Sequence[str]) -> list[Difference]:
    return [result.of(each.change, metric) for metric in metrics]


def _bare(each: Difference, value: float) -> str:
    """A value in the unit of its column."""
    return number(wording(each.metric).scaled(value), 1)


def _signed(each: Difference, value: float) -> str:
    text = _bare(each, value)
    return f"+{text}" if value > 0 and not text.startswith("<") else text


def _every_metric(result: WhatIf) -> RenderableType:
    rows = [
        (
            each.change,
            each.metric,
            words.value(each.baseline),
            words.value(each.value),
            words.difference(each.difference),
            words.interval(each.ci95),
        )
        for each in result.differences
        for words in [wording(each.metric)]
    ]
    columns: dict[str, Literal["left", "right"]] = {"change": "left", "metric": "left"}
    columns |= dict.fromkeys(("before", "after", "difference"), "right")
    return table({**columns, "95 %": "left"}, rows)
