"""What is told of a query before a model is asked, and its picture."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import toy

from holdfast.errors import HoldfastError, LimitError
from holdfast.lm import query as q
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> Tokenizer:
    return load_tokenizer(f"gpt2:{shared_data / 'tokenizers'}")


def test_a_plan_tells_the_language() -> None:
    told = q.plan(q.Query("(ab|é)c?1", eos=True))
    assert (told.strings, told.prompts, told.canonical_by) == (4, (), None)
    assert sorted(told.examples) == ["ab1", "abc1", "é1", "éc1"]
    assert [len(text.encode()) for text in told.examples] == sorted(
        len(text.encode()) for text in told.examples
    )
    # é is two bytes; without it: start, a, ab, abc, end; its first byte adds one.
    assert told.states == 6
    assert told.classes == 7  # a, b, c, 1, two bytes of é, and all others
    assert q.plan(q.Query("a+", eos=True)).strings == "infinite"
    assert q.plan(q.Query("a+", eos=True)).examples == ("a", "aa", "aaa", "aaaa", "aaaaa")


def test_a_plan_tells_what_is_given_and_what_may_follow() -> None:
    regex, prefix = "(ab|a1|x)-?c[ab]", "ab|x|a"
    told = q.plan(q.Query(regex, prefix=prefix, eos=True), toy.TOKENIZER)
    assert [prompt.text for prompt in told.prompts] == ["a", "x", "ab"]
    for prompt in told.prompts:
        tokens = toy.greedy(prompt.text.encode())
        assert prompt.tokens == tuple((toy.PIECES[token] or b"").decode() for token in tokens)
        texts = [text for text in listed(regex) if text.startswith(prompt.text)]
        rests = [text[len(prompt.text) :].encode() for text in texts]
        assert prompt.first_tokens == sum(
            piece is not None and any(rest.startswith(piece) for rest in rests)
            for piece in toy.PIECES
        )
    assert told.to_dict()["prompts"][0] == vars(told.prompts[0])
    healed = q.plan(q.Query("ab1", prefix="ab", heal=True, eos=True), toy.TOKENIZER).prompts[0]
    assert (healed.tokens, healed.given) == ((), "ab")


def listed(regex: str) -> set[str]:
    tried = ("".join(text) for size in range(6) for text in product("abcx1-", repeat=size))
    return {text for text in tried if re.fullmatch(regex, text)}


def test_how_canonical_sequences_are_told(gpt2: Tokenizer) -> None:
    asked = q.Query("abc", encodings="canonical", eos=True)
    assert q.plan(asked, toy.TOKENIZER).canonical_by == "encoding again"
    assert q.plan(asked, gpt2).canonical_by == "automaton"


def marked(path: Path) -> set[str]:
    """Labels of the arcs that a picture draws in the other colour."""
    picture = path.read_text(encoding="utf-8")
    labels = re.findall(r'<text class="mark"[^>]*>(.*?)</text>', picture, re.DOTALL)
    return {text for label in labels for text in re.sub(r"<[^>]*>", "\n", label).split()}


@pytest.mark.parametrize("regex", ["The", "The (cat|dog)s?", "[Hh]ello", "a  b"])
def test_the_arcs_of_canonical_sequences_are_marked(
    gpt2: Tokenizer, tmp_path: Path, regex: str
) -> None:
    q.draw(q.Query(regex, eos=True), gpt2, tmp_path / "x.svg")
    texts = (text for text in q.plan(q.Query(regex, eos=True)).examples)
    canonical = {
        (gpt2.pieces[token] or b"").decode().replace(" ", "·")
        for text in texts
        for token in gpt2.encode(text.encode())
    }
    assert marked(tmp_path / "x.svg") == canonical


def test_after_a_prefix_only_sequences_that_start_with_it_are_marked(tmp_path: Path) -> None:
    # [ab, c] is canonical for abc, but after [a] nothing of it follows; ac is [a, c].
    q.draw(q.Query("a(bc|c)", prefix="a", eos=True), toy.TOKENIZER, tmp_path / "x.svg")
    assert toy.greedy(b"abc")[0] != toy.greedy(b"a")[0]
    assert marked(tmp_path / "x.svg") == {"c"}
    picture = (tmp_path / "x.svg").read_text()
    assert ">bc<" in picture


def test_pictures_that_nobody_could_read_are_refused(gpt2: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="too large to be drawn"):
        q.draw(q.Query("(abc){1,200}", eos=True), gpt2, tmp_path / "x.svg")
    assert not list(tmp_path.iterdir())
    with pytest.raises(HoldfastError):
        q.draw(q.Query("The", eos=True), gpt2, tmp_path / "none" / "x.svg")
