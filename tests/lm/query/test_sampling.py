"""Weighted samples: what is drawn, what it weighs, and what is said when something is left out."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import toy
from ngram_world import ToyTrigram, by_text
from scipy.stats import chi2

from holdfast.errors import InputError
from holdfast.lm.models.protocol import ModelStopped, NextToken
from holdfast.lm.query.compiling import CompiledQuery, compile_query
from holdfast.lm.query.exact import exact_mass
from holdfast.lm.query.queries import Query
from holdfast.lm.query.sampling.estimating import effective_size, mean_and_error
from holdfast.lm.query.sampling.methods import sample_compiled
from holdfast.lm.query.sampling.walking import Node, Status, Walk

PATTERN = "a?(a|ab)[cx]"


def compiled(pattern: str, **options: object) -> CompiledQuery:
    return compile_query(Query(pattern, **{"eos": True} | options), toy.TOKENIZER)  # type: ignore[arg-type]


# --- What is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [{}, {"temperature": 0.6}], ids=str)
def test_exact_samples_follow_the_conditional_distribution(rule: dict[str, float]) -> None:
    model, n = ToyTrigram(5), 4000
    truth = by_text(model, PATTERN, **rule)
    mass = math.fsum(truth.values())
    drawn = sample_compiled(model, compiled(PATTERN, **rule), n, seed=1)
    assert drawn.method == "exact"
    assert drawn.mass == pytest.approx(mass)
    assert drawn.mass_error == 0
    assert drawn.effective == pytest.approx(n)
    (log_weight,) = {sample.log_weight for sample in drawn.drawn}
    assert log_weight == pytest.approx(math.log(mass))
    found = Counter(sample.text for sample in drawn.drawn)
    assert set(found) <= set(truth)
    expected = {text: n * chance / mass for text, chance in truth.items()}
    statistic = sum((found[text] - count) ** 2 / count for text, count in expected.items())
    assert chi2.sf(statistic, len(truth) - 1) > 1e-3


@pytest.mark.parametrize("rule", [{}, {"top_k": 14}], ids=str)
def test_weighted_samples_follow_it_too(rule: dict[str, float]) -> None:
    model, n = ToyTrigram(5), 4000
    truth = by_text(model, PATTERN, **rule)
    mass = math.fsum(truth.values())
    drawn = sample_compiled(model, compiled(PATTERN, **rule), n, seed=2, method="local")
    assert drawn.method == "local"
    assert abs(drawn.mass - mass) <= 3 * drawn.mass_error
    shares = dict(drawn.texts)
    assert math.fsum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    for text, chance in truth.items():
        share = chance / mass
        error = math.sqrt(share * (1 - share) / drawn.effective)
        assert abs(shares.get(text, 0) - share) <= 5 * error + 1e-3
    assert drawn.decoding == rule


@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize("method", ["local", "exact"])
def test_logprobs_are_the_models(method: str, eos: bool) -> None:
    model = ToyTrigram(6)
    query = compiled("ab?c", eos=eos)
    drawn = sample_compiled(model, query, 50, seed=3, method=method)
    for sample in drawn.drawn:
        if sample.log_weight > -math.inf:
            assert sample.logprob == pytest.approx(toy.score(model, sample.tokens, eos=eos))
            assert sample.text in ("abc", "ac")


def test_local_weights_are_what_the_restriction_left() -> None:
    # Weight times the chance of being drawn is the probability, so draws follow logprob - log_weight.
    model, n = ToyTrigram(7), 3000
    drawn = sample_compiled(model, compiled(PATTERN), n, seed=4, method="local")
    found = Counter(sample.tokens for sample in drawn.drawn)
    chances = {one.tokens: math.exp(one.logprob - one.log_weight) for one in drawn.drawn}
    assert math.fsum(chances.values()) <= 1 + 1e-9
    for tokens, count in found.items():
        spread = math.sqrt(n * chances[tokens] * (1 - chances[tokens]))
        assert abs(count - n * chances[tokens]) <= 4.5 * spread + 1


def ended_paths(model: ToyTrigram, query: CompiledQuery) -> list[tuple[float, float]]:
    """(probability of being drawn, weight) of every path that ends."""
    walk = Walk(query, None, 20)
    found = []
    waiting: list[tuple[Node, float, float]] = [(walk.start(0), 1.0, 1.0)]
    while waiting:
        node, drawn, weight = waiting.pop()
        if node.status == Status.ENDED:
            found.append((drawn, weight))
        if node.status != Status.OPEN:
            continue
        options = walk.options(node, NextToken(model.distribution(walk.prefix(node))))
        kept = math.exp(options.log_allowed)
        for place, logprob in enumerate(options.logprobs):
            child = walk.child(node, options, place)
            waiting.append((child, drawn * math.exp(logprob) / kept, weight * kept))
    return found


@pytest.mark.parametrize("eos", [True, False])
def test_the_weight_is_unbiased_by_summing_every_path(eos: bool) -> None:
    # No chance here: the sum over all paths of (probability of being drawn) * weight is the mass.
    model, query = ToyTrigram(8), compiled(PATTERN, eos=eos)
    paths = ended_paths(model, query)
    assert math.fsum(drawn for drawn, _ in paths) == pytest.approx(1)
    mass = math.fsum(drawn * weight for drawn, weight in paths)
    assert mass == pytest.approx(exact_mass(model, query), rel=1e-12)


def test_small_runs_are_unbiased_on_average() -> None:
    model, query = ToyTrigram(9), compiled("[ab]{3}c")
    masses = [
        sample_compiled(model, query, 12, seed=seed, method="local").mass for seed in range(150)
    ]
    error = np.std(masses, ddof=1) / math.sqrt(len(masses))
    assert abs(np.mean(masses) - exact_mass(model, query)) <= 3 * error


# --- How the model is asked ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["local", "exact"])
def test_the_seed_alone_decides(method: str) -> None:
    query = compiled("[ab]+c?")
    runs = [
        sample_compiled(ToyTrigram(1), query, 60, seed=seed, method=method, batch=batch)
        for seed, batch in ((5, 1), (5, 7), (5, 500), (6, 500))
    ]
    assert runs[0].drawn == runs[1].drawn == runs[2].drawn
    assert runs[0].drawn != runs[3].drawn
    assert len(runs[0].drawn) == 60


def test_distinct_prefixes_are_asked_once() -> None:
    model = toy.ToyModel(1)
    drawn = sample_compiled(model, compiled("[ab]{2}1?"), 500, seed=0)
    assert drawn.method == "local"
    assert len(model.asked) == len(set(model.asked)) == drawn.cost.evaluations < 60


# --- Prefixes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["local", "exact"])
@pytest.mark.parametrize("encodings", ["all", "prefix-canonical"])
def test_prefix_strings_are_equally_likely_and_given(method: str, encodings: str) -> None:
    model = ToyTrigram(11)
    query = compiled("(ab|ba|1)c?a{1,2}", prefix="ab|ba|1", encodings=encodings, top_k=20)
    drawn = sample_compiled(model, query, 3000, seed=1, method=method)
    assert abs(drawn.mass - exact_mass(model, query)) <= 3 * drawn.mass_error + 1e-12
    starts = Counter(sample.text[0] for sample in drawn.drawn)
    if method == "local":
        assert all(abs(count - 1000) < 120 for count in starts.values())
    assert set(starts) <= {"a", "b", "1"}


def test_the_prefix_of_a_model_without_contexts_is_bounded_by_search() -> None:
    query = compiled("abc?a", prefix="ab", encodings="all")
    drawn = sample_compiled(toy.ToyModel(11), query, 3000, seed=1)
    assert drawn.method == "local"
    assert abs(drawn.mass - exact_mass(ToyTrigram(11), query)) <= 3 * drawn.mass_error
    assert drawn.notes == ()


def test_what_runs_over_the_end_is_not_of_the_text() -> None:
    drawn = sample_compiled(ToyTrigram(3), compiled("x?a", eos=False), 300, seed=1)
    assert {sample.text for sample in drawn.drawn} == {"a", "xa"}
    assert any(len(toy.TOKENIZER.spell(one.tokens)) > len(one.text) for one in drawn.drawn)


# --- What is left out is said --------------------------------------------------------------------


def test_the_longest_length_leaves_the_rest_out() -> None:
    model, query = ToyTrigram(2), compiled("[ab]+", max_tokens=2)
    short = math.fsum(
        math.exp(toy.score(model, tokens))
        for tokens, text in toy.spellings(bool, 2, lambda text: set(text) <= set(b"ab"))
        if len(tokens) <= 2
    )
    drawn = sample_compiled(model, query, 4000, seed=1)
    assert abs(drawn.mass - short) <= 3 * drawn.mass_error
    assert max(len(sample.tokens) for sample in drawn.drawn) == 2


def test_the_context_cuts_samples() -> None:
    drawn = sample_compiled(toy.ToyModel(2, context=1), compiled("[ab]{4}"), 50, seed=1)
    assert len(drawn.drawn) == 50
    assert drawn.mass == 0
    assert any("50 samples were cut" in note and "context of 1" in note for note in drawn.notes)


def test_dead_ends_are_kept_and_counted() -> None:
    class NoC(toy.ToyModel):
        def distribution(self, prefix):  # type: ignore[no-untyped-def]
            chances = super().distribution(prefix)
            if prefix and prefix[-1] in (1, 10):  # after b or ab, nothing with a c first
                chances[[2, 23, 24]] = -np.inf
            return chances

    drawn = sample_compiled(NoC(2), compiled("abc|aac"), 400, seed=1)
    dead = [sample for sample in drawn.drawn if sample.log_weight == -math.inf]
    assert dead
    assert len(drawn.drawn) == 400
    assert any(f"{len(dead)} samples met a dead end" in note for note in drawn.notes)
    assert all(toy.TOKENIZER.spell(sample.tokens) == b"ab" for sample in dead)


def test_an_estimate_that_few_samples_carry_says_so() -> None:
    class Trap(toy.ToyModel):
        """Its first choice leads, nearly always, where the language hardly goes on."""

        def distribution(self, prefix):  # type: ignore[no-untyped-def]
            chances = np.full(30, 1e-9)
            if not prefix:
                chances[[0, 1]] = 0.97, 0.03
            elif prefix[-1] == 1:
                chances[toy.EOS] = 1
            else:
                chances[8] = 1
            return np.log(chances / chances.sum())

    drawn = sample_compiled(Trap(), compiled("a|b"), 200, seed=1)
    assert drawn.effective < 10
    assert any("carry the weight" in note for note in drawn.notes)


def test_a_last_check_refuses_sequences() -> None:
    model, query = ToyTrigram(5), compiled(PATTERN)
    prompt = replace(query.prompts[0], accepts=lambda tokens: tokens[0] != 0)
    checked = replace(query, prompts=(prompt,))
    drawn = sample_compiled(model, checked, 3000, seed=1)
    assert drawn.method == "local"  # no automaton tells what the check does
    assert all((one.log_weight == -math.inf) == (one.tokens[0] == 0) for one in drawn.drawn)
    texts = {b"ac", b"ax", b"abc", b"abx", b"aac", b"aax", b"aabc", b"aabx"}
    starts = {text[:size] for text in texts for size in range(len(text) + 1)}
    expected = math.fsum(
        math.exp(toy.score(model, tokens))
        for tokens, _ in toy.spellings(texts.__contains__, 5, starts.__contains__)
        if tokens[0] != 0
    )
    assert abs(drawn.mass - expected) <= 3 * drawn.mass_error


def test_tokens_that_are_not_listed_make_a_lower_estimate() -> None:
    class Listing(toy.ToyModel):
        def logprobs(self, prefixes):  # type: ignore[no-untyped-def]
            answers = []
            for prefix in prefixes:
                own = self.distribution(prefix)
                listed = toy.decoded(own, top_k=12) > -np.inf
                shown = np.where(listed, own, -np.inf)
                answers.append(NextToken(shown, 1 - float(np.exp(shown).sum())))
            return answers

    query = compiled("[ab]{2}c?")
    drawn = sample_compiled(Listing(1), query, 2000, seed=1)
    assert 0 < drawn.mass < exact_mass(ToyTrigram(1), query)
    assert any("the listed part" in note for note in drawn.notes)


@pytest.mark.parametrize("error", [ModelStopped("the server is gone"), KeyboardInterrupt()])
def test_what_ended_before_the_model_stopped_is_kept(error: BaseException) -> None:
    class Stopping(toy.ToyModel):
        def logprobs(self, prefixes):  # type: ignore[no-untyped-def]
            if self.cost.calls == 3:
                raise error
            return super().logprobs(prefixes)

    drawn = sample_compiled(Stopping(1), compiled("[ab]{1,6}"), 300, seed=1, batch=1000)
    finished = [sample for sample in drawn.drawn if sample.log_weight > -math.inf]
    assert drawn.stopped in ("the server is gone", "interrupted")
    assert finished
    assert all(sample.text for sample in finished)
    assert any("not finished" in note for note in drawn.notes)
    assert 0 < drawn.mass < exact_mass(ToyTrigram(1), compiled("[ab]{1,6}"))


def test_an_impossible_event_has_no_sample() -> None:
    class Endless(ToyTrigram):
        def distribution(self, prefix):  # type: ignore[no-untyped-def]
            chances = np.full(30, -np.inf)
            chances[0] = 0.0
            return chances

    drawn = sample_compiled(Endless(), compiled("ab"), 5)
    assert drawn.drawn == ()
    assert drawn.mass == 0
    assert any("probability 0" in note for note in drawn.notes)
    drawn = sample_compiled(Endless(), compiled("ab"), 5, method="local")
    assert len(drawn.drawn) == 5
    assert drawn.mass == drawn.effective == 0


def test_what_makes_no_sense_is_named() -> None:
    query = compiled("ab")
    cases = [
        ({"n": 0}, "invalid n"),
        ({"n": 1, "batch": 0}, "invalid batch"),
        ({"n": 1, "method": "best"}, "unknown sampling method"),
        ({"n": 1, "method": "exact"}, "no exact sums"),
        ({"n": 1, "method": "exact", "max_tokens": 3}, "max_tokens"),
    ]
    for options, problem in cases:
        with pytest.raises(InputError, match=problem):
            sample_compiled(toy.ToyModel(), query, **options)  # type: ignore[arg-type]
    endless = replace(query, tokenizer=replace(toy.TOKENIZER, eos=None))
    with pytest.raises(InputError, match="no token that ends a text"):
        sample_compiled(toy.ToyModel(), endless, 1)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    sample_compiled(toy.ToyModel(1), compiled("[ab]{2}"), 40, watch=lambda *now: told.append(now))
    assert told[-1] == (40, 0)
    assert all(ended + going <= 40 for ended, going in told)


# --- Weights -------------------------------------------------------------------------------------


def test_effective_size() -> None:
    assert effective_size(np.full(7, -900.0)) == pytest.approx(7)
    assert effective_size(np.array([0.0, -np.inf, -np.inf])) == pytest.approx(1)
    assert effective_size(np.log([1.0, 3.0])) == pytest.approx(16 / 10)
    assert effective_size(np.full(3, -np.inf)) == 0


@pytest.mark.parametrize("model", [1, 5, 9])
def test_the_effective_size_is_that_of_the_mass(model: int) -> None:
    """By the exact moments of the weight; and by how the estimates of the mass scatter."""
    trigram, query, n = ToyTrigram(model), compiled(PATTERN), 200
    paths = ended_paths(trigram, query)
    mass, square = (math.fsum(drawn * weight**power for drawn, weight in paths) for power in (1, 2))
    expected = n * mass**2 / square
    runs = [sample_compiled(trigram, query, n, seed=seed, method="local") for seed in range(40)]
    assert np.mean([run.effective for run in runs]) == pytest.approx(expected, rel=0.1)
    scatter = np.mean([(run.mass / mass - 1) ** 2 for run in runs])
    assert scatter == pytest.approx(1 / expected - 1 / n, rel=0.7)  # 40 squares: 22 % at one sigma


def test_the_error_of_independent_samples_is_the_usual_one() -> None:
    weight = np.random.default_rng(2).exponential(size=50)
    mean, error = mean_and_error(np.log(weight))
    assert mean == pytest.approx(weight.mean())
    assert error == pytest.approx(weight.std(ddof=1) / math.sqrt(50))
    assert math.isnan(mean_and_error(np.zeros(1))[1])


def test_a_method_that_was_removed_says_what_to_use() -> None:
    with pytest.raises(InputError) as refused:
        sample_compiled(toy.ToyModel(), compiled("ab"), 5, method="smc")  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.found) == ("unsupported", "smc")
    assert "local" in (refused.value.remedy or "")
