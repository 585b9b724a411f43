"""Charts of estimates and of what they predict: the failure rate, MTTF, ETTR."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.ettr_forms import long_run_ettr
from holdfast.fleet.ettr_measured import MeasuredEttr
from holdfast.fleet.failures import Mttf
from holdfast.fleet.figures import with_axis
from holdfast.fleet.moments import moment
from holdfast.fleet.summary import FEWEST_RUNS
from holdfast.fleet.wording import RATE_UNIT
from holdfast.report import Figure
from holdfast.report.figures import TIME_FORMAT, lines, plain_rows
from holdfast.report.theme import colour
from holdfast.stats import poisson_interval

# Most causes are of hardware, so blue, orange and vermilion, which mean user, system and hardware, would
# mislead here.
CAUSE_COLOURS = ("purple", "sky", "good", "yellow", "ramp5", "ramp1")  # "first" is a loss
ALL_OTHER = "all other causes"
CURVE_POINTS = 20
BEYOND = 32
"""A projection reaches this many times the largest job."""
MINUTE, REAL = "%Y-%m-%d %H:%M", ",.3~r"


# --- Parts of Vega-Lite specifications --------------------------------------------------------------


def _layer(
    rows: Sequence[Mapping[str, Any]], mark: str, encoding: Mapping[str, Any], **style: Any
) -> dict[str, Any]:
    return {
        "data": {"values": plain_rows(rows)},
        "mark": {"type": mark, **style},
        "encoding": dict(encoding),
    }


def _time(field: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "type": "temporal", "scale": {"type": "utc"}, **more}


def _tooltip(fields: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    """Column -> (title, d3 format); "" is a name."""
    kinds = {"": "nominal", MINUTE: "temporal"}
    return [
        {"field": name, "title": title, "type": kinds.get(form, "quantitative")}
        | ({"format": form} if form else {})
        for name, (title, form) in fields.items()
    ]


def _numbered_marks(times: Sequence[Any]) -> list[dict[str, Any]]:
    """Rules at times, numbered from 1; the numbers take three levels in turn."""
    rows = [{"time": time, "number": str(place)} for place, time in enumerate(times, 1)]
    muted = colour("muted")
    layers = [_layer(rows, "rule", {"x": _time("time")}, color=muted, strokeDash=[4, 3])]
    for level in range(min(3, len(rows))):
        at = {"x": _time("time"), "y": {"value": 9 + 19 * level}}
        disc = {"shape": "circle", "size": 230, "fill": colour("background"), "stroke": muted}
        layers += [
            _layer(rows[level::3], "point", at, opacity=1, **disc),
            _layer(rows[level::3], "text", {**at, "text": {"field": "number"}}, fontWeight=600),
        ]
    return layers


# --- The failure rate -------------------------------------------------------------------------------


def rate_over_time(
    over_time: Sequence[Mapping[str, Any]], unit: str, introduced: Sequence[Mapping[str, Any]]
) -> Figure | None:
    """Failures per exposure in each bin of time, stacked by cause, with the total's interval.

    None without a failure.
    """
    legend = _cause_legend(over_time)
    bars, totals = _stacked([row for row in over_time if row["node_days"] > 0], legend)
    if not bars:
        return None
    title = f"Time, one bar per {unit} (UTC)" if not unit[0].isdigit() else "Time (UTC)"
    axis = _time("begin", axis={"format": TIME_FORMAT, "labelOverlap": True}, title=title)
    y = {
        "field": "low",
        "type": "quantitative",
        "scale": {"domain": [0, 1.5 * max(row["rate"] for row in totals)]},
        "title": f"Failures {RATE_UNIT}",
    }
    colours = {"domain": list(legend), "range": [colour(name) for name in legend.values()]}
    cause = {"field": "cause", "type": "nominal", "scale": colours, "legend": None}
    begin = {"begin": ("from", MINUTE)}
    part = {**begin, "cause": ("cause", ""), "failures": ("failures", ",d")}
    whole = {**begin, "failures": ("failures", ",d"), "rate": (f"all, {RATE_UNIT}", REAL)}
    stack = {"x": axis, "x2": {"field": "end"}, "y": y, "y2": {"field": "high"}, "color": cause}
    error = {"x": _time("middle"), "y": y, "y2": {"field": "high"}}
    # The whole log is in view, also where nothing failed at its ends.
    span = [{"begin": moment(over_time[0]["begin_s"])}, {"begin": moment(over_time[-1]["end_s"])}]
    layers = [
        _layer(span, "rule", {"x": axis}, opacity=0),
        _layer(bars, "bar", {**stack, "tooltip": _tooltip({**part, "rate": (RATE_UNIT, REAL)})}),
        _layer(
            totals,
            "rule",
            {**error, "tooltip": _tooltip({**whole, "low": ("from", REAL), "high": ("to", REAL)})},
            clip=True,
            color=colour("measured"),
            strokeWidth=1.2,
        ),
    ]
    notes = []
    if introduced:
        times = [moment(row["first_s"]) for row in introduced]
        layers += _numbered_marks(times)
        notes = [
            f"check “{row['check']}” first seen ({time:%Y-%m-%d %H:%M})"
            for row, time in zip(introduced, times, strict=True)
        ]
    caption = "Failure rate by cause, with the 95 % interval of the total"
    return Figure({"layer": layers}, caption, legend=legend, notes=notes)


def _cause_legend(over_time: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A colour for each of the most frequent causes; the rest share one."""
    totals: dict[str, int] = {}
    for row in over_time:
        if row["cause"] is not None:
            totals[row["cause"]] = totals.get(row["cause"], 0) + row["failures"]
    named = sorted(totals.keys() - {UNATTRIBUTED}, key=lambda cause: (-totals[cause], cause))
    if len(named) > len(CAUSE_COLOURS):
        named = [*named[: len(CAUSE_COLOURS) - 1], ALL_OTHER]
    legend = dict(zip(named, CAUSE_COLOURS, strict=False))
    if UNATTRIBUTED in totals:
        legend[UNATTRIBUTED] = "unattributed"
    return legend


