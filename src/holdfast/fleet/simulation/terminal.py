"""How the results of simulations read in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.fleet.simulation.metric_wording import difference_text, value_text, wording
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


SHOWN = {
    "goodput_share_of_busy_time": ("goodput", "%"),
    "lost_first_order_gpu_hours_per_day": ("lost", "GPU-h/d"),
    "queue_wait_mean_s": ("wait", "min"),
}
"""What the table of a what-if shows beside the metric by which changes are judged."""
SHORT = {"ettr_large_runs": "ETTR (%)", "goodput_share_of_busy_time": "goodput (%)"}
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
    words = wording(result.main)
    columns: dict[str, Literal["left", "right"]] = {
        "change": "left",
        SHORT.get(result.main, words.label): "right",
        "difference, 95 %": "right",
    }
    columns |= {f"{name} ({unit})": "right" for name, unit in SHOWN.values()}
    first = result.ranked[0]
    before = (result.of(first.change, metric) for metric in SHOWN)
    rows = [["as it is", _bare(first, first.baseline), "", *(_bare(b, b.baseline) for b in before)]]
    for each in result.ranked[:MOST_CHANGES]:
        others = [result.of(each.change, metric) for metric in SHOWN]
        rows.append(
            [
                each.change,
                _bare(each, each.value),
                f"{_signed(each, each.difference)}\u00a0{_interval(each)}",
                *(_signed(o, o.difference) + ("" if o.told else "\u00a0~") for o in others),
            ]
        )
    caption = "all simulated; below the first row: differences; ~ may be chance; all metrics with --verbose"
    more = len(result.ranked) - MOST_CHANGES
    if more > 0:
        caption = f"{more} more changes; {caption}"
    return table(columns, rows, caption=caption)


def _bare(each: Difference, value: float) -> str:
    """A value in the unit of its column: shares in per cent, times in minutes."""
    unit = wording(each.metric).unit
    scaled = 100 * value if unit == "%" else value / 60 if unit == "s" else value
    return number(scaled, 1)


def _signed(each: Difference, value: float) -> str:
    text = _bare(each, value)
    return f"+{text}" if value > 0 and not text.startswith("<") else text


def _every_metric(result: WhatIf) -> RenderableType:
    rows = [
        (
            each.change,
            each.metric,
            value_text(each.metric, each.baseline),
            value_text(each.metric, each.value),
            difference_text(each.metric, each.difference),
            "[{}, {}]".format(*(difference_text(each.metric, end) for end in each.ci95)),
        )
        for each in result.differences
    ]
    columns: dict[str, Literal["left", "right"]] = {
        "change": "left",
        "metric": "left",
        "before": "right",
        "after": "right",
        "difference": "right",
        "95 %": "left",
    }
    return table(columns, rows)


def _interval(each: Difference) -> str:
    low, high = (_signed(each, end) for end in each.ci95)
    return f"[{low},\u00a0{high}]"
