"""From a query to prompts: what is given, what may follow, and which queries are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import toy

from holdfast.errors import InputError
from holdfast.lm.query.compiling import MOST_PREFIXES, Purpose, compile_query, language_of
from holdfast.lm.query.queries import Query
from holdfast.lm.query.tokens.automaton import TokenAutomaton


def paths(automaton: TokenAutomaton, longest: int = 6) -> Iterator[tuple[int, ...]]:
    """Token sequences of the automaton, up to a length."""
    waiting = [((), automaton.start)] if automaton.start >= 0 else []
    while waiting:
        tokens, state = waiting.pop()
        if automaton.is_final(state):
            yield tokens
        if len(tokens) < longest:
            for token, following in zip(*automaton.arcs(state), strict=True):
                waiting.append(((*tokens, int(token)), int(following)))


def spelled(regex: str, purpose: Purpose = "texts", **settings: object) -> set[str]:
    """Texts of all prompts, each spelled by the tokens given and those of the automaton."""
    compiled = compile_query(Query(regex, **{"eos": True} | settings), toy.TOKENIZER, purpose)  # type: ignore[arg-type]
    return {
        compiled.tokenizer.spell([*prompt.tokens, *path]).decode()
        for prompt in compiled.prompts
        for path in paths(prompt.automaton)
        if prompt.accepts is None or prompt.accepts(path)
    }


@pytest.mark.parametrize("encodings", ["all", "prefix-canonical", "canonical"])
@pytest.mark.parametrize("heal", [False, True])
@pytest.mark.parametrize("prefix", [None, "a", "ab?", "(a|b|é)", "a*b"])
def test_prompts_spell_the_language(encodings: str, heal: bool, prefix: str | None) -> None:
    regex = "(a|ab|b|é)(b|c|1)?"
    texts = spelled(regex, encodings=encodings, heal=heal, prefix=prefix)
    whole = {first + then for first in ("a", "ab", "b", "é") for then in ("", "b", "c", "1")}
    starts = {"a": "a", "ab?": "a", "(a|b|é)": ("a", "b", "é"), "a*b": ("b", "ab"), None: ""}
    # canonical sequences that go on from the tokens of the prefix: abc is one token, a cannot begin it
    assert texts <= {text for text in whole if text.startswith(starts[prefix])}
    if encodings != "canonical" or prefix is None:
        assert texts == {text for text in whole if text.startswith(starts[prefix])}


def test_what_is_given_and_what_is_left_to_spell() -> None:
    def given(encodings: str, heal: bool = False) -> tuple[tuple[int, ...], bytes]:
        query = Query("ab1(2|1)", prefix="ab1", encodings=encodings, heal=heal, eos=True)  # type: ignore[arg-type]
        (prompt,) = compile_query(query, toy.TOKENIZER).prompts
        assert (prompt.remainder_automaton is not None) == bool(prompt.remainder)
        return prompt.tokens, prompt.remainder

    ab, one = toy.PIECES.index(b"ab"), toy.PIECES.index(b"1")
    assert given("prefix-canonical") == ((ab, one), b"")
    assert given("prefix-canonical", heal=True) == ((ab,), b"1")
    assert given("all") == ((), b"ab1")
    assert given("canonical", heal=True) == ((ab,), b"1")


def test_a_healed_token_may_span_the_end_of_the_prefix() -> None:
    twelve = toy.PIECES.index(b"12")
    query = Query("ab1(2|1)", prefix="ab1", heal=True, eos=True)
    (healed,) = compile_query(query, toy.TOKENIZER).prompts
    assert (twelve,) in set(paths(healed.automaton))
    (plain,) = compile_query(replace(query, heal=False), toy.TOKENIZER).prompts
    assert (twelve,) not in set(paths(plain.automaton))


def test_the_event_prefix_takes_what_overshoots() -> None:
    (prompt,) = compile_query(Query("a", eos=False), toy.TOKENIZER).prompts
    first = set(paths(prompt.automaton, 1))
    assert {toy.PIECES[token] for (token,) in first} == {b"a", b"ab", b"aa", b"abc", b"a1"}


def test_prefix_strings_are_equally_likely() -> None:
    prompts = compile_query(Query("(a|b|c)x", prefix="a|b|c|1", eos=True), toy.TOKENIZER).prompts
    assert [(prompt.text, prompt.share) for prompt in prompts] == [
        (b"a", 1 / 3),
        (b"b", 1 / 3),
        (b"c", 1 / 3),
    ]


def test_edits_come_after_the_prefix_and_exclusion_after_the_edits() -> None:
    language = language_of(Query("ab", prefix="a", edits=1, exclude="a[^b]", eos=True))
    assert language.accepts("ab")
    assert language.accepts("a")
    assert language.accepts("axb")
    assert not language.accepts("ac")
    assert not language.accepts("b")


def test_a_lead_is_read_once() -> None:
    """As SentencePiece decodes: one space at the start of a text is not its own."""
    led = replace(toy.TOKENIZER, lead=b" ")
    compiled = compile_query(Query(" ?a", eos=True), led)
    found = {led.spell(path) for path in paths(compiled.prompts[0].automaton)}
    assert found == {b"a", b" a"}
    raw = {
        b"".join(led.pieces[t] or b"" for t in path)
        for path in paths(compiled.prompts[0].automaton)
    }
    assert raw == {b"a", b" a", b"  a"}


def test_words_are_apart_where_the_regex_writes_a_space() -> None:
    words = replace(
        toy.TOKENIZER,
        spaced=replace(
            toy.TOKENIZER,
            pieces=tuple(None if piece is None else b" " + piece for piece in toy.PIECES),
            lead=b" ",
        ),
    )
    apart = compile_query(Query("ab bc", eos=True), words)
    assert apart.tokenizer is words.spaced
    assert set(paths(apart.prompts[0].automaton)) == {
        (toy.PIECES.index(b"ab"), toy.PIECES.index(b"bc"))
    }
    assert compile_query(Query("ab.bc", eos=True), words).tokenizer is words


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"regex": "a&b"}, "no text matches"),
        ({"regex": "a", "exclude": "a|b"}, "excluded"),
        ({"regex": "ab", "prefix": "b"}, "starts with the prefix"),
        ({"regex": "a*b", "prefix": "a*"}, "infinitely many"),
        ({"regex": "[ab]{20}x", "prefix": "[ab]{20}"}, f"more than {MOST_PREFIXES:,}"),
        ({"regex": "z"}, "no token sequence"),
        ({"regex": "a", "encodings": "some"}, "encodings"),
        ({"regex": "a", "top_k": 0}, "top_k"),
        ({"regex": "a", "top_p": 1.5}, "top_p"),
        ({"regex": "a", "temperature": 0.0}, "temperature"),
        ({"regex": "a", "edits": -1}, "edits"),
        ({"regex": "a", "max_tokens": 0}, "max_tokens"),
        ({"regex": "a(", "prefix": "b"}, "regex|pattern|parenthes"),
    ],
)
def test_queries_that_cannot_be_asked(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        compile_query(Query(**settings), toy.TOKENIZER)  # type: ignore[arg-type]
