"""Parts of Altair charts that rooms share: data, axes with unit and zone, marks with meanings.

Altair is imported inside the functions: importing it costs a quarter of a second.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.report.figures import TIME_FORMAT, plain_rows, plain_value
from holdfast.report.theme import colour

if TYPE_CHECKING:
    import altair
    import pyarrow as pa

_Channel = TypeVar("_Channel")


def data(rows: pa.Table | Iterable[Mapping[str, Any]]) -> altair.InlineData:
    """Inline data of a chart.

    Args:
        rows: an Arrow table or dictionaries. Times become milliseconds since 1970 (a time without
            a zone is taken as the wall clock of the axis); NaN and infinities become null.
    """
    import altair
    from altair.utils.schemapi import debug_mode

    values = plain_rows(rows)
    # Altair would check every row against a schema that admits anything: 2 s per 20,000 rows.
    with debug_mode(False):
        return altair.InlineData(values=values)


def time_axis(field: str, title: str = "Time", zone: str = "UTC", **options: Any) -> altair.X:
    """A horizontal time axis whose title names the time zone.

    Args:
        field: a column prepared by `data`.
        title: what the time is of.
        zone: the name of the zone in which the values are wall clock times.
        options: passed on to `altair.Axis`.
    """
    import altair

    return (
        altair.X(field, type="temporal")
        .scale(type="utc")
        .axis(**{"format": TIME_FORMAT, "labelOverlap": True, **options})
        .title(f"{title} ({zone})" if title else zone)
    )


def log_axis(channel: type[_Channel], field: str, title: str, **scale: Any) -> _Channel:
    """A logarithmic axis that says so.

    Args:
        channel: `altair.X` or `altair.Y`.
        field: the column.
        title: with its unit, for example ``"MTTF (hours)"``.
        scale: passed on to `altair.Scale`, for example ``domain=[8, 131072]``.
    """
    made: Any = channel(field, type="quantitative")  # type: ignore[call-arg]
    extent = f"domain('{channel.__name__.lower()}')"
    mantissa = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))"
    # Over less than three decades 1, 2 and 5 are labelled, else powers of ten only.
    major = f"indexof({extent}[1] < 1000 * {extent}[0] ? [1, 2, 5] : [1], {mantissa}) >= 0"
    faint = {"condition": {"test": major, "value": 1}, "value": 0.3}
    axis = {
        "labelExpr": f"{major} ? format(datum.value, datum.value < 1e6 ? ',~g' : '~s') : ''",
        "labelOverlap": "greedy",
        "grid": True,
        "gridOpacity": faint,
        "tickOpacity": faint,
    }
    titled: _Channel = made.scale(type="log", **scale).axis(**axis).title(f"{title}, log scale")
    return titled


def percent_axis(
    channel: type[_Channel], field: str, title: str, *, zero: bool = True, top: float = 1.0
) -> _Channel:
    """An axis of shares between 0 and 1 whose labels are percentages, written as in the text.

    Args:
        channel: `altair.X` or `altair.Y`.
        field: the column.
        title: what the share is of.
        zero: from 0 to `top`; else as far as the data reach.
        top: the end of the axis; labels stop at 100 %.
    """
    made: Any = channel(field, type="quantitative")  # type: ignore[call-arg]
    scale: dict[str, Any] = {"domain": [0, top]} if zero else {"zero": False}
    text = "datum.value > 1.0001 ? '' : format(round(1e6 * datum.value) / 1e4, ',~g') + ' %'"
    options = {"values": [step / 5 for step in range(6)]} if zero else {}
    titled: _Channel = made.scale(**scale).axis(labelExpr=text, **options).title(title)
    return titled


def same_axis(channel: _Channel, field: str) -> _Channel:
    """The same scale and axis for another column, for example the end of an interval."""
    other: Any = channel.copy(deep=False)  # type: ignore[attr-defined]
    other.shorthand = field
    made: _Channel = other
    return made


def meaning_colour(field: str, meanings: Mapping[str, str]) -> altair.Color:
    """The colour channel of values with fixed meanings; `Figure.legend` takes the same mapping.

    Args:
        field: the column that holds the values.
        meanings: value -> a name in `theme.COLOURS`, in the order of the legend; for example
            ``{"hardware": "hardware", "no check fired": "unattributed"}``.
    """
    import altair

    scale = altair.Scale(domain=list(meanings), range=[colour(name) for name in meanings.values()])
    return altair.Color(field, type="nominal", scale=scale, legend=None)


def interval_points(
    x: altair.X,
    y: altair.Y,
    low: str,
    high: str,
    tooltip: Sequence[Any] = (),
    name: str = "measured",
) -> altair.LayerChart:
    """Estimates as points on their vertical intervals.

    Args:
        x: the horizontal channel.
        y: the vertical channel, of the estimate.
        low: the column of the lower bound.
        high: the column of the upper bound.
        tooltip: the fields that a tooltip shows.
        name: a name in `COLOURS`.

    Returns:
        A layer without data: give it with `altair.layer(..., data=...)`.
    """
    import altair

    base = altair.Chart().encode(x=x, tooltip=list(tooltip))
    bars = base.mark_rule(color=colour(name), strokeWidth=1.5).encode(
        y=same_axis(y, low), y2=altair.Y2(high)
    )
    points = base.mark_point(color=colour(name), size=60, filled=True, opacity=1).encode(y=y)
    return altair.LayerChart(layer=[bars, points])


def line_labels(
    places: Iterable[Mapping[str, Any]],
    x: altair.X,
    y: altair.Y,
    text: str,
    name: str = "ink",
    **mark: Any,
) -> altair.Chart:
    """Labels written at points of lines, instead of a legend.

    Args:
        places: one row a label: a point of its line with free space above it and to its right.
        x: the horizontal channel of the lines.
        y: the vertical channel of the lines.
        text: the column of the label.
        name: a name in `theme.COLOURS` that reads as text: ``"ink"`` or ``"muted"``.
        mark: passed on to `mark_text`; ``align="right", dx=-6, dy=16`` puts the label below a
            falling line, where a narrow screen does not cut it.
    """
    import altair

    style = {"align": "left", "baseline": "bottom", "dx": 6, "dy": -3, **mark}
    made: altair.Chart = altair.Chart(data(places)).mark_text(color=colour(name), **style)
    return made.encode(x=x, y=y, text=altair.Text(text, type="nominal"))


def event_marks(
    events: Sequence[tuple[datetime.datetime, str]],
) -> tuple[altair.LayerChart, list[str]]:
    """Known causes on a time axis: numbered rules, explained under the figure.

    Args:
        events: time and text, for example ``(day, "IB link check first seen")``.

    Returns:
        The layer, and the texts in the order of their numbers for `Figure.notes`.
    """
    import altair

    ordered = sorted(events)
    times = [plain_value(time) for time, _ in ordered]
    near = 0.05 * (times[-1] - times[0]) if times else 0
    rows: list[dict[str, Any]] = []
    for index, ((_, text), time) in enumerate(zip(ordered, times, strict=True)):
        crowded = index > 0 and time - times[index - 1] < near
        level = (rows[-1]["level"] + 1) % 3 if crowded else 0
        rows.append({"time": time, "number": str(index + 1), "text": text, "level": level})

    def base(level: int | None = None) -> altair.Chart:
        chosen = [row for row in rows if level is None or row["level"] == level]
        return altair.Chart(data(chosen)).encode(
            x=altair.X("time", type="temporal").scale(type="utc"),
            tooltip=tooltip({"text": "mark", "time": ("at", "%Y-%m-%d %H:%M")}),
        )

    layers = [base().mark_rule(color=colour("muted"), strokeDash=[4, 3], strokeWidth=1.2)]
    for level in sorted({row["level"] for row in rows}):
        at = base(level).encode(y=altair.value(9 + 19 * level))
        layers += [
            at.mark_point(
                shape="circle",
                size=230,
                fill=colour("background"),
                stroke=colour("muted"),
                strokeWidth=1,
                opacity=1,
            ),
            at.mark_text(fontSize=11, fontWeight=600, baseline="middle").encode(
                text=altair.Text("number", type="nominal")
            ),
        ]
    return altair.LayerChart(layer=layers), [text for _, text in ordered]


def tooltip(fields: Mapping[str, str | tuple[str, str]]) -> list[altair.Tooltip]:
    """Tooltip rows: column -> title, or (title, d3 format).

    A format that starts with ``%Y`` makes the column a time, any other a number.
    """
    import altair

    rows = []
    for name, what in fields.items():
        title, form = (what, None) if isinstance(what, str) else what
        if form is None:
            rows.append(altair.Tooltip(name, type="nominal", title=title))
        elif form.startswith("%Y"):
            rows.append(altair.Tooltip(name, type="temporal", title=title, format=form))
        else:
            rows.append(altair.Tooltip(name, type="quantitative", title=title, format=form))
    return rows
