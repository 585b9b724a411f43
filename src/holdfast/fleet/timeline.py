"""The failure rate over time: does it drift, and when was each health check first seen?

A check that is introduced makes failures visible that happened before, too: the rate jumps though the
machines did not get worse. So every plot over time marks the first event of each new check.

**The trend.** Counts x_i of month m_i (or of another bin) with exposure T_i are Poisson with mean
T_i e^{a + b m_i}. Given their total n, S = sum m_i x_i is the sum of n independent draws of a month with
probabilities proportional to T_i e^{b m_i}: its distribution is an n-fold convolution, free of a, and
stochastically increasing in b. So tests and intervals of the rate ratio e^b are exact (Cox and Hinkley
1974, section 2.3).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.answer import Figure, How, Section
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.failure_model import SMALL_EXPECTED_COUNT, checked_counts
from holdfast.fleet.incidents import incidents
from holdfast.fleet.log import DAY_S, HOUR_S, SHORTEST_S, FleetLog
from holdfast.fleet.moments import moment
from holdfast.fleet.node_time import ANY_SIZE, node_time, threshold
from holdfast.fleet.outage_log import known_nodes, only_outages
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import RATE_UNIT, probability, table
from holdfast.numbers import counted, percent
from holdfast.plain import plain
from holdfast.report.figures import lines
from holdfast.stats import NORMAL_95, FloatArray, poisson_interval

# Most causes are of hardware, so blue, orange and vermilion, which mean user, system and hardware, would
# mislead here.
CAUSE_COLOURS = ("purple", "sky", "good", "yellow", "ramp5", "ramp1")  # "first" is a loss
ALL_OTHER = "all other causes"
EVERY = "all causes"
EXACT_UP_TO = 30_000  # values of S; with more the normal approximation has the same digits
STEEPEST = 30.0  # |b|: a rate ratio of e^30 a month stands for zero or infinity
PRECISION = 1e-13
TAIL = 0.025
WIDTHS = {"week": 7 * DAY_S, "day": DAY_S, "hour": HOUR_S, "10 minutes": 600.0, "minute": 60.0}

# A check is new if, had it run all along, so long a silence before its first event had at most this
# probability
INTRODUCED_P = 0.05
SIGNIFICANT_P = 0.05


def bin_edges(begin_s: float, end_s: float) -> tuple[list[float], str]:
    """Edges of time bins that suit the length of a log, and what one bin is.

    Args:
        begin_s: start (epoch seconds).
        end_s: end (epoch seconds); one before the start counts as the start.

    Returns:
        (edges, shape [n + 1], the first at or before `begin_s`, the last after `end_s`; "month",
        "week", "day", "hour", "10 minutes" or "minute").
    """
    end_s = max(begin_s, end_s)
    span = end_s - begin_s
    if span > 75 * DAY_S:
        start = datetime.fromtimestamp(begin_s, UTC)
        month = start.year * 12 + start.month - 1
        edges = []
        while not edges or edges[-1] <= end_s:
            edges.append(datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp())
            month += 1
        return edges, "month"
    name, width = next((n, w) for n, w in WIDTHS.items() if span >= 5 * w or w == 60)
    first = math.floor(begin_s / width) * width
    return [first + i * width for i in range(int((end_s - first) // width) + 2)], name


def rate_over_time(log: FleetLog, min_gpus: int) -> tuple[list[Row], str]:
    """Incidents and node-days per bin of time and cause, of attempts above a size.

    Args:
        log: the open log.
        min_gpus: attempts with more GPUs than this count; in a log without GPUs 0 counts all.

    Returns:
        (begin_s, end_s, cause, failures, clusters (that begin with one of them before the log ends: a
        failure that ends the log is in the last bin whatever the rate does), node_days; one row per bin and
        cause, and one with the cause None and no failures for a bin without any; and what one bin is).
    """
    edges, unit = bin_edges(log.begin_s, log.end_s)
    if only_outages(log):  # the whole fleet: outages are short against the time between them
        inside = np.clip(edges, int(log.begin_s), int(log.end_s) + 1)  # the last second counts
        above = ANY_SIZE
        until = known_nodes(log) * inside / DAY_S
    else:
        above = threshold(log, min_gpus)
        until = node_time(log, above).until(edges)
    rates = {}
    for row in log.rows(
        f"""SELECT stop_s, label, row_number() OVER (
            PARTITION BY cluster ORDER BY stop_s, incident) = 1 AND stop_s < {log.end_s} AS first
        FROM {incidents(log)} WHERE gpus > {above}"""
    ):
        rates.setdefault(bisect_right(edges, row["stop_s"]) - 1, []).append(row)
    rows = []
    for place, (low, high) in enumerate(pairwise(edges)):
        days = float(until[place + 1] - until[place])
        span = {"begin_s": low, "end_s": high, "node_days": max(days, 0.0)}
        here = rates.get(place, [])
        for cause in sorted({row["label"] for row in here}) or [None]:
            mine = [row["first"] for row in here if row["label"] == cause]
            rows.append({**span, "cause": cause, "failures": len(mine), "clusters": sum(mine)})
    return rows, unit


def checks_introduced(log: FleetLog) -> list[Row]:
    """Checks that began during the log: check, first_s, events; the earliest first.

    With n events, all in the last part of length 1 - x of the log, the probability that none fell
    into the first part x is (1 - x)^n if the check had run from the beginning.
    """
    health = log.table("health")
    seen = log.rows(
        'SELECT "check", min(time_s) AS first_s, count(*) AS events '
        f'FROM {health} GROUP BY "check" ORDER BY first_s, "check"'
    )
    span = max(log.end_s - log.begin_s, 1.0)

    def is_new(row: Row) -> bool:
        silent = min(max((row["first_s"] - log.begin_s) / span, 0.0), 1.0)
        return bool(silent > 0 and (1.0 - silent) ** (row["events"] - 1) <= INTRODUCED_P)

    return [row for row in seen if is_new(row)]


def failure_trend(over_time: Sequence[Row], unit: str) -> Trend:
    """The change of the rate from bin to bin of `rate_over_time`: of clusters, which are independent."""
    counts = {}
    node_days = {}
    for row in over_time:
        begin_s = row["begin_s"]
        counts[begin_s] = counts.get(begin_s, 0) + row["clusters"]
        node_days[begin_s] = max(row["node_days"], counts[begin_s] * SHORTEST_S / DAY_S)
    return trend(range(len(counts)), [*counts.values()], [*node_days.values()], unit)


def drift(trend: Trend) -> str:
    """Whether the rate changes from bin to bin, in a sentence."""
    if trend.rate_ratio is None or trend.ci95 is None or trend.p_value is None:
        return "Cannot tell whether it drifts: that takes failures, and two bins of time."
    if trend.verdict == "unknown":
        few = f"{counted(trend.failures, 'independent failure')} in {trend.bins:,} bins of time"
        return f"Cannot tell whether it drifts: {few} could not show it."
    change, low, high = (_signed(ratio - 1) for ratio in (trend.rate_ratio, *trend.ci95))
    words = {"rises": "The rate rises", "falls": "The rate falls"}
    word = words.get(trend.verdict, "No trend")
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


def section(
    sentence: str,
    over_time: Sequence[Row],
    unit: str,
    introduced: Sequence[Row],
    how: How,
) -> Section:
    """Does the failure rate drift?

    Args:
        sentence: the answer.
        over_time: of `rate_over_time`.
        unit: what one bin of time is.
        introduced: checks that began during the log, to be marked.
        how: the rate was computed.
    """
    rows = table(
        over_time,
        "begin_s cause failures node_days",
        f"One row per {unit} and cause. The exposure is that of the whole {unit}.",
        "Nothing ran.",
        begin_s=f"From ({unit})",
        cause="Cause",
    )
    figure = rate_figure(over_time, unit, introduced)
    drawn = [figure] if figure else []
    return Section("rate", "Does the failure rate drift?", sentence, drawn, [rows], how)


def rate_figure(over_time: Sequence[Row], unit: str, introduced: Sequence[Row]) -> Figure | None:
    """Failures per exposure in each bin of time: of every cause, and of all with the interval.

    None without a failure.
    """
    legend = _cause_legend(over_time)
    rows = []
    exposed = (row for row in over_time if row["node_days"] > 0)
    for (begin_s, end_s, days), parts in groupby(
        exposed, itemgetter("begin_s", "end_s", "node_days")
    ):
        counts = dict.fromkeys(legend, 0)
        for row in parts:
            if row["failures"]:
                counts[row["cause"] if row["cause"] in legend else ALL_OTHER] += row["failures"]
                counts[EVERY] += row["failures"]
        at = moment((begin_s + end_s) / 2)
        low, high = poisson_interval(counts[EVERY], days / 1000)
        rows += [
            {"time": at, "cause": cause, "failures": n, "rate": 1000 * n / days}
            | ({"low": low, "high": high} if cause == EVERY and n else {})
            for cause, n in counts.items()
        ]
    if not any(row["failures"] for row in rows):
        return None
    firsts = [(moment(row["first_s"]), row["check"]) for row in introduced]
    marks = [
        {"at": at, "text": f"check “{check}” first seen ({at:%Y-%m-%d %H:%M})"}
        for at, check in firsts
    ]
    figure = lines(
        rows,
        "time",
        "rate",
        f"Time, one point per {unit}",
        f"Failures {RATE_UNIT}",
        series="cause",
        low="low",
        high="high",
        meanings=legend,
        points=True,
        zone="UTC",
        marks=marks,
    )
    return replace(figure, caption="Failure rate by cause, with the 95 % interval of the total")


def _cause_legend(over_time: Sequence[Row]) -> dict[str, str]:
    """A colour for all and for each of the most frequent causes; the rest share one."""
    totals = Counter()
    for row in over_time:
        if row["cause"] is not None:
            totals[row["cause"]] += row["failures"]
    named = sorted(totals.keys() - {UNATTRIBUTED}, key=lambda cause: (-totals[cause], cause))
    if len(named) > len(CAUSE_COLOURS):
        named = [*named[: len(CAUSE_COLOURS) - 1], ALL_OTHER]
    legend = {EVERY: "measured", **dict(zip(named, CAUSE_COLOURS, strict=False))}
    if UNATTRIBUTED in totals:
        legend[UNATTRIBUTED] = "unattributed"
    return legend


@dataclass(frozen=True)
class Trend:
    """The change of the failure rate from one bin of time to the next."""

    # e^b: 1.1 is a rise of 10 % a bin. None if it cannot be told; inf is None in `to_dict`
    rate_ratio: float | None
    ci95: tuple[float, float] | None  # Interval of the ratio; the upper end may be infinite
    p_value: float | None  # Two-sided, of "no trend"
    # Of bins that scatter like Poisson counts; None where one expects fewer than 5 failures
    dispersion_p_value: float | None
    failures: int  # Independent events
    bins: int  # Bins with exposure
    method: str
    unit: str  # What one bin is: "month", "week", "day", "hour", "10 minutes" or "minute"
    # The p-value if all failures had been in the first bin, or all in the last, whichever is larger
    least_p_value: float = 1.0

    @property
    def verdict(self) -> str:
        """Whether the rate "rises", "falls", shows "none" of it, or "unknown": too few failures."""
        if self.rate_ratio is None or self.p_value is None or self.least_p_value >= SIGNIFICANT_P:
            return "unknown"
        if self.p_value >= SIGNIFICANT_P:
            return "none"
        return "rises" if self.rate_ratio > 1 else "falls"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite bound is null."""
        values = plain(vars(self))
        return {**values, "per": values.pop("unit"), "verdict": self.verdict}


