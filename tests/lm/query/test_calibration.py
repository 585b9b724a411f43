"""Bounds and samples against the exact mass, over random back-off models and random patterns."""

from __future__ import annotations

import numpy as np
import pytest
from ngram_world import ngram
from random_arpa import random_regex

from holdfast.lm.models.ngram import NgramModel
from holdfast.lm.query.bounding import mass_compiled
from holdfast.lm.query.compiling import CompiledQuery, compile_query
from holdfast.lm.query.exact import exact_mass
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import Mass
from holdfast.lm.query.sampling.methods import sample_compiled

ROUNDING = 1e-11
"""What the exact sum itself may be off, as a share: a linear system was solved."""
RULES = [{}, {}, {}, {"top_k": 3}, {"top_p": 0.7}, {"temperature": 0.6}]


def case(seed: int) -> tuple[NgramModel, CompiledQuery]:
    """A random model and query: both events, some with a rule of decoding, some with unknown words."""
    rng = np.random.default_rng([seed, 1])
    letters = "ab" if rng.random() < 0.7 else "abc"
    words = int(rng.integers(len(letters), 8))
    _, model = ngram(seed, letters=letters, words=words, unknown=bool(rng.random() < 0.3))
    query = Query(
        random_regex(seed, letters), eos=bool(rng.random() < 0.5), **RULES[rng.integers(len(RULES))]
    )
    return model, compile_query(query, model.tokenizer)


def bounds(seed: int, model: NgramModel, compiled: CompiledQuery) -> Mass:
    """Some end at a tolerance, some when an early budget is spent."""
    rng = np.random.default_rng([seed, 2])
    budget = int(rng.integers(1, 30)) if rng.random() < 0.5 else 2000
    batch = int(rng.integers(1, 9))
    return mass_compiled(
        model, compiled, tol=float(10 ** -rng.uniform(1, 6)), budget=budget, batch=batch
    )


def check_bounds(seed: int) -> Mass:
    model, compiled = case(seed)
    exact = exact_mass(model, compiled)
    found = bounds(seed, model, compiled)
    query = compiled.query
    assert found.lower <= exact * (1 + ROUNDING), (seed, query, exact, found)
    assert exact * (1 - ROUNDING) <= found.upper, (seed, query, exact, found)
    for earlier, later in zip(found.steps, found.steps[1:], strict=False):
        assert earlier.lower <= later.lower <= later.upper <= earlier.upper
    return found


@pytest.mark.parametrize("tens", range(6))
def test_bounds_contain_the_exact_mass(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        check_bounds(seed)


@pytest.mark.full
def test_bounds_contain_the_exact_mass_in_500_of_500_cases() -> None:
    found = [check_bounds(seed) for seed in range(500)]
    stopped = {one.stopped for one in found}
    assert {"closed", "tolerance", "budget"} <= stopped
    assert sum(one.stopped == "budget" for one in found) > 50


@pytest.mark.parametrize("seed", range(20))
def test_the_mean_weight_lies_within_3_errors_of_the_exact_mass(seed: int) -> None:
    model, compiled = case(seed)
    exact = exact_mass(model, compiled)
    drawn = sample_compiled(model, compiled, 1000, seed=2000 + seed, method="local", max_tokens=200)
    assert abs(drawn.mass - exact) <= 3 * drawn.mass_error + 1e-9


@pytest.mark.full
def test_errors_are_as_often_as_they_should_be() -> None:
    away = []
    for seed in range(120):
        model, compiled = case(seed)
        exact = exact_mass(model, compiled)
        if exact == 0:
            continue
        drawn = sample_compiled(
            model, compiled, 400, seed=1000 + seed, method="local", max_tokens=60
        )
        cut = any("were cut" in note for note in drawn.notes)
        if drawn.mass_error > 1e-6 * exact and not cut:
            away.append((drawn.mass - exact) / drawn.mass_error)
    assert len(away) > 40
    assert abs(np.mean(away)) < 3 / np.sqrt(len(away))  # no bias
    assert 0.8 < np.std(away) < 1.3  # errors of the size that they say
    assert np.mean(np.abs(away) > 3) < 0.03
