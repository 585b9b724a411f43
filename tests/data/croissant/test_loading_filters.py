"""Filters: before anything is fetched, in the scan, after a join; and slips in what is asked for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
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

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.errors import InputError

SPLITS = record_set(
    "splits",
    field("splits/name", "sc:Text"),
    field("splits/url", ["sc:URL", "wd:Q3985153"]),
    dataType="cr:Split",
    key={"@id": "splits/name"},
    data=[
        {"splits/name": "train", "splits/url": "cr:TrainingSplit"},
        {"splits/name": "test", "splits/url": "https://mlcommons.org/definitions/test_split"},
    ],
)


@pytest.fixture
def parts(tmp_path: Path) -> Dataset:
    """Numbers in Parquet files of two splits, and record sets that take their fields from them."""
    for split, start in (("train", 0), ("test", 100)):
        for part in range(2):
            folder = tmp_path / "data" / split
            folder.mkdir(parents=True, exist_ok=True)
            numbers = pa.table(
                {"n": range(start + part * 10, start + part * 10 + 10), "wide": ["x"] * 10}
            )
            pq.write_table(numbers, folder / f"{part}.parquet")
    numbers_of = record_set(
        "numbers",
        field(
            "numbers/split",
            "sc:Text",
            about("files", "fullpath", transform={"regex": "data/(train|test)/.*"}),
            references=other("splits/name"),
        ),
        field("numbers/n", "sc:Integer", column("files", "n")),
        field("numbers/wide", "sc:Text", column("files", "wide")),
    )
    onwards = record_set(
        "onwards",
        field("onwards/split", None, other("numbers/split", transform={"replace": "t/T"})),
        field("onwards/n", None, other("numbers/n")),
        field("onwards/url", None, other("splits/url")),
    )
    onwards["field"][0]["references"] = other("splits/name")
    plain = record_set(
        "plain",
        field("plain/split", None, other("numbers/split")),
        field("plain/n", None, other("numbers/n")),
    )
    return described(
        tmp_path, [file_set("files", "data/*/*.parquet")], [SPLITS, numbers_of, onwards, plain]
    )


class Spied:
    """Resources that remember whose bytes were asked for."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.touched: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def fetch(self, members: Iterable[Member], **how: bool) -> None:
        listed = list(members)
        self.touched += [member.fullpath for member in listed]
        self.inner.fetch(listed, **how)

    def paths(self, members: Sequence[Member], **how: bool) -> list[Path]:
        self.touched += [member.fullpath for member in members]
        paths: list[Path] = self.inner.paths(members, **how)
        return paths

    def path(self, member: Member) -> Path:
        return self.paths([member])[0]

    def read(self, members: Sequence[Member]) -> Iterator[bytes]:
        self.touched += [member.fullpath for member in members]
        yield from self.inner.read(members)


TEST_FILES = ["data/test/0.parquet", "data/test/1.parquet"]


@pytest.mark.parametrize("records", ["numbers", "onwards", "plain"])
def test_the_records_are_the_same_whichever_columns_are_asked_for(
    parts: Dataset, records: str
) -> None:
    everything = list(parts.records(records))
    names = list(everything[0])
    for count in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, count):
            expected = [{name: record[name] for name in chosen} for record in everything]
            asked = parts.records(records, columns=chosen)
            assert list(asked) == expected
            assert asked.count() == 40


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("d > 'nope'", "nope"),
        ("d = '2024-13-01'", "2024-13-01"),
        ("n = 'x' OR n = 2", "x"),
        ("t < 'noon'", "noon"),
    ],
)
def test_a_condition_with_a_value_of_another_type_is_named(
    tmp_path: Path, where: str, found: str
) -> None:
    write_rows(tmp_path / "a.jsonl", ["n", "d", "t"], [{"n": 1, "d": "2024-01-02", "t": "08:00"}])
    kinds = {"n": "sc:Integer", "d": "sc:Date", "t": "sc:Time"}
    fields = [field(f"a/{name}", kind, column("a.jsonl", name)) for name, kind in kinds.items()]
    dataset = described(tmp_path, [file_object("a.jsonl")], [record_set("a", *fields)])
    with pytest.raises(InputError) as caught:
        list(dataset.records("a", filters=where))
    assert (caught.value.code, caught.value.place) == ("invalid-value", where)
    assert found in str(caught.value.found)
    assert caught.value.expected


