"""The language of a pattern: against Python's `re`, against RE2, and in its form."""

from __future__ import annotations

import random
import re
from itertools import product

import numpy as np
import pytest
import random_patterns
import re2

from holdfast.errors import InputError, LimitError
from holdfast.lm.query.regex import characters
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex

QUIET = re2.Options()
QUIET.log_errors = False
same = ByteDfa.same_language


def assert_minimal(dfa: ByteDfa) -> None:
    """Every state is reached and goes on to a text, and no two match the same rests: by filling a table."""
    table = np.vstack([dfa.next, np.full((1, dfa.next.shape[1]), -1)])  # the dead state is the last
    table[table == DEAD] = dfa.num_states
    final = np.append(dfa.final, False)
    differ = final[:, None] != final[None, :]
    while True:
        more = differ.copy()
        for column in table.T:
            more |= differ[np.ix_(column, column)]
        if (more == differ).all():
            break
        differ = more
    # All pairs differ, the dead state included: so every state leads to a text.
    assert (differ | np.eye(len(final), dtype=bool)).all()
    # Breadth-first by class: each state first occurs behind all lower ones.
    seen = list(dict.fromkeys([0, *(int(to) for row in dfa.next for to in row if to != DEAD)]))
    assert seen == list(range(dfa.num_states))
    assert (
        len({column.tobytes() for column in np.ascontiguousarray(dfa.next.T)}) == dfa.next.shape[1]
    )
    assert list(dict.fromkeys(dfa.classes.tolist())) == list(range(dfa.next.shape[1]))


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_patterns_match_as_in_python(seed: int) -> None:
    rng = random.Random(seed)
    matched = 0
    for _ in range(250):
        pattern = random_patterns.pattern(rng, rng.randint(1, 5), re2=False)
        theirs = re.compile(pattern, re.ASCII)
        ours = compile_regex(pattern)
        for _ in range(20):
            text = random_patterns.text(rng)
            expected = theirs.fullmatch(text) is not None
            matched += expected
            assert ours.accepts(text) == expected, (pattern, text)
    assert matched > 200


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_patterns_match_as_in_re2(seed: int) -> None:
    rng = random.Random(100 + seed)
    matched = 0
    for _ in range(300):
        pattern = random_patterns.pattern(rng, rng.randint(1, 5), re2=True)
        theirs = re2.compile(pattern, QUIET)
        ours = compile_regex(pattern)
        for _ in range(20):
            text = random_patterns.text(rng)
            expected = theirs.fullmatch(text) is not None
            matched += expected
            assert ours.accepts(text) == expected, (pattern, text)
    assert matched > 200


@pytest.mark.parametrize("seed", range(3))
def test_random_automata_are_minimal_and_in_canonical_form(seed: int) -> None:
    rng = random.Random(200 + seed)
    checked = 0
    for _ in range(60):
        dfa = compile_regex(random_patterns.pattern(rng, rng.randint(1, 4), re2=True))
        if 0 < dfa.num_states < 150:
            assert_minimal(dfa)
            checked += 1
    assert checked > 20


