"""Exact masses under n-gram models, against sums over token sequences that use no automaton."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import toy
from ngram_world import ToyTrigram, by_text, ngram, truncated_mass
from random_arpa import random_regex

from holdfast.errors import InputError, LimitError
from holdfast.lm.query import asking
from holdfast.lm.query.compiling import compile_query
from holdfast.lm.query.exact import exact_distances, exact_mass
from holdfast.lm.query.queries import Query
from holdfast.lm.query.searches import evaluating

FINITE = ["ab", "a?b{1,2}c?", "(a|ab)(c|bc)", "1{1,3}2?", "é?a", " ?(a|b)a?", "x{2,4}", "(cab|-) ?"]
RULES = [{}, {"top_k": 7}, {"top_p": 0.8}, {"temperature": 0.7}, {"top_k": 12, "top_p": 0.9}]


@pytest.mark.parametrize("pattern", FINITE)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_finite_languages(pattern: str, rule: dict[str, float]) -> None:
    model = ToyTrigram(1)
    query = Query(pattern, eos=True, **rule)
    expected = math.fsum(by_text(model, pattern, **rule).values())
    assert exact_mass(model, compile_query(query, toy.TOKENIZER)) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.quick(30)
@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_infinite_languages_lie_between_truncated_sums(seed: int, eos: bool) -> None:
    arpa, model = ngram(seed)
    pattern = random_regex(seed)
    mass = exact_mass(model, compile_query(Query(pattern, eos=eos), model.tokenizer))
    lower, upper = truncated_mass(arpa, pattern, eos, longest=5)
    assert lower - 1e-12 <= mass <= upper + 1e-12


def test_a_geometric_series() -> None:
    arpa, model = ngram(3, order=1, letters="a", words=1)
    again, end = arpa.probability([], "a"), arpa.probability([], "</s>")
    compiled = compile_query(Query("a*", eos=True), model.tokenizer)
    assert exact_mass(model, compiled) == pytest.approx(end / (1 - again), rel=1e-12)


def test_every_state_sums_its_arcs() -> None:
    _, model = ngram(8, order=3)
    (part,) = exact_distances(model, compile_query(Query("(a|bab)*b", eos=True), model.tokenizer))
    lattice, onward = part.lattice, np.exp(part.log_onward)
    sums = np.exp(-lattice.final)
    np.add.at(sums, lattice.source, np.exp(-lattice.weight) * onward[lattice.nextstate])
    np.testing.assert_allclose(sums, onward, rtol=1e-10)
    assert lattice.num_states > 4


def spelled_jointly(
    model: ToyTrigram, given: bytes, texts: set[bytes], rule: dict[str, float]
) -> float:
    """P(a text of `texts` is written, then its end), tokens that start inside `given` not decoded."""
    total = 0.0
    waiting: list[tuple[tuple[int, ...], bytes, float]] = [((), b"", 0.0)]
    while waiting:
        tokens, text, log = waiting.pop()
        own = model.distribution(tokens)
        decoded = toy.decoded(own, **rule) if len(text) >= len(given) else own
        if text in texts:
            total += math.exp(log + decoded[toy.EOS])
        for token, piece in enumerate(toy.PIECES):
            if piece and any(whole.startswith(text + piece) for whole in texts):
                waiting.append(((*tokens, token), text + piece, log + decoded[token]))
    return total


def starts_with(model: ToyTrigram, given: bytes) -> float:
    """P(what is written starts with `given`)."""
    total = 0.0
    waiting: list[tuple[tuple[int, ...], bytes, float]] = [((), b"", 0.0)]
    while waiting:
        tokens, text, log = waiting.pop()
        if text.startswith(given):
            total += math.exp(log)
            continue
        for token, piece in enumerate(toy.PIECES):
            after = text + (piece or b"")
            if piece and (given.startswith(after) or after.startswith(given)):
                waiting.append(((*tokens, token), after, log + model.distribution(tokens)[token]))
    return total


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_conditional_on_a_prefix_given_as_text(rule: dict[str, float]) -> None:
    model = ToyTrigram(4)
    query = Query("(ab|ba)c?a{1,2}", prefix="ab|ba", encodings="all", eos=True, **rule)
    expected = 0.0
    for given in (b"ab", b"ba"):
        texts = {given + rest for rest in (b"a", b"aa", b"ca", b"caa")}
        joint = spelled_jointly(model, given, texts, rule)
        expected += 0.5 * joint / starts_with(model, given)
    mass = exact_mass(model, compile_query(query, toy.TOKENIZER))
    assert mass == pytest.approx(expected, rel=1e-9)


def test_conditional_on_the_tokens_of_a_prefix() -> None:
    model = ToyTrigram(4)
    query = Query("abca{1,2}", prefix="abc", encodings="prefix-canonical", top_k=9, eos=True)
    after = toy.greedy(b"abc")
    expected = math.fsum(
        math.exp(toy.score(model, tokens, after=after, top_k=9))
        for tokens, _ in toy.spellings(
            lambda text: text in (b"a", b"aa"), 3, lambda text: text in (b"a", b"aa")
        )
    )
    mass = exact_mass(model, compile_query(query, toy.TOKENIZER))
    assert mass == pytest.approx(expected, rel=1e-9)


def test_a_prefix_event_is_a_probability() -> None:
    model = ToyTrigram(2)
    for pattern in ("a", "a*", "[abc]+", "(a|b|c| |1|2|é|x|-)"):
        mass = exact_mass(model, compile_query(Query(pattern, eos=False), toy.TOKENIZER))
        assert 0 < mass <= 1
    assert exact_mass(model, compile_query(Query("a*", eos=False), toy.TOKENIZER)) == 1


def test_what_never_ends_has_no_mass() -> None:
    class Endless(ToyTrigram):
        def distribution(self, prefix):  # type: ignore[no-untyped-def]
            chances = np.full(30, -np.inf)
            chances[0] = 0.0
            return chances

    assert exact_mass(Endless(), compile_query(Query("a*b?", eos=True), toy.TOKENIZER)) == 0
    assert exact_mass(Endless(), compile_query(Query("aa+", eos=False), toy.TOKENIZER)) == 1


def test_what_has_no_exact_sums_is_named() -> None:
    compiled = compile_query(Query("a+b", eos=True), toy.TOKENIZER)
    prompt = replace(compiled.prompts[0], accepts=lambda tokens: True)
    tries = [(toy.ToyModel(), compiled), (ToyTrigram(), replace(compiled, prompts=(prompt,)))]
    for model, asked in tries:
        with pytest.raises(InputError) as caught:
            exact_mass(model, asked)
        assert caught.value.code == "unsupported"
    with pytest.raises(LimitError, match="3 arcs"):
        exact_mass(ToyTrigram(), compiled, most_arcs=3)


@pytest.mark.parametrize("small", [200_000, 3])
def test_a_mass_is_summed_after_a_short_search(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    """Where the sum is too large for that, the long search comes first, with the same answer."""
    monkeypatch.setattr(asking, "SMALL_SUM", small)
    monkeypatch.setattr(evaluating, "BUDGET", 3000)
    model, query = ToyTrigram(3), Query("[abc]*x?[12]*", eos=True)
    found = asking.mass(model, query, tol=0.0)
    mass = exact_mass(ToyTrigram(3), compile_query(query, toy.TOKENIZER))
    assert found.stopped == "exact"
    assert found.lower == pytest.approx(mass, rel=2e-9)
    assert found.upper == pytest.approx(mass, rel=2e-9)
    assert model.cost.evaluations <= (1100 if small > 3 else 4100)


def test_a_prefix_of_probability_0_is_named() -> None:
    class Shy(ToyTrigram):
        def distribution(self, prefix):  # type: ignore[no-untyped-def]
            chances = super().distribution(prefix)
            chances[[8, 26]] = -np.inf  # every token with an x
            return chances

    compiled = compile_query(Query("xa", prefix="x", encodings="all", eos=True), toy.TOKENIZER)
    with pytest.raises(InputError, match="gives the prefix probability 0"):
        exact_mass(Shy(), compiled)
