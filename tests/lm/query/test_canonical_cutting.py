"""Cuts between words as an automaton, against the `regex` library run on the same texts."""

from __future__ import annotations

import random

import pytest
import regex

from holdfast.lm.query.canonical.cutting import cut_language
from holdfast.lm.tokenizers import splitting_patterns

# Order of alternatives, greedy and lazy and possessive repetition, ways that stay open behind a match.
MADE_UP = {
    "open ways": r"a(?:ba)*|ab?c??|\s+(?=b)|[\s\S]",
    "lazy": r"a+?b|a{2,3}?|.|\n",
    "possessive": r"a{1,3}+b?|b?+\s|[^\s]|\s",
    "first alternative, not the longest": r"a|ab|abc+|(?:s|st)+|[\s\S]",
    "folded": r"(?i:'s|st+|b[a-c]*)|\w+|[\s\S]",
    "end": r"\s+$|a+\z|[^ \n]|\s",
}
PUBLISHED = {
    "GPT-2": splitting_patterns.GPT2,
    "cl100k": splitting_patterns.CL100K,
    "o200k": splitting_patterns.O200K,
    "cl100k, possessive": (
        r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
        r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
    ),
}
LETTERS = "ab sStT'lLrRcv  \n\r\t1\u0663.!/é\u01c5ʰ日\u0301ſ\u3000😀\x85"


def markings(language, text):
    """Every placing of marks that the language takes, by trying all."""
    found = []

    def go(place, state, marks):
        if place == len(text):
            if language.final[state]:
                found.append(marks)
            return
        for marked in (False, True):
            at = language.mark[state] if marked else state
            for byte in text[place].encode():
                at = language.next[at, language.classes[byte]] if at >= 0 else -1
            if at >= 0:
                go(place + 1, at, (*marks, place) if marked else marks)

    go(0, 0, ())
    return found


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", [*PUBLISHED, *MADE_UP])
def test_every_text_has_the_one_marking_that_the_pattern_gives(name):
    pattern = (PUBLISHED | MADE_UP)[name]
    language = cut_language(pattern)
    draw = random.Random(name)
    for _ in range(250):
        text = "".join(draw.choices(LETTERS, k=draw.randrange(9)))
        words = regex.findall(pattern, text)
        assert "".join(words) == text
        marks, place = [], 0
        for word in words[:-1]:
            place += len(word)
            marks.append(place)
        assert markings(language, text) == [tuple(marks)]


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"\w+",
            r"a*|b",
            r"[\s\S]*",
            r"(?=a)|[\s\S]",
        ),  # texts with characters left out; empty words
        *(r"(?<=a)b|[\s\S]", r"(a)\1|[\s\S]", r"\bx|[\s\S]", r"^a|[\s\S]", r"a$|[\s\S]"),
        *(r"(?:ab)++|[\s\S]", r"(?!ab)a|[\s\S]", r"(?:a*)*b|[\s\S]", r"[\w&&[a]]|[\s\S]"),
        *(r"(?:a|[\s\S]", r"a)|[\s\S]", r"(?>a|ab)c|[\s\S]", r"(?:[\s\S]{1,99}){99}", ""),
    ],
)
def test_patterns_that_cannot_be_analysed(pattern):
    assert cut_language(pattern) is None


def test_states_are_few_and_no_text_outside_utf8_is_taken():
    language = cut_language(splitting_patterns.GPT2)
    assert len(language.final) < 2_000
    for byte in (0x80, 0xC0, 0xC1, 0xF5, 0xFF):
        assert language.next[0, language.classes[byte]] < 0
    for head, second in ((0xE0, 0x9F), (0xED, 0xA0), (0xF0, 0x8F), (0xF4, 0x90)):
        at = language.next[0, language.classes[head]]
        assert at >= 0
        assert language.next[at, language.classes[second]] < 0
