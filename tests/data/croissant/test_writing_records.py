"""Records in files of every format are those that were loaded; what a format cannot hold is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from described_files import refused
from made_datasets import column, described, field, file_object, record_set

from command_line import invoke
from holdfast.data.cli import app
from holdfast.data.croissant import describe
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.loading.writers import check, write_batches


@pytest.fixture
def numbers(tmp_path: Path) -> Dataset:
    (tmp_path / "n.csv").write_text(
        "n,kind,day,tags\n1,odd,31/12/2024,a|b\n2,even,,\n3,odd,01/02/2025,c\n"
    )
    records = record_set(
        "numbers",
        field("numbers/n", "sc:Integer", column("n.csv", "n")),
        field("numbers/kind", "sc:Text", column("n.csv", "kind")),
        field("numbers/day", "sc:Date", column("n.csv", "day", format="dd/MM/yyyy")),
        field(
            "numbers/tags",
            "sc:Text",
            column("n.csv", "tags", transform={"separator": "|"}),
            repeated=True,
        ),
    )
    return described(tmp_path, [file_object("n.csv")], [records])


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_written_records_load_as_they_were(numbers: Dataset, tmp_path: Path, form: str) -> None:
    columns = ["n", "kind", "day", *(["tags"] if form != "csv" else [])]
    records = numbers.records("numbers", columns=columns)
    folder = tmp_path / "new"
    folder.mkdir()
    out = folder / f"numbers.{form}"
    assert write_batches(records.batches(), records.schema, out) == 3
    with Dataset(describe(folder).write(folder / "metadata.json")) as again:
        loaded = [[*record.values()] for record in again.records("numbers")]
    assert loaded == [[*record.values()] for record in records]


def test_text_formats_refuse_what_they_cannot_hold(shared_data: Path, tmp_path: Path) -> None:
    suite = shared_data / "croissant" / "datasets"
    images = Dataset(suite / "1.0/recipes/compressed_archive.json", cache=tmp_path)
    schema = images.records("images").schema
    for form in ("csv", "jsonl"):
        with refused("unsupported") as told:
            check(schema, tmp_path / f"images.{form}")
        assert told.value.place == "column images/image_content"


def test_columns_that_a_format_cannot_hold_are_left_out_as_the_remedy_says(
    numbers: Dataset, tmp_path: Path
) -> None:
    records = numbers.records("numbers")
    with refused("unsupported") as caught:
        write_batches(records.batches(), records.schema, tmp_path / "new.csv")
    assert caught.value.place == "column numbers/tags"
    assert not (tmp_path / "new.csv").exists()
    command, columns, out = re.findall(r"\bload\b|--\w+", caught.value.remedy or "")
    source = next(path for path in tmp_path.iterdir() if path.suffix == ".json")
    options = ["--record-set", "numbers", columns, "n,kind", out, str(tmp_path / "n2.csv")]
    done = invoke(app, ["croissant", command, str(source), *options])
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "n2.csv").read_text().splitlines()) == 4
