"""The standard figures: rooms pass rows and names, and get a chart of the house's look.

Each takes rows (an Arrow table or dictionaries), the names of columns, and titles with units. The chart
is a Vega-Lite specification that is made when a page is drawn, so that a command which prints no page
does not pay for it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.plain import plain
from holdfast.report.page import Figure
from holdfast.report.theme import colour

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    Rows: TypeAlias = pa.Table | Iterable[Mapping[str, Any]]

NUMBER = ",.4~r"
"""The d3 format of numbers in tooltips: four significant digits."""
TIME_FORMAT = {
    "year": "%b %Y",
    "quarter": "%b %Y",
    "month": "%b %Y",
    "week": "%d %b",
    "date": "%d %b",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": ".%L",
}
"""Labels of a time axis by the step between them."""
_TIME = "%Y-%m-%d %H:%M:%S"
_SERIES = ("user", "system", "hardware", "good", "sky", "purple", "unattributed")


def bars(
    rows: Rows,
    label: str,
    value: str,
    title: str,
    *,
    label_title: str = "",
    part: str = "",
    meanings: Mapping[str, str] | None = None,
) -> Figure:
    """Horizontal bars in the order of the rows, from zero; of several parts where they are named.

    Args:
        rows: one per bar, or per part of a bar.
        label: column with the name of the bar.
        value: column with its length.
        title: what the length is, with its unit.
        label_title: what the bars are.
        part: column with the part of a stacked bar.
        meanings: part -> a name in `theme.COLOURS`, in the order of the legend.
    """

    def chart() -> dict[str, Any]:
        values = plain_rows(rows)
        encoding: dict[str, Any] = {
            "x": {"field": value, "type": "quantitative", "title": title},
            "y": _names(label, values, label_title),
            "tooltip": tooltip(values, [label, part, value]),
        }
        if part:
            order = {name: place for place, name in enumerate(meanings or {})}
            for row in values:
                row["_order"] = order.get(row[part], len(order))
            encoding["color"] = meanings_colour(part, meanings or {})
            encoding["order"] = {"field": "_order", "type": "quantitative"}
        return {"data": {"values": values}, "mark": "bar", "encoding": encoding}

    return Figure(chart, legend=meanings or {})


def timeline(
    rows: Rows,
    lane: str,
    start: str,
    end: str,
    kind: str,
    meanings: Mapping[str, str],
    *,
    lane_title: str = "",
    zone: str = "UTC",
    marks: Rows = (),
) -> Figure:
    """Spans of time as bars in lanes, with ticks where something happened.

    Args:
        rows: one per span.
        lane: column with the lane; lanes stand in the order of the rows.
        start: column with the begin (datetime).
        end: column with the end (datetime).
        kind: column with what the span is.
        meanings: kind -> a name in `theme.COLOURS`.
        lane_title: what a lane is.
        zone: time zone of the times.
        marks: rows with the lane's column, ``at`` and ``text``.
    """
    ticks = plain_rows(marks)
    legend = {**meanings, **({"event": "ink"} if ticks else {})}

    def chart() -> dict[str, Any]:
        values = plain_rows(rows)
        y = _names(lane, values, lane_title)
        layers: list[dict[str, Any]] = [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "height": {"band": 0.6}},
                "encoding": {
                    "x": time_axis(start, "Time", zone),
                    "x2": {"field": end},
                    "y": y,
                    "color": meanings_colour(kind, meanings),
                    "tooltip": tooltip(values, [lane, kind, start, end], times={start, end}),
                },
            }
        ]
        if ticks:
            layers.append(
                {
                    "data": {"values": ticks},
                    "mark": {"type": "tick", "color": colour("ink"), "thickness": 3, "height": 20},
                    "encoding": {
                        "x": time_axis("at", "Time", zone),
                        "y": y,
                        "tooltip": tooltip(ticks, [lane, "text", "at"], times={"at"}),
                    },
                }
            )
        return {"layer": layers}

    return Figure(chart, legend=legend)


def intervals(
    rows: Rows,
    label: str,
    value: str,
    low: str,
    high: str,
    title: str,
    *,
    reference: float | None = None,
) -> Figure:
    """Estimates with their 95 % intervals, one row each, and a dashed reference.

    Args:
        rows: one per estimate; a bound that is null is not drawn.
        label: column with its name.
        value: column with the estimate.
        low: column with the lower bound.
        high: column with the upper bound.
        title: what is estimated, with its unit.
        reference: a value to hold the estimates against.
    """

    def chart() -> dict[str, Any]:
        values = plain_rows(rows)
        x, y = _quantity(value, title), _names(label, values)
        shown = tooltip(values, [label, value, low, high])
        layers: list[dict[str, Any]] = [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {"x": {**x, "field": low}, "x2": {"field": high}, "y": y},
            },
            {"mark": "point", "encoding": {"x": x, "y": y, "tooltip": shown}},
        ]
        if reference is not None:
            layers.append(_reference(reference))
        return {"data": {"values": values}, "layer": layers}

    return Figure(chart)


def waterfall(
    steps: Sequence[tuple[str, float]],
    title: str,
    *,
    total: str = "left",
    meanings: Mapping[str, str] | None = None,
) -> Figure:
    """From a whole to what is left: each step starts where the one before it ended.

    Args:
        steps: name and amount; the first is the whole, the others are added (a loss is negative).
        title: what is counted, with its unit.
        total: the name of the last bar.
        meanings: name of a step -> a name in `theme.COLOURS`.
    """

    def chart() -> dict[str, Any]:
        values, level = [], 0.0
        for name, amount in steps:
            values.append({"step": name, "from": level, "to": level + amount, "amount": amount})
            level = round(level + amount, 9)  # no bar below zero by rounding
        values.append({"step": total, "from": 0.0, "to": level, "amount": level})
        for row in values:
            row["colour"] = colour((meanings or {}).get(str(row["step"]), "user"))
        return {
            "data": {"values": values},
            "mark": "bar",
            "encoding": {
                "x": {"field": "from", "type": "quantitative", "title": title},
                "x2": {"field": "to"},
                "y": _names("step", values),
                "color": {"field": "colour", "type": "nominal", "scale": None},
                "tooltip": tooltip(values, ["step", "amount", "to"]),
            },
        }

    return Figure(chart)


def heat_map(rows: Rows, x: str, y: str, value: str, title: str) -> Figure:
    """A cell per pair of names, darker for larger values; cells without a row stay empty.

    Args:
        rows: one per cell; both axes stand in the order of the rows.
        x: column with the horizontal name.
        y: column with the vertical name.
        value: column with the value.
        title: what the value is, with its unit.
    """

    def chart() -> dict[str, Any]:
        values = plain_rows(rows)
        ramp = [colour(f"ramp{step}") for step in range(1, 6)]
        return {
            "data": {"values": values},
            "mark": "rect",
            "encoding": {
                "x": _names(x, values) | {"axis": {"labelAngle": 0}},
                "y": _names(y, values),
                "color": {
                    "field": value,
                    "type": "quantitative",
                    "title": title,
                    # The palette's colours are variables of the page: only steps can be drawn.
                    "scale": {"type": "quantize", "range": ramp},
                },
                "tooltip": tooltip(values, [x, y, value]),
            },
        }

    return Figure(chart)


def lines(
    rows: Rows,
    x: str,
    y: str,
    x_title: str,
    y_title: str,
    *,
    series: str = "",
    meanings: Mapping[str, str] | None = None,
    low: str = "",
    high: str = "",
    points: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    zone: str = "",
    reference: float | None = None,
    steps: bool = False,
    zero: bool = True,
    marks: Sequence[Mapping[str, Any]] = (),
) -> Figure:
    """Lines over a number or a time, each with the band of its interval.

    Args:
        rows: one per point, in the order of `x`.
        x: column of the horizontal axis; a time where `zone` is given.
        y: column of the vertical axis.
        x_title: with its unit.
        y_title: with its unit.
        series: column with the name of the line.
        meanings: name of the line -> a name in `theme.COLOURS`.
        low: column with the lower end of the band.
        high: column with the upper end of the band.
        points: mark the points: few, or measured.
        log_x: a logarithmic horizontal axis.
        log_y: a logarithmic vertical axis.
        zone: time zone of `x`.
        reference: a horizontal dashed line.
        steps: each value holds until the next.
        zero: the vertical axis begins at zero.
        marks: rows with ``at`` (on the horizontal axis) and ``text``: numbered vertical rules.
    """
    names = meanings or {}
    if series and not names:
        names = dict(zip(dict.fromkeys(r[series] for r in plain_rows(rows)), _SERIES, strict=False))
    known = [{**row, "number": str(place)} for place, row in enumerate(plain_rows(marks), 1)]

    def chart() -> dict[str, Any]:
        values = plain_rows(rows)
        across = time_axis(x, x_title, zone) if zone else _quantity(x, x_title, log_x)
        up = _quantity(y, y_title, log_y)
        if not zero:
            up["scale"] = {**up.get("scale", {}), "zero": False}
        mark: dict[str, Any] = {"interpolate": "step-after"} if steps else {}
        shade: dict[str, Any] = {"value": colour("model")}
        if series:
            shade = meanings_colour(series, names)
        shown = tooltip(values, [series, x, y, low, high], times={x} if zone else set())
        layers: list[dict[str, Any]] = []
        if low:
            band = {"x": across, "y": {**up, "field": low}, "y2": {"field": high}, "color": shade}
            layers.append(
                {"mark": {"type": "area", "opacity": 0.2, "stroke": None, **mark}, "encoding": band}
            )
        drawn = {"x": across, "y": up, "color": shade, "tooltip": shown}
        layers.append({"mark": {"type": "line", "point": points, **mark}, "encoding": drawn})
        if reference is not None:
            layers.append(_reference(reference, "y"))
        if known:
            at = {"x": {**across, "field": "at"}, "tooltip": tooltip(known, ["text"])}
            rule = {"type": "rule", "strokeDash": [4, 3], "color": colour("muted")}
            label = {"type": "text", "align": "left", "dx": 4, "fontWeight": 600}
            numbers = {**at, "y": {"value": 8}, "text": {"field": "number"}}
            layers.append({"data": {"values": known}, "mark": rule, "encoding": at})
            layers.append({"data": {"values": known}, "mark": label, "encoding": numbers})
        return {"data": {"values": values}, "layer": layers}

    return Figure(chart, legend=names, notes=[str(row["text"]) for row in known])


def scatter(
    rows: Rows,
    x: str,
    y: str,
    x_title: str,
    y_title: str,
    *,
    series: str,
    meanings: Mapping[str, str],
    details: Sequence[str] = (),
    ceiling: Rows = (),
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """Points by two numbers, under a ceiling if there is one.

    Args:
        rows: one per point.
        x: column of the horizontal axis.
        y: column of the vertical axis.
        x_title: with its unit.
        y_title: with its unit.
        series: column with the kind of the point.
        meanings: kind -> a name in `theme.COLOURS`.
        details: further columns of the tooltip.
        ceiling: corners of a line with the columns `x` and `y`, in the order of `x`.
        log_x: a logarithmic horizontal axis (positive values only).
        log_y: a logarithmic vertical axis (positive values only).
    """
    corners = plain_rows(ceiling)

    def chart() -> dict[str, Any]:
        values = plain_rows(rows)
        across, up = _quantity(x, x_title, log_x), _quantity(y, y_title, log_y)
        drawn = {
            "x": across,
            "y": up,
            "color": meanings_colour(series, meanings),
            "tooltip": tooltip(values, [series, *details, x, y]),
        }
        mark = {"type": "point", "filled": True, "opacity": 0.7, "size": 45}
        layers: list[dict[str, Any]] = [
            {"data": {"values": values}, "mark": mark, "encoding": drawn}
        ]
        if corners:
            line = {"type": "line", "color": colour("ink"), "strokeWidth": 1.5}
            layers.append(
                {"data": {"values": corners}, "mark": line, "encoding": {"x": across, "y": up}}
            )
        return {"layer": layers}

    return Figure(chart, legend=meanings)


def plain_rows(rows: Rows) -> list[dict[str, Any]]:
    """Rows as Vega-Lite reads them: times in milliseconds since 1970, NaN and infinities null."""
    records: Iterable[Mapping[str, Any]] = rows.to_pylist() if hasattr(rows, "to_pylist") else rows
    return [{str(key): plain_value(value) for key, value in row.items()} for row in records]


def plain_value(value: Any) -> Any:
    """One value as Vega-Lite reads it."""
    if isinstance(value, datetime.datetime):
        # A time without a zone is taken as the wall clock of the axis.
        zoned = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return round(zoned.timestamp() * 1000)
    if isinstance(value, datetime.date):
        return plain_value(datetime.datetime(value.year, value.month, value.day))
    return plain(value)


def _quantity(field: str, title: str, log: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"field": field, "type": "quantitative", "title": title}
    if log:
        made["title"] = f"{title}, log scale"
        made["scale"] = {"type": "log"}
        # SI prefixes for large numbers only: 200m hours would read as minutes.
        text = "format(datum.value, datum.value < 1e6 ? ',~g' : '~s')"
        made["axis"] = {"labelExpr": text, "labelOverlap": "greedy"}
    return made


def time_axis(field: str, title: str, zone: str) -> dict[str, Any]:
    """An axis of times that names their zone."""
    return {
        "field": field,
        "type": "temporal",
        "title": f"{title} ({zone})",
        "scale": {"type": "utc"},
        "axis": {"format": TIME_FORMAT, "labelOverlap": True},
    }


def _names(field: str, rows: Sequence[Mapping[str, Any]], title: str = "") -> dict[str, Any]:
    """An axis of names in the order of the rows."""
    order = list(dict.fromkeys(row[field] for row in rows))
    return {"field": field, "type": "nominal", "sort": order, "title": title or None}


def meanings_colour(field: str, meanings: Mapping[str, str]) -> dict[str, Any]:
    """The colours of values with fixed meanings; the page draws the legend, which wraps."""
    scale = {"domain": list(meanings), "range": [colour(name) for name in meanings.values()]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}


def _reference(value: float, channel: str = "x") -> dict[str, Any]:
    return {
        "data": {"values": [{"reference": value}]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": colour("muted")},
        "encoding": {channel: {"field": "reference", "type": "quantitative"}},
    }


def tooltip(
    rows: Sequence[Mapping[str, Any]], fields: Iterable[str], times: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """What stands in a tooltip: a line per field that is named, numbers to four digits."""
    shown: list[dict[str, Any]] = []
    for field in filter(None, fields):
        title = field.replace("_", " ")
        if field in times:
            shown.append({"field": field, "type": "temporal", "title": title, "format": _TIME})
        elif any(isinstance(row.get(field), float) for row in rows):
            shown.append({"field": field, "type": "quantitative", "title": title, "format": NUMBER})
        else:
            shown.append({"field": field, "type": "nominal", "title": title})
    return shown