# Pattern, texts that match, texts that do not.
CASES: list[tuple[str, list[str], list[str]]] = [
    ("", [""], ["a"]),
    ("(a|aa)", ["a", "aa"], ["", "aaa"]),
    ("a|ab|abc", ["a", "ab", "abc"], ["abcd"]),
    (r"a\&b\~", ["a&b~"], ["a", "b~"]),
    (r"[&~]+", ["&~"], ["a"]),
    (r"\x41\x{e9}\101\0", ["AéA\0"], ["A"]),
    (r"\t\n\r\f\v\a", ["\t\n\r\f\v\a"], []),
    (r"\Qa.b*\E+", ["a.b*", "a.b***"], ["a.b", "axb*"]),
    (r"\Qopen", ["open"], []),
    (".", ["a", "é", "日", "😀", "\r"], ["\n", "", "ab"]),
    ("(?s).", ["\n"], [""]),
    ("(?s:.).", ["\na"], ["\n\n"]),
    (r"\s", [" ", "\t", "\f"], ["\v", "\u00a0"]),
    (r"\d", ["7"], ["٣"]),
    (r"\w", ["a", "_"], ["é"]),
    (r"[^\d\s]", ["x", "日", "\v"], ["1", " "]),
    (r"[]a]", ["]", "a"], ["b"]),
    (r"[^]a]", ["b"], ["]", "a"]),
    (r"[a-b-c]", ["a", "b", "-", "c"], []),
    (r"[-a]", ["-", "a"], []),
    (r"[[:alnum:]_]", ["a", "9", "_"], ["-"]),
    (r"[[:^digit:]]", ["a", "日"], ["1"]),
    (r"\pL\p{Greek}\P{L}\p{^Lu}", ["éα1a"], ["éaaa"]),
    (r"\pN", ["1", "Ⅷ", "²"], ["a"]),
    ("a{,3}", ["a{,3}"], ["", "a"]),
    ("a{2,}b{0}c{1}", ["aac", "aaaac"], ["ac", "aabc"]),
    ("x{a}", ["x{a}"], []),
    ("(?i)k", ["k", "K", "\u212a"], ["x"]),
    ("(?i)[^k]", ["x"], ["k", "K", "\u212a"]),
    ("(?i)straße", ["STRAẞE", "ſtraße"], ["STRASSE"]),
    ("(?i)σ", ["Σ", "σ", "ς"], []),
    ("a(?i)b(?-i)c", ["abc", "aBc"], ["Abc", "abC"]),
    ("a(?i:b)c", ["aBc"], ["aBC"]),
    ("(?i)a|b", ["A", "B"], []),
    ("(?U)a+", ["a", "aa"], [""]),
    ("(?P<year>[0-9]+)(?<rest>x)", ["1x"], ["x"]),
    (r"^a$", ["a"], ["a\n", "\na"]),
    (r"\Aa\z", ["a"], ["a\n"]),
    ("a^b", [], ["ab", "a^b"]),
    ("(^|x)a", ["a", "xa"], ["ya"]),
    ("^*a", ["a"], []),
    ("(?m)a$\n^b", ["a\nb"], ["ab"]),
    ("(?m)(^a.?$\n?)+", ["a\nab", "a", "a\n"], ["\na", "aab"]),
    (r"\bfoo\b.*", ["foo", "foo bar", "foo\u00e9"], ["food", "foo1"]),
    (r"a\Bb", ["ab"], []),
    (r"a\bb", [], ["ab"]),
    (r"\B", [""], []),
    (r"\b", [], [""]),
    ("[a-z]+&.*ing&...+", ["sing", "king"], ["ing1", "song"]),
    ("a|b&c|d", ["a", "d"], ["b", "c"]),
    ("ab&a.", ["ab"], ["ac"]),
    ("~a", ["", "b", "aa", "\n", "日"], ["a"]),
    ("~(.*foo.*)&[a-z]*", ["", "fo", "oof"], ["foo", "xfoox", "A"]),
    ("~ab", ["b", "bb", "aab"], ["ab", "a"]),
    ("x~(a*)y", ["xby", "xaby"], ["xy", "xaay"]),
    ("~~a", ["a"], ["", "b"]),
    ("~[^a]", ["a", "", "bb"], ["b"]),
    (r"~\Qab\E", ["a", "abab"], ["ab"]),
    ("(?:~(a|b)&.){2}", ["cd"], ["ac", "c"]),
    ("(^a.*)&(.*b$)", ["ab", "axb"], ["a", "ba"]),
    (r"x|~(.*\bcat\b.*)&.*", ["concat", "x"], ["a cat", "cat"]),
    ("a&b", [], ["a", "b", "ab", ""]),
    (r"[^\x{0}-\x{10FFFF}]", [], ["a"]),
    (r"\p{Cs}", [], ["a"]),
    (r"[\x{D000}-\x{F000}]", ["\ud7ff", "\ue000"], ["\ucfff"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"), CASES, ids=[case[0] or "nothing" for case in CASES]
)
def test_cases(pattern: str, inside: list[str], outside: list[str]) -> None:
    dfa = compile_regex(pattern)
    assert [text for text in inside if not dfa.accepts(text)] == []
    assert [text for text in outside if dfa.accepts(text)] == []
    if dfa.num_states < 200 and not dfa.is_empty:
        assert_minimal(dfa)


# Patterns of one language: their automata are the same arrays.
EQUAL = [
    ("a|b", "[ba]"),
    ("(a|aa)", "aa?"),
    ("(a*b*)*", "[ab]*"),
    ("a+", "aa*"),
    ("(ab|ac)d", "a(b|c)d"),
    (r"[^\n]", "."),
    ("(?i)é", "[éÉ]"),
    ("~(~a|~b)", "a&b"),
    ("~(a|b)", "~a&~b"),
    ("x{2,4}", "xx(x(x)?)?"),
    ("(?s).*", "~(a&b)"),
    ("日|月|木", "[木月日]"),
    ("(日本|日月)", "日[本月]"),
    (r"\P{L}", r"[^\p{L}]"),
    ("a&b", "[a-c]&d"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_languages_have_equal_arrays(one: str, other: str) -> None:
    assert same(compile_regex(one), compile_regex(other))


def test_intersection_and_complement_are_those_of_sets() -> None:
    rng = random.Random(7)
    texts = ["".join(letters) for size in range(5) for letters in product("abé", repeat=size)]
    checked = 0
    for _ in range(60):
        one, other, third = (random_patterns.pattern(rng, 3, re2=False) for _ in range(3))
        x, y, z = ({text for text in texts if re.compile(part, re.ASCII).fullmatch(text)}
                   for part in (one, other, third))  # fmt: skip
        for pattern, expected in (
            (f"(?:{one})&(?:{other})", x & y),
            (f"~(?:{one})", set(texts) - x),
            (f"(?:{one})&~(?:{other})|{third}", x - y | z),
            (f"~({one}&{other}|~({third}))", set(texts) - (x & y | (set(texts) - z))),
            (f"(?:~(?:{one}))(?:{other})",
             {a + b for a in texts for b in texts if a not in x and b in y and a + b in texts}),
        ):  # fmt: skip
            dfa = compile_regex(pattern)
            assert {text for text in texts if dfa.accepts(text)} & set(texts) == expected & set(
                texts
            ), pattern
            checked += bool(expected)
    assert checked > 100


def test_only_utf8_is_accepted() -> None:
    anything = compile_regex("(?s).*")
    for code in [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]:
        assert anything.accepts(chr(code))
        assert compile_regex(rf"\x{{{code:X}}}").accepts(chr(code))
    rng = random.Random(3)
    edges = b"\x00a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xed\xef\xf0\xf4\xf5"
    for _ in range(3000):
        text = bytes(rng.choice(edges) for _ in range(rng.randint(1, 4)))
        try:
            text.decode()
            valid = True
        except UnicodeDecodeError:
            valid = False
        assert anything.accepts(text) == valid, text


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "name", ["L", "Lu", "Nd", "P", "Sc", "Zs", "Greek", "Cyrillic", "Han", "Latin"]
)
def test_unicode_classes_are_those_of_re2(name: str) -> None:
    """But for characters that only one of the two tables knows."""
    theirs, assigned = (
        re2.compile(expression, QUIET)
        for expression in (rf"\p{{{name}}}", r"[\pL\pM\pN\pP\pS\pZ\pC]")
    )
    ours = characters.unicode_class(name)
    dfa = compile_regex(rf"\p{{{name}}}")
    codes = [*range(0x800), *range(0x800, 0x20000, 61), *(edge for pair in ours for edge in pair)]
    for code in codes:
        if 0xD800 <= code <= 0xDFFF:
            continue
        char = chr(code)
        inside = any(low <= code <= high for low, high in ours)
        assert dfa.accepts(char) == inside
        if assigned.fullmatch(char):
            assert inside == (theirs.fullmatch(char) is not None), hex(code)


def test_case_folding_is_that_of_re2() -> None:
    blocks = [(0, 0x250), (0x370, 0x490), (0x13A0, 0x13FE), (0x1C80, 0x2000), (0x212A, 0x212C)]
    blocks += [(0xAB70, 0xABC0), (0xFB00, 0xFB07), (0x10400, 0x10450)]
    for code in [code for first, end in blocks for code in range(first, end)]:
        char = chr(code)
        alike = characters.folded_with(((code, code),))
        theirs = re2.compile("(?i)" + re2.escape(char), QUIET)
        for low, high in alike:
            for other in range(low, high + 1):
                assert theirs.fullmatch(chr(other)), (hex(code), hex(other))
        for other in {char.lower(), char.upper(), char.casefold(), char.title()}:
            if len(other) == 1 and theirs.fullmatch(other):
                assert any(low <= ord(other) <= high for low, high in alike), (hex(code), other)


def test_ignoring_case_is_the_flag() -> None:
    assert same(compile_regex("Straße [a-k]", ignore_case=True), compile_regex("(?i)Straße [a-k]"))
    assert same(compile_regex("(?-i)a", ignore_case=True), compile_regex("a"))


def test_a_repetition_of_repetitions_is_bounded() -> None:
    assert compile_regex("(?:a{1000}){2}").num_states == 2001
    with pytest.raises(LimitError, match="32,768"):
        compile_regex("(?:(?:a{1000}){1000}){1000}")
    # What reads nothing costs nothing, however often.
    assert compile_regex("(?:(?:(?:){1000}){1000}){1000}").accepts("")


@pytest.mark.parametrize("letters", ["ab", "abcdefgé", "k日"])
@pytest.mark.parametrize(
    "frame", ["{}", "(?:{})*x", "(?i){}", "(?s).*(?:{}).*", "~(?:{})&.{{0,6}}", "^{}$|[a-c]b"]
)
def test_long_lists_of_words(letters: str, frame: str) -> None:
    """More words than are read position by position: against a set of them, and against positions."""
    rng = random.Random(13)
    words = ["".join(rng.choice(letters) for _ in range(rng.randint(0, 6))) for _ in range(70)]
    listed = compile_regex(frame.format("|".join(words)))
    # One branch that is no word: positions for all of them.
    assert same(listed, compile_regex(frame.format("|".join([*words, f"(?:{words[0]}){{1}}"]))))
    if frame == "{}":
        tried = {
            text for size in range(5) for text in map("".join, product(letters[:3], repeat=size))
        }
        assert {text for text in tried if listed.accepts(text)} == tried & set(words)
        assert all(listed.accepts(word) for word in words)


def test_patterns_of_many_positions() -> None:
    rng = random.Random(17)
    for pattern in (
        "(?:ab|ba){40}", "(?:a?b){100}", "(?:a|ab){70}c?", "(?s).*(?:abab|bb){20,}.*", "a{0,200}b{3,100}",
        "(?:(?:ab){7}|(?:ba){11}){9,12}",
    ):  # fmt: skip
        ours, theirs = compile_regex(pattern), re.compile(pattern)
        for _ in range(200):
            part = "".join(rng.choice("ab") for _ in range(rng.randint(1, 4)))
            text = part * rng.randint(1, 40) + rng.choice(["", "b", "c", "a" * 5])
            assert ours.accepts(text) == (theirs.fullmatch(text) is not None), (pattern, text)
        for text in (
            "ab" * 40,
            "b" * 100,
            "ab" * 70,
            "abab" * 20,
            "a" * 200 + "b" * 100,
            "ba" * 99,
            "ab" * 63,
        ):
            assert ours.accepts(text) == (theirs.fullmatch(text) is not None), (pattern, text)


def test_an_automaton_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.lm.query.regex import subsets

    monkeypatch.setattr(subsets, "MOST_STATES", 1000)
    with pytest.raises(LimitError, match="1,000 states"):
        compile_regex("(a|b)*a(a|b){20}")


def test_patterns_that_re2_refuses_are_refused() -> None:
    rng = random.Random(11)
    alphabet = r"ab()[]{}*+?|^$\.-12,:=<!PQEidwpLxz&~"
    refused = 0
    for _ in range(2500):
        pattern = "".join(
            rng.choice(alphabet.replace("&", "").replace("~", "")) for _ in range(rng.randint(1, 7))
        )
        try:
            theirs = re2.compile(pattern, QUIET)
        except re2.error:
            theirs = None
        try:
            ours = compile_regex(pattern)
        except InputError:
            ours = None
        assert (ours is None) == (theirs is None), pattern
        refused += ours is None
        if ours is not None and theirs is not None:
            for text in ("", "a", "b", "1", "ab", "ba", "-", "()", "x", "aa", "a{", "{1"):
                assert ours.accepts(text) == (theirs.fullmatch(text) is not None), (pattern, text)
    assert refused > 300
