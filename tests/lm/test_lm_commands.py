"""`holdfast lm`: what each command prints for people and for programs, and how it refuses."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import toy
from random_arpa import RandomArpa, random_arpa

from command_line import Result, invoke
from holdfast import cli
from holdfast.errors import InputError
from holdfast.lm.cli import app
from holdfast.lm.query.asking import count
from holdfast.lm.query.live import live_table
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import Match, Progress
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer

CANARIES = Path(__file__).parents[2] / "examples" / "canaries"
VOCABULARY = f"gpt2:{CANARIES / 'model'}"


def called(*arguments: str | Path, code: int = 0) -> Result:
    done = invoke(app, [*map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def as_json(*arguments: str | Path) -> Any:
    return json.loads(called("query", *arguments, "--json").stdout)


@pytest.fixture
def arpa(tmp_path: Path) -> tuple[RandomArpa, str]:
    made = random_arpa(3)
    path = tmp_path / "model.arpa"
    path.write_text(made.text(), encoding="utf-8")
    return made, f"ngram:{path}"


def texts_of(made: RandomArpa, regex: str, longest: int) -> dict[str, tuple[float, int]]:
    """text -> (probability, encodings) of every text of up to `longest` words that matches."""
    found: dict[str, tuple[float, int]] = {}
    for words in toy.sequences(longest, made.words):
        text = "".join(words)
        if re.fullmatch(regex, text):
            chance, count = found.get(text, (0.0, 0))
            path = math.exp(made.logprob(words))
            found[text] = (chance + path, count + 1)
    return found


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> Tokenizer:
    return load_tokenizer(f"gpt2:{shared_data / 'tokenizers'}")


@pytest.mark.parametrize(
    ("regex", "encodings", "strings", "paths"),
    [
        ("The", "all", 1, 4),
        ("The", "canonical", 1, 1),
        ("(a|aa)", "all", 2, 3),
        ("[a-z]+", "all", "infinite", "infinite"),
        ("[a-z]+", "canonical", "infinite", "infinite"),
        ("[0-9]{40}", "canonical", 10**40, 10**40),
    ],
)
def test_counts_are_exact(
    gpt2: Tokenizer, regex: str, encodings: str, strings: int | str, paths: int | str
) -> None:
    found = count(Query(regex, encodings=encodings), gpt2)
    assert (found.strings, found.token_paths) == (strings, paths)


def test_a_vocabulary_is_named_by_its_folder(shared_data: Path) -> None:
    name = f"gpt2:{shared_data / 'tokenizers'}"
    found = as_json("count", "--tokenizer", name, "--regex", "The", "--encodings", "all")
    assert found == {"strings": 1, "token_paths": 4}


def test_lengths_are_counted_where_they_are_asked_for() -> None:
    found = as_json("count", "--tokenizer", VOCABULARY, "--regex", "The+", "--longest", "3")
    assert found["token_paths"] == "infinite"
    assert [row["tokens"] for row in found["by_length"]] == [1, 2, 3]
    assert (
        "of 3 tokens"
        in called(
            "query", "count", "--tokenizer", VOCABULARY, "--regex", "The+", "--longest", "3"
        ).stdout
    )
    assert as_json("count", "--regex", "a{2,5}") == {"strings": 4, "token_paths": None}


def test_masses_are_bounded(arpa: tuple[RandomArpa, str]) -> None:
    made, name = arpa
    truth = math.fsum(chance for chance, _ in texts_of(made, "a?b{0,2}", 3).values())
    found = as_json("mass", "--model", name, "--regex", "a?b{0,2}", "--eos", "--tol", "1e-12")
    assert set(found) >= {"lower", "upper", "event", "evaluations"}
    assert found["event"] == "exact"
    assert found["lower"] <= truth * (1 + 1e-12)
    assert found["upper"] >= truth * (1 - 1e-12)
    assert found["upper"] - found["lower"] < 1e-9
    loose = as_json("mass", "--model", name, "--regex", "(a|b)*", "--tol", "1e-3")
    assert loose["event"] == "prefix"
    assert (loose["lower"], loose["upper"]) == pytest.approx((1, 1), abs=1e-9)


def test_an_infinite_pattern_of_an_ngram_closes(arpa: tuple[RandomArpa, str]) -> None:
    found = as_json("mass", "--model", arpa[1], "--regex", "(a|b)*", "--eos", "--tol", "1e-9")
    assert found["stopped"] in ("exact", "tolerance")
    assert found["upper"] - found["lower"] < 1e-8


def test_texts_come_in_order_each_once(arpa: tuple[RandomArpa, str]) -> None:
    made, name = arpa
    truth = texts_of(made, "[ab]{0,3}", 3)
    found = as_json("search", "--model", name, "--regex", "[ab]{0,3}", "--eos", "--n", "10")
    best = sorted(truth.items(), key=lambda item: -item[1][0])[:10]
    assert [set(row) for row in found] == [{"text", "logprob", "encodings_seen", "proven"}] * 10
    assert len({row["text"] for row in found}) == 10
    for row, (_, (chance, _)) in zip(found, best, strict=True):
        assert row["logprob"] == pytest.approx(math.log(chance), abs=1e-5)
        assert row["logprob"] == pytest.approx(math.log(truth[row["text"]][0]), abs=1e-5)
        assert 1 <= row["encodings_seen"] <= truth[row["text"]][1]


def test_rows_for_programs(arpa: tuple[RandomArpa, str]) -> None:
    question = ("query", "search", "--model", arpa[1], "--regex", "[ab]{0,2}", "--n", "3")
    rows = [json.loads(line) for line in called(*question, "--format", "jsonl").stdout.splitlines()]
    lines = called(*question, "--format", "csv").stdout.splitlines()
    assert lines[0] == "text,logprob,encodings_seen,proven"
    assert [line.split(",")[0] for line in lines[1:]] == [row["text"] for row in rows]
    drawn = ("query", "sample", "--model", arpa[1], "--regex", "[ab]{0,2}", "--n", "50")
    assert called(*drawn, "--format", "jsonl").stdout == called(*drawn, "--format", "jsonl").stdout


def test_a_plan_draws_what_it_plans(tmp_path: Path) -> None:
    done = called(
        "query", "plan", "--tokenizer", VOCABULARY, "--regex", "The (man|woman)",
        "--svg", tmp_path / "t.svg",
    )  # fmt: skip
    assert "'The man', 'The woman'" in done.stdout
    assert 'class="marked"' in (tmp_path / "t.svg").read_text()
    with pytest.raises(InputError, match="needs --tokenizer"):
        called("query", "plan", "--regex", "a", "--svg", tmp_path / "u.svg")


def test_a_state_is_gone_on_from(arpa: tuple[RandomArpa, str], tmp_path: Path) -> None:
    question = ("mass", "--model", arpa[1], "--regex", "(a|b)*", "--eos", "--tol", "1e-6")
    stopped = as_json(*question, "--state", tmp_path / "s", "--budget", "5")
    assert stopped["stopped"] == "budget"
    again = as_json(*question, "--state", tmp_path / "s", "--budget", "5")
    assert again["nodes"] > stopped["nodes"]
    assert again["upper"] - again["lower"] < stopped["upper"] - stopped["lower"]
    with pytest.raises(InputError, match="cannot be written"):
        called("query", *question, "--state", tmp_path / "none" / "s")
    path = Path(arpa[1].removeprefix("ngram:"))
    path.write_text(random_arpa(4).text(), encoding="utf-8")
    with pytest.raises(InputError, match="another question"):
        called("query", *question, "--state", tmp_path / "s")


def test_many_questions_are_answered_once(arpa: tuple[RandomArpa, str], tmp_path: Path) -> None:
    asked = tmp_path / "questions.toml"
    asked.write_text(
        f'models = ["{arpa[1]}"]\n[[query]]\nname = "one"\nregex = "a"\n'
        '[[query]]\nname = "none"\nregex = "a&b"\n'
    )
    out = tmp_path / "answers.jsonl"
    done = called("query", "many", asked, "--out", out, "--processes", "1", "--json", code=1)
    one, none = json.loads(done.stdout)
    assert one["answer"]["lower"] <= one["answer"]["upper"]
    assert "no text matches" in none["error"]
    assert len(out.read_text().splitlines()) == 2
    shown = called("query", "many", asked, "--out", out, "--processes", "1", code=1).stdout
    assert "no text matches" in shown


def test_pages_are_written(arpa: tuple[RandomArpa, str], tmp_path: Path) -> None:
    page = tmp_path / "mass.html"
    called("query", "mass", "--model", arpa[1], "--regex", "[ab]{0,3}", "--html", page)
    assert "[ab]{0,3}" in page.read_text()
    template = tmp_path / "bias.toml"
    template.write_text(
        'template = "{group}{outcome}"\ngroups = ["a", "b"]\noutcomes = ["a", "b"]\n'
    )
    page = tmp_path / "bias.html"
    done = called("audit", "bias", "--template", template, "--model", arpa[1], "--html", page)
    assert "chi-square" in done.stdout
    assert "odds ratio" in page.read_text()
    found = json.loads(
        called("audit", "bias", "--template", template, "--model", arpa[1], "--json").stdout
    )
    assert len(found["cells"]) == 4


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["count", "--regex", "a("], "character"),
        (["count", "--regex", "a&b"], "no text matches"),
        (["count", "--regex", "a", "--tokenizer", "none:x"], "none"),
        (["count", "--regex", "a", "--tokenizer", "gpt2:/nowhere"], "/nowhere"),
        (["mass", "--regex", "a", "--model", "ngram:/nowhere.arpa"], "/nowhere.arpa"),
        (["mass", "--regex", "a", "--model", "what"], "what"),
        (["mass", "--regex", "a", "--model", "hf:/nowhere"], "/nowhere"),
        (["count", "--regex", "a", "--temperature", "0"], "temperature"),
        (["count", "--regex", "a", "--encodings", "some"], "some"),
    ],
)
def test_bad_questions_end_with_2(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["lm", "query", *arguments, "--json"])
    assert ended.value.code == 2
    told = json.loads(capsys.readouterr().err)["error"]
    assert problem in told["message"]


def test_the_live_table_shows_the_latest() -> None:
    found = tuple(Match(f"text {k}", -float(k), 1, -float(k), ()) for k in range(1, 31))
    made = live_table(Progress(100, 90, 0.25, 0.5, found), 2.0)
    assert made.row_count == 12
    assert "50" in str(made.caption)