def trend(
    month_index: npt.ArrayLike,
    failures: npt.ArrayLike,
    node_days: npt.ArrayLike,
    unit: str = "month",
) -> Trend:
    """Test and measure the change of the failure rate from bin to bin of time, a month unless said.

    Args:
        month_index: whole numbers, any origin, shape (k,): 0, 1, 2 ... for consecutive months.
        failures: counts, shape (k,).
        node_days: exposure, shape (k,); months without are left out.
        unit: what one bin is, if not a month.

    Raises:
        InputError: fractional counts, or failures without exposure.
    """
    counts, days = checked_counts(failures, node_days)
    month = np.asarray(month_index, dtype=np.float64)
    month, counts, days = month[days > 0], counts[days > 0], days[days > 0]
    total = int(counts.sum())
    months = int(np.unique(month).size)
    if months < 2 or total == 0:
        return Trend(None, None, None, None, total, months, "none: too little data", unit)
    month = (month - month.min()).astype(np.int64)
    months_of = _Months(month, days, total)
    observed = int(month @ counts)
    slope = _root(lambda b: months_of.mean(b) - observed / total)
    if total * int(month.max()) <= EXACT_UP_TO:
        low_tail, high_tail = months_of.tails(observed, 0.0)
        p_value = min(1.0, 2 * min(low_tail, high_tail))
        low = _root(lambda b: months_of.tails(observed, b)[1] - TAIL)
        high = _root(lambda b: TAIL - months_of.tails(observed, b)[0])
        method = "exact conditional"
    else:
        error = 1 / math.sqrt(total * months_of.variance(slope))
        half = NORMAL_95 * error
        low, high = slope - half, slope + half
        p_value = math.erfc(abs(slope / error) / math.sqrt(2))
        method = "normal approximation of the Poisson regression"
    return Trend(
        _ratio(slope),
        (_ratio(low), _ratio(high)),
        p_value,
        _scatter(counts, total * months_of.shares(slope)),
        total,
        months,
        method,
        unit,
        min(1.0, 2 * months_of.shares(0.0)[[month.argmin(), month.argmax()]].max() ** total),
    )


