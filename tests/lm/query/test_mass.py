"""Bounds of the mass: they contain the truth at every step, close, and end when told to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import toy
import word_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel, ModelStopped, NextToken, Prefix
from holdfast.lm.query.bounding import mass_compiled
from holdfast.lm.query.compiling import compile_query
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import Mass

RULES: list[dict[str, float]] = [
    {}, {}, {}, {"top_k": 1}, {"top_k": 5}, {"top_p": 0.5}, {"temperature": 0.5},
    {"top_k": 12, "top_p": 0.8, "temperature": 2.0},
]  # fmt: skip


def ask(model: LanguageModel, query: Query, **options: object) -> Mass:
    return mass_compiled(model, compile_query(query, toy.TOKENIZER), **options)  # type: ignore[arg-type]


def holds(found: Mass, truth: float) -> None:
    """Every step contains the truth, and none is wider than the one before."""
    assert found.steps[0].lower == 0
    assert (found.steps[-1].lower, found.steps[-1].upper) == (found.lower, found.upper)
    for earlier, later in zip(found.steps, found.steps[1:], strict=False):
        assert 0 <= earlier.lower <= later.lower <= later.upper <= earlier.upper <= 1
    for step in found.steps:
        assert step.lower <= truth * (1 + 1e-13)
        assert truth * (1 - 1e-13) <= step.upper


def case(seed: int) -> tuple[Query, list[str], list[str]]:
    """(query, its words, its prefixes), any way of asking."""
    rng = np.random.default_rng(seed)
    prefixes = [
        ["a", "ab", "1-", "é", " a"][place] for place in rng.permutation(5)[: rng.integers(3)]
    ]
    words = word_lists.random_words(rng)
    options = dict(RULES[rng.integers(len(RULES))])
    if prefixes:
        # No prefix starts another: each text has one.
        nested = {one for one in prefixes for two in prefixes if one != two and one.startswith(two)}
        prefixes = [one for one in prefixes if one not in nested]
        words = [prefix + word for prefix in prefixes for word in words]
        options |= {"prefix": "|".join(prefixes), "heal": bool(rng.random() < 0.4)}
    options["encodings"] = rng.choice(["all", "prefix-canonical", "prefix-canonical"]).item()
    options["eos"] = bool(rng.random() < 0.6)
    return Query(word_lists.regex(words), **options), words, prefixes or [""]  # type: ignore[arg-type]


@pytest.mark.parametrize("tens", range(16))
def test_every_step_contains_the_truth(tens: int):
    for seed in range(10 * tens, 10 * tens + 10):
        query, words, prefixes = case(seed)
        model = toy.ToyModel(seed)
        truth = word_lists.mass(model, query, words, prefixes)
        tol = [0.0, 1e-3, 1e-6][seed % 3]
        found = ask(model, query, tol=tol, batch=[1, 7, 64][seed // 3 % 3])
        holds(found, truth)
        assert found.upper - found.lower <= max(tol, 1e-9), (seed, query)
        assert found.event == query.event
        assert found.evaluations == len(model.asked) == len(set(model.asked)), (seed, query)


@pytest.mark.parametrize("seed", range(25))
def test_unlisted_tokens_join_the_upper_bound(seed: int):
    query, words, prefixes = case(seed)
    query = Query(query.regex, query.prefix, query.encodings, heal=query.heal, eos=query.eos)
    truth = word_lists.mass(toy.ToyModel(seed), query, words, prefixes)
    found = ask(word_lists.Listing(seed, 8), query, tol=0.0)
    holds(found, truth)
    if found.upper - found.lower > 1e-6:
        assert found.stopped == "unlisted"
    full = ask(word_lists.Listing(seed, 30), query, tol=0.0)
    assert full.stopped == "closed"


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("limit", ["max_tokens", "context"])
def test_what_lies_past_a_limit_joins_the_upper_bound(seed: int, limit: str):
    rng = np.random.default_rng(seed)
    words = word_lists.random_words(rng)
    query = Query(word_lists.regex(words), eos=seed % 2 == 0)
    truth = word_lists.mass(toy.ToyModel(seed), query, words)
    short = word_lists.by_text(toy.ToyModel(seed), query, words, longest=2)
    if limit == "max_tokens":
        query = Query(query.regex, eos=query.eos, max_tokens=2)
    model = toy.ToyModel(seed, context=None if limit == "max_tokens" else 2)
    found = ask(model, query, tol=0.0)
    holds(found, truth)
    assert found.stopped in ("closed", limit)
    assert all(len(prefix) <= 2 for prefix in model.asked)
    if query.eos:
        assert found.lower == pytest.approx(sum(mass for mass, _ in short.values()), rel=1e-9)


@pytest.mark.parametrize("pattern", ["a+", "[ab]*", "(1|2 )+x?", r"\xe9*a"])
def test_infinite_languages_end_with_the_budget(pattern: str):
    narrower = Mass(0, 1, "exact", 0, 0, (), "")
    for budget in (1, 10, 60, 300):
        found = ask(toy.ToyModel(3), Query(pattern, eos=True), tol=0.0, budget=budget)
        assert found.stopped == "budget"
        assert found.evaluations == budget
        assert narrower.lower <= found.lower <= found.upper <= narrower.upper
        narrower = found
    for eos in (True, False):
        part = word_lists.by_text(
            toy.ToyModel(3), Query("", eos=True), ["a" * size for size in range(6)]
        )
        found = ask(toy.ToyModel(3), Query("a*", eos=eos), tol=1e-4)
        assert found.upper >= sum(mass for mass, _ in part.values())
        assert found.stopped == ("tolerance" if eos else "closed")
    assert found.lower == pytest.approx(1)  # the empty text starts every text
    assert found.nodes == 0


class Stopping(toy.ToyModel):
    """Answers only some prefixes of the batch in which its strength ends."""

    def __init__(self, seed: int, strength: int):
        super().__init__(seed)
        self.strength = strength

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        left = self.strength - self.cost.evaluations
        if len(prefixes) <= left:
            return super().logprobs(prefixes)
        places = list(range(len(prefixes)))[::-1][:left]
        answers = super().logprobs([prefixes[place] for place in places])
        raise ModelStopped("the server is gone", dict(zip(places, answers, strict=True)))


@pytest.mark.parametrize("strength", [0, 1, 2, 5, 17, 60])
@pytest.mark.parametrize("seed", range(4))
def test_a_model_that_stops_leaves_valid_bounds(strength: int, seed: int):
    query, words, prefixes = case(seed)
    truth = word_lists.mass(toy.ToyModel(seed), query, words, prefixes)
    model = Stopping(seed, strength)
    found = ask(model, query, tol=0.0, batch=5)
    holds(found, truth)
    assert found.nodes <= strength
    assert found.stopped in ("the server is gone", "closed")


class Interrupted(toy.ToyModel):
    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        if self.cost.calls == 3:
            raise KeyboardInterrupt
        return super().logprobs(prefixes)


def test_an_interrupt_keeps_the_bounds():
    found = ask(Interrupted(1), Query("[ab]{3}", eos=True), tol=0.0, batch=3)
    assert found.stopped == "interrupted"
    assert found.evaluations > 0
    words = ["".join(word) for word in product("ab", repeat=3)]
    holds(found, word_lists.mass(toy.ToyModel(1), Query("", eos=True), words))


def same(one: Mass, other: Mass) -> bool:
    return (one.evaluations, one.nodes, one.stopped) == (
        other.evaluations, other.nodes, other.stopped,
    ) and np.allclose([one.lower, one.upper], [other.lower, other.upper], rtol=1e-12)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_stopped_and_resumed_it_ends_where_it_would_have(seed: int, tmp_path: Path):
    query, words, prefixes = case(seed + 40)
    whole = ask(toy.ToyModel(seed), query, tol=1e-9, batch=1)
    state, budget, model = tmp_path / "kept", 0, toy.ToyModel(seed)
    while True:
        budget += 3
        found = ask(model, query, tol=1e-9, batch=1, state=state, budget=budget)
        holds(found, word_lists.mass(model, query, words, prefixes))
        if found.stopped != "budget":
            break
    assert np.allclose([found.lower, found.upper], [whole.lower, whole.upper], rtol=1e-9)
    if query.encodings != "all" and not query.heal:  # else what is given may be asked about again
        assert same(found, whole)
    again = ask(model, query, tol=1e-9, state=state)
    assert (again.lower, again.upper, again.evaluations) == (
        found.lower,
        found.upper,
        found.evaluations,
    )


def test_a_state_of_another_question_is_refused(tmp_path: Path):
    state = tmp_path / "kept"
    ask(toy.ToyModel(1), Query("a{1,3}", eos=True), state=state)
    for model, query in (
        (toy.ToyModel(2), Query("a{1,3}", eos=True)),
        (toy.ToyModel(1), Query("a{1,4}", eos=True)),
    ):
        with pytest.raises(InputError, match="another question"):
            ask(model, query, state=state)
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(InputError, match="damaged"):
        ask(toy.ToyModel(1), Query("a{1,3}", eos=True), state=state)


def test_a_prefix_of_probability_zero_is_refused():
    class Deaf(toy.ToyModel):
        def distribution(self, prefix: Sequence[int]) -> np.ndarray:
            scores = super().distribution(prefix)
            scores[[0, 10, 12, 14, 21]] = -np.inf
            return scores - np.logaddexp.reduce(scores)

    with pytest.raises(InputError, match="prefix probability 0"):
        ask(Deaf(1), Query("ab|ac", prefix="a", encodings="all", eos=True))


@settings(max_examples=40)
@given(st.integers(200, 10_000), st.sampled_from([1, 7, 64]), st.floats(1e-6, 0.3))
def test_any_case_at_any_tolerance(seed: int, batch: int, tol: float):
    query, words, prefixes = case(seed)
    model = toy.ToyModel(seed)
    found = ask(model, query, tol=tol, batch=batch)
    holds(found, word_lists.mass(model, query, words, prefixes))
    assert found.upper - found.lower <= tol
