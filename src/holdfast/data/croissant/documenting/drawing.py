"""The picture of a description: resources, record sets and fields, and what comes from where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.data.croissant.document.model import Metadata
from holdfast.data.croissant.documenting.layout import Box, Layout, Link, lay_out
from holdfast.report import Figure
from holdfast.report.theme import colour

_ROW = 22  # pixels
_LEFT, _GAP, _RIGHT, _END = 36, 56, 92, 100  # where the columns end and begin
_STEPS = 16
_LETTERS = 38  # that a row has room for
_NARROW = 520  # pixels, below which notes give way to names

_LINES = {"values": "model", "reference": "hardware"}


def drawing(metadata: Metadata) -> Figure | None:
    """The figure; None where the description has neither resources nor record sets."""
    made = lay_out(metadata)
    if not made.left and not made.right:
        return None
    drawn = {link.what for link in made.links}
    named = {"gives its values": "values", "references": "reference"}
    return Figure(
        chart=_specification(made),
        legend={label: _LINES[what] for label, what in named.items() if what in drawn},
        description="Resources on the left, record sets and their fields on the right, joined by lines "
        "from where values come; the tables below say the same in words.",
    )


def _specification(made: Layout) -> dict[str, Any]:
    boxes = [
        *(_row(box, 0, _LEFT) for box in made.left),
        *(_row(box, _GAP, _RIGHT) for box in made.right),
    ]
    lines = [point for link in made.links for point in _points(link)]
    return {
        "height": _ROW * (made.rows + 0.3),
        "padding": 2,
        "data": {"values": []},
        "layer": [
            *(
                _line(lines, what)
                for what in _LINES
                if any(point["what"] == what for point in lines)
            ),
            _rectangles(boxes),
            *_texts(boxes),
        ],
    }


def _row(box: Box, start: float, end: float) -> dict[str, Any]:
    room = _LETTERS if not box.note else _LETTERS - 2 - min(len(box.note), _LETTERS // 2)
    return {
        "kind": box.kind,
        "label": _fitted(box.label, room - 2 * box.depth),
        "note": box.note,
        "id": box.id.split("//")[0],
        "hint": box.hint[:300],
        "x": start + 2.2 * box.depth,
        "text": start + 2.2 * box.depth + (1.2 if start else 1.0),
        "x2": end,
        "end": end - 1,
        "y": box.y + 0.06,
        "y2": box.y + 0.94,
        "middle": box.y + 0.5,
    }


def _fitted(label: str, most: int) -> str:
    """A label without its middle where it is long: names that begin alike often end differently."""
    if len(label) <= most:
        return label
    return f"{label[: most // 2 - 1]}…{label[-(most - most // 2) :]}"


def _x(name: str) -> dict[str, Any]:
    return {
        "field": name,
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [0, _END], "nice": False, "zero": False},
    }


def _y(name: str) -> dict[str, Any]:
    return {
        "field": name,
        "type": "quantitative",
        "axis": None,
        "scale": {"reverse": True, "nice": False, "zero": False},
    }


def _rectangles(boxes: list[dict[str, Any]]) -> dict[str, Any]:
    fills = {
        "file": "ramp1",
        "set": "ramp1",
        "records": "raised",
        "field": "background",
        "more": "background",
    }
    return {
        "data": {"values": boxes},
        "mark": {"type": "rect", "stroke": colour("line"), "strokeWidth": 1, "cornerRadius": 3},
        "encoding": {
            "x": _x("x"),
            "x2": {"field": "x2"},
            "y": _y("y"),
            "y2": {"field": "y2"},
            "fill": {
                "field": "kind",
                "type": "nominal",
                "legend": None,
                "scale": {
                    "domain": list(fills),
                    "range": [colour(name) for name in fills.values()],
                },
            },
            "tooltip": [
                {"field": "id", "type": "nominal", "title": "id"},
                {"field": "note", "type": "nominal", "title": "is"},
                {"field": "hint", "type": "nominal", "title": "says"},
            ],
        },
    }


def _texts(boxes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Labels on the left of their boxes, notes on the right; on a narrow screen labels alone."""
    for kinds, whole, weight in (
        (("file", "set"), 0.34, 600),
        (("records",), 0.34, 600),
        (("field", "more"), 0.33, 400),
    ):
        for noted in (True, False):
            rows = [box for box in boxes if box["kind"] in kinds and bool(box["note"]) == noted]
            if not rows:
                continue
            share = 0.6 * whole if noted else whole
            limit = f"(width < {_NARROW} ? {whole} : {share}) * width"
            yield _text(rows, "text", "label", limit, "left", "ink", weight)
            if noted:
                yield _text(rows, "end", "note", f"{whole - share} * width", "right", "muted", 400)


def _text(
    rows: list[dict[str, Any]], x: str, text: str, limit: str, align: str, ink: str, weight: int
) -> dict[str, Any]:
    hidden = {"opacity": {"expr": f"width < {_NARROW} ? 0 : 1"}} if text == "note" else {}
    return {
        "data": {"values": rows},
        "mark": {
            "type": "text",
            "align": align,
            "baseline": "middle",
            "fontSize": 12 if text == "label" else 11,
            "fontWeight": weight,
            "color": colour(ink),
            "limit": {"expr": limit},
            "clip": True,  # else the page would leave room for letters that are cut off
            **hidden,
        },
        "encoding": {"x": _x(x), "y": _y("middle"), "text": {"field": text, "type": "nominal"}},
    }


def _line(points: list[dict[str, Any]], what: str) -> dict[str, Any]:
    dashed = {"strokeDash": [5, 3]} if what == "reference" else {}
    return {
        "data": {"values": [point for point in points if point["what"] == what]},
        "mark": {
            "type": "line",
            "color": colour(_LINES[what]),
            "strokeWidth": 1.4,
            "opacity": 0.75,
            **dashed,
        },
        "encoding": {
            "x": _x("x"),
            "y": _y("y"),
            "detail": {"field": "link", "type": "nominal"},
            "order": {"field": "step", "type": "quantitative"},
        },
    }


def _points(link: Link) -> Iterator[dict[str, Any]]:
    """A curve from the start's edge to the end's: across the gap, or around the right side."""
    y1, y2 = link.start.y + 0.5, link.end.y + 0.5
    if link.start.kind in ("file", "set"):
        x1, x2 = _LEFT, _GAP + 2.2 * link.end.depth
        bend1 = bend2 = (_LEFT + _GAP) / 2
    else:
        x1 = x2 = _RIGHT
        bend1 = bend2 = _RIGHT + min(2 + 0.35 * abs(y2 - y1), 1.3 * (_END - _RIGHT))
    for step in range(_STEPS + 1):
        t = step / _STEPS
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        yield {
            "what": link.what,
            "link": f"{link.what} {link.start.id} {link.end.id}",
            "step": step,
            "x": round(a * x1 + b * bend1 + c * bend2 + d * x2, 3),
            "y": round((a + b) * y1 + (c + d) * y2, 3),
        }
