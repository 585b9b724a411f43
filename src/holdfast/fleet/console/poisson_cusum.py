"""A jump of a failure rate, found as early as a given rate of false alarms allows: a Poisson CUSUM.

Counts are watched against exposure, both in units of the failures that the in-control rate would give:
if nothing has changed, failures arrive as a Poisson process of rate one. For a shift to k times the
rate the statistic falls by d = (k - 1) / ln k for each expected failure, never below zero, and rises by
one at each failure; an alarm is given when it reaches the threshold h (Lucas 1985, Technometrics 27,
"Counted data CUSUM's", whose reference value d is; here in continuous time, so no sampling interval
has to be chosen).

The time to a false alarm is the first passage of a reflected process with drift -d and unit jumps. Its
mean, the in-control average run length in expected failures, is exact:

    ARL(h) = W(h)^2 / W'(h) - integral of W over [0, h],
    W(x) = 1/d  sum over j = 0 .. floor(x) of  e^((x - j)/d) ((j - x)/d)^j / j!

with W the scale function of the process d t - N(t) (Avram, Kyprianou and Pistorius 2004, Annals of
Applied Probability 14; W is also the waiting time of the M/D/1 queue, up to its constant).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

RATIO = 2.0
"""The shift that the statistic is tuned to: a doubling. Others are found too, smaller ones later."""
IN_CONTROL_RUN = 1_000.0
"""Failures between two false alarms, in the mean, while the rate is the in-control one."""
_STEPS = 400  # of the integral, for each unit of the threshold: six digits


def drift(ratio: float = RATIO) -> float:
    """The reference value d: what the statistic loses for each expected failure.

    Args:
        ratio: k, the shifted rate over the in-control one; above 1.
    """
    return (ratio - 1) / math.log(ratio)


def statistic(expected_at: Iterable[float], expected_now: float, ratio: float = RATIO) -> float:
    """The CUSUM after the failures seen so far.

    Args:
        expected_at: failures expected from the beginning up to each failure, ascending.
        expected_now: failures expected from the beginning up to now.
        ratio: the shift that it is tuned to.
    """
    fall, value, before = drift(ratio), 0.0, 0.0
    for moment in expected_at:
        value = max(0.0, value - fall * (moment - before)) + 1.0
        before = moment
    return max(0.0, value - fall * (expected_now - before))


def average_run_length(threshold: float, ratio: float = RATIO) -> float:
    """Failures in the mean until a false alarm, while the rate is the in-control one.

    Args:
        threshold: h, above 0 and at most 20 (beyond, the sum loses its digits).
        ratio: the shift that the statistic is tuned to.
    """
    d = drift(ratio)
    steps = max(2, math.ceil(_STEPS * threshold))
    width = threshold / steps
    integral = width * sum(_scale((i + 0.5) * width, d) for i in range(steps))
    return _scale(threshold, d) ** 2 / _scale_slope(threshold, d) - integral


@cache
def threshold_for(run_length: float = IN_CONTROL_RUN, ratio: float = RATIO) -> float:
    """The threshold h whose in-control average run length is the given one.

    Args:
        run_length: failures between false alarms, in the mean; from 2 to 100,000.
        ratio: the shift that the statistic is tuned to.
    """
    low, high = 0.5, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if average_run_length(middle, ratio) < run_length else (low, middle)
        )
    return high


def _scale(x: float, d: float) -> float:
    """W(x)."""
    terms = (
        math.exp((x - j) / d) * ((j - x) / d) ** j / math.factorial(j) for j in range(int(x) + 1)
    )
    return math.fsum(terms) / d


def _scale_slope(x: float, d: float) -> float:
    """W'(x), from the right."""
    terms = []
    for j in range(int(x) + 1):
        a = (j - x) / d
        slope = a**j - (j * a ** (j - 1) if j else 0.0)
        terms.append(math.exp(-a) * slope / math.factorial(j) / d)
    return math.fsum(terms) / d
