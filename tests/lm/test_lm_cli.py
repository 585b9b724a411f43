"""`holdfast lm`: what it loads, what it refuses, and what Ctrl-C leaves."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import toy

from holdfast import cli
from holdfast.lm.models.protocol import NextToken, Prefix


class Asked:
    """What a command line printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def toy_model(monkeypatch: pytest.MonkeyPatch) -> toy.ToyModel:
    """The model that every name opens."""
    model = toy.ToyModel(1)
    monkeypatch.setattr("holdfast.lm.models.loading.load", lambda _: model)
    return model


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> Asked:
        with pytest.raises(SystemExit) as ended:
            cli.main(["lm", *arguments])
        told = capsys.readouterr()
        return Asked(int(ended.value.code or 0), told.out, told.err)

    return run


@pytest.mark.parametrize(
    "arguments",
    [[], ["query"], ["audit"], ["query", "search"], ["query", "many"], ["audit", "bias"]],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys; from holdfast import cli\n"
        f"try: cli.main(['lm', *{arguments!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numba', 'torch', 'numpy', 'pyarrow') "
        "if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
    assert done.stdout.startswith("Usage: ")


BAD = {
    "--n": "0",
    "--batch": "0",
    "--budget": "0",
    "--top-k": "0",
    "--top-p": "1.5",
    "--temperature": "-1",
    "--edits": "-1",
    "--max-tokens": "0",
    "--encodings": "some",
    "--format": "xml",
    "--prefix": "zz",
    "--exclude": "a.",
}


@pytest.mark.parametrize(("option", "value"), BAD.items())
def test_a_bad_value_is_refused_by_name(
    toy_model: toy.ToyModel, ran: Any, option: str, value: str
) -> None:
    done = ran("query", "search", "--model", "toy", "--regex", "ab", option, value, "--json")
    assert done.code == 2
    assert done.out == ""
    message = json.loads(done.err)["error"]["message"]
    assert option.strip("-").replace("-", "_") in message or option in message
    assert toy_model.cost.evaluations == 0


@pytest.mark.parametrize(
    ("option", "value"), [("--tol", "-1"), ("--tol", "nan"), ("--tol", "x"), ("--method", "best")]
)
def test_bad_values_of_mass_and_sample(
    toy_model: toy.ToyModel, ran: Any, option: str, value: str
) -> None:
    command = "mass" if option == "--tol" else "sample"
    done = ran("query", command, "--model", "toy", "--regex", "ab", option, value, "--json")
    assert done.code == 2
    assert option.strip("-") in json.loads(done.err)["error"]["message"]


def test_errors_for_people_are_one_message(toy_model: toy.ToyModel, ran: Any) -> None:
    done = ran("query", "search", "--model", "toy", "--regex", "(a")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: character 1: regular expression: a group is not closed")
    assert "Traceback" not in done.err
    assert ran("query", "search", "--regex", "a").code == 2  # no model


def test_rows_as_csv_have_their_header_even_if_there_are_none(
    toy_model: toy.ToyModel, ran: Any
) -> None:
    ask = ("query", "search", "--model", "toy", "--format", "csv", "--regex")
    rows = list(csv.DictReader(io.StringIO(ran(*ask, "a[bc]-?").out)))
    assert {row["text"] for row in rows} == {"ab", "ac", "ab-", "ac-"}
    toy_model.context = 0
    assert ran(*ask, "ab").out.splitlines()[0] == "text,logprob,encodings_seen,proven"


class Interrupted(toy.ToyModel):
    """A model during whose third call somebody presses Ctrl-C."""

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        if self.cost.calls == 3:
            raise KeyboardInterrupt
        return super().logprobs(prefixes)


@pytest.mark.parametrize("command", ["search", "mass", "sample"])
def test_ctrl_c_prints_what_was_found(
    monkeypatch: pytest.MonkeyPatch, ran: Any, command: str
) -> None:
    monkeypatch.setattr("holdfast.lm.query.cli.open_model", lambda *_: Interrupted(1))
    done = ran("query", command, "--model", "x", "--regex", "a(b|c)*-", "--batch", "1", "--json")
    assert done.code == 130
    told = json.loads(done.out)
    if command == "mass":
        assert told["stopped"] == "interrupted"
        assert 0 <= told["lower"] <= told["upper"] <= 1
    elif command == "search":
        assert "not complete: interrupted" in done.err


def test_an_audit_reads_its_template_before_it_loads_a_model(ran: Any, tmp_path: Path) -> None:
    template = tmp_path / "bias.toml"
    template.write_text('template = "{group}"\ngroups = ["a"]\noutcomes = ["b"]\n')
    done = ran("audit", "bias", "--template", str(template), "--model", "hf:/nowhere", "--json")
    assert done.code == 2
    assert json.loads(done.err)["error"]["place"] == "template"
    template.write_text('template = "{group}{outcome}"\ngroups = ["a"]\noutcomes = ["b"]\n'
                        "[query]\ntop_k = 'many'\n")  # fmt: skip
    done = ran("audit", "bias", "--template", str(template), "--model", "hf:/nowhere", "--json")
    assert (done.code, json.loads(done.err)["error"]["place"]) == (2, "query.top_k")


@pytest.mark.parametrize(
    ("kind", "text", "header"),
    [
        ("memorization", 'regex = "[abc]{2}"\nn = 4\nknown = ["ab"]', "log probability"),
        ("bias", 'template = "{group}{outcome}"\ngroups = ["a", "x"]\noutcomes = ["b", "c"]\n'
         "samples = 50", "exact share"),
        ("toxicity", 'words = ["x"]\nprompts = ["", "a"]', "most probable text"),
        ("cloze", 'items = [{context = "ab ca", answer = "ab"}]\nword = "[abc]+"\nend = "-"',
         "accuracy"),
    ],
)  # fmt: skip
def test_audits_print_tables_json_and_pages(
    toy_model: toy.ToyModel, ran: Any, tmp_path: Path, kind: str, text: str, header: str
) -> None:
    template, page = tmp_path / "audit.toml", tmp_path / "page.html"
    template.write_text(text)
    ask = ("audit", kind, "--template", str(template), "--model", "toy")
    done = ran(*ask, "--html", str(page))
    assert done.code == 0
    assert header in done.out
    assert done.err.strip() == f"report: {page}"
    assert page.read_text().lower().startswith("<!doctype html>")
    told = json.loads(ran(*ask, "--json").out)
    assert told["evaluations"] > 0
