"""Commands made from functions, the answers that they print, and the comparison of saved answers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from holdfast import answer, cli, compare, progress
from holdfast.answer import Answer, ColumnFormat, Finding, Section, Table, Value
from holdfast.command import Count, Duration, Facts, Options, Output, Share, room, run
from holdfast.errors import InputError


@Options
@dataclass(frozen=True)
class Assumed:
    """What is assumed."""

    before: Duration = 600.0
    """How long before the failure."""


@dataclass(frozen=True)
class Told(Answer):
    """What the command was given."""

    given: dict[str, Any]
    failed: bool = False

    @property
    def exit_code(self) -> int:
        return int(self.failed)

    def sections(self) -> Sequence[Section]:
        table = pa.table(
            {"node": ["n1", "<b>"], "rate": [1.5, None], "low": [1.0, None], "high": [2.0, 3.0]}
        )
        columns = {
            "node": ColumnFormat("Node"),
            "rate": ColumnFormat("Rate", "a day", interval=("low", "high")),
        }
        return [
            Section("rates", "How often?", "Node n1 fails most.", tables=[Table(table, columns)])
        ]

    def values(self) -> Sequence[Value]:
        return [Value("rate", 1.5, "a day", (1.0, 2.0), "lower"), Value("nodes", 2)]


app = room("demo", "A room of a test.")


@app.command
def tell(
    path: Path,
    /,
    *,
    assumed: Assumed = Assumed(),
    share: Share = 0.5,
    count: Count = 3,
    kind: Literal["a", "b"] = "a",
    output: Output | None = None,
    fail: bool = False,
    refuse: bool = False,
) -> Told:
    """Tell what was given.

    Args:
        path: A file.
        share: A share.
        count: A count.
        kind: A kind.
        output: A file to write.
        fail: End with 1.
        refuse: End with 2.
    """
    if refuse:
        raise InputError("refused", code="invalid-value")
    given = {"path": path, "before_s": assumed.before, "share": share, "count": count, "kind": kind}
    return Told(given | {"output": output}, fail)


def outcome(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, str, str]:
    code = run(app, line)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_signature_is_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(
        capsys, "tell", "x", "--json", "--before", "1h30m", "-o", "y", "--kind", "b"
    )
    assert code == 0
    assert json.loads(out)["given"] == {
        "path": "x",
        "before_s": 5400.0,
        "share": 0.5,
        "count": 3,
        "kind": "b",
        "output": "y",
    }


def test_what_follows_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "tell", "--json", "--", "--json")
    assert (code, json.loads(out)["given"]["path"]) == (0, "--json")
    assert outcome(capsys, "tell", "x", "--", "--json")[0] == 2


@pytest.mark.parametrize(
    "line",
    [
        ["tell"],
        ["tel", "x"],
        ["tell", "x", "--shar", "1"],
        ["tell", "x", "--share", "1.5"],
        ["tell", "x", "--count", "-1"],
        ["tell", "x", "--before", "soon"],
        ["tell", "x", "--kind", "c"],
        ["tell", "x", "y"],
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], line: list[str]) -> None:
    code, out, err = outcome(capsys, *line, "--json")
    assert (code, out) == (2, "")
    assert json.loads(err)["error"]["code"] == "usage"


def test_help_comes_from_the_docstrings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "tell", "--help")
    assert code == 0
    for text in (
        "holdfast demo tell",
        "PATH",
        "A file.",
        "--before DURATION",
        "10m",
        "--html FILE",
    ):
        assert text in out
    assert "How long before the failure." in out
    assert "None" not in out
    assert "Tell what was given." in outcome(capsys, "--help")[1]


def test_what_a_command_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, saved = tmp_path / "a.html", tmp_path / "a.json"
    code, out, err = outcome(
        capsys, "tell", "x", "--fail", "--html", str(page), "--save", str(saved)
    )
    assert code == 1
    assert "Node n1 fails most." in out
    assert "1.500 [1.000, 2.000]" in out
    assert err.split() == ["answer:", str(saved), "report:", str(page)]
    assert "&lt;b&gt;" in page.read_text()
    document = json.loads(saved.read_text())
    assert document["schema"] == answer.SCHEMA
    assert document["headline"] == "Node n1 fails most."
    assert document["sections"][0]["tables"][0]["rows"][1] == {
        "node": "<b>",
        "rate": None,
        "low": None,
        "high": 3.0,
    }
    assert document["values"][0]["ci95"] == [1.0, 2.0]


def test_errors_of_the_input_pass_through() -> None:
    with pytest.raises(InputError) as caught:
        run(app, ["tell", "x", "--refuse"])
    assert caught.value.code == "invalid-value"


def test_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "_quiet", False)
    assert outcome(capsys, "tell", "x", "-q", "--html", str(tmp_path / "p"))[2] == ""
    assert progress._quiet


def test_a_notebook_gets_the_page() -> None:
    html = Told({})._repr_html_()
    assert html.startswith("<iframe srcdoc=")
    assert "<b>" not in html


def test_a_report_shows_its_findings_and_with_verbose_its_tables() -> None:
    class Report(Told):
        def sections(self) -> Sequence[Section]:
            (one,) = super().sections()
            return [replace(one, id=f"part-{n}") for n in range(5)]

        def findings(self) -> Sequence[Finding]:
            return [Finding(f"the {place}th.", lead="Finding") for place in range(7)]

    from holdfast.report import terminal

    brief, full = str(Report({})), terminal.text(Report({}), verbose=True)
    assert "1.500" not in brief
    assert "1. Finding the 0th." in brief
    assert "the 6th" not in brief
    assert "1.500" in full
    assert "the 6th" in full


# Comparison.


def save(path: Path, *values: Value, title: str = "T") -> str:
    kind = type(
        "Saved", (Answer,), {"title": title, "values": lambda _: values, "to_dict": lambda _: {}}
    )
    path.write_text(json.dumps(kind().document()))
    return str(path)


def verdicts(
    tmp_path: Path, before: Value, after: Value, tolerance: float = 0.0
) -> tuple[str, int]:
    found = compare.diff(
        Path(save(tmp_path / "a", before)),
        Path(save(tmp_path / "b", after)),
        gate=True,
        tolerance=tolerance,
    )
    return found.rows[0]["verdict"], found.exit_code


@pytest.mark.parametrize(
    ("before", "after", "better", "expected"),
    [
        ((10, (9, 11)), (12, (11.5, 12.5)), "lower", ("worse", 1)),
        ((10, (9, 11)), (12, (11.5, 12.5)), "higher", ("better", 0)),
        ((10, (9, 11)), (12, (11.5, 12.5)), "", ("changed", 0)),
        ((10, (8, 12)), (11, (9, 13)), "lower", ("same", 0)),
        ((10, (8, None)), (90, (80, 99)), "lower", ("same", 0)),
        ((10, None), (10.5, None), "lower", ("worse", 1)),
        ((10, None), (None, None), "lower", ("unknown", 1)),
        ((None, None), (10, None), "lower", ("changed", 0)),
        ((None, None), (None, None), "lower", ("same", 0)),
        ((0.0, None), (0.0, None), "lower", ("same", 0)),
    ],
)
def test_verdicts(tmp_path: Path, before: Any, after: Any, better: Any, expected: Any) -> None:
    old, new = (Value("x", value, "s", ci95, better) for value, ci95 in (before, after))
    assert verdicts(tmp_path, old, new) == expected


def test_tolerance_is_for_exact_figures(tmp_path: Path) -> None:
    assert verdicts(tmp_path, Value("x", 10), Value("x", 10.5), 0.1)[0] == "same"
    assert verdicts(tmp_path, Value("x", 10), Value("x", 11.5), 0.1)[0] == "changed"
    far = Value("x", 11.5, ci95=(11.4, 11.6))
    assert verdicts(tmp_path, Value("x", 10, ci95=(9.9, 10.1)), far, 1.0)[0] == "changed"


def test_a_difference_covers_the_truth() -> None:
    """Of equal normal means, 5 % are called different."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(10, 1, 4000), rng.normal(10, 2, 4000)
    z = 1.959964
    calls = [
        compare._compare(
            {"name": "x", "unit": "", "better": "lower", "value": x, "ci95": [x - z, x + z]},
            {
                "name": "x",
                "unit": "",
                "better": "lower",
                "value": y,
                "ci95": [y - 2 * z, y + 2 * z],
            },
            0.0,
        )["verdict"]
        for x, y in zip(a, b, strict=True)
    ]
    share = 1 - calls.count("same") / len(calls)
    assert abs(share - 0.05) < 4 * math.sqrt(0.05 * 0.95 / len(calls))


