"""The most probable texts: each once, in proven order, with the probability of all encodings together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
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
from holdfast.lm.query.compiling import compile_query
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import Matches, Progress
from holdfast.lm.query.searches.finding import search_compiled

RULES: list[dict[str, float]] = [
    {}, {}, {}, {"top_k": 5}, {"top_p": 0.7}, {"temperature": 0.5}, {"top_k": 12, "temperature": 2.0},
]  # fmt: skip


def find(model: LanguageModel, query: Query, **options: object) -> Matches:
    compiled = compile_query(query, model.tokenizer, "texts")
    return search_compiled(model, compiled, **options)  # type: ignore[arg-type]


def case(seed: int) -> tuple[Query, list[str], list[str]]:
    """(query, its words, its prefixes), any way of asking."""
    rng = np.random.default_rng([seed, 7])
    words = word_lists.random_words(rng)
    options: dict[str, object] = dict(RULES[rng.integers(len(RULES))])
    prefixes = [["a", "ab", "é"][place] for place in rng.permutation(3)[: rng.integers(3)]]
    if prefixes:
        words = sorted({prefix + word for prefix in prefixes for word in words})
        options |= {"prefix": "|".join(prefixes), "heal": bool(rng.random() < 0.4)}
    options["encodings"] = rng.choice(["all", "prefix-canonical", "canonical"]).item()
    if options["encodings"] == "canonical":
        options.pop("heal", None)
    options["eos"] = bool(rng.random() < 0.6)
    return Query(word_lists.regex(words), **options), words, prefixes or [""]  # type: ignore[arg-type]


def strings(letters: str, least: int, most: int) -> list[str]:
    """Every string of the letters from `least` to `most` long."""
    return [
        "".join(text) for size in range(least, most + 1) for text in product(letters, repeat=size)
    ]


def agrees(found: Matches, truth: dict[str, tuple[float, int]], n: int = 10) -> None:
    """Each text once, in order, within a millionth of its probability."""
    ranked = sorted(truth, key=lambda text: -truth[text][0])[:n]
    assert len(found.found) == len(ranked)
    assert len({match.text for match in found.found}) == len(ranked)
    for match, wanted in zip(found.found, ranked, strict=True):
        mass, encodings = truth[match.text]
        # Texts closer to each other than what is left open may come in either order.
        assert mass == pytest.approx(truth[wanted][0], rel=2e-6), (match, wanted)
        assert match.logprob == pytest.approx(math.log(mass), abs=2e-6)
        assert match.logprob <= math.log(mass) + 1e-9 or match.logprob_upper > match.logprob
        assert match.logprob_upper >= math.log(mass) - 1e-12
        assert match.encodings_seen <= encodings


@pytest.mark.quick(6)
@pytest.mark.parametrize("tens", range(16))
def test_texts_equal_brute_force(tens: int):
    for seed in range(10 * tens, 10 * tens + 10):
        query, words, prefixes = case(seed)
        model = toy.ToyModel(seed)
        truth = word_lists.by_text(model, query, words, prefixes)
        n = [1, 3, 10, 100][seed % 4]
        found = find(model, query, n=n, batch=[1, 7, 64][seed // 4 % 3])
        agrees(found, truth, n)
        assert found.complete, (seed, query)
        assert found.stopped is None
        assert found.cost.evaluations == len(model.asked) == len(set(model.asked)), (seed, query)
        if query.eos:
            whole = math.fsum(mass for mass, _ in truth.values())
            assert found.lower <= whole * (1 + 1e-13) <= found.upper * (1 + 1e-12), (seed, query)


@settings(max_examples=40)
@given(st.integers(1000, 10_000), st.integers(1, 12))
def test_batches_do_not_change_the_answer(seed: int, n: int):
    query, words, prefixes = case(seed)
    truth = word_lists.by_text(toy.ToyModel(seed), query, words, prefixes)
    for batch in (1, 7, 64):
        agrees(find(toy.ToyModel(seed), query, n=n, batch=batch), truth, n)


def test_no_tolerance_is_exact():
    truth = word_lists.by_text(toy.ToyModel(5), Query("", eos=True), strings("ab", 1, 4))
    found = find(toy.ToyModel(5), Query("[ab]{1,4}", eos=True), n=100, tolerance=0.0)
    agrees(found, truth, 100)
    for match in found.found:
        mass, encodings = truth[match.text]
        assert match.logprob == pytest.approx(math.log(mass), abs=1e-12)
        assert match.encodings_seen == encodings
        assert toy.TOKENIZER.spell(match.tokens).decode() == match.text


def test_order_is_of_texts_not_of_encodings():
    """`x` is the most probable sequence; the four of `abc` together have more."""

    class Split(toy.ToyModel):
        def distribution(self, prefix: Sequence[int]) -> np.ndarray:
            chances = np.full(30, 1e-9)
            if not prefix:
                chances[[0, 10, 14, 8]] = [0.3, 0.2, 0.15, 0.32]  # a ab abc x
            elif tuple(prefix) == (0,):
                chances[[11, 1]] = [0.5, 0.5]  # bc b
            elif tuple(prefix) in ((10,), (0, 1)):
                chances[2] = 1.0  # c
            else:
                chances[toy.EOS] = 1.0
            chances[toy.BOS] = 1e-30
            return np.log(chances / chances.sum())

    found = find(Split(), Query("abc|x", eos=True), n=2, batch=1)
    assert [match.text for match in found.found] == ["abc", "x"]
    assert found.found[0].encodings_seen >= 4
    assert math.exp(found.found[0].logprob) == pytest.approx(0.65 / 0.97, abs=1e-5)
    assert found.found[0].tokens == (10, 2)


def test_infinite_languages():
    model = toy.ToyModel(2)
    found = find(model, Query("[ab]+", eos=True), n=5)
    assert found.complete
    truth = word_lists.by_text(toy.ToyModel(2), Query("", eos=True), strings("ab", 1, 5))
    for match in found.found:
        if len(match.text) <= 5:
            assert match.logprob == pytest.approx(math.log(truth[match.text][0]), abs=2e-6)
    least = min(math.exp(match.logprob) for match in found.found)
    texts = {match.text for match in found.found}
    assert all(mass <= least * (1 + 1e-6) for text, (mass, _) in truth.items() if text not in texts)
    spent = find(toy.ToyModel(2), Query("[ab]+", eos=True), n=1000, budget=50)
    assert (spent.stopped, spent.complete, spent.cost.evaluations) == ("budget", False, 50)


@pytest.mark.parametrize("seed", range(20))
def test_short_lists_and_limits_are_told(seed: int):
    query, words, prefixes = case(seed)
    query = Query(query.regex, query.prefix, query.encodings, heal=query.heal, eos=query.eos)
    truth = word_lists.by_text(toy.ToyModel(seed), query, words, prefixes)
    for model, asked in (
        (word_lists.Listing(seed, 8), query),
        (toy.ToyModel(seed), replace(query, max_tokens=2)),
        (toy.ToyModel(seed, context=2), query),
    ):
        found = find(model, asked, n=100)
        for match in found.found:
            mass, encodings = truth[match.text]
            assert match.logprob <= math.log(mass) + 1e-6
            assert match.logprob_upper >= math.log(mass) - 1e-12
            assert match.encodings_seen <= encodings
        if found.complete:
            agrees(found, truth, 100)
        else:
            assert found.stopped in ("unlisted", "max_tokens", "context")


class Stopping(toy.ToyModel):
    def __init__(self, seed: int, strength: int, error: type[BaseException] = ModelStopped):
        super().__init__(seed)
        self.strength, self.error = strength, error

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        if self.cost.evaluations + len(prefixes) > self.strength:
            raise self.error("the server is gone")
        return super().logprobs(prefixes)


@pytest.mark.parametrize(
    ("error", "reason"), [(ModelStopped, "the server is gone"), (KeyboardInterrupt, "interrupted")]
)
@pytest.mark.parametrize("strength", [0, 3, 20, 60])
def test_what_was_found_is_kept(strength: int, error: type[BaseException], reason: str):
    truth = word_lists.by_text(toy.ToyModel(4), Query("", eos=True), strings("ab12", 1, 3))
    found = find(Stopping(4, strength, error), Query("[ab12]{1,3}", eos=True), n=99, batch=3)
    assert not found.complete
    assert found.stopped == reason
    assert (len(found.found) > 0) == (strength > 3)
    for match in found.found:
        mass = truth[match.text][0]
        assert match.logprob <= math.log(mass) + 1e-9 <= match.logprob_upper + 2e-9
    assert found.lower <= sum(mass for mass, _ in truth.values()) <= found.upper


def test_results_are_shown_as_they_are_proven():
    seen: list[Progress] = []
    found = find(toy.ToyModel(1), Query("[ab]{1,3}", eos=True), n=8, batch=2, watch=seen.append)
    sizes = [len(progress.found) for progress in seen]
    assert sizes == sorted(sizes)
    assert set(range(9)) <= set(sizes) | {0}
    assert all(found.found[: len(progress.found)] == progress.found for progress in seen)
    assert seen[0].evaluations < seen[-1].evaluations


@pytest.mark.parametrize("seed", range(6))
def test_stopped_and_resumed_it_ends_where_it_would_have(seed: int, tmp_path: Path):
    query, words, prefixes = case(seed + 500)
    truth = word_lists.by_text(toy.ToyModel(seed), query, words, prefixes)
    state, budget = tmp_path / "kept", 0
    model = toy.ToyModel(seed)
    while True:
        budget += 4
        found = find(model, query, n=20, batch=2, state=state, budget=budget)
        if found.stopped != "budget":
            break
    agrees(found, truth, 20)
    if query.encodings != "all" and not query.heal:
        assert len(model.asked) == len(set(model.asked))
    before = len(model.asked)
    again = find(model, query, n=20, state=state)
    assert [match.text for match in again.found] == [match.text for match in found.found]
    agrees(again, truth, 20)
    assert len(model.asked) == before
    with pytest.raises(InputError, match="another question"):
        find(toy.ToyModel(seed + 1), query, state=state)


def test_a_lead_is_no_part_of_the_text():
    """SentencePiece: ` ab` and `ab` spell the same text at the start, and only there."""
    tokenizer = replace(toy.TOKENIZER, lead=b" ")
    model = toy.ToyModel(3, tokenizer)
    truth: dict[str, list[float]] = {}
    for word in ("ab", "a", " a", ""):
        for tokens, text in word_lists.sequences(
            [b" " + word.encode(), word.encode()], overshoot=False
        ):
            if text.removeprefix(b" ").decode() == word:
                truth.setdefault(word, []).append(math.exp(toy.score(model, tokens)))
    found = find(model, Query("(ab| ?a)?", eos=True), n=9)
    agrees(found, {text: (math.fsum(masses), len(masses)) for text, masses in truth.items()})


class EvenModel(toy.ToyModel):
    """Every token as probable as any other."""

    def distribution(self, prefix: Sequence[int]) -> np.ndarray:
        chances = np.zeros(self.tokenizer.size)
        chances[toy.BOS] = -np.inf
        return chances - np.logaddexp.reduce(chances)


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_texts_of_equal_probability_come_in_order_of_their_bytes(batch: int) -> None:
    truth = toy.by_text(EvenModel(), "[abc12]{2}", 2)
    expected = sorted(truth, key=lambda text: (-round(math.log(truth[text][0]), 6), text))
    compiled = compile_query(Query("[abc12]{2}", eos=True), toy.TOKENIZER, "texts")
    for n in (3, 25):
        found = search_compiled(EvenModel(), compiled, n=n, batch=batch)
        assert [match.text for match in found.found] == expected[:n]