class _Months:
    """Distribution of the months of the failures, given their total, when the log rate has slope b."""

    def __init__(self, month: npt.NDArray[np.int64], days: FloatArray, total: int) -> None:
        self.month, self.total = month, total
        self.log_days = np.log(days)

    def shares(self, b: float) -> FloatArray:
        logs = self.log_days + b * self.month
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def mean(self, b: float) -> float:
        return float(self.shares(b) @ self.month)

    def variance(self, b: float) -> float:
        shares = self.shares(b)
        return float(shares @ self.month**2 - (shares @ self.month) ** 2)

    def tails(self, observed: int, b: float) -> tuple[float, float]:
        """P(S <= observed) and P(S >= observed), by the n-th power of the Fourier transform."""
        length = self.total * int(self.month.max()) + 1
        size = 1 << (length - 1).bit_length()
        one = np.zeros(int(self.month.max()) + 1)
        np.add.at(one, self.month, self.shares(b))
        pmf = np.fft.irfft(np.fft.rfft(one, size) ** self.total, size)[:length].clip(0)
        return min(float(pmf[: observed + 1].sum()), 1.0), min(float(pmf[observed:].sum()), 1.0)


def _root(function: Callable[[float], float]) -> float:
    """Where an increasing function of the slope crosses zero, within +-STEEPEST."""
    # By bisection: to import `scipy.optimize` takes longer than all of it.
    places = range(round(2 * STEEPEST / PRECISION))
    place = bisect_left(places, 0, key=lambda at: function(at * PRECISION - STEEPEST))
    return place * PRECISION - STEEPEST


def _scatter(counts: FloatArray, expected: FloatArray) -> float | None:
    """P-value of Pearson's chi-square around the fitted trend (two parameters fitted)."""
    freedom = counts.size - 2
    if freedom < 1 or expected.min() < SMALL_EXPECTED_COUNT:
        return None
    from scipy.special import chdtrc

    return float(chdtrc(freedom, float(((counts - expected) ** 2 / expected).sum())))


def _ratio(slope: float) -> float:
    if abs(slope) > STEEPEST - 1e-6:
        return math.inf if slope > 0 else 0.0
    return math.exp(slope)
