"""One look for every figure: the palette with its meanings, and the Vega-Lite configuration.

Colours are CSS variables, so that one drawing serves light, dark and paper. Okabe-Ito hues keep one
meaning everywhere: user blue, system orange, hardware vermilion. Fills too pale for the light
background get their contrast from a thin edge (`"edge"`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLOURS: Mapping[str, tuple[str, str]] = {
    # name: (on the light page, on the dark page)
    "background": ("#ffffff", "#15181c"),
    "raised": ("#f4f6f8", "#1f242a"),
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#565d66", "#a9b1ba"),
    "link": ("#005a9c", "#7cc0f5"),
    "line": ("#d3d8de", "#3a414a"),
    "grid": ("#e6e9ed", "#2b3138"),
    "edge": ("#3d444d", "#15181c"),
    # causes
    "user": ("#0072b2", "#3b9bd9"),
    "system": ("#e69f00", "#e69f00"),
    "hardware": ("#d55e00", "#e8702a"),
    "unattributed": ("#868e97", "#8d96a0"),
    # orders of loss: the first dark, the second light
    "first": ("#8e3d6b", "#b35c8f"),
    "second": ("#dfb0cc", "#edcfe0"),
    # the rest of Okabe-Ito
    "good": ("#009e73", "#1fb587"),
    "sky": ("#56b4e9", "#56b4e9"),
    "yellow": ("#f0e442", "#f0e442"),
    "purple": ("#cc79a7", "#cc79a7"),
    # estimates and what they are held against
    "measured": ("#1b1f24", "#e8eaed"),
    "model": ("#0072b2", "#3b9bd9"),
    "reference": ("#6a727c", "#98a1ab"),
    # an ordered ramp, weakest first
    "ramp1": ("#9ecae1", "#2f5d84"),
    "ramp2": ("#6baed6", "#3f7cab"),
    "ramp3": ("#3f8fc5", "#5b9fcf"),
    "ramp4": ("#1f6cad", "#8cc1e6"),
    "ramp5": ("#08478a", "#c5e0f3"),
}

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH = 752
"""Pixels that a figure is drawn at before the page fits it to the screen."""

_CATEGORIES = ("user", "system", "hardware", "good", "sky", "purple", "yellow", "unattributed")


def colour(name: str) -> str:
    """The colour of a meaning in `COLOURS`, as a CSS variable that follows light and dark."""
    if name not in COLOURS:
        raise KeyError(f"no colour named {name!r}; there are {', '.join(COLOURS)}")
    return f"var(--{name})"


def css_variables() -> tuple[str, str]:
    """The declarations of every colour for the light and for the dark page."""
    light, dark = (
        "".join(f"--{name}:{pair[index]};" for name, pair in COLOURS.items()) for index in (0, 1)
    )
    return light, dark


def config() -> dict[str, Any]:
    """The Vega-Lite configuration that every figure is drawn with."""
    muted, ink, line = colour("muted"), colour("ink"), colour("line")
    text = {"fontSize": 12, "font": FONT}
    return {
        "background": None,
        "font": FONT,
        "aria": False,  # the figure says in one sentence what it shows; the table has the values
        "padding": {"left": 24, "right": 14, "top": 6, "bottom": 4},
        "view": {"stroke": None, "continuousHeight": 280, "discreteHeight": {"step": 24}},
        "axis": {
            "labelColor": muted,
            "titleColor": ink,
            "domainColor": line,
            "tickColor": line,
            "gridColor": colour("grid"),
            "labelFontSize": 12,
            "labelLimit": 190,
            "labelOverlap": True,
            "labelSeparation": 6,
            "titleFontSize": 12,
            "titleFontWeight": 600,
            "titlePadding": 8,
        },
        "axisX": {"grid": False, "tickSize": 4, "labelFlush": False},
        "axisXQuantitative": {"tickCount": {"signal": "ceil(width / 80)"}},
        # The title of the vertical axis reads horizontally, above the axis.
        "axisY": {
            "domain": False,
            "ticks": False,
            "labelPadding": 6,
            "titleAngle": 0,
            "titleAlign": "left",
            "titleAnchor": "end",
            "titleBaseline": "bottom",
            "titleX": 0,
            "titleY": -8,
        },
        "legend": {
            "orient": "top",
            "offset": 32,
            "labelColor": ink,
            "titleColor": ink,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 600,
            "symbolStrokeWidth": 1,
            "symbolType": "square",
            "labelLimit": 0,
            "columns": 3,
        },
        "title": {"color": ink, "fontSize": 13, "anchor": "start", "subtitleColor": muted},
        "bar": {"color": colour("user"), "stroke": colour("edge"), "strokeWidth": 0.6},
        "rect": {"stroke": colour("edge"), "strokeWidth": 0.4},
        "area": {"color": colour("model")},
        "line": {"color": colour("model"), "strokeWidth": 2},
        "point": {"color": colour("measured"), "filled": True, "size": 55},
        "tick": {"color": colour("measured"), "thickness": 2},
        "rule": {"color": colour("measured")},
        "text": {"color": ink, **text},
        "range": {
            "category": [colour(name) for name in _CATEGORIES],
            "ordinal": [colour(f"ramp{step}") for step in range(1, 6)],
        },
    }
