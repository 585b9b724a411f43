"""Many queries of many models: the answers of one at a time, kept as they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from random_arpa import random_arpa

from holdfast.errors import InputError
from holdfast.lm.models.loading import load
from holdfast.lm.query import asking, many
from holdfast.lm.query.many import ask_many
from holdfast.lm.query.queries import Query
from holdfast.lm.query.questions import Questions, read_questions

QUERIES = {
    "ab": Query("ab", eos=True),
    "open": Query("a[bc]*", eos=False),
    "any": Query("[abc]{1,3}", max_tokens=2, eos=True),
}


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    for seed in (1, 2):
        (tmp_path / f"{seed}.arpa").write_text(random_arpa(seed, "abc", order=2).text())
    return [f"ngram:{tmp_path / str(seed)}.arpa?pieces" for seed in (1, 2)]


def results(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what the cache of a model spared, which depends on what its process asked before."""
    return [
        record
        | {
            "answer": {
                name: value for name, value in record["answer"].items() if name != "evaluations"
            }
        }
        for record in records
    ]


def test_each_pair_as_if_alone(models: list[str]) -> None:
    found = ask_many(models, QUERIES, processes=1, options={"tol": 1e-6})
    assert [(record["model"], record["name"]) for record in found] == [
        (model, name) for model in models for name in QUERIES
    ]
    for record in found:
        alone = asking.mass(load(record["model"]), QUERIES[record["name"]], 1e-6)
        for bound in ("lower", "upper"):
            assert record["answer"][bound] == getattr(alone, bound)
        assert record["query"]["regex"] == QUERIES[record["name"]].regex
    assert found[1]["query"] == {"regex": "a[bc]*"}


@pytest.mark.full
def test_processes_change_nothing(models: list[str], tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    found = ask_many(models, QUERIES, "search", {"n": 2}, processes=2, out=out)
    alone = ask_many(models, QUERIES, "search", {"n": 2}, processes=1)
    assert results(found) == results(alone)
    assert [match["text"] for match in found[0]["answer"]["matches"]] == ["ab"]
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(kept, key=str) == sorted(found, key=str)


def test_counts(models: list[str]) -> None:
    found = ask_many(models[:1], {"two": Query("[ab]{2}", eos=True)}, "count", processes=1)
    assert found[0]["answer"]["strings"] == 4


def test_a_failure_costs_no_other_answer(models: list[str], tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    names = ["ngram:none.arpa", models[0]]
    queries = {"good": Query("ab", eos=True), "bad": Query("(", eos=True)}
    found = ask_many(names, queries, processes=1, out=out)
    assert ["answer" in record for record in found] == [False, False, True, False]
    assert "none.arpa" in found[0]["error"]
    assert len(out.read_text().splitlines()) == 4


def test_a_bug_is_recorded(models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(asking, "mass", broken)
    (record,) = ask_many(models[:1], {"ab": Query("ab", eos=True)}, processes=1)
    assert record["error"] == "ZeroDivisionError: by zero"


def test_what_is_answered_is_not_asked_again(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answers.jsonl"
    asked: list[tuple[str, str]] = []
    answered = many.answered

    def counted(pair: many.Pair) -> dict[str, Any]:
        asked.append((pair.model, pair.name))
        return answered(pair)

    monkeypatch.setattr(many, "answered", counted)

    def ask(queries: dict[str, Query], **options: Any) -> list[tuple[str, str]]:
        asked.clear()
        found = ask_many(models, queries, "mass", options, processes=1, out=out)
        assert [record["name"] for record in found] == [*queries] * 2
        return list(asked)

    everything = ask(QUERIES)
    assert len(everything) == 6
    assert ask(QUERIES) == []
    # A changed query, and a changed option.
    assert ask(QUERIES | {"ab": Query("abc", eos=True)}) == [(model, "ab") for model in models]
    assert len(ask(QUERIES, tol=0.1)) == 6
    assert ask(QUERIES) == []
    # An interruption within a line, and a record of a failure.
    whole = out.read_bytes().splitlines(keepends=True)
    failed = json.loads(whole[0])
    del failed["answer"]
    failed["error"] = "gone"
    out.write_bytes(b"".join([json.dumps(failed).encode() + b"\n", *whole[1:5], whole[5][:-10]]))
    assert ask(QUERIES) == [everything[0], everything[5]]
    assert ask(QUERIES) == []
    assert all("model" in json.loads(line) for line in out.read_text().splitlines())


def test_an_interruption_is_no_answer(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answers.jsonl"
    answered = many.answered

    def interrupted(pair: many.Pair) -> dict[str, Any]:
        record = answered(pair)
        if pair.name == "open":
            record["answer"]["stopped"] = "interrupted"
        return record

    monkeypatch.setattr(many, "answered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask_many(models, QUERIES, processes=1, out=out)
    assert [json.loads(line)["name"] for line in out.read_text().splitlines()] == ["ab"]


def test_a_file_of_something_else_is_left_alone(models: list[str], tmp_path: Path) -> None:
    out = tmp_path / "notes.txt"
    out.write_text("dear diary\nno end of line")
    with pytest.raises(InputError, match="line 1"):
        ask_many(models, QUERIES, out=out)
    assert out.read_text() == "dear diary\nno end of line"


def test_options_that_do_not_exist(models: list[str]) -> None:
    with pytest.raises(InputError, match="batch, budget, tol"):
        ask_many(models, QUERIES, "mass", {"n": 3})


def test_with_ray(models: list[str]) -> None:
    ray: Any = pytest.importorskip("ray")
    found = ask_many(models, QUERIES, ray="local")
    assert results(found) == results(ask_many(models, QUERIES, processes=1))
    assert not ray.is_initialized()


# --- The file of questions -----------------------------------------------------------------------

FILE = """
models = ["ngram:a.arpa", "hf:b"]
ask = "search"

[options]
n = 3

[[query]]
name = "phone"
regex = "[0-9]{3}"
temperature = 1
top_k = 40
eos = true
encodings = "canonical"

[[query]]
name = "mail"
regex = "@"
"""


def test_a_file_of_questions(tmp_path: Path) -> None:
    path = tmp_path / "questions.toml"
    path.write_text(FILE)
    phone = Query("[0-9]{3}", temperature=1, top_k=40, eos=True, encodings="canonical")
    queries = {"phone": phone, "mail": Query("@")}
    assert read_questions(path) == Questions(("ngram:a.arpa", "hf:b"), queries, "search", {"n": 3})


@pytest.mark.parametrize(
    ("before", "after", "code", "place"),
    [
        ('ask = "search"', 'ask = "guess"', "unknown-name", "ask"),
        ("n = 3", "tol = 3", "unknown-key", "options.tol"),
        ("models =", "model =", "unknown-key", "model"),
        ("top_k = 40", "top_k = 4.5", "invalid-value", "query[0].top_k"),
        ('name = "mail"', 'name = "phone"', "duplicate", "query[1].name"),
        ('regex = "@"', "", "missing-key", "query[1].regex"),
        ("n = 3", "n = ", "invalid-syntax", None),
        (FILE[FILE.index("[[query]]") :], "", "missing-key", "query"),
        (FILE, "query = []", "no-data", None),
    ],
)
def test_files_that_are_refused(
    tmp_path: Path, before: str, after: str, code: str, place: str | None
) -> None:
    path = tmp_path / "questions.toml"
    path.write_text(FILE.replace(before, after))
    with pytest.raises(InputError) as refusal:
        read_questions(path)
    assert (refusal.value.code, refusal.value.place) == (code, place)
    assert refusal.value.path == str(path)
