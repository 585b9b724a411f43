"""How a fleet report words its numbers, so that a page, a table and a finding say it alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.ettr_forms import expected_ettr
from holdfast.fleet.failure_trend import Trend
from holdfast.numbers import brief, counted, duration, percent

SIGNIFICANT_DIGITS = 3


def brief_interval(low: float | None, high: float | None) -> str:
    """``"[6.74, 8.76]"``; without an upper end ``"[27.1, ∞)"``."""
    end = ")" if high is not None and math.isinf(high) else "]"
    return f"[{brief(low)}, {brief(high)}{end}"


def duration_interval(low_s: float | None, high_s: float | None) -> str:
    """``"[5 h 21 min, 6 h 57 min]"``; an end of None is none."""
    return f"[{duration(low_s)}, {'∞)' if high_s is None else duration(high_s) + ']'}"


def probability(name: str, value: float, digits: int = 3) -> str:
    """``"q = 0.024"``, ``"p < 0.001"``."""
    least = 10.0**-digits
    return f"{name} < {least:.{digits}f}" if value < least else f"{name} = {value:.{digits}f}"


def decimals(values: Iterable[float]) -> int:
    """Decimals that give the larger values of a column three significant digits."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return 0
    return min(max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(largest))), 4)


RATE_UNIT = "per 1,000 node-days"


def size(analysis: Analysis, nodes: int) -> str:
    """A job's size, ``"4,096 GPUs"``, or in nodes where the log has no GPUs."""
    if without_gpus(analysis):
        return counted(nodes, "node")
    return counted(nodes * analysis.log.gpus_per_node, "GPU")


def drift(trend: Trend) -> str:
    """Whether the rate changes from bin to bin, in a sentence."""
    if trend.rate_ratio is None or trend.ci95 is None or trend.p_value is None:
        return "No trend can be told: it takes failures and two bins of time."
    change, low, high = (_signed(ratio - 1) for ratio in (trend.rate_ratio, *trend.ci95))
    word = "No trend"
    if trend.p_value < 0.05:
        word = "The rate rises" if trend.rate_ratio > 1 else "The rate falls"
    each = f"in {trend.unit}" if trend.unit[0].isdigit() else f"a {trend.unit}"
    text = f"{word}: {change} {each} [{low}, {high}], {probability('p', trend.p_value, 2)}."
    if trend.dispersion_p_value is not None and trend.dispersion_p_value < 0.01:
        text += (
            " The bins scatter more than independent failures would: the interval is too narrow."
        )
    return text


def _signed(change: float) -> str:
    if change > 10:  # few failures: a change without a useful bound
        return "more than +1,000 %"
    if abs(change) < 0.0005:
        return "±0.0 %"
    return f"{'+' if change > 0 else ''}{percent(change, 1)}"


def without_gpus(analysis: Analysis) -> bool:
    """Whether the log has no GPU time, so that sizes are given in nodes."""
    return not analysis.goodput.total_gpu_hours


def ettr_settings(analysis: Analysis) -> list[dict[str, Any]]:
    """The parameters of the expected ETTR: at the fitted failure rate, and at its interval's ends.

    Without failures the first is at the upper end: an ETTR of 100 % is no expectation.
    """
    assert analysis.mttf is not None
    model = analysis.mttf.model
    low, high = model.ci95_
    rates = (model.rate_per_1000_node_days_ if model.failures_ else high, low, high)
    return [{**analysis.ettr_setting, "rate_per_node_day": rate / 1000} for rate in rates]


def expected_text(analysis: Analysis) -> str:
    """The expected ETTR of the largest job, ``"77.4 % [74.9 %, 79.7 %]"`` or ``"at least 95.1 %"``."""
    assert analysis.mttf is not None
    value, high, low = (percent(expected_ettr(**setting), 1) for setting in ettr_settings(analysis))
    if not analysis.mttf.model.failures_:
        return f"at least {low}"
    return value if low == high else f"{value} [{low}, {high}]"
