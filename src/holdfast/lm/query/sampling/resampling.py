"""Resampling of particles: what makes sampling sequential Monte Carlo.

Source: A. Doucet and A. Johansen, "A tutorial on particle filtering and smoothing", 2009, sections 3.4
and 3.5: systematic resampling, done where the effective sample size falls below a share of the particles.
"""

from __future__ import annotations

import math

import numpy as np

from holdfast.lm.models.protocol import F64
from holdfast.lm.query.decoding import log_sum
from holdfast.lm.query.sampling.choosing import I64, choose
from holdfast.lm.query.sampling.crowd import Crowd

LEAST_EFFECTIVE = 0.5
"""Share of an island's particles below which their effective number calls for resampling."""


def islands_of(samples: int) -> I64:
    """[n] the island of each sample: groups that never mix, whose estimates are independent.

    More islands tell the error better, larger ones resample better: about as many as each has particles,
    32 at most.
    """
    number = max(1, min(32, math.isqrt(samples)))
    return np.arange(samples) * number // samples


def resample(crowd: Crowd, islands: I64, rng: np.random.Generator) -> None:
    """Draw the particles of every island again where few of them carry the weight.

    Weights of an island become their mean, so its estimate of the mass stays what it was, and unbiased.
    Particles that ended take part with the weight they have. One random number is used for each island.
    """
    uniforms = rng.random(int(islands[-1]) + 1)
    is_open = crowd.is_open()
    for island, uniform in enumerate(uniforms):
        members = np.flatnonzero(islands == island)
        log_weight = crowd.log_weight[members]
        if not is_open[members].any() or log_weight.max() == -math.inf:
            continue
        if effective_size(log_weight) >= LEAST_EFFECTIVE * len(members):
            continue
        drawn = members[systematic(log_weight, float(uniform))]
        crowd.at[members] = crowd.at[drawn]
        crowd.log_weight[members] = log_mean(log_weight)
    crowd.settle()


def systematic(log_weight: F64, uniform: float) -> I64:
    """[n] places drawn in proportion to weights, at n even steps that `uniform` shifts together."""
    points = (np.arange(len(log_weight)) + uniform) / len(log_weight)
    return choose(log_weight, points)


def effective_size(log_weight: F64) -> float:
    """(sum of weights)^2 / sum of squared weights; 0 when none weighs anything."""
    highest = log_weight.max(initial=-math.inf)
    if highest == -math.inf:
        return 0.0
    weight = np.exp(log_weight - highest)
    return float(weight.sum() ** 2 / (weight**2).sum())


def log_mean(log_weight: F64) -> float:
    """Log of the mean weight."""
    return log_sum(log_weight) - math.log(len(log_weight))
