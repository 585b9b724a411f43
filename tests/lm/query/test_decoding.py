"""Temperature, top-k and top-p against the toy world's plain loop; short lists are refused or exact."""

import numpy as np
import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.lm.models.protocol import NextToken
from holdfast.lm.query.decoding import Rule, decode
from holdfast.lm.query.queries import Query


def listing(logprobs: np.ndarray, number: int) -> NextToken:
    """What a server that lists the `number` most probable tokens says."""
    order = np.lexsort((np.arange(len(logprobs)), -logprobs))[:number]
    short = np.full(len(logprobs), -np.inf)
    short[order] = logprobs[order]
    return NextToken(short, max(0.0, 1 - float(np.exp(short).sum())))


rules = st.builds(
    Rule,
    st.none() | st.integers(1, 40),
    st.none() | st.floats(0.05, 1),
    st.sampled_from([1.0, 0.5, 2.0]),
)


@given(rules, st.integers(0, 500), st.integers(1, 600))
def test_rule_equals_plain_loop(rule: Rule, seed: int, size: int):
    scores = np.random.default_rng(seed).normal(0, 2, size)
    scores -= np.logaddexp.reduce(scores)
    got = decode(NextToken(scores), rule)
    want = scores if rule.plain else toy.decoded(scores, **vars(rule))
    np.testing.assert_allclose(got.logprobs, want, atol=1e-12)
    assert got.rest == 0


def test_ties_go_to_the_lower_id():
    scores = np.log(np.array([0.2, 0.1, 0.2, 0.2, 0.3]))
    got = decode(NextToken(scores), Rule(top_k=3)).logprobs
    assert np.flatnonzero(np.isfinite(got)).tolist() == [0, 2, 4]
    got = decode(NextToken(scores), Rule(top_p=0.45)).logprobs
    assert np.flatnonzero(np.isfinite(got)).tolist() == [0, 4]


@given(rules, st.integers(0, 200), st.integers(1, 29))
def test_short_list_is_exact_or_refused(rule: Rule, seed: int, number: int):
    full = toy.ToyModel(seed).distribution(())
    short = listing(full, number)
    try:
        got = decode(short, rule)
    except InputError as error:
        assert "top_k" in str(error)  # noqa: PT017
        nucleus = np.isfinite(toy.decoded(full, top_p=rule.top_p)).sum() if rule.top_p else 99
        assert rule.top_k is None or rule.top_k > number
        assert rule.top_k is not None or rule.temperature != 1 or nucleus > number
        return
    if rule.plain:
        assert got is short
    else:
        np.testing.assert_allclose(got.logprobs, toy.decoded(full, **vars(rule)), atol=1e-9)


def test_listed_tokens_below_the_ranked_ones_decide_nothing():
    short = listing(toy.ToyModel(1).distribution(()), 10)
    unsure = NextToken(short.logprobs, short.rest, ranked=3)
    assert decode(unsure, Rule(top_k=3)).rest == 0
    for rule in (Rule(top_k=4), Rule(top_p=float(np.exp(short.logprobs).sum()) - 1e-3)):
        decode(short, rule)
        with pytest.raises(InputError, match="top_k=3"):
            decode(unsure, rule)


def test_rule_of_a_query():
    assert Rule.of(Query("a", eos=True)).plain
    assert Rule.of(Query("a", top_k=3, temperature=0.5, eos=True)) == Rule(3, None, 0.5)


def test_impossible_tokens_stay_impossible():
    scores = np.array([-np.inf, 0.0, -np.inf])
    got = decode(NextToken(scores), Rule(top_k=2, temperature=0.5)).logprobs
    assert got.tolist() == [-np.inf, 0.0, -np.inf]
    with pytest.raises(InputError, match="lists too few"):
        decode(NextToken(scores, 0.5), Rule(temperature=0.5))
