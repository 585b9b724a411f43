"""Inputs of the Croissant benchmark: tables of a given size and the descriptions that go with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

TERMS = [
    "citeAs",
    "column",
    "containedIn",
    "extract",
    "field",
    "fileObject",
    "fileProperty",
    "fileSet",
    "format",
    "includes",
    "key",
    "md5",
    "recordSet",
    "references",
    "regex",
    "repeated",
    "replace",
    "separator",
    "source",
    "subField",
    "transform",
]
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in TERMS},
}
TYPES = {"int64": "sc:Integer", "double": "sc:Float", "string": "sc:Text", "bool": "sc:Boolean"}
SEED = 7


def table(rows: int) -> pa.Table:
    """Seven columns as ratings tables have them: numbers, short and longer text, a few gaps."""
    draw = np.random.default_rng(SEED)
    words = np.array([f"word{number:04d}" for number in range(5000)])
    gaps = draw.random(rows) < 0.02
    return pa.table(
        {
            "id": np.arange(rows),
            "user": draw.integers(0, 1_000_000, rows),
            "score": pa.array(draw.normal(3, 1, rows).round(4), mask=gaps),
            "weight": draw.random(rows),
            "seen": draw.random(rows) < 0.5,
            "title": pa.array(words[draw.integers(0, 5000, rows)]),
            "note": pa.array(
                np.char.add(np.char.add(words[draw.integers(0, 5000, rows)], " and "), "more")
            ),
        }
    )


def wide_table(rows: int, fields: int) -> pa.Table:
    """So many columns of whole numbers."""
    draw = np.random.default_rng(SEED)
    return pa.table({f"c{number}": draw.integers(0, 1000, rows) for number in range(fields)})


def write_csv(folder: Path, made: pa.Table) -> None:
    """The table as CSV, and its description."""
    folder.mkdir(parents=True)
    pyarrow.csv.write_csv(made, folder / "table.csv")
    file = file_object("table.csv", "text/csv")
    records = record_set("rows", made.schema, "fileObject", "table.csv")
    describe(folder, [file], [records])


def write_join(folder: Path, rows: int, users: int) -> None:
    """A long table of events and a table of users that each event names, both as Parquet."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(SEED)
    schema = pa.schema({"event": pa.int64(), "user": pa.int64(), "amount": pa.float64()})
    with pyarrow.parquet.ParquetWriter(folder / "events.parquet", schema) as writer:
        for start in range(0, rows, 1_000_000):
            count = min(1_000_000, rows - start)
            writer.write_table(
                pa.table(
                    {
                        "event": np.arange(start, start + count),
                        "user": draw.integers(0, users, count),
                        "amount": draw.random(count),
                    },
                    schema=schema,
                )
            )
    names = pa.array([f"user number {number:08d} of the table" for number in range(users)])
    order = draw.permutation(users)
    people = pa.table({"id": order, "name": names.take(pa.array(order))})
    pyarrow.parquet.write_table(people, folder / "users.parquet")
    joined = record_set("joined", schema, "fileObject", "events.parquet")
    joined["field"][1]["references"] = {"field": {"@id": "users/id"}}
    joined["field"].append(
        {
            "@type": "cr:Field",
            "@id": "joined/name",
            "name": "joined/name",
            "dataType": "sc:Text",
            "source": {"field": {"@id": "users/name"}},
        }
    )
    describe(
        folder,
        [file_object(f"{name}.parquet", "application/x-parquet") for name in ("events", "users")],
        [record_set("users", people.schema, "fileObject", "users.parquet"), joined],
    )


def write_splits(folder: Path, url: str, splits: Sequence[str], rows: int) -> dict[str, int]:
    """One Parquet file a split, described at `url`; the bytes of each file."""
    (folder / "data").mkdir(parents=True)
    sizes = {}
    for number, split in enumerate(splits):
        path = folder / "data" / f"{split}.parquet"
        made = np.random.default_rng(SEED + number).random(rows)
        pyarrow.parquet.write_table(pa.table({"x": made}), path)
        sizes[split] = path.stat().st_size
    files = [
        file_object(f"{split}.parquet", "application/x-parquet", f"{url}/data/{split}.parquet")
        for split in splits
    ]
    together = {
        "@type": "cr:FileSet",
        "@id": "parts",
        "name": "parts",
        "containedIn": [{"@id": file["@id"]} for file in files],
        "encodingFormat": "application/x-parquet",
        "includes": "*.parquet",
    }
    records = record_set("rows", pa.schema({"x": pa.float64()}), "fileSet", "parts")
    records["field"].append(
        {
            "@type": "cr:Field",
            "@id": "rows/split",
            "name": "rows/split",
            "dataType": "sc:Text",
            "source": {
                "fileSet": {"@id": "parts"},
                "extract": {"fileProperty": "filename"},
                "transform": {"regex": r"^(\w+)\.parquet$"},
            },
        }
    )
    describe(folder, [*files, together], [records])
    return sizes


def file_object(name: str, format_: str, url: str | None = None) -> dict[str, Any]:
    """A file of a description."""
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": url or name,
        "encodingFormat": format_,
    }


def record_set(
    name: str, schema: pa.Schema | Mapping[str, Any], kind: str, resource: str
) -> dict[str, Any]:
    """A record set with one field for each column."""
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column.name}",
                "name": f"{name}/{column.name}",
                "dataType": TYPES[str(column.type)],
                "source": {kind: {"@id": resource}, "extract": {"column": column.name}},
            }
            for column in schema
        ],
    }


def describe(
    folder: Path, distribution: list[dict[str, Any]], records: list[dict[str, Any]]
) -> None:
    """Write metadata.json; files beside it get their checksum, which mlcroissant asks for."""
    for file in distribution:
        local = folder / file.get("contentUrl", "").rpartition("/data/")[2]
        if file["@type"] == "cr:FileObject":
            path = local if local.is_file() else folder / "data" / local.name
            with path.open("rb") as source:
                file["sha256"] = hashlib.file_digest(source, "sha256").hexdigest()
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "benchmark",
        "description": "Made by benchmarks/croissant_inputs.py.",
        "url": "https://example.com/benchmark",
        "license": "https://creativecommons.org/publicdomain/zero/1.0/",
        "creator": {"@type": "sc:Organization", "name": "holdfast"},
        "datePublished": "2026-01-01",
        "distribution": distribution,
        "recordSet": records,
    }
    (folder / "metadata.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
