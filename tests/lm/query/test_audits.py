"""Audits of models whose every text can be tried."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import toy
from ngram_world import ngram, opened
from random_arpa import BEGIN, END, RandomArpa

from holdfast.lm.models.loading import load
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.audits.bias import audit_bias
from holdfast.lm.query.audits.cloze import audit_cloze
from holdfast.lm.query.audits.memorization import MemorizationAudit, audit_memorization
from holdfast.lm.query.audits.templates import (
    Bias,
    Cloze,
    Item,
    Known,
    Memorization,
    Toxicity,
)
from holdfast.lm.query.audits.toxicity import audit_toxicity

END_OF_TEXT = {"eos": True}

# --- Memorisation --------------------------------------------------------------------------------

PATTERN = "[abc]{2,4}"
KNOWN = (Known("abc", 8), Known("ca", 8), Known("cccc", 2), Known("bbb", 2), Known("aa", 1))


@cache
def true_chances(seed: int, **options: float) -> dict[str, tuple[float, int]]:
    return toy.by_text(toy.ToyModel(seed), PATTERN, 4, **options)


def true_ranks(seed: int, **options: float) -> dict[str, int]:
    chances = true_chances(seed, **options)
    order = sorted(chances, key=lambda text: (-chances[text][0], text))
    return {text: place for place, text in enumerate(order, 1)}


def check_ranks(found: MemorizationAudit, ranks: dict[str, int], size: int) -> None:
    for canary in found.canaries:
        rank = ranks[canary.text]
        assert canary.rank_low <= rank <= canary.rank_high, canary
        assert canary.exposure_low is not None
        assert canary.exposure_high is not None
        exposure = math.log2(size) - math.log2(rank)
        assert canary.exposure_low - 1e-9 <= exposure <= canary.exposure_high + 1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [1, 12, 200])
def test_ranks_and_recall(seed: int, n: int) -> None:
    model = toy.ToyModel(seed)
    found = audit_memorization(model, Memorization(PATTERN, n=n, known=KNOWN, query=END_OF_TEXT))
    ranks, size = true_ranks(seed), 9 + 27 + 81
    assert found.texts_in_pattern == size
    assert [ranks[match.text] for match in found.extracted.found] == list(
        range(1, min(n, size) + 1)
    )
    check_ranks(found, ranks, size)
    chances = true_chances(seed)
    for canary in found.canaries:
        assert canary.logprob == pytest.approx(math.log(chances[canary.text][0]), abs=1e-5)
        if ranks[canary.text] <= n:
            assert canary.rank_low == canary.rank_high == ranks[canary.text]
    assert found.recall == tuple(
        (first, sum(ranks[one.text] <= first for one in KNOWN) / len(KNOWN))
        for first in range(1, min(n, size) + 1)
    )
    hits = dict.fromkeys((1, 2, 8), 0)
    for one in KNOWN:
        hits[one.repeats] += ranks[one.text] <= n
    assert found.by_repeats == ((1, 1, hits[1]), (2, 2, hits[2]), (8, 2, hits[8]))
    assert [canary.repeats for canary in found.canaries] == [8, 8, 2, 2, 1]


def test_ranks_hold_when_the_search_was_stopped() -> None:
    """An order that is not proven gives bounds, also for what was found."""
    ranks = true_ranks(1)
    for context in (2, 3):
        model = toy.ToyModel(1, context=context)
        found = audit_memorization(
            model, Memorization(PATTERN, n=12, known=KNOWN, query=END_OF_TEXT)
        )
        assert not found.extracted.complete
        assert not found.to_dict()["complete"]
        (doubt,) = found.unknowns()
        assert doubt.doubt  # what is not among the texts may be memorized all the same
        check_ranks(found, ranks, 117)


def test_a_known_text_is_among_the_most_probable_or_not_or_nobody_can_tell() -> None:
    """Against the order of all texts, where the model is followed to the end, and where it is not."""
    verdicts = set()
    for seed, context in ((2, None), (2, 1), (3, 1), (1, 3)):
        ranks = true_ranks(seed)
        known = tuple(Known(text) for text, rank in ranks.items() if rank % 8 == 1)
        template = Memorization(PATTERN, n=12, known=known, query=END_OF_TEXT)
        found = audit_memorization(toy.ToyModel(seed, context=context), template)
        check_ranks(found, ranks, 117)  # the first of all, too, where nothing of it could be seen
        for canary in found.canaries:
            is_among = "yes" if ranks[canary.text] <= 12 else "no"
            assert canary.among in (is_among, "cannot tell")
            verdicts.add(canary.among)
        decided = [canary.among != "cannot tell" for canary in found.canaries]
        assert found.undecided == decided.count(False)
        assert all(decided) == found.extracted.complete
    assert verdicts == {"yes", "no", "cannot tell"}


def test_settings_of_the_query_apply_to_known_texts_alone() -> None:
    """Edits and the shares of several prefixes neither widen nor scale what a known text is given."""
    template = Memorization(
        "(ab|x)c",
        prefix="a|x",
        n=100,
        known=(Known("abc"), Known("xc")),
        query={"edits": 1, "eos": True},
    )
    found = audit_memorization(toy.ToyModel(2), template)
    scored = {match.text: match.logprob for match in found.extracted.found}
    assert found.extracted.complete
    for canary in found.canaries:
        assert canary.logprob == pytest.approx(scored[canary.text], abs=1e-5)


def test_texts_that_share_their_beginning_have_no_bound_from_mass() -> None:
    template = Memorization("a{1,9}", n=1, known=(Known("aaaaaa"),), query={"eos": False})
    (canary,) = audit_memorization(toy.ToyModel(2), template).canaries
    assert canary.rank_high == 9
    endless = replace(template, regex="a+")
    (canary,) = audit_memorization(toy.ToyModel(2), endless).canaries
    assert (canary.rank_high, canary.exposure_low) == (math.inf, None)


def test_known_texts_of_another_pattern_are_left_out_and_twice_is_once() -> None:
    known = (Known("ab", 2), Known("zz"), Known("ab", 1), Known("é"))
    found = audit_memorization(
        toy.ToyModel(0), Memorization("ab|é|ca", n=3, known=known, query=END_OF_TEXT)
    )
    assert [(one.text, one.repeats) for one in found.canaries] == [("ab", 3), ("é", 1)]
    assert found.recall[-1] == (3, 1.0)
    nothing = audit_memorization(toy.ToyModel(0), Memorization("ab", n=3, query=END_OF_TEXT))
    assert (nothing.canaries, nothing.recall, nothing.by_repeats) == ((), (), ())


def test_a_known_text_that_no_token_spells_is_not_found() -> None:
    template = Memorization("a[bz]", n=5, known=(Known("az", 4), Known("ab", 1)), query=END_OF_TEXT)
    unspelled, spelled = audit_memorization(toy.ToyModel(0), template).canaries
    assert (unspelled.text, unspelled.logprob, unspelled.rank_high) == ("az", -math.inf, 2)
    assert spelled.rank_low == spelled.rank_high == 1


# --- Bias ----------------------------------------------------------------------------------------


def unigrams(**chances: float) -> RandomArpa:
    total = sum(chances.values())
    made = RandomArpa(tuple(name for name in chances if name != "end"), 1)
    made.chances = {
        (END if word == "end" else word,): chance / total for word, chance in chances.items()
    }
    return made


def test_exact_shares_are_those_of_all_token_sequences() -> None:
    model = toy.ToyModel(5)
    found = audit_bias(
        model,
        Bias("{group}-{outcome}", ("a", "x"), ("ab", "1", "c"), samples=400, query=END_OF_TEXT),
    )
    chances = toy.by_text(toy.ToyModel(5), "[ax]-(ab|1|c)", 4)
    assert [(cell.group, cell.outcome) for cell in found.cells] == list(
        product(("a", "x"), ("ab", "1", "c"))
    )
    for cell in found.cells:
        mine = chances[f"{cell.group}-{cell.outcome}"][0]
        share = mine / sum(chances[f"{group}-{cell.outcome}"][0] for group in ("a", "x"))
        assert cell.lower * (1 - 1e-9) <= mine <= cell.upper * (1 + 1e-9)
        assert cell.bound_low - 1e-9 <= share <= cell.bound_high + 1e-9
        assert cell.bound_high - cell.bound_low < 0.01
        assert cell.interval_low <= share <= cell.interval_high
    assert found.samples == 400
    assert 1 < found.effective <= 400


def test_bounds_are_close_however_improbable_a_text_is() -> None:
    found = audit_bias(
        toy.ToyModel(5),
        Bias("{group}(-x){8}{outcome}", ("a", "x"), ("b",), samples=10, query=END_OF_TEXT),
    )
    for cell in found.cells:
        assert cell.upper < 1e-8
        assert cell.upper - cell.lower <= 1.1e-3 * cell.lower


def test_an_unbiased_model_has_a_small_statistic_and_a_biased_one_a_large_one() -> None:
    template = Bias(
        "{group}{outcome}", ("a", "b"), ("c", "d"), samples=3000, seed=4, query=END_OF_TEXT
    )
    fair = audit_bias(opened(unigrams(a=2, b=1, c=3, d=2, end=2)), template)
    assert (fair.freedom, fair.effective) == (1, pytest.approx(3000))
    assert fair.verdict() == "no difference"
    assert fair.statistic < 6
    assert fair.p > 0.01
    for cell in fair.cells:
        exact = 2 / 3 if cell.group == "a" else 1 / 3
        assert cell.bound_low == pytest.approx(exact, abs=1e-6)
        assert cell.interval_low <= exact <= cell.interval_high
    made = unigrams(a=2, b=1, c=3, d=2, end=2)
    made.order = 2
    for group, outcome in (("a", "c"), ("b", "d")):
        made.chances[group, outcome] = 0.8
        made.backoff[group,] = 0.2 / (1 - made.chances[outcome,])
    biased = audit_bias(opened(made), template)
    assert biased.verdict() == "difference"
    assert biased.statistic > 100
    # Bounds that allow both, and a group alone, with which nothing can be compared.
    wide = replace(fair, cells=tuple(replace(c, odds_low=0.5, odds_high=2.0) for c in fair.cells))
    alone = replace(fair, cells=tuple(replace(c, odds_low=None) for c in fair.cells[:1]))
    assert [one.verdict() for one in (wide, alone)] == ["cannot tell", "cannot tell"]
    assert wide.to_dict()["verdict"] == "cannot tell"
    assert biased.p < 1e-9
    for cell in biased.cells:
        chance = {
            group: made.probability([BEGIN], group)
            * made.probability([group], cell.outcome)
            * made.probability([cell.outcome], END)
            for group in ("a", "b")
        }
        exact = chance[cell.group] / sum(chance.values())
        assert cell.lower == pytest.approx(chance[cell.group], rel=1e-2)
        assert cell.interval_low <= exact <= cell.interval_high


def test_groups_and_outcomes_are_plain_words() -> None:
    model = toy.ToyModel(1)
    plain = audit_bias(
        model, Bias("{group} {outcome}", ("a-", "x"), ("b", "c"), samples=50, query=END_OF_TEXT)
    )
    chances = toy.by_text(toy.ToyModel(1), "(a-|x) [bc]", 4)
    for cell in plain.cells:
        assert cell.lower == pytest.approx(chances[f"{cell.group} {cell.outcome}"][0], rel=1e-2)
    # A dot is a dot, and what stands behind a place applies to the whole word.
    arpa = unigrams(**{"a": 1, ".": 1, "b": 1, "end": 3})
    found = audit_bias(
        opened(arpa),
        Bias("({group}){2}{outcome}?", ("a.", "b"), ("a",), samples=50, query=END_OF_TEXT),
    )
    third, half = 1 / 6, 1 / 2
    assert found.cells[0].lower == pytest.approx(third**4 * half * (1 + third), rel=1e-2)
    assert found.cells[1].lower == pytest.approx(third**2 * half * (1 + third), rel=1e-2)


def test_the_same_seed_gives_the_same_audit() -> None:
    template = Bias(
        "{group}{outcome}", ("a", "x"), ("b", "1"), samples=60, seed=3, query=END_OF_TEXT
    )
    one, two = (audit_bias(toy.ToyModel(1), template) for _ in range(2))
    assert one == two
    assert one != audit_bias(toy.ToyModel(1), replace(template, seed=4))


# --- Toxicity ------------------------------------------------------------------------------------


def starts_with(texts: set[bytes], seed: int, given: list[int]) -> float:
    """Probability that what follows `given` starts with one of the texts: all sequences tried."""
    model, total = toy.ToyModel(seed), 0.0
    waiting: list[tuple[tuple[int, ...], bytes, float]] = [((), b"", 0.0)]
    beginnings = {one[:size] for one in texts for size in range(len(one) + 1)}

    def done(text: bytes) -> bool:
        return any(text[:size] in texts for size in range(len(text) + 1))

    while waiting:
        tokens, text, log = waiting.pop()
        if done(text):
            total += math.exp(log)
            continue
        chances = model.distribution([*given, *tokens])
        for token, piece in enumerate(toy.PIECES):
            if piece is None:
                continue
            spelled = text + piece
            if spelled in beginnings or done(spelled):
                waiting.append(((*tokens, token), spelled, log + chances[token]))
    return total


def within_one_edit(texts: set[str]) -> set[bytes]:
    """Over the characters that the toy tokens can spell; others have no probability."""
    letters = "abc 12x-é"
    made = set(texts)
    for text in texts:
        for place in range(len(text) + 1):
            made |= {text[:place] + letter + text[place:] for letter in letters}
            made.add(text[:place] + text[place + 1 :])
            made |= {text[:place] + letter + text[place + 1 :] for letter in letters}
    return {text.encode() for text in made}


def whole_words(texts: set[bytes], seed: int, given: list[int]) -> float:
    """Probability that one of the texts follows and its word ends: by ``" "``, ``"-"`` or the end."""
    followed = starts_with({text + end for text in texts for end in (b" ", b"-")}, seed, given)
    ended = (
        toy.score(toy.ToyModel(seed), tokens, after=given)
        for tokens, _ in toy.spellings(
            texts.__contains__,
            max(map(len, texts)),
            {text[:size] for text in texts for size in range(len(text) + 1)}.__contains__,
        )
    )
    return followed + math.fsum(map(math.exp, ended))


def meant(texts: set[bytes], words: tuple[str, ...]) -> set[bytes]:
    """Texts without those that are the beginning of a listed word, or no word."""
    beginnings = {word[:size] for word in words for size in range(1, len(word))} - {*words, ""}
    harmless = "|".join(map(re.escape, ["", *beginnings]))
    return {text for text in texts if not re.fullmatch(f"[ -]*({harmless})[ -]*".encode(), text)}


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_of_listed_words(seed: int) -> None:
    words, prompts = ("bc1", "x-x"), ("", "a", "12")
    template = Toxicity(words, prompts, tol=1e-6)
    found = audit_toxicity(toy.ToyModel(seed), template)
    assert [(one.prompt, one.edits) for one in found.prompts] == list(product(prompts, (0, 1)))
    assert found.words == 2
    for one in found.prompts:
        listed = {(" " if one.prompt else "") + word for word in words}
        texts = {text.encode() for text in listed}
        if one.edits:
            texts = meant(within_one_edit(listed), words)
        exact = whole_words(texts, seed, toy.greedy(one.prompt.encode()))
        assert one.lower <= exact * (1 + 1e-9)
        assert one.upper >= exact * (1 - 1e-9)
        assert one.upper - one.lower <= 1e-6
        assert one.text is not None
        assert one.text.startswith(one.prompt)
        assert one.text.removeprefix(one.prompt).encode() in texts
        assert math.exp(one.logprob or 0) <= exact * (1 + 1e-9)


def test_words_are_plain_and_what_stands_between_is_not() -> None:
    found = audit_toxicity(toy.ToyModel(1), Toxicity(("x",), ("a",), between="-? ?", edits=0))
    (one,) = found.prompts
    exact = whole_words({b"x", b"-x", b" x", b"- x"}, 1, toy.greedy(b"a"))
    assert one.lower - 1e-9 <= exact <= one.upper + 1e-9
    _, model = ngram(3)
    (dotted,) = audit_toxicity(model, Toxicity(("aab", "ba"), edits=0)).prompts
    assert 0 < dotted.lower <= dotted.upper < 1


@cache
def canaries() -> LanguageModel:
    return load(f"hf:{Path(__file__).parents[3] / 'examples/canaries/model'}")


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("word", "prompt", "edits", "least", "most"),
    [
        ("inn", "The man was trained", 1, 0.0, 0.02),  # in is the beginning of inn
        ("med", "The woman was trained in", 0, 0.0, 0.02),  # medicine is another word
        ("medicin", "The woman was trained in", 1, 0.05, 1.0),  # with an e more: an edit
        ("art", "The woman was trained in", 0, 0.05, 1.0),
        ("art", "The woman was trained in", 1, 0.05, 1.0),
        ("ink", "The man was trained", 1, 0.0, 0.02),
    ],
)
def test_a_listed_word_ends_where_it_ends(
    word: str, prompt: str, edits: int, least: float, most: float
) -> None:
    found = audit_toxicity(canaries(), Toxicity((word,), (prompt,), edits=edits))
    one = found.prompts[-1]
    assert one.stopped is None
    assert least <= one.lower <= one.upper <= most


def test_a_query_of_ones_own_still_leaves_out_texts() -> None:
    template = Toxicity(("x", "b"), ("a",), edits=1, query={"exclude": "a ?b"})
    plain, one = audit_toxicity(toy.ToyModel(1), template).prompts
    exact = whole_words({b" x"}, 1, toy.greedy(b"a"))
    assert plain.lower - 1e-9 <= exact <= plain.upper + 1e-9
    texts = meant(within_one_edit({" x", " b"}), ("x", "b"))
    texts = {text for text in texts if not re.fullmatch(rb" ?b[ -]*", text)}
    exact = whole_words(texts, 1, toy.greedy(b"a"))
    assert one.lower - 1e-9 <= exact <= one.upper + 1e-9


def test_without_an_end_of_text_a_word_ends_by_a_character() -> None:
    tokenizer = replace(toy.TOKENIZER, eos=None)
    model = toy.ToyModel(1, tokenizer=tokenizer)
    (one,) = audit_toxicity(model, Toxicity(("x",), ("a",), edits=0)).prompts
    exact = starts_with({b" x ", b" x-"}, 1, toy.greedy(b"a"))
    assert one.lower - 1e-9 <= exact <= one.upper + 1e-9


def test_a_prompt_is_the_highest_or_not_or_nobody_can_tell() -> None:
    """Single words of known probability: the word, then a character that ends it, or the end."""
    made = unigrams(a=3, b=2, end=5)
    made.order = 2
    made.chances["b", "a"] = 0.6  # after "b" the word is twice as probable
    made.backoff["b",] = 0.4 / 0.7
    template = Toxicity(("a",), ("a", "b"), between="", edits=0)
    found = audit_toxicity(opened(made), template)
    for one, after in zip(found.prompts, (0.3, 0.6), strict=True):
        assert one.lower == pytest.approx(after * 0.5, rel=1e-2)
    assert [found.highest(one) for one in found.prompts] == ["no", "yes"]
    assert [one["highest"] for one in found.to_dict()["findings"]] == ["no", "yes"]
    # Bounds as wide as all that may be: neither is proven.
    wide = replace(found, prompts=tuple(replace(one, upper=1.0) for one in found.prompts))
    assert [wide.highest(one) for one in wide.prompts] == ["cannot tell", "cannot tell"]
    wide.page()
    # Words of one and the same probability: one is as probable as the other, and of which more is open.
    even = audit_toxicity(opened(unigrams(a=1, b=1, end=2)), replace(template, words=("a", "b")))
    assert {one.proven for one in even.prompts} == {"cannot tell"}
    assert {one.proven for one in found.prompts} == {"yes"}


# --- Cloze ---------------------------------------------------------------------------------------


def best_word(seed: int, context: str, words: set[str], ends: str, eos: bool) -> str:
    """The most probable of the whole words after a context: one of `ends`, or the end of text, follows."""
    given = toy.greedy(context.encode())
    chances = {}
    for word in sorted(words):
        text = f" {word}".encode()
        chances[word] = starts_with({text + end.encode() for end in ends}, seed, given)
        if eos:
            chances[word] += math.fsum(
                math.exp(toy.score(toy.ToyModel(seed), tokens, after=given))
                for tokens, _ in toy.spellings(text.__eq__, len(text), text.startswith)
            )
    return max(chances, key=lambda word: chances[word])


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(4))
def test_the_answer_of_every_variant_is_the_most_probable(seed: int) -> None:
    context = "ab 12 x-ab ca"
    template = Cloze(
        (Item(context, "ab"), Item("1 bc", "x")),
        word="[abcx]{1,2}",
        end="-",
        stop_words=("CA", "x"),
    )
    found = audit_cloze(toy.ToyModel(seed), template)
    for item, said in zip(template.items, found.answers, strict=True):
        seen = set(re.findall(template.word, item.context))
        every = {"".join(word) for size in (1, 2) for word in product("abcx", repeat=size)}
        kept = {word for word in seen if word not in ("ca", "x")}
        assert said == {
            "answer": item.answer,
            "any word, that ends": best_word(seed, item.context, every, " -", eos=True),
            "words of the context": best_word(seed, item.context, seen, " -", eos=True),
            "… that end": best_word(seed, item.context, seen, "-", eos=False),
            "… no stop words": best_word(seed, item.context, kept, "-", eos=False),
            "cannot tell": "",
        }
    assert found.stopped is None
    for variant in found.variants:
        right = sum(said[variant.name] == said["answer"] for said in found.answers)
        assert (variant.right, variant.asked, variant.accuracy) == (right, 2, right / 2)
        assert variant.interval_low <= variant.accuracy <= variant.interval_high
    without = audit_cloze(toy.ToyModel(seed), replace(template, stop_words=()))
    assert [variant.name for variant in without.variants] == [
        "any word, that ends",
        "words of the context",
        "… that end",
    ]


def test_an_answer_is_right_or_wrong_or_nobody_can_tell(tmp_path: Path) -> None:
    """Words of known probability, .4 and twice .1, after any context."""
    path = tmp_path / "words.arpa"
    path.write_text(unigrams(a=4, b=1, c=1, end=4).text())
    model = load(f"ngram:{path}")
    template = Cloze((Item("c", "a"), Item("c", "b")), word="[ab]", end=" ")
    found = audit_cloze(model, template)
    free = found.variants[0]
    assert (free.right, free.undecided, free.asked, found.stopped) == (1, 0, 2, None)
    # b and c are equally probable: either is an answer, none is proven.
    even = audit_cloze(model, replace(template, word="[bc]"))
    free = even.variants[0]
    assert (free.right, free.undecided, free.accuracy) == (0, 2, 0.0)
    assert (free.interval_low, free.interval_high) == (0, 1)
    assert even.answers[0]["cannot tell"].startswith("any word, that ends")
    assert not even.to_dict()["complete"]
    assert even.unknowns()


def test_words_of_a_context_are_read_by_the_languages_of_the_template() -> None:
    """Groups, ``&`` and ``~`` have the meaning that they have in queries, not that of Python's re."""
    template = Cloze((Item("ab ca xx", "ab"),), word="((a|c)+[ab])&~(ca)", end="(-)|1")
    (said,) = audit_cloze(toy.ToyModel(0), template).answers
    assert said["words of the context"] == said["… that end"] == "ab"


def test_a_context_without_words_allows_any() -> None:
    template = Cloze((Item("12-1", "a"),), word="[ab]", end="-")
    (said,) = audit_cloze(toy.ToyModel(0), template).answers
    assert said["words of the context"] == best_word(0, "12-1", {"a", "b"}, " -", True)


def test_evaluations_are_those_of_the_audit() -> None:
    model = toy.ToyModel(0)
    before = model.cost.evaluations
    found = audit_cloze(model, Cloze((Item("ab", "c"),), word="[abc]", end="-"))
    assert found.evaluations == model.cost.evaluations - before > 0
