"""The commands: what programs read from them, and how they end."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from command_line import Result, invoke
from holdfast.data.cli import app
from holdfast.data.croissant import read_metadata
from holdfast.errors import InputError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Run = Callable[..., Result]


@pytest.fixture
def planets(tmp_path: Path) -> Path:
    """A folder with the two tables."""
    return shutil.copytree(EXAMPLES / "planets", tmp_path / "planets")


@pytest.fixture
def described(planets: Path, run: Run) -> Path:
    """The folder with its description."""
    run("describe", planets, "--license", "CC0-1.0", "--url", "https://example.com/planets")
    return planets


@pytest.fixture
def run() -> Run:
    """Runs a command and checks how it ends."""

    def command(*arguments: object, code: int = 0) -> Result:
        done = invoke(app, ["croissant", *map(str, arguments)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            done_code = getattr(done.exception, "exit_code", None)
            assert done_code == code, done.exception
        else:
            assert done.exit_code == code, done.output
        return done

    return command


def said(done: Result) -> Any:
    return json.loads(done.stdout)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_folder_is_described_checked_and_loaded(planets: Path, run: Run) -> None:
    made = said(run("describe", planets, "--name", "planets", "--json"))
    assert Path(made["path"]).is_file()
    assert made["metadata"]["name"] == "planets"
    assert {note["kind"] for note in made["notes"]} <= {"inferred", "unknown", "skipped"}

    found = said(run("validate", planets, "--data", "full", "--json"))
    assert found["valid"]
    assert found["errors"] == []

    listed = said(run("load", planets, "--json"))
    assert {one["id"] for one in listed["record_sets"]} == {"moons", "planets"}

    printed = run("load", planets, "--record-set", "moons", "--json").stdout.splitlines()
    records = [json.loads(line) for line in printed]
    expected = rows_of(planets / "moons.csv")
    assert [one["moons/moon"] for one in records] == [row["moon"] for row in expected]
    assert [one["moons/radius_km"] for one in records] == [
        float(row["radius_km"]) for row in expected
    ]


def test_records_are_filtered_and_written(described: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "saturn.parquet"
    run(
        "load",
        described,
        "--record-set",
        "moons",
        "--columns",
        "moon,radius_km",
        "--filter",
        "planet=Saturn",
        "-o",
        out,
    )
    table = pyarrow.parquet.read_table(out)
    expected = [
        row["moon"] for row in rows_of(described / "moons.csv") if row["planet"] == "Saturn"
    ]
    assert table.column_names == ["moons/moon", "moons/radius_km"]
    assert table["moons/moon"].to_pylist() == expected

    two = run(
        "load",
        described,
        "--record-set",
        "moons",
        "--filter",
        "planet=Mars",
        "--filter",
        "planet=Earth",
        "--json",
    ).stdout.splitlines()
    assert [json.loads(line)["moons/moon"] for line in two] == ["Moon", "Phobos", "Deimos"]


def test_records_stream_as_json_lines(described: Path, run: Run) -> None:
    lines = run("load", described, "--record-set", "moons", "--format", "jsonl").stdout.splitlines()
    expected = rows_of(described / "moons.csv")
    assert [json.loads(line)["moons/moon"] for line in lines] == [row["moon"] for row in expected]

    chosen = run(
        *("load", described, "--record-set", "moons", "--columns", "moon", "--format", "jsonl"),
        *("--where", "planet = 'Mars' OR radius_km > 2600"),
    ).stdout.splitlines()
    assert [json.loads(line) for line in chosen] == [
        {"moons/moon": row["moon"]}
        for row in expected
        if row["planet"] == "Mars" or float(row["radius_km"]) > 2600
    ]
    two = run(
        "load", described, "--record-set", "moons", "--format", "jsonl", "--limit", "2"
    ).stdout
    assert two.splitlines() == lines[:2]


def test_a_query_over_record_sets(described: Path, run: Run) -> None:
    query = "SELECT planet, count(*) AS n FROM moons GROUP BY planet ORDER BY n DESC, planet"
    lines = run("sql", described, query, "--limit", "2", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"planet": "Saturn", "n": 9},
        {"planet": "Jupiter", "n": 5},
    ]


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("sum(1)", 25),  # wider than 64 bits in SQL
        ("1.5::DECIMAL(3, 1)", 1.5),
        ("'Infinity'::DOUBLE", "Infinity"),
        ("[-1e308::DOUBLE * 10]", ["-Infinity"]),
        ("'NaN'::DOUBLE", None),
        ("'a' || chr(8232) || chr(133) || chr(10) || 'é'", "a\u2028\x85\né"),
        ("TIMESTAMP '2024-02-29 12:00:00'", "2024-02-29T12:00:00"),
        ("'1b4e28ba-2fa1-11d2-883f-0016d3cca427'::UUID", "1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
    ],
)
def test_what_json_has_no_word_for(
    described: Path, tmp_path: Path, run: Run, value: str, told: Any
) -> None:
    def strict(text: str) -> Any:
        [text] = text.splitlines()  # ends lines wherever Unicode does
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    query = f"SELECT {value} AS value FROM moons GROUP BY ()"
    assert strict(run("sql", described, query, "--json").stdout) == {"value": told}
    out = tmp_path / "found.jsonl"
    run("sql", described, query, "-o", out)
    assert strict(out.read_text(encoding="utf-8")) == {"value": told}


def test_explain_names_the_file(described: Path, run: Run) -> None:
    assert "moons.csv" in run("load", described, "--record-set", "moons", "--explain").stdout


def test_errors_end_with_1_and_go_to_sarif(described: Path, tmp_path: Path, run: Run) -> None:
    path = next(described.glob("*.json"))
    description = json.loads(path.read_text(encoding="utf-8"))
    description["recordSet"][0]["field"][0]["source"]["extract"]["column"] = "mon"
    path.write_text(json.dumps(description), encoding="utf-8")
    sarif = tmp_path / "findings.sarif"
    assert said(run("validate", path, "--json"))["valid"]  # the description itself is right
    found = said(run("validate", path, "--data", "sample", "--sarif", sarif, "--json", code=1))
    [error] = found["errors"]
    assert error["code"] == "CR911"
    assert error["pointer"] == "/recordSet/0/field/0/source/extract/column"
    assert "moon" in error["hint"]
    assert not found["valid"]
    assert {one["code"] for one in found["warnings"]} == {"CR103"}
    log = json.loads(sarif.read_text(encoding="utf-8"))
    assert "CR911" in {result["ruleId"] for result in log["runs"][0]["results"]}


def test_programs_read_findings_by_severity(described: Path, run: Run) -> None:
    path = next(described.glob("*.json"))
    description = json.loads(path.read_text(encoding="utf-8"))
    field = description["recordSet"][1]["field"][0]
    del field["source"]
    text = json.dumps(description, indent=1)
    path.write_text(text, encoding="utf-8")
    before = text[: text.index(json.dumps(field, indent=1).replace("\n", "\n    "))]
    found = said(run("validate", path, "--json", code=1))
    assert list(found) == [
        "path",
        "valid",
        "strict",
        "errors",
        "warnings",
        "notes",
        "verdict",
        "unknown",
    ]
    assert (found["path"], found["valid"], found["strict"]) == (str(path), False, False)
    [error] = found["errors"]
    assert error == {
        "code": "CR321",
        "pointer": "/recordSet/1/field/0",
        "line": 1 + before.count("\n"),
        "column": 5,
        "message": f'Field "{field["@id"]}" has no source, value or subField',
        "hint": "Give source, value or subField.",
    }
    assert {one["code"] for one in found["warnings"]} == {"CR103"}
    assert [one["code"] for one in found["notes"]] == ["CR107"]
    assert {tuple(one) for one in (*found["warnings"], *found["notes"])} == {tuple(error)}


def test_a_file_without_a_description_has_findings(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "metadata.json"
    for text, code in (("", "CR001"), ("[]", "CR101"), ("3", "CR101")):
        path.write_text(text, encoding="utf-8")
        found = said(run("validate", path, "--json", code=1))
        assert not found["valid"]
        assert [(e["code"], e["line"], e["column"]) for e in found["errors"]] == [(code, 1, 1)]
        run("load", path, code=2)
    run("validate", tmp_path / "missing.json", "--json", code=2)


def test_a_description_that_is_cut_off_is_refused(described: Path, run: Run) -> None:
    path = described / "croissant.json"
    whole = path.read_bytes()
    page = described / "card.html"
    for kept in (len(whole) // 3, len(whole) - 3):
        path.write_bytes(whole[:kept])
        last = whole[:kept].count(b"\n") + 1
        for command in (
            ("load", path),
            ("load", path, "--record-set", "moons"),
            ("sql", path, "SELECT 1"),
            ("download", path),
            ("migrate", path),
            ("diff", path, path),
            ("rai", path),
            ("card", path, "--html", page),
        ):
            assert not run(*command, code=2).stdout
        with pytest.raises(InputError) as told:
            read_metadata(path)
        assert told.value.code == "invalid-syntax"
        assert str(told.value.place).startswith(f"line {last}, ")
        assert said(run("validate", path, "--json", code=1))["errors"][0]["code"] == "CR001"
    assert not page.exists()


def test_programs_are_told_what_was_written(planets: Path, tmp_path: Path, run: Run) -> None:
    named = planets / "metadata.json"
    assert said(run("describe", planets, "--out", named, "--json"))["path"] == str(named)
    out = tmp_path / "moons.csv"
    for command in (
        ("load", planets, "--record-set", "moons"),
        ("sql", planets, "SELECT * FROM moons"),
    ):
        found = said(run(*command, "-o", out, "--json"))
        assert found == {"path": str(out), "records": len(rows_of(out))}


def test_an_old_description_is_migrated_and_compared(tmp_path: Path, run: Run) -> None:
    old = shutil.copytree(EXAMPLES / "planets-old", tmp_path / "old")
    new = old / "new.json"
    made = said(run("migrate", old / "metadata.json", "--out", new, "--json"))
    assert (made["from"], made["to"], made["lost"]) == ("0.8", "1.1", [])
    run("migrate", old / "metadata.json", "--out", new, code=2)  # it is there already
    assert said(run("validate", new, "--json"))["errors"] == []

    described = json.loads(new.read_text(encoding="utf-8"))
    described["recordSet"][0]["field"].pop()
    new.write_text(json.dumps(described), encoding="utf-8")
    found = said(run("diff", old / "metadata.json", new, "--json", code=1))
    assert found["needed"] == "major"
    described["version"] = "2.0.0"
    new.write_text(json.dumps(described), encoding="utf-8")
    assert said(run("diff", old / "metadata.json", new, "--json"))["suffices"]


def test_a_card_and_the_open_questions(described: Path, tmp_path: Path, run: Run) -> None:
    page = tmp_path / "card.html"
    assert said(run("card", described, "--html", page, "--json"))["out"] == str(page)
    assert "<html" in page.read_text(encoding="utf-8")
    assert len(said(run("rai", described, "--json"))["statements"]) == 20


MOONS = ("load", "{planets}", "--record-set", "moons")


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "arguments",
    [
        ("load", "nowhere"),
        ("load", "{planets}", "--record-set", "stars"),
        (*MOONS, "--columns", "colour"),
        (*MOONS, "--filter", "planet"),
        (*MOONS, "-o", "out.xlsx"),
        (*MOONS, "--where", "planet ="),
        (*MOONS, "--where", "planet = 'Mars'", "--filter", "planet=Mars"),
        ("sql", "{planets}", "SELECT INTERVAL 3 DAY AS wait", "-o", "{planets}/out.csv"),
        (*MOONS, "-o", "no/folder/out.csv"),
        (*MOONS, "--columns", ","),
        ("sql", "{planets}", "SELECT * FROM stars"),
        ("sql", "{planets}", "DROP TABLE moons"),
        ("validate", "{planets}", "--map", "nothing=here", "--data", "full"),
        ("describe", "{planets}"),  # described already
    ],
)
def test_bad_usage_ends_with_2(described: Path, run: Run, arguments: tuple[str, ...]) -> None:
    run(*(part.format(planets=described) for part in arguments), code=2)
