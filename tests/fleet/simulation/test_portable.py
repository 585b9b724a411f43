"""The portable numbers: against SciPy and the C library, and the same bits as when they were written."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy import special, stats

from holdfast.fleet.simulation import portable


@njit
def draw(seed: int, use: int, entity: int, count: int) -> np.ndarray:
    drawn = np.empty(count)
    of = portable.stream(seed, use, entity)
    for k in range(count):
        drawn[k] = portable.uniform(of, k)
    return drawn


@njit
def draw_each(kind: int, count: int) -> np.ndarray:
    drawn = np.empty(count)
    of = portable.stream(11, portable.NODE, 5)
    for k in range(count):
        if kind == 0:
            drawn[k] = portable.exponential(of, k)
        elif kind == 1:
            drawn[k] = portable.weibull(of, k, 3.0, 0.7)
        else:
            drawn[k] = portable.normal(of, k)
    return drawn


@settings(deadline=None)  # the first call compiles
@given(st.floats(1e-300, 1e300))
def test_logarithm_is_that_of_the_c_library(x: float) -> None:
    assert portable.ln(x) == pytest.approx(math.log(x), rel=1e-15, abs=5e-16)


@settings(deadline=None)
@given(st.floats(-690.0, 690.0))
def test_exponential_function_is_that_of_the_c_library(x: float) -> None:
    assert portable.exp(x) == pytest.approx(math.exp(x), rel=1e-15)


@settings(deadline=None)
@given(st.floats(1e-15, 1 - 1e-15))
def test_normal_quantile_is_that_of_scipy(p: float) -> None:
    assert portable.normal_quantile(p) == pytest.approx(special.ndtri(p), rel=1e-13, abs=1e-14)


@pytest.mark.parametrize(
    ("kind", "law"), [(0, stats.expon()), (1, stats.weibull_min(0.7, scale=3.0)), (2, stats.norm())]
)
def test_draws_follow_their_law(kind: int, law: stats.rv_continuous) -> None:
    assert stats.kstest(draw_each(kind, 20_000), law.cdf).pvalue > 1e-3


def test_streams_are_uniform_and_independent_of_each_other() -> None:
    streams = np.array([draw(1, use, entity, 2_000) for use in range(6) for entity in range(20)])
    assert stats.kstest(streams.ravel(), "uniform").pvalue > 1e-3
    correlations = np.corrcoef(streams)[np.triu_indices(len(streams), 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(2_000)
    ahead = np.corrcoef(streams[:, 1:].ravel(), streams[:, :-1].ravel())[0, 1]
    assert abs(ahead) < 5 / math.sqrt(streams.size)


def test_bits_are_those_of_every_machine() -> None:
    """Written down once: another machine, compiler or version must print the same."""
    values = [*draw(7, 3, 42, 2), *draw_each(0, 2), *draw_each(1, 2), *draw_each(2, 2)]
    assert [struct.pack(">d", value).hex() for value in values] == EXPECTED


EXPECTED = [
    "3fb5b128dc6df4f8",
    "3fefa82070abcf3b",
    "400774656f0a0306",
    "4002af856ef7d684",
    "402be49346519e39",
    "4024289ff7c282db",
    "bff9d19ab8c76b89",
    "bff4ce306b1e180d",
]
