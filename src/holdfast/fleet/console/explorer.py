"""The ETTR explorer: the exact curve over the checkpoint interval, for a setting that the URL holds.

The formula is `holdfast.fleet.ettr_forms`, computed here for every move of a slider: there is no second
one in the browser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

import numpy as np

from holdfast.durations import duration_text, parse_duration
from holdfast.errors import InputError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.checkpoint_interval import SECONDS_PER_DAY
from holdfast.fleet.ettr_forms import EttrResult, ettr, expected_ettr, long_run_ettr
from holdfast.fleet.wording import ettr_settings
from holdfast.numbers import brief, counted, duration, number, percent
from holdfast.report import Figure, figures

LONGEST_S = 86_400.0
"""End of the axis of checkpoint intervals."""
POINTS = 161
PAPER_NODES, PAPER_RATE = 128.0, 6.5
"""Where the log has neither jobs nor failures: 1,024 GPUs, and RSC-1's failures per 1,000 node-days."""
WRITE_SHARE = 1 / 60
"""A write that no log states is taken to last this part of the checkpoint interval."""


@dataclass(frozen=True)
class Setting:
    """What the ETTR of a job depends on; the fields are the names in the URL's query."""

    nodes: float
    failures_per_1000_node_days: float
    checkpoint: float
    """Seconds, as the next three; a query may write ``30m``."""
    write: float
    init: float
    queue: float

    def query(self) -> str:
        """The query of a URL that shows this setting."""
        return urlencode({field.name: field_text(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class Field:
    """How a field of a `Setting` is asked for."""

    label: str
    unit: str
    """Shown after the label; empty for a duration."""
    least: float
    most: float
    slider: tuple[float, float]
    """The ends of its slider; one that begins at 0 is linear near it and logarithmic beyond 1."""


FIELDS = {
    "nodes": Field("Nodes of the job", "nodes", 1, 1e6, (1, 20_000)),
    "failures_per_1000_node_days": Field("Failures per 1,000 node-days", "", 0, 1e8, (0.1, 100)),
    "checkpoint": Field("Checkpoint every", "", 0.001, 366 * SECONDS_PER_DAY, (10, LONGEST_S)),
    "write": Field("A checkpoint write stops it for", "", 0, 30 * SECONDS_PER_DAY, (0, 3600)),
    "init": Field("Initialisation after each start", "", 0, 30 * SECONDS_PER_DAY, (0, 7200)),
    "queue": Field("Queue before each restart", "", 0, 30 * SECONDS_PER_DAY, (0, 86_400)),
}
TIMES = ("checkpoint", "write", "init", "queue")


def default_setting(analysis: Analysis) -> Setting:
    """The largest job of the log at its measured failure rate, under the assumptions."""
    assumed = analysis.log.assumptions
    write = assumed.write_s or WRITE_SHARE * assumed.checkpoint_interval_s
    setting = Setting(
        PAPER_NODES, PAPER_RATE, assumed.checkpoint_interval_s, write, analysis.log.init_s, 0.0
    )
    if analysis.mttf is None:
        return setting
    if not analysis.largest_job_nodes:
        rate = analysis.mttf.model.rate_per_1000_node_days_
        return replace(setting, failures_per_1000_node_days=_rounded(rate))
    known = ettr_settings(analysis)[0]
    return replace(
        setting,
        nodes=known["nodes"],
        failures_per_1000_node_days=_rounded(1000 * known["rate_per_node_day"]),
        queue=_rounded(known["queue_s"]),
    )


def _rounded(value: float) -> float:
    """Four significant digits: what a field shows is what is computed."""
    return float(f"{value:.4g}")


def read_setting(query: Mapping[str, str], default: Setting) -> Setting:
    """The setting of a URL's query; what it does not name is as in `default`.

    Raises:
        InputError: naming the field, if a value is no number or duration, or out of range.
    """
    given = {}
    for name, field in FIELDS.items():
        text = query.get(name, "").strip()
        if not text:
            continue
        value = _value(name, text[:60])
        if not field.least <= value <= field.most:
            ends = [_written(name, each) for each in (field.least, field.most)]
            raise InputError(
                f"“{field.label}” is out of range",
                code="out-of-range",
                place=name,
                found=text[:60],
                expected=f"{ends[0]} to {ends[1]}",
            )
        given[name] = value
    return replace(default, **given)


def _value(name: str, text: str) -> float:
    label = FIELDS[name].label
    if name in TIMES:
        try:
            return parse_duration(text)
        except ValueError as error:
            raise InputError(
                f"“{label}” is not a duration",
                code="invalid-syntax",
                place=name,
                found=text,
                expected="for example 90s or 1h30m",
            ) from error
    try:
        value = float(text.replace(",", ""))
    except ValueError as error:
        raise InputError(
            f"“{label}” is not a number", code="invalid-syntax", place=name, found=text
        ) from error
    if not math.isfinite(value):
        raise InputError(f"“{label}” is not finite", code="invalid-value", place=name, found=text)
    return value


def field_text(setting: Setting, name: str) -> str:
    """A field as it is typed: ``"1024"``, ``"6.5"``, ``"1h30m"``."""
    return _written(name, getattr(setting, name))


def _written(name: str, value: float) -> str:
    if name in TIMES:
        return duration_text(value)
    return f"{value:.10g}" if value < 1e15 else str(value)


def at(setting: Setting) -> EttrResult:
    """Every form of the ETTR of a setting."""
    return ettr(**_parameters(setting))


def _parameters(setting: Setting) -> dict[str, Any]:
    return {
        "nodes": setting.nodes,
        "rate_per_node_day": setting.failures_per_1000_node_days / 1000,
        "checkpoint_interval_s": setting.checkpoint,
        "write_s": setting.write,
        "init_s": setting.init,
        "queue_s": setting.queue,
    }


def shortest_s(default: Setting) -> float:
    """Where the axis of checkpoint intervals begins: earlier for a log whose time is compressed."""
    return 1.0 if default.checkpoint < 300 else 10.0


def curve(setting: Setting, begin_s: float = 10.0) -> list[dict[str, float]]:
    """The exact ETTR over the checkpoint interval: minutes, ettr; `POINTS` rows from `begin_s` on."""
    intervals = np.geomspace(begin_s, LONGEST_S, POINTS)
    failures_per_s = setting.nodes * setting.failures_per_1000_node_days / 1000 / SECONDS_PER_DAY
    values = long_run_ettr(failures_per_s, intervals, setting.init, setting.write, setting.queue)
    # An exponent beyond the smallest number gives 0; rounding may pass 1 by a bit of the last digit.
    shares = np.clip(np.nan_to_num(values), 0.0, 1.0)
    return [
        {"minutes": each / 60, "ettr": share}
        for each, share in zip(intervals.tolist(), shares.tolist(), strict=True)
    ]


def drawn(setting: Setting, default: Setting) -> list[dict[str, Any]]:
    """Both curves in per cent, and a stroke down from this interval and from the best one."""
    begin_s, result = shortest_s(default), at(setting)
    rows = [
        {"line": name, "minutes": row["minutes"], "ettr": 100 * row["ettr"]}
        for name, each in (("the log as it is", default), ("these settings", setting))
        for row in curve(each, begin_s)
    ]
    marks = {
        "this interval": (setting.checkpoint, result.exact),
        "the best interval": (result.optimal_interval_s, result.optimal_ettr),
    }
    return rows + [
        {"line": name, "minutes": interval_s / 60, "ettr": top}
        for name, (interval_s, value) in marks.items()
        if interval_s is not None and begin_s <= interval_s <= LONGEST_S
        for top in (100 * value, 0.0)
    ]


def figure(setting: Setting, default: Setting) -> Figure:
    """What `drawn` gives, as a chart whose data set is named ``curve``: a script replaces it."""
    rows = drawn(setting, default)
    made = figures.lines(
        rows,
        "minutes",
        "ettr",
        "Checkpoint interval (minutes)",
        "ETTR (%)",
        series="line",
        meanings={
            "the log as it is": "reference",
            "these settings": "model",
            "this interval": "measured",
            "the best interval": "good",
        },
        log_x=True,
    )
    assert callable(made.chart)
    chart = {**made.chart(), "data": {"name": "curve", "values": rows}, "height": 300}
    said = "Expected ETTR over the checkpoint interval; the answer below has the values."
    return replace(made, chart=chart, description=said)


def outcome(setting: Setting, default: Setting, gpus_per_node: int) -> dict[str, str]:
    """The answer in words: ettr, best_ettr, best_interval, mttf, sentence, note."""
    result = at(setting)
    failures_per_day = setting.nodes * setting.failures_per_1000_node_days / 1000
    mttf = SECONDS_PER_DAY / failures_per_day if failures_per_day else math.inf
    gain = result.optimal_ettr - result.exact
    won = gain * setting.nodes * gpus_per_node * 24
    job = counted(round(setting.nodes), "node")
    sentence = (
        f"A job on {job} that checkpoints every {duration(setting.checkpoint)} spends "
        f"{percent(result.exact, 1)} of its time productively."
    )
    if result.optimal_interval_s:
        sentence += (
            f" At the best interval, {duration(result.optimal_interval_s)}, "
            f"{percent(result.optimal_ettr, 1)}: {number(100 * gain, 1)} points more, "
            f"{brief(won)} GPU-hours a day."
        )
        best = duration(result.optimal_interval_s)
    elif not failures_per_day:
        sentence += " Nothing fails, so no checkpoint pays."
        best = "never"
    else:
        sentence += " A write that costs nothing has no best interval: the shorter the better."
        best = "–"
    as_is = expected_ettr(**_parameters(default))
    change = 100 * (result.exact - as_is)
    sign = "+" if change > 0 else ""
    against = f"{sign}{number(change, 1)} points against the log as it is"
    return {
        "ettr": percent(result.exact, 1),
        "ettr_note": against if abs(change) >= 0.05 else "as the log is",
        "best_ettr": percent(result.optimal_ettr, 1),
        "best_interval": best,
        "young": f"Young's: {duration(result.young_interval_s)}" if result.young_interval_s else "",
        "mttf": duration(mttf),
        "mttf_note": f"{brief(failures_per_day)} failures a day",
        "sentence": sentence,
    }
