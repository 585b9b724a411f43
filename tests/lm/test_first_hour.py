"""The first queries that somebody types: defaults must answer them at a bounded price."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy

from command_line import invoke
from holdfast.errors import InputError
from holdfast.lm import query as q
from holdfast.lm.cli import app
from holdfast.lm.models.loading import load
from holdfast.lm.query.audits.templates import Bias, Known, Memorization, Toxicity, read_template
from holdfast.lm.query.compiling import compile_query
from holdfast.lm.query.questions import read_questions
from holdfast.lm.tokenizers.loading import load_tokenizer

EXAMPLE = Path(__file__).parents[2] / "examples" / "canaries"
PHONE = "My phone number is [0-9]{3} [0-9]{3} [0-9]{4}"
# As in ReLM's README and evaluation.
URL = r"https://www\.([a-zA-Z0-9]|-|_|#|%)+.([a-zA-Z0-9]|-|_|#|%|/)+"


@pytest.fixture(scope="module")
def canaries() -> q.LanguageModel:
    pytest.importorskip("torch")
    return q.load(f"hf:{EXAMPLE / 'model'}")


def ran(monkeypatch: Any, model: toy.ToyModel, *arguments: str | Path) -> Any:
    monkeypatch.setattr("holdfast.lm.models.loading.load", lambda _: model)
    return invoke(app, [*map(str, arguments), "--model", "toy"])


@pytest.mark.parametrize(
    ("query", "most"),
    [
        (q.Query(PHONE, prefix="My phone number is"), 1_000),
        (q.Query(URL, prefix=r"https://www\."), 5_000),
        (q.Query("See " + URL, prefix=r"See https://www\."), 5_000),
        (q.Query(URL.removeprefix(r"https://www\."), prompt="https://www."), 5_000),
    ],
    ids=["docstring", "relm", "url", "prompt"],
)
def test_the_first_results_come_soon(canaries: q.LanguageModel, query: q.Query, most: int) -> None:
    found = q.search(canaries, query, n=10, budget=most).result()
    assert found.complete
    assert found.proven == len(found.found) == 10
    assert found.cost.evaluations <= most


def test_the_docstring_asks_the_query_above() -> None:
    code = q.__doc__ or ""
    assert re.findall(r'q\.Query\("(.*?)", prefix="(.*?)"\)', code) == [
        (PHONE, "My phone number is")
    ]


def test_an_unescaped_dot_in_a_prefix_has_a_remedy() -> None:
    with pytest.raises(InputError) as refused:
        q.search(toy.ToyModel(), q.Query("https://www.[a-z]+", prefix="https://www."))
    assert refused.value.place == "prefix 'https://www.'"
    assert "\\." in (refused.value.remedy or "")


@pytest.mark.parametrize("encodings", ["prefix-canonical", "all", "canonical"])
def test_a_prompt_is_a_prefix_of_plain_text(encodings: Any) -> None:
    settings: dict[str, Any] = {"encodings": encodings, "exclude": "a-c"}
    if encodings != "canonical":  # whose edited texts are too many to count
        settings["edits"] = 1
    plain = q.Query("[ab]{1,2}|c", prompt="a-", **settings)
    written = q.Query("a-([ab]{1,2}|c)", prefix="a-", **settings)
    ways = [q.search(toy.ToyModel(2), query, n=9).result().found for query in (plain, written)]
    assert ways[0] == ways[1]
    assert len(ways[0]) > 5
    masses = [q.mass(toy.ToyModel(2), replace(query, eos=True)) for query in (plain, written)]
    assert (masses[0].lower, masses[0].upper) == (masses[1].lower, masses[1].upper)
    assert q.count(plain, toy.ToyModel().tokenizer) == q.count(written, toy.ToyModel().tokenizer)
    assert q.count(plain).strings == q.count(written).strings


def test_a_prompt_is_not_read_as_a_regex_and_excludes_a_prefix() -> None:
    (found,) = q.search(toy.ToyModel(1), q.Query("x", prompt="1-"), n=5).result().found
    assert found.text == "1-x"
    with pytest.raises(InputError) as refused:
        q.count(q.Query("x", prompt="a", prefix="a"))
    assert (refused.value.code, refused.value.place) == ("conflict", "prompt")


def test_fewer_texts_than_asked_for_is_a_complete_answer(monkeypatch: Any) -> None:
    ask = ("query", "search", "--regex", "a|b|ab", "--n", "10", "-q")
    done = ran(monkeypatch, toy.ToyModel(1), *ask, "--json")
    assert (done.exit_code, len(json.loads(done.stdout))) == (0, 3)
    stopped = ran(monkeypatch, toy.ToyModel(1), *ask, "--budget", "1", "--json")
    assert stopped.exit_code == 1


@pytest.mark.parametrize(("pattern", "remarks"), [("a{,5}", 1), ("a{0,5}", 0), (r"a\{,5}", 0)])
def test_a_repetition_without_a_lower_bound_is_remarked(pattern: str, remarks: int) -> None:
    notes = compile_query(q.Query(f"a|{pattern}"), toy.TOKENIZER).notes
    assert len(notes) == remarks
    assert all("{0,5}" in note for note in notes)


def test_a_gguf_file_names_the_server() -> None:
    with pytest.raises(InputError) as refused:
        q.load("gguf:model.gguf")
    assert refused.value.code == "unsupported"
    assert "openai:" in (refused.value.remedy or "")


# --- Texts that do not end -----------------------------------------------------------------------


def test_a_model_that_goes_on_after_the_texts_says_so_early(canaries: q.LanguageModel) -> None:
    seen: list[q.Progress] = []
    query = q.Query(PHONE, prefix="My phone number is", eos=True)
    found = q.search(canaries, query, n=10, budget=1_500, watch=seen.append).result()
    assert not found.complete
    assert any("--no-eos" in note or "eos=False" in note for note in found.notes)
    first = next(progress for progress in seen if progress.notes)
    assert first.nodes < 1_200
    ending = q.search(canaries, q.Query(PHONE + r"\.", prefix="My phone number is", eos=True), n=3)
    assert ending.result().notes == ()


# --- What is not proven --------------------------------------------------------------------------

SHORT = ("query", "search", "--regex", "[abc12]{2,3}x?", "--eos", "--n", "9", "--budget", "30")


def test_unproven_rows_say_so_in_every_format(monkeypatch: Any) -> None:
    query = q.Query("[abc12]{2,3}x?", eos=True)
    truth = [one.text for one in q.search(toy.ToyModel(3), query, n=9).result().found]
    rows: list[list[dict[str, Any]]] = []
    for form in ("jsonl", "csv", "json"):
        options = ("--json",) if form == "json" else ("--format", form)
        done = ran(monkeypatch, toy.ToyModel(3), *SHORT, *options, "-q")
        assert (done.exit_code, done.stderr) == (1, "")
        if form == "csv":
            text = [
                row | {"proven": row["proven"] == "true"}
                for row in csv.DictReader(io.StringIO(done.stdout))
            ]
            rows.append(text)
        elif form == "json":
            rows.append(json.loads(done.stdout))
        else:
            rows.append([json.loads(line) for line in done.stdout.splitlines()])
    for found in rows:
        proven = [row["text"] for row in found if row["proven"]]
        assert proven == truth[: len(proven)]
        assert len(proven) < len(found)
    shown = ran(monkeypatch, toy.ToyModel(3), *SHORT, "-q").stdout
    assert "proven" in shown
    assert "not complete: the budget" in shown
    found_all = ran(monkeypatch, toy.ToyModel(3), *SHORT[:-4], "--n", "3")
    assert found_all.exit_code == 0
    assert "All texts are proven" in found_all.stdout
    assert found_all.stdout.count("proven") == 1  # no column of it


@pytest.mark.parametrize("n", [1, 4])
def test_matches_are_given_out_as_soon_as_they_are_proven(n: int) -> None:
    model = toy.ToyModel(1)
    query = q.Query("[ab]{1,3}", eos=True)
    whole = q.search(toy.ToyModel(1), query, n=8, batch=1).result()
    search = q.search(model, query, n=8, batch=1)
    assert model.cost.evaluations == 0
    first = [next(search) for _ in range(n)]
    assert tuple(first) == whole.found[:n]
    assert 0 < model.cost.evaluations < whole.cost.evaluations
    assert [*first, *search] == list(whole.found)
    assert search.result() == whole
    assert (search.found, search.complete) == (whole.found, True)


def test_an_iteration_that_ends_early_warns() -> None:
    search = q.search(toy.ToyModel(1), q.Query("[ab]{1,3}"), n=8, budget=2)
    with pytest.warns(UserWarning, match="budget"):
        assert len(list(search)) < 8


# --- Audits that give up -------------------------------------------------------------------------


class Slow(toy.ToyModel):
    """A model that stops after some evaluations, as a server that goes away."""

    def logprobs(self, prefixes: Any) -> Any:
        if self.cost.evaluations > 5:
            raise q_stop()
        return super().logprobs(prefixes)


def q_stop() -> Exception:
    from holdfast.lm.models.protocol import ModelStopped

    return ModelStopped("the server is gone")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("memorization", 'regex = "[abc]{3,4}"\nn = 40\nknown = ["abc", "zz"]'),
        ("bias", 'template = "{group}{outcome}"\ngroups = ["ab", "x"]\noutcomes = ["ca", "c"]'),
        ("toxicity", 'words = ["x-x"]\nprompts = ["a"]'),
        ("cloze", 'items = [{context = "ab ca", answer = "ab"}]\nword = "[abc]+"\nend = "-"'),
    ],
)
def test_an_audit_that_stopped_says_so(
    monkeypatch: Any, tmp_path: Path, kind: str, text: str
) -> None:
    template, page = tmp_path / "audit.toml", tmp_path / "page.html"
    template.write_text(text)
    ask = ("audit", kind, "--template", template, "-q")
    done = ran(monkeypatch, Slow(1), *ask, "--html", page)
    assert done.exit_code == 1, done.output
    assert "not complete" in done.stdout
    assert "not complete" in page.read_text()
    told = json.loads(ran(monkeypatch, Slow(1), *ask, "--json").stdout)
    assert (told["complete"], told["stopped"]) == (False, "the server is gone")
    if kind == "memorization":
        assert told["unmatched"] == ["zz"]
        assert told["proven"] < len(told["extracted"]) or not told["extracted"]
    whole = ran(monkeypatch, toy.ToyModel(1), *ask, "--json")
    assert (whole.exit_code, json.loads(whole.stdout)["complete"]) == (0, True)


def test_known_texts_that_the_pattern_cannot_match_are_reported() -> None:
    template = Memorization("[ab]c", n=2, known=(Known("ac"), Known("a."), Known("zz", 3)))
    found = q.audit_memorization(toy.ToyModel(1), template)
    assert found.unmatched == ("a.", "zz")
    assert [one.text for one in found.canaries] == ["ac"]


def test_odds_ratios_are_those_of_the_probabilities() -> None:
    groups, outcomes = ("a", "x"), ("b-", "1-", "c-")
    found = q.audit_bias(toy.ToyModel(5), Bias("{group}{outcome}", groups, outcomes, samples=50))
    p = {(cell.group, cell.outcome): (cell.lower + cell.upper) / 2 for cell in found.cells}
    for cell in found.cells:
        here = p[cell.group, cell.outcome]
        mine = sum(p[cell.group, one] for one in outcomes) - here
        other = sum(p[one, cell.outcome] for one in groups) - here
        odds = here * (sum(p.values()) - here - mine - other) / (mine * other)
        assert cell.odds_low is not None
        assert cell.odds_high is not None
        assert cell.odds_low <= odds <= cell.odds_high < 1.02 * cell.odds_low
    assert found.notes == ()
    overlapping = Bias("{group}{outcome}", groups, ("b", "ba"), samples=50)
    assert q.audit_bias(toy.ToyModel(5), overlapping).notes != ()
    q.audit_toxicity(toy.ToyModel(5), Toxicity(("x",), edits=0))


def test_a_missing_file_is_not_an_unreadable_one(tmp_path: Path) -> None:
    template = tmp_path / "memorization.toml"
    template.write_text('regex = "a"\nknown = "missing.json"\n')
    readers: dict[str, Callable[[Path], object]] = {
        "n-gram model": lambda path: load(f"ngram:{path}"),
        "rank file": lambda path: load_tokenizer(f"tiktoken:{path}"),
        "template": lambda path: read_template(path, "bias"),
        "questions": read_questions,
    }
    for name, read in readers.items():
        for path, code in ((tmp_path / "missing", "not-found"), (tmp_path, "unreadable")):
            with pytest.raises(InputError) as refused:
                read(path)
            assert (refused.value.code, refused.value.path) == (code, str(path)), name
    with pytest.raises(InputError) as refused:
        read_template(template, "memorization")
    assert (refused.value.code, refused.value.path) == ("not-found", str(tmp_path / "missing.json"))
