"""What the metrics of outcomes are called where people read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.fleet.job_sizes import bucket_label
from holdfast.numbers import duration, number


@dataclass(frozen=True)
class Wording:
    """How a metric reads."""

    label: str
    unit: str
    """``"%"`` for shares, ``"s"`` for durations."""
    more_is_better: bool | None
    """None: neither; it explains the others."""


_NAMES = {
    "ettr_large_runs": Wording("Simulated ETTR of large runs", "%", True),
    "goodput_share_of_capacity": Wording("Goodput, of capacity", "%", True),
    "goodput_share_of_busy_time": Wording("Goodput, of busy GPU time", "%", True),
    "goodput_gpu_hours_per_day": Wording("Goodput", "GPU-hours a day", True),
    "utilisation": Wording("Utilisation", "%", None),
    "lost_first_order_gpu_hours_per_day": Wording("Lost, first order", "GPU-hours a day", False),
    "lost_second_order_gpu_hours_per_day": Wording("Lost, second order", "GPU-hours a day", False),
    "lost_other_preemption_gpu_hours_per_day": Wording(
        "Lost, other preemption", "GPU-hours a day", False
    ),
    "productive_share_of_large_runs": Wording("Productive share of large runs", "%", True),
    "interruptions_per_large_run": Wording("Interruptions", "a large run", False),
    "completed_jobs_per_day": Wording("Completed jobs", "a day", True),
    "queue_wait_mean_s": Wording("Wait before a start, mean", "s", False),
    "queue_wait_p90_s": Wording("Wait before a start, 9 of 10", "s", False),
}
_PATTERNS = {
    r"ettr_gpus_(\d+)": Wording("Simulated ETTR of runs of {size} GPUs", "%", True),
    r"failed_share_of_attempts_gpus_(\d+)_up": Wording(
        "Attempts of {top} or more GPUs that fail", "%", False
    ),
    r"queue_wait_mean_s_gpus_(\d+)": Wording("Wait before a start, mean, {size} GPUs", "s", False),
    r"queue_wait_p90_s_gpus_(\d+)": Wording(
        "Wait before a start, 9 of 10, {size} GPUs", "s", False
    ),
}


def wording(metric: str) -> Wording:
    """How a metric of `outcomes.metrics` reads."""
    if metric in _NAMES:
        return _NAMES[metric]
    for pattern, words in _PATTERNS.items():
        found = re.fullmatch(pattern, metric)
        if found:
            top = int(found[1])
            label = words.label.format(size=bucket_label(top), top=f"{top:,}")
            return Wording(label, words.unit, words.more_is_better)
    raise KeyError(metric)


def value_text(metric: str, value: float | None) -> str:
    """A value with its unit, for tables."""
    unit = wording(metric).unit
    if value is None or value != value:
        return "–"
    if unit == "%":
        return f"{number(100 * value, 1)} %"
    return duration(value) if unit == "s" else number(value, digits_of(value))


def difference_text(metric: str, difference: float | None) -> str:
    """A difference with its sign: shares in points."""
    unit = wording(metric).unit
    if difference is None or difference != difference:
        return "–"
    sign = "+" if difference > 0 else ""
    if difference == 0:
        return "0"
    if unit == "%":
        return f"{sign}{number(100 * difference, 1)}"
    return sign + (
        duration(difference) if unit == "s" else number(difference, digits_of(difference))
    )


def digits_of(value: float) -> int:
    """Decimals that leave three significant digits."""
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
