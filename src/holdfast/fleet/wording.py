"""How a fleet's figures are worded, so that a page, a table and a finding say it alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.numbers import brief, counted, duration

if TYPE_CHECKING:
    from holdfast.fleet.analysis import Analysis

PAPER = (
    "Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, arXiv 2410.21680v2"
)
RATE_UNIT = "per 1,000 node-days"
SIGNIFICANT_DIGITS = 3
MOST_ROWS = 500  # Rows of a table on the page; the commands give all with --json
MOST_NAMES = 12


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


def decimals(values: Iterable[float | None]) -> int:
    """Decimals that give the larger values of a column three significant digits."""
    known = (abs(value) for value in values if value is not None and math.isfinite(value))
    largest = max(known, default=0.0)
    if largest == 0:
        return 0
    return min(max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(largest))), 4)


def listed(names: list[str], most: int = MOST_NAMES) -> str:
    """The first names of a list that may be long: ``"n1, n2 and 488 more"``, ``"none"``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most]) or 'none'}{more}"


def size(analysis: Analysis, nodes: int) -> str:
    """A job's size, ``"4,096 GPUs"``, or in nodes where the log has no GPUs."""
    if analysis.without_gpus:
        return counted(nodes, "node")
    return counted(nodes * analysis.log.gpus_per_node, "GPU")


def ettr_settings(analysis: Analysis) -> list[dict[str, Any]]:
    """The parameters of the expected ETTR: at the fitted failure rate, and at its interval's ends.

    Without failures the first is at the upper end: an ETTR of 100 % is not an expectation.
    """
    assert analysis.mttf is not None
    model = analysis.mttf.model
    low, high = model.ci95_
    rates = (model.rate_per_1000_node_days_ if model.failures_ else high, low, high)
    return [{**analysis.ettr_setting, "rate_per_node_day": rate / 1000} for rate in rates]