def test_a_constant_or_a_name_stands_in_every_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("three\n", encoding="utf-8")
    lines = record_set(
        "lines",
        field("lines/text", "sc:Text", about("texts", "lines")),
        field("lines/file", "sc:Text", about("texts", "filename")),
        field("lines/language", "sc:Text", value="en"),
    )
    dataset = described(tmp_path, [file_set("texts", "*.txt")], [lines])
    found = dataset.records("lines", columns=["file"]).to_arrow()["lines/file"].to_pylist()
    assert found == ["a.txt", "a.txt", "b.txt"]
    assert dataset.records("lines", columns=["language"]).count() == 3
    assert dataset.records("lines", columns=["language"], filters={"file": "a.txt"}).count() == 2


ODD_TEXTS = ["a\nb", "a\n  b", "a\r\nb", "a\u2028b", "it's\nso", 'say "a\nb"', "\n", "-- a\n"]


@pytest.mark.quick(3)
@pytest.mark.parametrize("text", ODD_TEXTS)
def test_text_of_several_lines_is_found(tmp_path: Path, text: str) -> None:
    rows = [{"text": other_text, "n": n} for n, other_text in enumerate(ODD_TEXTS)]
    write_rows(tmp_path / "a.jsonl", ["text", "n"], rows)
    records = record_set(
        "a",
        field("a/text", "sc:Text", column("a.jsonl", "text")),
        field("a/n", "sc:Integer", column("a.jsonl", "n")),
        field("a/constant", "sc:Text", value=text),
    )
    dataset = described(tmp_path, [file_object("a.jsonl")], [records])
    expected = [{"a/text": text, "a/n": ODD_TEXTS.index(text), "a/constant": text}]
    assert list(dataset.records("a", filters={"text": text})) == expected
    quoted = text.replace("'", "''")
    assert list(dataset.records("a", filters=f"text = '{quoted}' AND n >= 0")) == expected
    assert dataset.records("a", filters={"constant": text}).count() == len(ODD_TEXTS)


@pytest.mark.parametrize("records", ["numbers", "plain"])
@pytest.mark.parametrize(
    "filters",
    [
        {"split": "test"},
        {"split": "https://mlcommons.org/definitions/test_split"},
        "split = 'test'",
        "split LIKE 'te%' AND n >= 0",
        "SPLIT = 'test'",
        "{records}.split = 'test'",
        {"split": ["test"], "n": list(range(100, 120))},
    ],
)
def test_only_the_files_of_a_split_are_touched(parts: Dataset, records: str, filters: Any) -> None:
    if isinstance(filters, str):
        filters = filters.format(records=records)
    spied = Spied(parts.resources)
    parts.resources = spied  # type: ignore[assignment]
    lazy = parts.records(records, filters=filters)
    assert [member.fullpath for member in lazy.members()] == TEST_FILES
    assert not spied.touched
    assert sorted(row[f"{records}/n"] for row in lazy) == list(range(100, 120))
    assert set(spied.touched) == set(TEST_FILES)


def test_a_transform_of_another_record_sets_field_is_part_of_the_test(parts: Dataset) -> None:
    lazy = parts.records("onwards", filters="split = 'TesT'")
    assert [member.fullpath for member in lazy.members()] == TEST_FILES
    assert lazy.count() == 20


def test_filters_that_nothing_passes_give_no_records(parts: Dataset) -> None:
    lazy = parts.records("numbers", filters="split = 'dev'")
    assert lazy.members() == []
    assert list(lazy) == []
    assert lazy.to_arrow().schema == parts.records("numbers").schema


def test_filters_pushed_down_give_what_filters_applied_after_give(parts: Dataset) -> None:
    every = parts.records("numbers").to_arrow().to_pylist()
    pushed = parts.records("numbers", filters={"n": [3, 103]})
    assert list(pushed) == [row for row in every if row["numbers/n"] in (3, 103)]
    plan = pushed.explain()
    scan = plan[plan.index("Read Parquet") :]
    assert re.search(r"Filters:\s*│?\s*n\b|n=3|n IN", scan), scan
    assert "wide" not in parts.records("numbers", columns=["n"]).explain().split("Read Parquet")[1]


