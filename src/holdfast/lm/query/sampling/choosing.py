"""Random choices in proportion to weights that are given as logarithms."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from holdfast.lm.models.protocol import F64

I64 = npt.NDArray[np.int64]


def choose(logs: F64, uniforms: F64) -> I64:
    """[n] the place that each number in [0, 1) stands for when places divide it by their weights.

    Args:
        logs: [K] logarithms of weights, not all -inf.
        uniforms: [n]
    """
    reached = np.cumsum(np.exp(logs - logs.max()))
    places: I64 = np.searchsorted(reached, uniforms * reached[-1], side="right")
    # Rounding must not choose beyond the last place that has a weight.
    last = int(np.flatnonzero(logs > -math.inf)[-1])
    return np.minimum(places, last)
