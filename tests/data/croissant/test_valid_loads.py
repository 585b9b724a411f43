"""What `validate` finds no error in can be loaded, and what cannot be loaded has one: generated joins."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from made_datasets import (
    about,
    column,
    described,
    field,
    file_object,
    file_set,
    other,
    record_set,
    write_rows,
)

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import validate
from holdfast.errors import InputError

TABLES = {
    "a.csv": [{"k": "1", "v": "x"}, {"k": "2", "v": "y"}],
    "b.jsonl": [{"k": "1", "v": "p"}, {"k": "1", "v": "q"}],
    "c.parquet": [{"k": "2", "v": "r"}],
}


@contextmanager
def dataset_of(sets: list[Any]) -> Iterator[tuple[Path, Dataset]]:
    """Three tables and a set of files named 1.png and 2.png, under record sets."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for table, rows in TABLES.items():
            write_rows(folder / table, ["k", "v"], rows)
        for number in "12":
            (folder / f"{number}.bin").write_bytes(b"x")
        resources = [*map(file_object, TABLES), file_set("files", "*.bin")]
        with described(folder, resources, sets) as dataset:
            yield folder, dataset


def source(table: str, what: str) -> Any:
    if table == "files":
        return about("files", "filename", transform={"regex": r"(.*)\.bin"})
    return column(table, what)


PLACES = st.sampled_from([*TABLES, "files"])
REFERENCES = st.none() | st.sampled_from(["r/0", "r/1", "r/2", "s/0", "s/1", "a.csv", "c.parquet"])


@st.composite
def record_sets(draw: st.DrawFn) -> list[Any]:
    made = []
    for name, count in (("s", draw(st.integers(1, 2))), ("r", draw(st.integers(1, 3)))):
        fields = []
        for number in range(count):
            identity = f"{name}/{number}"
            above = st.sampled_from([f"s/{place}" for place in range(2)])
            taken = draw(PLACES.map(lambda table: source(table, "k")) | above.map(other))
            target = draw(REFERENCES)
            more = {}
            if target is not None:
                more["references"] = other(target) if "/" in target else source(target, "k")
            fields.append(field(identity, "sc:Text", taken, **more))
        made.append(record_set(name, *fields))
    return made


@settings(max_examples=80)
@given(record_sets())
def test_valid_descriptions_load_and_others_do_not(sets: list[Any]) -> None:
    with dataset_of(sets) as (folder, dataset):
        errors = [one for one in validate(folder).problems if one.severity.value == "error"]
        refused = {}
        for name in dataset.record_sets:
            try:
                list(dataset.records(name))
            except InputError as error:
                refused[name] = error.code
        event(f"valid: {not errors}, loads: {not refused}")
        assert bool(errors) >= bool(refused), (refused, json.dumps(sets))
        # Only what a load looks at can stop it; joins are among that.
        joins = {one.pointer.split("/")[2] for one in errors if one.code == "CR421"}
        assert len(joins) <= len(refused), (errors, json.dumps(sets))


A, FILES = source("a.csv", "k"), source("files", "")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # A reference within one record set joins the tables of both fields, in either direction.
        (
            [field("r/0", "sc:Text", A), field("r/1", "sc:Text", FILES, references=other("r/0"))],
            [("1", "1"), ("2", "2")],
        ),
        (
            [field("r/0", "sc:Text", A, references=other("r/1")), field("r/1", "sc:Text", FILES)],
            [("1", "1"), ("2", "2")],
        ),
        # Two that reference a third: the second is found from there, once for each match.
        (
            [
                field("r/0", "sc:Text", A, references=other("r/1")),
                field("r/1", "sc:Text", FILES),
                field("r/2", "sc:Text", source("b.jsonl", "k"), references=other("r/1")),
                field("r/3", "sc:Text", source("b.jsonl", "v")),
            ],
            [("1", "1", "1", "p"), ("1", "1", "1", "q"), ("2", "2", None, None)],
        ),
    ],
)
def test_references_join_in_either_direction(fields: list[Any], expected: list[Any]) -> None:
    with dataset_of([record_set("r", *fields)]) as (folder, dataset):
        assert not validate(folder).counts["error"]
        assert [tuple(row.values()) for row in dataset.records()] == expected