def test_csv_columns_that_nobody_wants_are_not_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", ["a", "b", "c"], [{"a": 1, "b": "no number", "c": "x"}])
    records = record_set(
        "t",
        *(
            field(f"t/{name}", kind, column("t.csv", name))
            for name, kind in [("a", "sc:Integer"), ("b", "sc:Integer"), ("c", "sc:Text")]
        ),
    )
    dataset = described(tmp_path, [file_object("t.csv")], [records])
    lazy = dataset.records("t", columns=["a"], filters={"c": "x"})
    assert list(lazy) == [{"t/a": 1}]
    with pytest.raises(InputError, match=r"t\.csv, line 2.*t/b"):
        list(dataset.records("t"))


def test_lists_are_asked_for_a_value_that_they_hold(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", ["tags"], [{"tags": "a|b"}, {"tags": "c"}, {"tags": ""}])
    tags = field(
        "t/tags", "sc:Text", column("t.csv", "tags", transform={"separator": "|"}), repeated=True
    )
    dataset = described(tmp_path, [file_object("t.csv")], [record_set("t", tags)])
    assert list(dataset.records("t", filters={"tags": "b"})) == [{"t/tags": ["a", "b"]}]
    assert dataset.records("t", filters={"tags": ["c", None]}).count() == 2
    assert (
        dataset.records("t", filters="len(list_filter(tags, lambda x: x > 'b')) = 1").count() == 1
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"record_set": "nubmers"}, "'numbers', perhaps"),
        ({"record_set": "numbers", "columns": ["nn"]}, "one of split, n, wide|'n', perhaps"),
        ({"record_set": "numbers", "filters": {"splitt": "test"}}, "'split', perhaps"),
        ({"record_set": "numbers", "filters": {"n": "many"}}, "a value of sc:Integer"),
        ({"record_set": "numbers", "filters": {"n": object()}}, "a number"),
        ({"record_set": "numbers", "filters": "splitt = 'x'"}, "'split', perhaps"),
        ({"record_set": "numbers", "filters": "n = 1; DROP TABLE x"}, "not a SQL expression"),
        ({"record_set": "numbers", "filters": "n = (SELECT 1)"}, "Dataset.sql"),
        ({"record_set": "numbers", "filters": "n ="}, "not a SQL expression"),
        ({"record_set": "numbers", "filters": " "}, "not a SQL expression"),
        ({"record_set": "numbers", "filters": 'split = "test"'}, "single quotes: 'test'"),
        ({}, "name one"),
    ],
)
def test_slips_are_told_when_they_are_made(parts: Dataset, arguments: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        parts.records(**arguments)


def test_a_split_that_is_none_is_told(parts: Dataset) -> None:
    with pytest.raises(InputError, match="'train', perhaps"):
        parts.records("numbers", filters={"split": "trian"}).members()


def test_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    records = record_set("t", field("t/n", "sc:Integer", column("files", "n")))
    dataset = described(tmp_path, [file_set("files", "no/*.parquet")], [records])
    with pytest.raises(InputError, match="'files' has no files"):
        dataset.records("t").count()


def test_queries_see_every_record_set_under_short_names(parts: Dataset) -> None:
    table = parts.sql(
        "WITH few AS (SELECT * FROM numbers WHERE n < 103) "
        "SELECT split, count(*) AS n FROM few JOIN splits ON split = name GROUP BY split ORDER BY split"
    )
    assert table.to_arrow().to_pylist() == [{"split": "test", "n": 3}, {"split": "train", "n": 20}]
    assert table.count() == 2
    own = parts.records("numbers", filters={"split": "test"}).sql(
        "SELECT max(n) AS top FROM records"
    )
    assert list(own) == [{"top": 119}]
    for query, said in [
        ("SELECT * FROM nubmers", "'numbers', perhaps"),
        ("DELETE FROM numbers", "not valid SQL"),
        ("SELECT nope FROM numbers", "nope"),
        ("SELECT * FROM read_csv('/etc/passwd'); SELECT 1", "not valid SQL"),
    ]:
        with pytest.raises(InputError, match=said):
            parts.sql(query).to_arrow()
