"""The metrics of outcomes where people read them: one table for the terminal and the page."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
    heading: str = ""
    """Of its column in a terminal, with the unit of `scaled`; empty: the label."""

    def scaled(self, value: float) -> float:
        """Shares in percent, durations in minutes."""
        return value * {"%": 100.0, "s": 1 / 60}.get(self.unit, 1.0)

    @property
    def difference_unit(self) -> str:
        """Of a difference that is `scaled`."""
        return {"%": "percentage points", "s": "minutes"}.get(self.unit, self.unit)

    def value(self, value: float) -> str:
        """With its unit."""
        if value != value:
            return "–"
        if self.unit == "%":
            return f"{number(100 * value, 1)} %"
        return duration(value) if self.unit == "s" else number(value, _digits(value))

    def difference(self, value: float) -> str:
        """With its sign; of shares in points."""
        if value != value or value == 0:
            return "0" if value == 0 else "–"
        text = number(100 * value, 1) if self.unit == "%" else self.value(value)
        return f"+{text}" if value > 0 else text

    def interval(self, ends: tuple[float, float]) -> str:
        """Of a difference."""
        return "[{}, {}]".format(*map(self.difference, ends))


_PERCENT, _RATE = "%", "GPU-hours a day"
_WORDINGS = {
    "ettr_large_runs": Wording("Simulated ETTR of large runs", _PERCENT, True, "ETTR (%)"),
    "goodput_share_of_capacity": Wording("Goodput, of capacity", _PERCENT, True),
    "goodput_share_of_busy_time": Wording(
        "Goodput, of busy GPU time", _PERCENT, True, "goodput (%)"
    ),
    "goodput_gpu_hours_per_day": Wording("Goodput", _RATE, True),
    "utilisation": Wording("Utilisation", _PERCENT, None),
    "lost_first_order_gpu_hours_per_day": Wording(
        "Lost, first order", _RATE, False, "lost (GPU-h/d)"
    ),
    "lost_second_order_gpu_hours_per_day": Wording("Lost, second order", _RATE, False),
    "lost_other_preemption_gpu_hours_per_day": Wording("Lost, other preemption", _RATE, False),
    "productive_share_of_large_runs": Wording("Productive share of large runs", _PERCENT, True),
    "interruptions_per_large_run": Wording("Interruptions", "a large run", False),
    "completed_jobs_per_day": Wording("Completed jobs", "a day", True),
    "queue_wait_mean_s": Wording("Wait before a start, mean", "s", False, "wait (min)"),
    "queue_wait_p90_s": Wording("Wait before a start, 9 of 10", "s", False),
    # Of one size of jobs: N is its largest number of GPUs.
    "ettr_gpus_N": Wording("Simulated ETTR of runs of {size} GPUs", _PERCENT, True),
    "failed_share_of_attempts_gpus_N_up": Wording(
        "Attempts of {top:,} or more GPUs that fail", _PERCENT, False
    ),
    "queue_wait_mean_s_gpus_N": Wording("Wait before a start, mean, {size} GPUs", "s", False),
    "queue_wait_p90_s_gpus_N": Wording("Wait before a start, 9 of 10, {size} GPUs", "s", False),
}


def wording(metric: str) -> Wording:
    """How a metric of `outcomes.metrics` reads."""
    words = _WORDINGS[re.sub(r"(?<=_gpus_)\d+", "N", metric)]
    if top := re.search(r"(?<=_gpus_)\d+", metric):
        size = int(top[0])
        return replace(words, label=words.label.format(size=bucket_label(size), top=size))
    return words


def _digits(value: float) -> int:
    """Decimals that leave three significant digits."""
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
