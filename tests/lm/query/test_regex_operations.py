"""The algebra of languages: against sets of strings, edit distances, and the room of automata."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
import random_patterns
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import automata as fa
from holdfast.lm.query.regex import operations as ops
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.regex.utf8 import encoded
from holdfast.lm.query.regex.utf8_decoding import decoded

same = ByteDfa.same_language


patterns = st.recursive(
    st.sampled_from(["a", "b", "c", "é", "[ab]", "日", "", "[^a]", "a&b"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=5,
)
languages = patterns.map(compile_regex)
few = settings(max_examples=60)


@few
@given(languages, languages, languages)
def test_the_algebra_of_sets(a: ByteDfa, b: ByteDfa, c: ByteDfa) -> None:
    everything = compile_regex("(?s).*")
    assert same(ops.union(a, b), ops.union(b, a))
    assert same(ops.intersection(a, b), ops.intersection(b, a))
    assert same(ops.union(a, ops.union(b, c)), ops.union(ops.union(a, b), c))
    assert same(ops.intersection(a, ops.union(b, c)),
                ops.union(ops.intersection(a, b), ops.intersection(a, c)))  # fmt: skip
    # De Morgan, and what a difference is.
    assert same(ops.difference(everything, ops.union(a, b)),
                ops.intersection(ops.difference(everything, a), ops.difference(everything, b)))  # fmt: skip
    assert same(ops.difference(a, b), ops.intersection(a, ops.difference(everything, b)))
    assert same(ops.union(ops.difference(a, b), ops.intersection(a, b)), a)
    assert ops.difference(a, a).is_empty
    assert same(ops.union(a, ops.NOTHING), a)
    assert same(ops.difference(a, ops.NOTHING), a)
    assert ops.difference(ops.NOTHING, a).is_empty
    assert ops.intersection(a, ops.NOTHING).is_empty


@few
@given(patterns, patterns)
def test_operations_are_those_of_patterns(x: str, y: str) -> None:
    a, b = compile_regex(x), compile_regex(y)
    assert same(ops.union(a, b), compile_regex(f"(?:{x})|(?:{y})"))
    assert same(ops.intersection(a, b), compile_regex(f"(?:{x})&(?:{y})"))
    assert same(ops.difference(a, b), compile_regex(f"(?:{x})&~(?:{y})"))
    assert same(ops.concatenated(a, b), compile_regex(f"(?:{x})(?:{y})"))


@few
@given(languages, languages, st.text("abé日", max_size=3))
def test_what_follows_a_text(a: ByteDfa, b: ByteDfa, text: str) -> None:
    start = ops.literal(text.encode())
    assert same(ops.after(ops.concatenated(start, a), text.encode()), a)
    assert same(ops.concatenated(start, ops.after(a, text.encode())),
                ops.intersection(a, ops.followed_by_anything(start)))  # fmt: skip
    # In the middle of a character, too.
    whole = text.encode()
    assert same(ops.after(ops.after(a, whole[:1]), whole[1:]), ops.after(a, whole))
    absorbing = ops.followed_by_anything(a)
    assert same(ops.followed_by_anything(absorbing), absorbing)
    assert same(ops.followed_by_anything(ops.union(a, b)),
                ops.union(absorbing, ops.followed_by_anything(b)))  # fmt: skip
    if absorbing.final.any():
        # One accepting state, which every byte leads back to.
        (end,) = np.flatnonzero(absorbing.final)
        assert (absorbing.next[end] == end).all()
        assert ops.difference(a, absorbing).is_empty


@few
@given(languages, st.sampled_from(["a", "ab", "é"]))
def test_a_lead_is_taken_off_once(a: ByteDfa, lead: str) -> None:
    dfa = ops.with_lead(a, lead.encode())
    for size in range(5):
        for letters in product("abcé", repeat=size):
            text = "".join(letters)
            assert dfa.accepts(text) == a.accepts(text.removeprefix(lead))
    assert same(ops.with_lead(a, b""), a)


def test_literals() -> None:
    assert ops.strings(ops.literal(b""), 5) == [b""]
    assert ops.strings(ops.literal(b"\xff\x00"), 5) == [b"\xff\x00"]
    assert same(ops.literal("日本".encode()), compile_regex("日本"))


def distance(one: str, other: str) -> int:
    """Levenshtein's, by the table of prefixes."""
    row = list(range(len(other) + 1))
    for i, x in enumerate(one, 1):
        before, row = row, [i]
        for j, y in enumerate(other, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y)))
    return row[-1]


@pytest.mark.parametrize(
    "pattern", ["", "ab", "a日b", "(a|bé)b?", "é", "a{3}|b", "(?:日本|本)", "a&b"]
)
@pytest.mark.parametrize("edits", [0, 1, 2])
def test_edits_are_those_of_the_edit_distance(pattern: str, edits: int) -> None:
    dfa = compile_regex(pattern)
    texts = [text.decode() for text in ops.strings(dfa, 100)]
    near = ops.edited(dfa, edits)
    letters = "ab日é😀" if edits < 2 else "ab日😀"
    for size in range(6 if edits < 2 else 5):
        for chosen in product(letters, repeat=size):
            written = "".join(chosen)
            expected = any(distance(text, written) <= edits for text in texts)
            assert near.accepts(written) == expected, written


@pytest.mark.parametrize("pattern", ["a*", "(ab)*é", "[^a]*", r"\p{L}{2,}", "(?s).*"])
def test_edits_of_infinite_languages(pattern: str) -> None:
    rng = random.Random(1)
    dfa = compile_regex(pattern)
    near = ops.edited(dfa, 1)
    for _ in range(300):
        text = "".join(rng.choice("abé日1") for _ in range(rng.randint(0, 5)))
        expected = any(
            dfa.accepts(other)
            for at in range(len(text) + 1)
            for new in ["", *"abé日1", text[at : at + 1]]
            for other in (text[:at] + new + text[at:], text[:at] + new + text[at + 1 :])
        )
        assert near.accepts(text) == expected, text