def _stacked(
    over_time: Sequence[Mapping[str, Any]], legend: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(the part of each cause in each bar, from `low` to `high`; the total of each bar)."""
    bins: dict[float, list[Mapping[str, Any]]] = {}
    for row in over_time:
        bins.setdefault(row["begin_s"], []).append(row)
    parts, totals = [], []
    for begin_s, rows in bins.items():
        end_s = rows[0]["end_s"]
        ends = {"begin": moment(begin_s), "end": moment(end_s)}
        per_failure = 1000 / rows[0]["node_days"]
        counts = dict.fromkeys(legend, 0)
        for row in rows:
            if row["failures"]:
                counts[row["cause"] if row["cause"] in legend else ALL_OTHER] += row["failures"]
        below = 0
        for cause, failures in counts.items():
            if failures:
                parts.append(
                    {
                        **ends,
                        "cause": cause,
                        "failures": failures,
                        "rate": failures * per_failure,
                        "low": below * per_failure,
                        "high": (below + failures) * per_failure,
                    }
                )
            below += failures
        if not below:
            continue  # an upper bound alone would hide the bars beside it
        low, high = poisson_interval(below, 1.0)
        totals.append(
            {
                **ends,
                "middle": moment((begin_s + end_s) / 2),
                "failures": below,
                "rate": below * per_failure,
                "low": low * per_failure,
                "high": high * per_failure,
            }
        )
    return parts, totals


# --- MTTF and ETTR by job size ----------------------------------------------------------------------


def mttf_by_size(
    by_size: Mttf, fitted: Mttf, largest_nodes: int, in_nodes: bool = False
) -> Figure | None:
    """MTTF of each job size with its interval, and the 1/N line of the fitted rate with its band.

    Args:
        by_size: the failure model of all attempts, with its job sizes.
        fitted: the failure model of the line.
        largest_nodes: nodes of the largest job that ran; the line is dashed beyond.
        in_nodes: give sizes in nodes, for a log without GPUs.

    Returns:
        None without a failure.
    """
    if not fitted.model.failures_:
        return None
    per_node = fitted.gpus_per_node
    scale, unit = (per_node, "nodes") if in_nodes else (1, "GPUs")
    points = []
    for bucket in by_size.model.buckets_:
        if bucket.gpus_max and bucket.failures and bucket.ci95 is not None:
            nodes = max(1, math.ceil(bucket.gpus_max / per_node))
            rates = (bucket.rate_per_1000_node_days or math.nan, *reversed(bucket.ci95))
            points.append((bucket.gpus_max, *(24_000 / (rate * nodes) for rate in rates)))
    largest = largest_nodes * per_node
    sizes = sorted({per_node, largest, BEYOND * largest, *(point[0] for point in points)})
    line = [(gpus, *fitted.model.mttf_hours(int(gpus), per_node)) for gpus in sizes]
    rows = [
        {"from": name, "size": gpus / scale, "mttf": mttf, "low": low, "high": high}
        for name, each in (("the fitted rate, 1/N", line), ("each job size", points))
        for gpus, mttf, low, high in each
    ]
    return replace(
        lines(
            rows,
            "size",
            "mttf",
            f"Job size ({unit})",
            "Mean time to failure (hours)",
            series="from",
            meanings=_legend(rows),
            low="low",
            high="high",
            points=True,
            log_x=True,
            log_y=True,
        ),
        caption=f"With 95 % intervals; the largest job ran on {largest / scale:,.0f} {unit}",
    )


def _legend(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The line of the model first, then what was measured, if anything was."""
    names = dict.fromkeys(row["from"] for row in rows)
    return dict(zip(names, ("model", "hardware"), strict=False))


def expected_and_measured(
    measured: MeasuredEttr,
    settings: Sequence[Mapping[str, float]],
    gpus_per_node: int,
    in_nodes: bool = False,
) -> Figure:
    """Expected ETTR against job size, with what the long runs had.

    Args:
        measured: the long runs by job size.
        settings: the parameters of the expected ETTR with the fitted failure rate and with the two
            ends of its interval.
        gpus_per_node: GPUs of a node.
        in_nodes: give sizes in nodes, for a log without GPUs.
    """
    scale, unit = (gpus_per_node, "nodes") if in_nodes else (1, "GPUs")
    points = [row for row in measured.by_size.to_pylist() if row["gpus"] > 0]
    sizes = [row["gpus"] for row in points]
    largest = 4 * max([settings[0]["nodes"] * gpus_per_node, *sizes, 2.0 * gpus_per_node])
    smallest = min([*sizes, float(gpus_per_node)])
    ratio = math.log(largest / smallest) / (CURVE_POINTS - 1)
    steps = [smallest * math.exp(ratio * step) for step in range(CURVE_POINTS)]
    # A job on a part of a node fails with its node.
    nodes = [max(gpus / gpus_per_node, 1.0) for gpus in steps]
    values, high, low = (_long_run(setting, nodes) for setting in settings)
    curve = list(zip(steps, values, low, high, strict=True))
    runs = [
        (row["gpus"], row["ettr"], *((row["lo"], row["hi"]) if many else (None, None)))
        for row in points
        for many in [row["runs"] >= FEWEST_RUNS]
    ]
    rows = [
        {
            "from": name,
            "size": gpus / scale,
            **{
                key: None if share is None else 100 * share
                for key, share in zip(("ettr", "low", "high"), shares, strict=True)
            },
        }
        for name, each in (("expected (exact form)", curve), ("measured", runs))
        for gpus, *shares in each
    ]
    made = with_axis(
        lines(
            rows,
            "size",
            "ettr",
            f"Job size ({unit})",
            "ETTR (%)",
            series="from",
            meanings=_legend(rows),
            low="low",
            high="high",
            points=True,
            log_x=True,
        ),
        "y",
        scale={"domain": [0, 100]},
    )
    caption = "Expected, with the 95 % interval of the failure rate"
    caption += f", and measured, with intervals from {FEWEST_RUNS} runs on" * bool(points)
    return replace(made, caption=caption)


def _long_run(setting: Mapping[str, float], nodes: Sequence[float]) -> list[float]:
    """The exact form at each number of nodes."""
    values: list[float] = long_run_ettr(
        [each * setting["rate_per_node_day"] / 86_400 for each in nodes],
        setting["checkpoint_interval_s"],
        setting["init_s"],
        setting["write_s"],
        setting["queue_s"],
    ).tolist()
    return values
