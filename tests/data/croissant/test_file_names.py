"""Files whose names mean something to DuckDB, each beside the file that it would read for them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_datasets import FORMATS, about, column, described, field, record_set

from holdfast.data import croissant
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import validate
from holdfast.errors import InputError

NAMES = {  # a file -> another one, which the name matches as a pattern or is mistaken for
    "a[1]": "a1", "b?": "bx", "c*": "cx", "**": "y", "[!d]": "e", "[a-c]": "b", "{f,g}": "f",
    "h\\[1]": "h/[1]", "i\\j": "i/j", "\\k": "k", "it's": "its", 'q"q': "qq", "l\nl": "l",
    "100%25": "100%", "~m": "m", "n=1": "n", "[o": "o", "p]": "p", "r[.]": "r.", "é[ü]": "éü",
    "s[[]1]": "s[1]", "file:t": "t", "#u?v": "#u", "w ": "w", "k=1/x": "x",
}  # fmt: skip
KINDS = ("csv", "jsonl", "json", "parquet", "arrow", "txt")


def write(path: Path, value: str) -> None:
    """One record with one value, in the format of the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"v": [value]})
    match path.suffix:
        case ".csv":
            path.write_text(f"v\n{value}\n")
        case ".txt":
            path.write_text(f"{value}\n")
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
        case _:
            path.write_text(json.dumps({"v": value}) + "\n")


def dataset_of(folder: Path, kind: str) -> tuple[Dataset, dict[str, str]]:
    """A FileSet of all the names and a FileObject for each; the value of each file."""
    data = folder / "data"
    values = {}
    for number, name in enumerate([*NAMES.values(), *NAMES]):
        values[f"data/{name}.{kind}"] = str(number)
        write(data / f"{name}.{kind}", str(number))
    everything: dict[str, Any] = {"@type": "cr:FileSet", "@id": "all", "name": "all"}
    resources = [everything | {"includes": f"data/**.{kind}", "encodingFormat": FORMATS[kind]}]
    sets = []
    what = about if kind == "txt" else column
    for number, name in enumerate(values):
        path = folder / name
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        resources.append(
            {
                "@type": "cr:FileObject",
                "@id": f"{number}.{kind}",
                "name": f"file {number}",
                "contentUrl": name,
                "encodingFormat": FORMATS[kind],
                "sha256": checksum,
            }
        )
        sets.append(
            record_set(
                f"r{number}",
                field(f"r{number}/v", "sc:Integer", what(f"{number}.{kind}", LINE[what])),
            )
        )
    fields = [
        field("rows/v", "sc:Integer", what("all", LINE[what])),
        field("rows/path", "sc:Text", about("all", "fullpath")),
        field("rows/name", "sc:Text", about("all", "filename")),
    ]
    return described(folder, resources, [record_set("rows", *fields), *sets]), values


LINE = {column: "v", about: "lines"}


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_of_the_name_is_read_and_no_other(tmp_path: Path, kind: str) -> None:
    dataset, values = dataset_of(tmp_path, kind)
    with dataset:
        rows = dataset.records("rows").to_arrow().to_pylist()
        assert {row["rows/path"]: row["rows/v"] for row in rows} == {
            path: int(value) for path, value in values.items()
        }
        assert len(rows) == len(values)
        assert all(row["rows/name"] == row["rows/path"].rpartition("/")[2] for row in rows)
        for number, value in enumerate(values.values()):
            if number >= len(NAMES) and kind != "txt":  # of lines, only the list of files counts
                assert list(dataset.records(f"r{number}")) == [{f"r{number}/v": int(value)}]
        [[total]] = [row.values() for row in dataset.sql("SELECT sum(v) FROM rows").rows()]
        assert total == sum(map(int, values.values()))
    if kind in ("csv", "parquet"):
        assert not validate(tmp_path, data="full").counts["error"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
def test_a_folder_with_such_a_name_is_described_as_it_is(tmp_path: Path, kind: str) -> None:
    for name, rows in (("g[1]", 1), ("g1", 3)):
        (tmp_path / name).mkdir()
        values = [{"v": f"{name} {row}"} for row in range(rows)]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(values), tmp_path / name / "t.parquet")
        elif kind == "csv":
            text = "v\n" + "".join(f"{row['v']}\n" for row in values)
            (tmp_path / name / "t.csv").write_text(text)
        else:
            lines = "".join(json.dumps(row) + "\n" for row in values)
            whole = json.dumps(values) if kind == "json" else lines
            (tmp_path / name / f"t.{kind}").write_text(whole)
    made = croissant.describe(tmp_path / "g[1]")
    (tmp_path / "g[1]" / "metadata.json").write_text(json.dumps(made.metadata))
    with Dataset(tmp_path / "g[1]") as dataset:
        assert [list(row.values()) for row in dataset.records()] == [["g[1] 0"]]


def test_a_misfit_names_the_file_as_it_is_called(tmp_path: Path) -> None:
    write(tmp_path / "a[1].csv", "one")
    files = [{"@type": "cr:FileObject", "@id": "f.csv", "name": "f", "contentUrl": "a[1].csv"}]
    made = record_set("r", field("r/v", "sc:Integer", column("f.csv", "v")))
    with described(tmp_path, files, [made]) as dataset, pytest.raises(InputError) as caught:
        dataset.records().to_arrow()
    assert caught.value.path == "a[1].csv"
