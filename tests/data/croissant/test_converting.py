"""Converted datasets load the records that their originals load, whatever the files are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from described_files import refused
from made_datasets import column, described, field, file_object, record_set

from command_line import invoke
from holdfast.data.cli import app
from holdfast.data.croissant.converting.exporting import convert
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import validate

LOCAL = [
    "0.8/pass-mini/metadata.json",
    "0.8/recipes/read_from_tar.json",
    "0.8/simple-join/metadata.json",
    "0.8/titanic/metadata.json",
    "1.0/pass-mini/metadata.json",
    "1.0/recipes/compressed_archive.json",
    "1.0/recipes/file_object_in_zip.json",
    "1.0/recipes/read_binary_file_by_line.json",
    "1.0/recipes/read_from_tar.json",
    "1.0/simple-join/metadata.json",
    "1.0/simple-parquet/metadata.json",
    "1.0/titanic/metadata.json",
    "1.1/audio_test/metadata.json",
]


def values(record: Any) -> Any:
    """What a record says, without the names of fields: version 0.8 has others than 1.1."""
    if isinstance(record, dict):
        return [values(part) for part in record.values()]
    return [values(part) for part in record] if isinstance(record, list) else record


# Arrow is written by the same writer as Parquet, with another at its end: media, lists, joins, nulls do.
ARROW = [LOCAL[0], "1.0/simple-join/metadata.json", "1.0/titanic/metadata.json", LOCAL[-1]]


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("name", "form"),
    [*((name, "parquet") for name in LOCAL), *((name, "arrow") for name in ARROW)],
)
def test_every_local_dataset_of_the_suite(
    shared_data: Path, tmp_path: Path, name: str, form: str
) -> None:
    original = Dataset(shared_data / "croissant" / "datasets" / name, offline=True, cache=tmp_path)
    made = convert(original, tmp_path / "new", form=form)
    checked = validate(made.description, data="full", cache=tmp_path)
    assert checked.valid, checked.text()
    new = Dataset(made.folder, offline=True, cache=tmp_path)
    assert new.record_sets == original.record_sets
    for records in original.record_sets:
        before = [values(record) for record in original.records(records)]
        assert [values(record) for record in new.records(records)] == before


def test_text_formats_refuse_what_they_cannot_hold(shared_data: Path, tmp_path: Path) -> None:
    suite = shared_data / "croissant" / "datasets"
    images = Dataset(suite / "1.0/recipes/compressed_archive.json", cache=tmp_path)
    for form in ("csv", "jsonl"):
        with refused("unsupported") as told:
            convert(images, tmp_path / "images", form=form)
        assert told.value.place == "column images/image_content"
    assert sorted(path.name for path in tmp_path.iterdir() if "images" in path.name) == []


@pytest.fixture
def numbers(tmp_path: Path) -> Dataset:
    (tmp_path / "n.csv").write_text(
        "n,kind,day,tags\n1,odd,31/12/2024,a|b\n2,even,,\n3,odd,01/02/2025,c\n"
    )
    day = column("n.csv", "day", format="dd/MM/yyyy")
    tags = column("n.csv", "tags", transform={"separator": "|"})
    records = record_set(
        "numbers",
        field("numbers/n", "sc:Integer", column("n.csv", "n")),
        field("numbers/kind", "sc:Text", column("n.csv", "kind"), references={"@id": "kinds/name"}),
        field("numbers/day", "sc:Date", day),
        field("numbers/tags", "sc:Text", tags, repeated=True),
    )
    kinds = record_set("kinds", field("kinds/name", "sc:Text"))
    kinds["data"] = [{"kinds/name": "odd"}, {"kinds/name": "even"}]
    return described(tmp_path, [file_object("n.csv")], [records, kinds])


def test_dates_lists_references_and_inline_data_stay(numbers: Dataset, tmp_path: Path) -> None:
    made = convert(numbers, tmp_path / "new", form="jsonl")
    assert [(one.record_set, one.records) for one in made.written] == [("numbers", 3)]
    new = Dataset(made.folder)
    assert list(new.records("numbers")) == list(numbers.records("numbers"))
    assert list(new.records("kinds")) == list(numbers.records("kinds"))
    [reference] = new.metadata.record_set("numbers").field("kind").references
    assert reference.target == "kinds/name"
    alone = convert(numbers, tmp_path / "alone", record_sets=["numbers"])
    assert not Dataset(alone.folder).metadata.record_set("numbers").field("kind").references


def test_columns_that_a_format_cannot_hold_are_left_out_as_the_remedy_says(
    numbers: Dataset, tmp_path: Path
) -> None:
    with refused("unsupported") as caught:
        convert(numbers, tmp_path / "new", form="csv")
    assert caught.value.place == "column numbers/tags"
    command, columns, out = re.findall(r"\bload\b|--\w+", caught.value.remedy or "")
    source = next(path for path in tmp_path.iterdir() if path.suffix == ".json")
    options = ["--record-set", "numbers", columns, "n,kind", out, str(tmp_path / "n2.csv")]
    done = invoke(app, ["croissant", command, str(source), *options])
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "n2.csv").read_text().splitlines()) == 4


def test_a_field_of_sub_fields_needs_no_type(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("lat,lon\n1.5,2.5\n,\n", encoding="utf-8")
    place = field(
        "a/place",
        None,
        subField=[field(f"a/{name}", "sc:Float", column("a.csv", name)) for name in ("lat", "lon")],
    )
    original = described(tmp_path, [file_object("a.csv")], [record_set("a", place)])
    for form in ("parquet", "jsonl"):
        made = convert(original, tmp_path / form, form=form)
        assert list(Dataset(made.folder).records("a")) == [
            {"a/place": {"a/lat": 1.5, "a/lon": 2.5}},
            {"a/place": {"a/lat": None, "a/lon": None}},
        ]


def test_filters_choose_records_where_there_is_such_a_field(
    numbers: Dataset, tmp_path: Path
) -> None:
    made = convert(numbers, tmp_path / "new", filters={"kind": "odd"})
    assert [record["numbers/n"] for record in Dataset(made.folder).records("numbers")] == [1, 3]


def test_nothing_is_left_of_a_conversion_that_failed(numbers: Dataset, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    with refused("unsupported"):
        convert(numbers, tmp_path / "new", form="csv")  # it has lists
    with refused("output-exists"):
        convert(numbers, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_names_of_files_are_safe_and_apart(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("n\n1\n")
    sets = [
        record_set(name, field(f"{name}/n", "sc:Integer", column("n.csv", "n")))
        for name in ("a/b", "a_b", "../c")
    ]
    made = convert(described(tmp_path, [file_object("n.csv")], sets), tmp_path / "new")
    names = [one.path.name for one in made.written]
    assert len(set(names)) == 3
    assert {path.name for path in made.folder.iterdir()} == {*names, "metadata.json"}
    described_again = json.loads(made.description.read_text())
    assert [file["contentUrl"] for file in described_again["distribution"]] == names
