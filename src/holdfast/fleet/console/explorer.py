"""The ETTR explorer: `holdfast.fleet.ettr` and its curve over the checkpoint interval, by a URL's query.

The formula is that of `holdfast.fleet.ettr_forms`, computed here for every move of a slider: there is no
second one in the browser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import numpy as np

from holdfast.durations import duration_text, parse_duration
from holdfast.errors import InputError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.checkpoint_interval import SECONDS_PER_DAY
from holdfast.fleet.ettr_forms import EttrResult, ettr, long_run_ettr
from holdfast.fleet.wording import ettr_settings
from holdfast.report import Figure, figures

LONGEST_S = 86_400.0  # End of the axis of checkpoint intervals
POINTS = 161
# A write that no log states is taken to last this part of the checkpoint interval.
WRITE_SHARE = 1 / 60

# What the ETTR of a job depends on, by the names of `FIELDS`; times in seconds.
COLOURS = {
    "the log as it is": "reference",
    "these settings": "model",
    "this interval": "measured",
    "the best interval": "good",
}
Setting = dict[str, float]


@dataclass(frozen=True)
class Field:
    """How a part of a `Setting` is asked for."""

    label: str
    least: float
    most: float
    # The ends of its slider; one that begins at 0 is linear near it and logarithmic beyond 1.
    slider: tuple[float, float]
    is_time: bool = True  # A query may write ``30m``; else it is a number


FIELDS = {
    "nodes": Field("Nodes of the job", 1, 1e6, (1, 20_000), False),
    "failures_per_1000_node_days": Field("Failures per 1,000 node-days", 0, 1e8, (0.1, 100), False),
    "checkpoint": Field("Checkpoint every", 0.001, 366 * SECONDS_PER_DAY, (10, LONGEST_S)),
    "write": Field("A checkpoint write stops it for", 0, 30 * SECONDS_PER_DAY, (0, 3600)),
    "init": Field("Initialisation after each start", 0, 30 * SECONDS_PER_DAY, (0, 7200)),
    "queue": Field("Queue before each restart", 0, 30 * SECONDS_PER_DAY, (0, 86_400)),
}


def default_setting(analysis: Analysis) -> Setting:
    """The largest job of the log at its measured failure rate, under the assumptions."""
    assumed = analysis.log.assumptions
    setting = {
        # Where the log has no jobs or failures: 1,024 GPUs at the rate of the published RSC-1 fleet.
        "nodes": 128.0,
        "failures_per_1000_node_days": 6.5,
        "checkpoint": assumed.checkpoint_interval_s,
        "write": assumed.write_s or WRITE_SHARE * assumed.checkpoint_interval_s,
        "init": analysis.log.init_s,
        "queue": 0.0,
    }
    if analysis.mttf is None:
        return setting
    rate = analysis.mttf.model.rate_per_1000_node_days_
    if analysis.largest_job_nodes:
        known = ettr_settings(analysis)[0]
        setting |= {"nodes": known["nodes"], "queue": _rounded(known["queue_s"])}
        rate = 1000 * known["rate_per_node_day"]
    return setting | {"failures_per_1000_node_days": _rounded(rate)}


def _rounded(value: float) -> float:
    """Four significant digits: what a field shows is what is computed."""
    return float(f"{value:.4g}")


def read_setting(query: Mapping[str, str], default: Setting) -> Setting:
    """The setting of a URL's query; what it does not name is as in `default`.

    Raises:
        InputError: naming the field, if a value is not a number or duration, or out of range.
    """
    setting = dict(default)
    for name, field in FIELDS.items():
        text = query.get(name, "").strip()[:60]
        if not text:
            continue
        try:
            value = parse_duration(text) if field.is_time else float(text.replace(",", ""))
        except ValueError as error:
            kind = "duration such as 90s or 1h30m" if field.is_time else "number"
            problem = f"“{field.label}” is not a {kind}"
            raise InputError(problem, code="invalid-syntax", place=name, found=text) from error
        if not field.least <= value <= field.most:
            problem = f"“{field.label}” is out of range"
            ends = " to ".join(field_text(name, end) for end in (field.least, field.most))
            raise InputError(problem, code="out-of-range", place=name, found=text, expected=ends)
        setting[name] = value
    return setting


def field_text(name: str, value: float) -> str:
    """A value as it is typed: ``"1024"``, ``"6.5"``, ``"1h30m"``."""
    return duration_text(value) if FIELDS[name].is_time else f"{value:.10g}"


def query(setting: Setting) -> str:
    """The query of a URL that shows a setting."""
    return urlencode({name: field_text(name, setting[name]) for name in FIELDS})


def at(setting: Setting) -> EttrResult:
    """Every form of the ETTR of a setting."""
    rate = setting["failures_per_1000_node_days"] / 1000
    times = {f"{name}_s": setting[name] for name in ("write", "init", "queue")}
    return ettr(setting["nodes"], rate, setting["checkpoint"], **times)


def curve(setting: Setting, default: Setting) -> list[dict[str, Any]]:
    """The exact ETTR in per cent over the checkpoint interval, of the log and of a setting.

    With them a stroke down from this interval and one from the best.

    Returns:
        line, minutes, ettr: `POINTS` rows per curve, two per stroke.
    """
    # The axis begins earlier for a log whose time is compressed.
    begin_s = 1.0 if default["checkpoint"] < 300 else 10.0
    intervals = np.geomspace(begin_s, LONGEST_S, POINTS)
    rows = []
    for name, each in (("the log as it is", default), ("these settings", setting)):
        failures = each["nodes"] * each["failures_per_1000_node_days"] / 1000 / SECONDS_PER_DAY
        values = long_run_ettr(failures, intervals, each["init"], each["write"], each["queue"])
        # An exponent beyond the smallest number gives 0; rounding may pass 1 by a bit of the last digit.
        shares = np.clip(np.nan_to_num(values), 0.0, 1.0)
        points = zip((intervals / 60).tolist(), (100 * shares).tolist(), strict=True)
        rows += [{"line": name, "minutes": minutes, "ettr": each} for minutes, each in points]
    result = at(setting)
    marks = {
        "this interval": (setting["checkpoint"], result.exact),
        "the best interval": (result.optimal_interval_s or math.inf, result.optimal_ettr),
    }
    return rows + [
        {"line": name, "minutes": interval / 60, "ettr": top}
        for name, (interval, share) in marks.items()
        if begin_s <= interval <= LONGEST_S
        for top in (100 * share, 0.0)
    ]


def figure(setting: Setting, default: Setting) -> Figure:
    """What `curve` gives, as a chart whose data set is named ``curve``: a script replaces it."""
    rows = curve(setting, default)
    titles = ("Checkpoint interval (minutes)", "ETTR (%)")
    look = {"series": "line", "log_x": True}
    made = figures.lines(rows, "minutes", "ettr", *titles, meanings=COLOURS, **look)
    assert callable(made.chart)
    chart = {**made.chart(), "data": {"name": "curve", "values": rows}, "height": 300}
    said = "Expected ETTR over the checkpoint interval; the answer below has the values."
    return replace(made, chart=chart, description=said)
