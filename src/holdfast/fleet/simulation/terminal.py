"""How the results of simulations read in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.console import table
from holdfast.fleet.simulation.metric_wording import difference_text, value_text, wording
from holdfast.numbers import duration, number, percent

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
    "lost_second_order_gpu_hours_per_day",
    "queue_wait_mean_s",
)
"""What the table of a what-if shows beside the metric by which changes are judged."""
MOST_CHANGES = 15


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
    return Group(head, shown, Text(measured), *(Text(note) for note in result.notes))


def _changes(result: WhatIf) -> RenderableType:
    """One row a change: the metric by which changes are judged, and what else it does."""
    columns: dict[str, Literal["left", "right"]] = {
        "change": "left",
        wording(result.main).label: "right",
        "difference, 95 %": "right",
        "goodput of busy time": "right",
        "lost, 1st order (GPU-h/day)": "right",
        "2nd order": "right",
        "mean wait": "right",
    }
    first = result.ranked[0]
    before = [result.of(first.change, metric) for metric in SHOWN]
    rows: list[list[str]] = [
        [
            "as it is",
            value_text(first.metric, first.baseline),
            "",
            *(value_text(each.metric, each.baseline) for each in before),
        ]
    ]
    for each in result.ranked[:MOST_CHANGES]:
        others = [result.of(each.change, metric) for metric in SHOWN]
        rows.append(
            [
                each.change,
                value_text(each.metric, each.value),
                f"{difference_text(each.metric, each.difference)} {_interval(each)}",
                *(
                    f"{difference_text(other.metric, other.difference)}{'' if other.told else ' ~'}"
                    for other in others
                ),
            ]
        )
    caption = "differences of shares in points; ~ cannot be told from none; more with --verbose"
    return table(columns, rows, caption=caption)


def _every_metric(result: WhatIf) -> RenderableType:
    rows = [
        (
            each.change,
            each.metric,
            value_text(each.metric, each.baseline),
            value_text(each.metric, each.value),
            difference_text(each.metric, each.difference),
            _interval(each),
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
    low, high = (difference_text(each.metric, end) for end in each.ci95)
    return f"[{low}, {high}]"