def of_characters(dfa: ByteDfa, letters: str) -> fa.Fst:
    """The automaton over code points, of some letters alone."""
    characters, runs = decoded(dfa)
    symbol = {
        letter: value
        for letter in letters
        for low, high, value in runs
        if low <= ord(letter) <= high
    }
    arcs = [
        (state, ord(letter), ord(letter), 1.0, int(row[symbol[letter]]))
        for state, row in enumerate(characters.table)
        for letter in letters
        if row[symbol[letter]] != DEAD
    ]
    finals = np.flatnonzero(characters.final).tolist()
    return fa.Fst.build(arcs, finals, states=len(characters.final), semiring="boolean")


@pytest.mark.parametrize("pattern", ["ab", "a日|b", "(ab)*", "a+é?"])
@pytest.mark.parametrize("edits", [1, 2])
def test_edits_are_a_composition_with_the_edit_transducer(pattern: str, edits: int) -> None:
    """The published construction: the transducer of one edit, as often as there may be edits."""
    letters = "ab日éx"
    codes = [ord(letter) for letter in letters]
    keep = [(state, code, code, 1.0, state) for state in (0, 1) for code in codes]
    spend = [(0, x, y, 1.0, 1) for x in [0, *codes] for y in [0, *codes] if x or y]
    once = fa.Fst.build(keep + spend, [0, 1], semiring="boolean")
    expected = of_characters(compile_regex(pattern), letters)
    for _ in range(edits):
        expected = fa.rmepsilon(fa.project(fa.compose(expected, once), "output"))
    found = of_characters(ops.edited(compile_regex(pattern), edits), letters)
    assert fa.equivalent(expected, found)


def test_edits_are_counted_from_none() -> None:
    with pytest.raises(ValueError, match="from 0"):
        ops.edited(compile_regex("a"), -1)
    assert ops.edited(ops.NOTHING, 2).is_empty


@pytest.mark.parametrize(
    "text", [b"\xff", b"a\xc3", b"\xa9", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
)
def test_what_is_no_text_has_no_characters(text: bytes) -> None:
    with pytest.raises(ValueError, match="language"):
        ops.edited(ops.literal(text), 1)


@few
@given(languages)
def test_bytes_and_characters_are_two_views_of_a_language(a: ByteDfa) -> None:
    if not a.is_empty:
        characters, runs = decoded(a)
        assert same(encoded(characters.minimal(), runs), a)


def test_characters_of_a_large_class_are_found_again() -> None:
    dfa = compile_regex(r"\p{L}+|\p{N}x")
    characters, runs = decoded(dfa)
    assert same(encoded(characters.minimal(), runs), dfa)
    assert same(ops.edited(compile_regex(r"(?s)."), 1), compile_regex("(?s).{0,2}"))


COUNTS = [
    ("", 1), ("a", 1), ("a&b", 0), ("[a-c]{3}", 27), ("(a|b)?", 3), ("(a|aa)(a|aa)", 3), ("a*", "infinite"),
    (".", 0x110000 - 2048 - 1), ("(?s).{2}", (0x110000 - 2048) ** 2), ("[0-9]{30}", 10**30),
    (r"x\d{3}|y", 1001),    ("a*&b*", 1), ("~a", "infinite"), ("(?:a|b){64}", 2**64), ("日|本|日", 2),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "expected"), COUNTS)
def test_counts(pattern: str, expected: int | str) -> None:
    dfa = compile_regex(pattern)
    assert ops.count_strings(dfa) == expected
    assert ops.is_finite(dfa) == (expected != "infinite")


@few
@given(patterns)
def test_strings_are_listed_in_order(pattern: str) -> None:
    dfa = ops.intersection(compile_regex(pattern), compile_regex("[abcé]*"))
    letters = [b"a", b"b", b"c", "é".encode()]
    tried = [b"".join(chosen) for size in range(6) for chosen in product(letters, repeat=size)]
    expected = sorted((text for text in tried if len(text) < 6 and dfa.accepts(text)),
                      key=lambda text: (len(text), text))  # fmt: skip
    listed = ops.strings(dfa, 10_000 if ops.is_finite(dfa) else len(expected))
    assert [text for text in listed if len(text) < 6] == expected
    few_of_them = min(3, len(listed))
    assert ops.strings(dfa, few_of_them) == listed[:few_of_them]
    if ops.is_finite(dfa):
        assert ops.count_strings(dfa) == len(ops.strings(dfa, 100_000))


def test_listing_stops_where_it_is_told() -> None:
    assert ops.strings(compile_regex("a*"), 3) == [b"", b"a", b"aa"]
    assert ops.strings(compile_regex("(a{500})+"), 2) == [b"a" * 500, b"a" * 1000]
    assert ops.strings(compile_regex("(?s).*"), 0) == []
    assert ops.strings(ops.NOTHING, 5) == []
    # Dead ends are not entered: one string among 2^60 prefixes.
    assert ops.strings(compile_regex("[ab]{60}&.*b{60}"), 9) == [b"b" * 60]


def test_concatenations_of_random_languages() -> None:
    rng = random.Random(5)
    for _ in range(25):
        x, y = (random_patterns.pattern(rng, 2, re2=False) for _ in range(2))
        joined = ops.concatenated(compile_regex(x), compile_regex(y))
        assert same(joined, compile_regex(f"(?:{x})(?:{y})"))
