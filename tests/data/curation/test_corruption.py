"""Corrupted copies of source files: what changes, in which languages, and what still parses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.curation.corruption import FAMILIES, corrupt
from holdfast.data.curation.languages import language_of
from holdfast.data.curation.syntax_features import syntax_features
from holdfast.errors import InputError

SOURCES = {
    ".py": "def f(x, b):\n    for i in x:\n        if b[i] == 1:\n            return b[0]\n",
    ".js": "function f(x, b) { for (let i = 0; i < 3; i++) { if (b[i] === 1) { return b[0]; } } }\n",
    ".c": "int f(int *b) { for (int i = 0; i < 3; i++) { if (b[i] == 1) { return b[0]; } } return 0; }\n",
    ".java": "class A { int f(int[] b) { for (int i : b) { if (b[i] == 1) { return b[0]; } } } }\n",
    ".go": "package a\n\nfunc f(b []int) int {\n\tfor i := range b {\n\t\tif b[i] == 1 {\n"
    "\t\t\treturn b[0]\n\t\t}\n\t}\n\treturn 0\n}\n",
    ".rs": "fn f(b: &[i32]) -> i32 { for i in 0..3 { if b[i] == 1 { return b[0]; } } 0 }\n",
}


@pytest.mark.parametrize("suffix", SOURCES)
@pytest.mark.parametrize("corruption", ["brackets", "loop-variables", "conditions", "indices"])
def test_every_language_has_every_corruption(suffix: str, corruption: str) -> None:
    source, language = SOURCES[suffix].encode(), language_of(suffix)
    assert language is not None
    assert not language.parse(source).root_node.has_error
    corrupted = corrupt(source, language, corruption)  # type: ignore[arg-type]
    assert corrupted is not None
    assert corrupted != source
    assert language.parse(corrupted).root_node.has_error == (corruption in FAMILIES["syntax"])
    assert (syntax_features(corrupted, language).errors > 0) == (corruption in FAMILIES["syntax"])


@pytest.mark.parametrize(
    ("condition", "inverted"),
    [
        ("a == b", "a != b"),
        ("a <  b", "a >=  b"),
        ("a is not None", "a is None"),
        ("a not in b", "a in b"),
        ("not a", "a"),
        ("a", "not a"),
        ("f(a).b", "not f(a).b"),
        ("a and b", "not (a and b)"),
        ("a < b < c", "not (a < b < c)"),
    ],
)
def test_conditions_are_inverted_as_a_programmer_would(condition: str, inverted: str) -> None:
    language = language_of(".py")
    assert language is not None
    source = f"if {condition}:\n    pass\n".encode()
    assert corrupt(source, language, "conditions") == f"if {inverted}:\n    pass\n".encode()


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        ("0", {"1"}),
        ("3", {"2", "4"}),
        ("-1", {"-2", "0"}),
        ("i", {"i + 1", "i - 1"}),
        ("i+1", {"i", "i+2"}),
        ("i - 1", {"i", "i - 2"}),
        ("'key'", {None}),
        ("1:2", {None}),
        ("int", {None}),
        ("Name", {None}),
    ],
)
def test_indices_are_off_by_one_and_keys_are_not(index: str, changes: set[str | None]) -> None:
    language = language_of(".py")
    assert language is not None
    results = {corrupt(f"a[{index}]".encode(), language, "indices", seed=s) for s in range(20)}
    assert results == {None if one is None else f"a[{one}]".encode() for one in changes}


def test_the_rate_is_the_share_of_the_places() -> None:
    language = language_of(".py")
    assert language is not None
    source = b"f(1)\n" * 50
    for rate, removed in ((0.0, 1), (0.2, 10), (1.0, 50)):
        corrupted = corrupt(source, language, "brackets", rate)
        assert corrupted is not None
        assert source.count(b")") - corrupted.count(b")") == removed
    assert corrupt(source, language, "conditions") is None


@given(st.text(alphabet="if(a)[]{}:\n 1<=!éx", max_size=80), st.sampled_from(list(SOURCES)))
def test_any_text_is_corrupted_or_left(text: str, suffix: str) -> None:
    language = language_of(suffix)
    assert language is not None
    for corruption in ("brackets", "loop-variables", "conditions", "indices"):
        corrupted = corrupt(text.encode(), language, corruption, 0.5, 1)  # type: ignore[arg-type]
        assert corrupted is None or corrupted.decode() != text
    assert syntax_features(text.encode(), language).errors >= 0


def test_what_the_grammar_adds_is_left() -> None:
    """A tree has nodes for what a broken file lacks."""
    for corruption in ("conditions", "indices"):
        assert corrupt(b"int f() { if () x[]; }", "c", corruption) is None  # type: ignore[arg-type]


def test_unknown_names_are_refused() -> None:
    for language, corruption in (("cobol", "brackets"), ("python", "spelling")):
        with pytest.raises(InputError) as caught:
            corrupt(b"f(1)", language, corruption)  # type: ignore[arg-type]
        assert caught.value.code == "unknown-name"
