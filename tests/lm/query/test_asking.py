"""What can be asked, over a world where every token sequence can be tried."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise, product
from pathlib import Path

import pytest
import toy

from holdfast.errors import InputError, LimitError
from holdfast.lm import query as q
from holdfast.lm.query.compiling import compile_query
from holdfast.lm.query.tokens.counting import count_token_paths
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer

REGEX = "(a|b)?ab?c|1[12]|- ?x"


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> Tokenizer:
    return load_tokenizer(f"gpt2:{shared_data / 'tokenizers'}")


def sequences_of(regex: str) -> dict[str, int]:
    """text -> its token sequences, for texts of at most 4 characters."""
    tried = ("".join(text) for size in range(5) for text in product("abc 12x-é", repeat=size))
    texts = {text.encode() for text in tried if re.fullmatch(regex, text)}
    starts = {text[:size] for text in texts for size in range(len(text) + 1)}
    found = Counter(
        text.decode() for _, text in toy.spellings(texts.__contains__, 8, starts.__contains__)
    )
    assert len(found) == len(texts)
    return found


def test_search_finds_every_text_once_with_all_its_encodings() -> None:
    truth = toy.by_text(toy.ToyModel(3), REGEX, longest=4)
    found = q.search(toy.ToyModel(3), q.Query(REGEX, eos=True), n=100)
    assert found.complete
    assert {match.text: match.encodings_seen for match in found.found} == {
        text: encodings for text, (_, encodings) in truth.items()
    }
    for match in found.found:
        assert math.exp(match.logprob) == pytest.approx(truth[match.text][0], rel=1e-9)
    assert all(one.logprob >= two.logprob for one, two in pairwise(found.found))
    assert found.to_dict()[0] == {
        "text": found.found[0].text,
        "logprob": found.found[0].logprob,
        "encodings_seen": found.found[0].encodings_seen,
        "proven": True,
    }


def test_mass_is_the_sum_of_the_texts_and_samples_estimate_it() -> None:
    exact = math.fsum(chance for chance, _ in toy.by_text(toy.ToyModel(3), REGEX, 4).values())
    found = q.mass(toy.ToyModel(3), q.Query(REGEX, eos=True), tol=1e-9)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.upper - found.lower <= 1e-9
    drawn = q.sample(toy.ToyModel(3), q.Query(REGEX, eos=True), n=2000, seed=1)
    assert abs(drawn.mass - exact) < 4 * drawn.mass_error
    assert sum(share for _, share in drawn.texts) == pytest.approx(1)


def test_a_repetition_without_a_lower_bound_is_literal_as_in_re2_and_noted() -> None:
    assert q.count(q.Query("a{,5}")).strings == 1
    for pattern, notes in (("a{,5}|b", 1), ("a{0,5}|b", 0), (r"a\{,5}|b", 0)):
        compiled = compile_query(q.Query(pattern), toy.TOKENIZER)
        assert len(compiled.notes) == notes


@pytest.mark.parametrize(
    "ask", [q.search, q.mass, q.sample, q.audit_bias, q.audit_cloze, q.audit_toxicity]
)
def test_a_model_without_its_wrapper_is_named(ask: Callable[..., object]) -> None:
    class TransformersModel:
        config = None

    with pytest.raises(InputError) as caught:
        ask(TransformersModel(), q.Query("a"))
    error = caught.value
    assert (error.code, error.place, error.found) == ("unsupported", "model", "TransformersModel")


def test_the_kind_of_a_model_is_proposed_for_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.arpa").touch()
    for path, kind in ((tmp_path, "hf"), (tmp_path / "a.arpa", "ngram")):
        with pytest.raises(InputError) as caught:
            q.load(str(path))
        assert (caught.value.code, caught.value.found) == ("unknown-name", repr(str(path)))
        assert f"{kind}:{path}" in (caught.value.remedy or "")
    with pytest.raises(InputError) as caught:
        q.load(str(tmp_path / "none"))
    assert (caught.value.code, caught.value.remedy) == ("unknown-name", None)


def test_a_stopped_mass_keeps_valid_bounds() -> None:
    exact = math.fsum(chance for chance, _ in toy.by_text(toy.ToyModel(3), REGEX, 4).values())
    found = q.mass(toy.ToyModel(3), q.Query(REGEX, eos=True), tol=0.0, budget=5, batch=2)
    assert found.stopped == "budget"
    assert found.lower <= exact <= found.upper


@pytest.mark.parametrize("regex", ["abc", REGEX, "(ab|é)?", "[abc]{0,3}", "a{2,4}", "(a|ab)(c|bc)"])
def test_token_sequences_are_counted_as_trying_all_of_them_counts(regex: str) -> None:
    spelled = sequences_of(regex)
    texts = len(spelled)
    found = q.count(q.Query(regex, encodings="all", eos=True), toy.TOKENIZER)
    assert found.to_dict() == {
        "strings": texts,
        "token_paths": sum(spelled.values()),
    }
    canonical = q.count(q.Query(regex, encodings="canonical", eos=True), toy.TOKENIZER)
    assert canonical.to_dict() == {"strings": texts, "token_paths": texts}
    assert q.count(q.Query(regex, eos=True)).to_dict() == {"strings": texts, "token_paths": None}


def test_lengths_of_token_sequences() -> None:
    lengths = [
        len(tokens)
        for tokens, _ in toy.spellings(
            lambda text: text == b"abcab", 5, lambda text: b"abcab".startswith(text)
        )
    ]
    expected = tuple((size, len(list(group))) for size, group in groupby(sorted(lengths)))
    assert q.count(q.Query("abcab", eos=True), toy.TOKENIZER, longest=9).by_length == expected
    assert q.count(q.Query("abcab", eos=True), toy.TOKENIZER, longest=3).by_length == tuple(
        pair for pair in expected if pair[0] <= 3
    )
    (size,) = {len(toy.greedy(b"abcab"))}
    canonical = q.count(q.Query("abcab", encodings="canonical", eos=True), toy.TOKENIZER, longest=9)
    assert canonical.by_length == ((size, 1),)


def test_the_infinite_is_said() -> None:
    found = q.count(q.Query("a+", eos=True), toy.TOKENIZER, longest=4)
    assert (found.strings, found.token_paths) == ("infinite", "infinite")
    assert found.by_length == tuple((size, 2**size) for size in range(1, 5))  # a or aa
    assert q.count(q.Query("a+", eos=True)).to_dict() == {
        "strings": "infinite",
        "token_paths": None,
    }
    with pytest.raises(LimitError, match="may not spell every text"):
        q.count(q.Query("a+", encodings="canonical", eos=True), toy.TOKENIZER)


@pytest.mark.parametrize("prefix", ["a", "ab?", "a|b", "- ?"])
def test_sequences_after_a_prefix(prefix: str) -> None:
    regex = "(a|b|ab|-) ?(c|b|bc)"
    compiled = compile_query(q.Query(regex, prefix=prefix, eos=True), toy.TOKENIZER, "texts")
    texts = {
        "".join(text)
        for size in range(6)
        for text in product("abc -", repeat=size)
        if compiled.language.accepts("".join(text))
    }
    after, canonical = 0, 0
    for prompt in compiled.prompts:
        given = tuple(toy.greedy(prompt.text))
        for text in texts:
            if text.encode().startswith(prompt.text):
                rest = text.encode()[len(prompt.text) :]
                after += sum(1 for _ in toy.spellings(rest.__eq__, 6, rest.startswith))
                canonical += tuple(toy.greedy(text.encode()))[: len(given)] == given
    assert q.count(q.Query(regex, prefix=prefix, eos=True), toy.TOKENIZER).token_paths == after
    assert (
        q.count(
            q.Query(regex, prefix=prefix, encodings="canonical", eos=True), toy.TOKENIZER
        ).token_paths
        == canonical
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "regex", ["The", "The (cat|dog)s?", "[0-9]{1,2}", "(https?://)?www\\.[ab]\\.com", "naïve|日本"]
)
def test_canonical_sequences_of_gpt2_are_those_of_its_automaton(
    gpt2: Tokenizer, regex: str
) -> None:
    query = q.Query(regex, encodings="canonical", eos=True)
    automaton = compile_query(query, gpt2, "texts").prompts[0].automaton
    found = q.count(query, gpt2, longest=20)
    assert (found.token_paths, found.by_length) == count_token_paths(automaton)
    assert found.token_paths == found.strings


def test_canonical_sequences_of_many_texts_are_one_each(gpt2: Tokenizer) -> None:
    many = q.count(q.Query("[a-z]{10}", encodings="canonical", eos=True), gpt2)
    assert many.to_dict() == {"strings": 26**10, "token_paths": 26**10}
    endless = q.count(q.Query("[a-z]+", encodings="canonical", eos=True), gpt2)
    assert endless.to_dict() == {"strings": "infinite", "token_paths": "infinite"}
    with pytest.raises(LimitError):
        q.count(q.Query("[a-z]{10}", encodings="canonical", eos=True), gpt2, longest=3)
    with pytest.raises(LimitError):
        q.count(q.Query("The[a-z]{10}", prefix="The", encodings="canonical", eos=True), gpt2)


def test_The_has_four_encodings_in_gpt2(gpt2: Tokenizer) -> None:
    assert q.count(q.Query("The", eos=True), gpt2, longest=3).to_dict() == {
        "strings": 1,
        "token_paths": 4,
        "by_length": [
            {"tokens": 1, "token_paths": 1},
            {"tokens": 2, "token_paths": 2},
            {"tokens": 3, "token_paths": 1},
        ],
    }


def test_what_cannot_be_asked_is_told() -> None:
    with pytest.raises(InputError, match="no text matches"):
        q.count(q.Query("a&b", eos=True))
    with pytest.raises(InputError, match="no token sequence spells"):
        q.count(q.Query("z", eos=True), toy.TOKENIZER)
    assert q.count(q.Query("z", eos=True)).strings == 1
