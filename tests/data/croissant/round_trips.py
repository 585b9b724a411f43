"""Describe, check, load; and the same data as the standard library and pyarrow read it."""

from __future__ import annotations

import csv
import datetime
import io
import shutil
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.data.croissant.describing.description import Description
from holdfast.data.croissant.describing.folders import describe
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import validate

NO_VALUE = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "n/a", "#N/A", "<NA>", "-nan"}


def described(folder: Path, **given: Any) -> Description:
    """The description of a folder, written there once no rule finds an error in it."""
    made = describe(folder, **given)
    path = made.write(overwrite=True)
    found = validate(path)
    errors = [finding for finding in found.problems if finding.severity == "error"]
    assert not errors, errors
    return made


def loaded(made: Description, record_set: str) -> list[dict[str, Any]]:
    """The records, each under the last parts of its fields' ids."""
    rows = Dataset(made.path).records(record_set).to_arrow().to_pylist()
    return [
        {name.removeprefix(f"{record_set}/"): value for name, value in row.items()} for row in rows
    ]


def record_sets(made: Description) -> dict[str, Mapping[str, Any]]:
    return {each["@id"]: each for each in made.metadata.get("recordSet", [])}


def fields(made: Description, record_set: str) -> dict[str, Mapping[str, Any]]:
    """Short name -> the field."""
    found = record_sets(made)[record_set]["field"]
    return {field["@id"].removeprefix(f"{record_set}/"): field for field in found}


def types(made: Description, record_set: str) -> dict[str, Any]:
    return {name: field.get("dataType") for name, field in fields(made, record_set).items()}


def notes(made: Description, about: str | None = None) -> str:
    return "\n".join(note.text for note in made.notes if about in (None, note.about))


def write_csv(
    path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], **options: Any
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)


def read_csv(data: bytes, separator: str = ",") -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(io.StringIO(data.decode(), newline=""), delimiter=separator)
    return header, [row for row in rows if row]


def typed(text: str, data_type: str) -> Any:
    """A cell as its declared type, by the standard library."""
    if data_type in ("sc:Text", "sc:URL"):
        return text or None
    if text in NO_VALUE:
        return None
    if data_type == "sc:Boolean":
        return {"true": True, "false": False}[text.lower()]
    return {
        "sc:Integer": int,
        "sc:Float": float,
        "sc:Date": datetime.date.fromisoformat,
        "sc:Time": datetime.time.fromisoformat,
        "sc:DateTime": datetime.datetime.fromisoformat,
    }[data_type](text)


def check_csv(made: Description, record_set: str, data: bytes, separator: str = ",") -> None:
    """Every value of every row is what the standard library reads out of the file's text."""
    header, rows = read_csv(data, separator)
    declared = list(types(made, record_set).values())[: len(header)]
    expected = [
        [typed(cell, kind) for cell, kind in zip(row, declared, strict=True)] for row in rows
    ]
    got = [list(row.values())[: len(header)] for row in loaded(made, record_set)]
    assert got == expected


def contents(path: Path) -> dict[str, bytes]:
    """What is in an archive, or the file itself under its name."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return {
                name.replace("../", ""): archive.read(name)
                for name in archive.namelist()
                if not name.endswith("/")
            }
    if path.suffix != ".parquet" and tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            found = {}
            for member in archive.getmembers():
                if member.isfile() and (file := archive.extractfile(member)):
                    found[member.name] = file.read()
            return found
    return {path.name: path.read_bytes()}


def copied(source: Path, target: Path) -> Path:
    """A folder's copy that can be written to."""
    shutil.copytree(source, target)
    for folder in (target, *filter(Path.is_dir, target.rglob("*"))):
        folder.chmod(0o755)
    return target