# Data type, what the field's source says, a value that suits it: what `load` refuses is an error, no more.
FORMATS = [
    *(("sc:Date", {"format": pattern}, value) for pattern, value in [
        ("yyyy-MM-dd", "2024-12-31"), ("%-d.%-m.%Y", "1.2.2024"), ("MMM d, yyyy", "Dec 31, 2024"),
        ("yyyy", "2024"), ("dd/MM/yyyy HH:mm", "31/12/2024 10:20"),
        # Slips, which would give another day; and what the standard has and `load` does not read.
        ("dd.mm.yyyy", "31.12.2024"), ("%M/%d/%Y", "12/31/2024"), ("YYYY-MM-DD", "2024-12-31"),
        ("HH:mm", "12:30"), ("%H:%M", "12:30"), ("%%", "%"), ("iso", "2024-12-31"), ("QQQ yyyy", "Q1 2024"),
        ("yyyy G", "2024 AD"), ("%G-W%V-%u", "2024-W52-2"), ("%_d.%m.%Y", " 1.02.2024"),
        ("%s", "1735603200"),
    ]),
    *(("sc:Time", {"format": pattern}, value) for pattern, value in [
        ("hh:mm a", "10:20 PM"), ("%H:%M", "10:20"), ("yyyy-MM-dd", "2024-12-31"), ("K:mm a", "3:20 PM"),
    ]),
    *(("sc:Float", {"format": pattern}, value) for pattern, value in [
        ("#,##0.00", "1,234.50"), ("0.##E0", "1.5E3"), ("#0.#%", "12.5%"), ("int32", "5"), ("%.2f", "5.25"),
        ("float", "5"), ("#;(#)", "(5)"), ("0.0.0", "1.0"), ("#.###,00", "1.000,00"), ("9999", "5"),
    ]),
    *(("sc:Text", {"transform": step}, "aab") for step in [
        {"regex": "(a+)b"}, {"regex": "(?i)(A)"}, {"regex": "(?=a)(a)"}, {"regex": "(a)\\1"},
        {"regex": "(?>a)(a)"}, {"regex": "(x{1001})"}, {"regex": "(\\d+)\\Z"}, {"regex": "(a*+)"},
        {"replace": "a/b"}, {"replace": "a(?=b)/b"}, {"replace": "(?>a)/b"}, {"replace": "a\\/b/c"},
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    "suffix", ["csv", *(pytest.param(s, marks=pytest.mark.full) for s in ("jsonl", "parquet"))]
)
def test_formats_and_patterns_that_are_errors_do_not_load(tmp_path: Path, suffix: str) -> None:
    wrong = []
    name = f"t.{suffix}"
    for number, (kind, how, value) in enumerate(FORMATS):
        folder = tmp_path / str(number)
        write_rows(folder / name, ["v"], [{"v": value}])
        made = record_set("r", field("r/v", kind, column(name, "v", **how)))
        with described(folder, [file_object(name)], [made]) as dataset:
            found = [one.code for one in validate(folder).problems if one.severity.value == "error"]
            assert set(found) <= {"CR434", "CR439", "CR440"}, (how, found)
            try:
                dataset.records("r").to_arrow()
            except InputError:
                loads = False
            else:
                loads = True
        # Numbers of Parquet may have types of their own, so that a format is not needed.
        open_case = suffix == "parquet" and kind == "sc:Float"
        if loads == bool(found) and not open_case:
            wrong.append((how, found, loads))
    assert wrong == []


def test_the_format_of_a_column_of_numbers_is_not_needed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [5]}), tmp_path / "t.parquet")
    made = record_set("r", field("r/v", "sc:Integer", column("t.parquet", "v", format="int32")))
    with described(tmp_path, [file_object("t.parquet")], [made]) as dataset:
        [finding] = [one for one in validate(tmp_path).problems if one.code == "CR440"]
        assert finding.severity.value == "warning"
        assert list(dataset.records("r")) == [{"r/v": 5}]
