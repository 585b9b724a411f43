"""What is no pattern: refused at its place, with what to write instead."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.regex.operations import writes_a_space
from holdfast.lm.query.regex.parsing import DEEPEST_NESTING

# Pattern, the place of its first wrong character, a word of the message.
REFUSED = [
    (r"(a)\1", "character 4", "back-reference"),
    (r"(?P<n>a)(?P=n)", "character 9", "back-reference"),
    (r"a\8", "character 2", "back-reference"),
    (r"\k<n>", "character 1", "back-reference"),
    ("a(?=b)", "character 2", "look-ahead"),
    ("a(?!b)", "character 2", "~"),
    ("(?<=a)b", "character 1", "look-behind"),
    ("x(?<!a)b", "character 2", "look-behind"),
    ("ab(?>a)", "character 3", "atomic"),
    ("(?(1)a|b)", "character 1", "condition"),
    ("(?#note)", "character 1", "comment"),
    ("(?R)", "character 1", "recursion"),
    (r"ab\C", "character 3", "single byte"),
    (r"ab\Z", "character 3", r"\z"),
    (r"\u00e9", "character 1", r"\x{...}"),
    (r"\E", "character 1", r"\Q"),
    ("ab*+", "character 3", "possessive"),
    ("ab**", "character 3", "(?:x*)*"),
    ("a{2}{3}", "character 2", "repetition of a repetition"),
    ("*a", "character 1", "nothing precedes"),
    ("a|+b", "character 3", "nothing precedes"),
    ("(?i)*", "character 5", "nothing precedes"),
    ("({2})", "character 2", "nothing precedes"),
    ("ab{1001}", "character 3", "1,000"),
    ("a{2,1}", "character 2", "ends before it begins"),
    ("ab(c", "character 3", "not closed"),
    ("ab)c", "character 3", "never opened"),
    ("日本[a", "character 3", "not closed"),
    ("[a-", "character 1", "not closed"),
    ("[", "character 1", "not closed"),
    ("[]", "character 1", "not closed"),
    ("x[z-a]", "character 3", "ends before it begins"),
    (r"[a-\d]", "character 4", "unknown escape"),
    (r"[\b]", "character 2", "unknown escape"),
    ("[[:letters:]]", "character 2", "alnum"),
    (r"\p{greek}", "character 1", "Greek"),
    (r"a\p{Nope}", "character 2", "Nope"),
    (r"\pX", "character 1", r"\pX"),
    (r"\p", "character 1", "class"),
    ("ab\\", "character 3", "backslash"),
    (r"\y", "character 1", "unknown escape"),
    (r"\x{110000}", "character 1", "code point"),
    (r"\xg", "character 1", "code point"),
    ("(?x)a", "character 1", "imsU"),
    ("(?P<a", "character 1", "(?P<name>...)"),
    ("(?-)a", "character 1", "imsU"),
    ("a~", "character 2", "complement"),
    ("~*", "character 1", "complement"),
    ("(~)", "character 2", "complement"),
    ("a\ud800", "character 2", "surrogate"),
    (r"a(\bb&c)", "character 3", "assertion"),
    (r"a~(b$)", "character 5", "assertion"),
    (r"(?:^a&b){2}", "character 4", "assertion"),
    ("(" * 101 + ")" * 101, "character 101", "nested"),
    ("~" * 101 + "a", "character 101", "nested"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "place", "word"), REFUSED, ids=range(len(REFUSED)))
def test_refused(pattern: str, place: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        compile_regex(pattern)
    assert caught.value.place == place
    assert word in str(caught.value)
    assert caught.value.expected or caught.value.remedy
    str(caught.value).encode()  # can be printed


def test_nesting_up_to_the_limit_is_read() -> None:
    assert compile_regex("(" * DEEPEST_NESTING + "a" + ")" * DEEPEST_NESTING).accepts("a")
    assert compile_regex("~" * DEEPEST_NESTING + "a").accepts("a")
    nested = "z"
    for _ in range(DEEPEST_NESTING):
        nested = f"a(?:x|{nested}){{1,2}}b" if nested == "z" else f"a(?:x|{nested})*b"
    assert compile_regex(nested).accepts("a" * DEEPEST_NESTING + "z" + "b" * DEEPEST_NESTING)


SPACES = [
    (" ", True), ("a b", True), ("[a ]", True), ("[ -z]", True), (r"\x20", True), (r"\ ", True),
    (r"\Q \E", True),    ("a(b|c d)", True), ("a{2} ", True), (r"[\x20]", True), ("(?i) ", True),
    ("", False), ("ab", False), ("[^ ]", False), (r"\s", False), (".", False), ("[[:space:]]", False),
    (r"[\s]", False), ("~( )", False), (r"~\Q \E", False), (r"\W", False), (r"\PL", False),
    ("[!-~]", False),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "expected"), SPACES)
def test_a_space_is_written_or_only_matched(pattern: str, expected: bool) -> None:
    assert writes_a_space(pattern) == expected
