"""Small descriptions with their files, written for a test."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from good_description import CONTEXT

from holdfast.data.croissant.loading.dataset import Dataset

FORMATS = {
    "csv": "text/csv",
    "json": "application/json",
    "jsonl": "application/jsonlines",
    "arrow": "application/vnd.apache.arrow.file",
    "parquet": "application/x-parquet",
    "txt": "text/plain",
    "bin": "image/png",
}
Row = Mapping[str, Any]


def file_object(name: str, **more: Any) -> dict[str, Any]:
    encoding = FORMATS[name.rpartition(".")[2]]
    made = {"@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name}
    return made | {"encodingFormat": encoding, "sha256": "0" * 64} | more


def file_set(name: str, pattern: str, **more: Any) -> dict[str, Any]:
    encoding = FORMATS[pattern.rpartition(".")[2]]
    made = {"@type": "cr:FileSet", "@id": name, "name": name, "includes": pattern}
    return made | {"encodingFormat": encoding} | more


def field(
    name: str, kind: str | Sequence[str] | None, source: Any = None, **more: Any
) -> dict[str, Any]:
    made = {"@type": "cr:Field", "@id": name, "name": name}
    if kind is not None:
        made["dataType"] = kind if isinstance(kind, str) else list(kind)  # type: ignore[assignment]
    return made | ({"source": source} if source is not None else {}) | more


def column(resource: str, name: str, **more: Any) -> dict[str, Any]:
    return {resource_key(resource): {"@id": resource}, "extract": {"column": name}} | more


def about(resource: str, what: str, **more: Any) -> dict[str, Any]:
    return {resource_key(resource): {"@id": resource}, "extract": {"fileProperty": what}} | more


def resource_key(resource: str) -> str:
    return "fileObject" if "." in resource else "fileSet"


def other(name: str, **more: Any) -> dict[str, Any]:
    return {"field": {"@id": name}} | more


def record_set(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": list(fields)} | more


def described(
    folder: Path, resources: Sequence[Any], record_sets: Sequence[Any], **arguments: Any
) -> Dataset:
    """A dataset in a folder whose files have been written; checksums are left out."""
    for resource in resources:
        resource.pop("sha256", None)
    description = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "made",
        "description": "Made for a test.",
        "url": "https://example.org",
        "license": "https://spdx.org/licenses/CC0-1.0",
        "distribution": list(resources),
        "recordSet": list(record_sets),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.json").write_text(json.dumps(description))
    return Dataset(folder, cache=folder / "cache", offline=True, **arguments)


def write_rows(path: Path, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Rows in the format that the suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        columns = {name: [row[name] for row in rows] for name in names}
        pq.write_table(pa.table(columns), path)