def test_what_vanished_fails_the_gate(tmp_path: Path) -> None:
    one, two = Value("x", 1.0), Value("y", 2.0)
    before, after = save(tmp_path / "a", one, two), save(tmp_path / "b", one)
    assert compare.diff(Path(before), Path(after), gate=True).exit_code == 1
    assert compare.diff(Path(before), Path(after)).exit_code == 0
    assert compare.diff(Path(after), Path(before), gate=True).exit_code == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [("[]", "unknown-format"), ("no", "unknown-format"), ('{"a": 1}', "unknown-format")],
)
def test_files_that_are_no_answers(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        compare.diff(path, path)
    assert (caught.value.code, caught.value.path) == (code, str(path))


def test_answers_that_do_not_compare(tmp_path: Path) -> None:
    seconds, hours = Value("x", 1.0, "s"), Value("x", 1.0, "h")
    a = Path(save(tmp_path / "a", seconds))
    for other, code in (
        (save(tmp_path / "b", hours), "conflict"),
        (save(tmp_path / "c", seconds, title="Other"), "conflict"),
        (str(tmp_path / "none"), "not-found"),
    ):
        with pytest.raises(InputError) as caught:
            compare.diff(a, Path(other))
        assert caught.value.code == code
    with pytest.raises(InputError) as caught:
        compare.diff(Path(save(tmp_path / "d")), a)
    assert caught.value.code == "no-data"


def test_the_command_from_the_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (
        save(tmp_path / name, Value("x", value, "s", None, "lower"))
        for name, value in (("a", 1), ("b", 2))
    )
    for line in (["diff", a, b, "--gate", "--json"], ["--json", "diff", a, b, "--gate"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(line)
        assert ended.value.code == 1
        assert json.loads(capsys.readouterr().out)["worse"] == ["x"]


def test_a_result_without_sections_has_figures_and_a_page() -> None:
    found = Facts({"sizes": [1, 2], "huge": 10**400, "name": "a", "ok": True})
    assert [(each.name, each.value) for each in found.values()] == [
        ("sizes.count", 2),
        ("huge.log10", 400.0),
        ("ok", 1.0),
    ]
    assert found.headline == "sizes: 2; huge: " + found.headline.partition("huge: ")[2]
    (section,) = found.page().sections
    assert section.tables[0].data.num_rows == 4
    assert compare.compare(found.document(), found.document()).to_dict()["worse"] == []


def test_what_is_no_answer_cannot_be_saved(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("--save", "--html"):
        for line in (["fleet", "alerts", name, "x.html"], ["fleet", name, "x.html", "alerts"]):
            with pytest.raises(SystemExit) as ended:
                cli.main(line)
            assert ended.value.code == 2
    assert capsys.readouterr().out == ""
    for line, offered in ((["fleet", "alerts"], False), (["fleet", "status"], True)):
        with pytest.raises(SystemExit):
            cli.main([*line, "--help"])
        text = capsys.readouterr().out
        assert ("--save" in text) is ("--html" in text) is offered
        assert "--json" in text
