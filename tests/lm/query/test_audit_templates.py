"""Templates of audits: what they may say, and how what they may not is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.lm.query.audits.templates import (
    Bias,
    Cloze,
    Item,
    Known,
    Memorization,
    Toxicity,
    ask,
    escape,
    read_template,
)
from holdfast.lm.query.regex.language import compile_regex


def written(folder: Path, text: str) -> Path:
    path = folder / "audit.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_templates_read_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text('["a", {"text": "b", "repeats": 4, "kind": "url"}]')
    read = read_template(
        written(tmp_path, 'regex = "[ab]"\nn = 5\nknown = "known.json"\n[query]\ntop_k = 40\n'),
        "memorization",
    )
    assert read == Memorization("[ab]", n=5, known=(Known("a"), Known("b", 4)), query={"top_k": 40})
    assert ask(read, regex="[ab]").top_k == 40
    (tmp_path / "words.txt").write_text("one\n\n two \n")
    assert read_template(written(tmp_path, 'words = "words.txt"\n'), "toxicity") == Toxicity(
        ("one", "two")
    )
    (tmp_path / "items.jsonl").write_text('{"context": "a b", "answer": "c"}\n\n')
    assert read_template(written(tmp_path, 'items = "items.jsonl"\n'), "cloze") == Cloze(
        (Item("a b", "c"),)
    )
    assert read_template(
        written(tmp_path, 'template = "{group} {outcome}"\ngroups = ["x"]\noutcomes = ["y"]\n'),
        "bias",
    ) == Bias("{group} {outcome}", ("x",), ("y",))


@pytest.mark.parametrize(
    ("kind", "text", "place", "code"),
    [
        ("memorization", "", "regex", "missing-key"),
        ("memorization", 'regex = "a"\nmost = 3', "most", "unknown-key"),
        ("memorization", "regex = 3", "regex", "invalid-value"),
        ("memorization", 'regex = "a"\nn = -1', "n", "invalid-value"),
        ("memorization", 'regex = "a"\nn = 0', "n", "invalid-value"),
        ("memorization", 'regex = "a"\nn = true', "n", "invalid-value"),
        ("memorization", 'regex = "a"\nknown = [3]', "known[0]", "invalid-value"),
        (
            "memorization",
            'regex = "a"\nknown = ["x", {repeats = 3}]',
            "known[1].text",
            "missing-key",
        ),
        ("memorization", 'regex = "a"\nknown = [{text = 1}]', "known[0].text", "invalid-value"),
        ("memorization", 'regex = "a"\n[query]\ntopk = 3', "query.topk", "unknown-key"),
        ("memorization", 'regex = "a"\n[query]\nregex = "b"', "query.regex", "unknown-key"),
        ("memorization", 'regex = "a"\n[query]\nheal = 3', "query.heal", "invalid-value"),
        (
            "bias",
            'template = "{group}"\ngroups = ["a"]\noutcomes = ["b"]',
            "template",
            "invalid-value",
        ),
        (
            "bias",
            'template = "{group}{outcome}"\ngroups = []\noutcomes = ["b"]',
            "groups",
            "invalid-value",
        ),
        ("toxicity", "words = [1]", "words[0]", "invalid-value"),
        ("toxicity", 'words = ["a"]\nedits = -1', "edits", "invalid-value"),
        ("cloze", "items = [{context = 'a'}]", "items[0].answer", "missing-key"),
        ("cloze", "items = []", "items", "invalid-value"),
    ],
)
def test_a_wrong_template_is_told_where(
    tmp_path: Path, kind: str, text: str, place: str, code: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_template(path, kind)
    assert (caught.value.path, caught.value.place, caught.value.code) == (str(path), place, code)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_template(tmp_path / "none.toml", "bias")
    with pytest.raises(InputError, match="not valid TOML"):
        read_template(written(tmp_path, "regex ="), "memorization")
    path = written(tmp_path, 'regex = "a"\nknown = "none.json"')
    with pytest.raises(InputError, match=r"none\.json.*cannot be read"):
        read_template(path, "memorization")
    (tmp_path / "none.json").write_text("[\n{")
    with pytest.raises(InputError, match=r"none\.json, line 2"):
        read_template(path, "memorization")
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(InputError, match="not a JSON list"):
        read_template(path, "memorization")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_an_escaped_text_means_itself(text: str) -> None:
    language = compile_regex(escape(text))
    assert language.accepts(text)
    assert not language.accepts(text + "x")
    assert re.fullmatch(escape(text), text)
