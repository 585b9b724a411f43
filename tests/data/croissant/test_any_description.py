"""Any description over local files: no traceback, no hang, and `validate` says what `load` does."""

from __future__ import annotations

import gzip
import json
import random
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from good_description import CONTEXT

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import Validation, validate
from holdfast.errors import HoldfastError

LONGEST_S = 60
"""For one description of a few kilobytes; a hundred times what it takes."""
# What keeps no record from being loaded: checksums and sizes, keys, references, files that nothing reads.
NOT_OF_LOADING = {"CR901", "CR902", "CR904", "CR921", "CR931"}

ROWS = [
    {"k": 1, "t": "x", "f": 1.5, "d": "2024-01-02", "l": [1, 2], "s": {"a": 1, "b": "y"}},
    {"k": 2, "t": "NA", "f": None, "d": None, "l": [], "s": {"a": 2, "b": "z"}},
    {"k": 3, "t": "07", "f": -2.0, "d": "2024-12-31", "l": [3], "s": {"a": None, "b": ""}},
]
FORMATS = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "json": "application/json",
    "jsonl": "application/jsonlines",
    "parquet": "application/x-parquet",
    "arrow": "application/vnd.apache.arrow.file",
    "txt": "text/plain",
    "png": "image/png",
    "zip": "application/zip",
    "gz": "text/csv",
}
TYPES = [
    "sc:Text", "sc:Integer", "sc:Float", "sc:Boolean", "sc:Date", "sc:DateTime", "sc:Time", "sc:URL",
    "cr:Int8", "cr:UInt64", "cr:Float16", "cr:Float32", "sc:ImageObject", "cr:BoundingBox",
    "cr:SegmentationMask", "cr:Label", "sc:Nothing", "wd:Q1",
]  # fmt: skip
TRANSFORMS: list[Any] = [
    {"regex": "(.*)"}, {"regex": "^(\\d)"}, {"regex": "("}, {"regex": "x"}, {"regex": "(?=a)(b)"},
    {"separator": "x"}, {"separator": ""}, {"replace": "x/y"}, {"replace": "x"}, {"jsonPath": "$.a"},
    {"jsonPath": "a"}, {"jsonPath": "$["}, {"readLines": True}, {"format": "yyyy-MM-dd"},
    {"unArchive": True}, {"delimiter": ","}, {}, [{"regex": "(.*)"}, {"replace": "a/b"}],
]  # fmt: skip
ODD: list[Any] = [
    None, "", " ", 0, -1, 1e400, 10**30, True, [], {}, [[]], "x", "../x", "/etc/passwd", "~", "~/x",
    "file:///x", "*", "[", "{a,b}", "**/*", "k", "t", "r0", "r1/f0", "a.csv", "\0", "\ud800", "é" * 300,
    "a" * 5000, {"@id": "a.csv"}, {"@id": ""}, {"@id": "r0/f0"}, ["a.csv", "b.jsonl"], "sc:Integer",
    "$", "$..k", "$[*]", "@id", "https://schema.org/", "1,2", "-1", "NaN", "yyyy", "%Y", {"@value": 1},
    {"@list": [1]},
]  # fmt: skip


def fill(folder: Path) -> list[str]:
    """Small files of every format; their names."""
    names = ["k", "t", "f", "d"]
    plain = [["" if row[name] is None else str(row[name]) for name in names] for row in ROWS]
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        lines = [separator.join(line) for line in [names, *plain]]
        (folder / f"a{suffix}").write_text("\n".join(lines) + "\n")
    (folder / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "c.json").write_text(json.dumps(ROWS))
    (folder / "o.json").write_text(json.dumps({"k": 1, "items": ROWS, "more": [{"k": 1}], "n": []}))
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, folder / "p.parquet")
    with pa.ipc.new_file(str(folder / "q.arrow"), table.schema) as writer:
        writer.write_table(table)
    (folder / "w.txt").write_text("one\ntwo\n\n")
    (folder / "i.png").write_bytes(b"no picture")
    (folder / "g.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    (folder / "cut.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes())[:-9])
    (folder / "kk.csv").write_text("k,k\n1,2\n")
    (folder / "empty.jsonl").write_text("")
    (folder / "head.csv").write_text("k,t\n")
    (folder / "bad.json").write_text('[{"k": 1}, {"k": ')
    (folder / "late.csv").write_text("k,t\n1,a\nx,b\n")
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.write(folder / "a.csv", "in/a.csv")
        archive.write(folder / "b.jsonl", "b.jsonl")
    return sorted(path.name for path in folder.iterdir())


def described(rng: random.Random, files: list[str]) -> dict[str, Any]:
    """A description that is mostly right."""
    distribution: list[Any] = []
    for name in rng.sample(files, rng.randint(1, 5)):
        media = FORMATS[name.rpartition(".")[2]]
        made = {"@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name}
        distribution.append({**made, "encodingFormat": media})
    if rng.random() < 0.5:
        ending = rng.choice(["csv", "jsonl", "parquet", "txt", "png"])
        made = {"@type": "cr:FileSet", "@id": "set", "name": "set", "includes": f"*.{ending}"}
        if rng.random() < 0.3 and any(part["@id"] == "z.zip" for part in distribution):
            made["containedIn"] = {"@id": "z.zip"}
        distribution.append({**made, "encodingFormat": FORMATS[ending]})
    sets: list[Any] = []
    for number in range(rng.randint(1, 3)):
        resource = rng.choice(distribution)
        fields = [_field(rng, f"r{number}/f{n}", resource) for n in range(rng.randint(1, 4))]
        for field in fields:
            if sets and rng.random() < 0.3:
                target = {"field": {"@id": rng.choice(rng.choice(sets)["field"])["@id"]}}
                field[rng.choice(["references", "source"])] = target
        made = {"@type": "cr:RecordSet", "@id": f"r{number}", "name": f"r{number}", "field": fields}
        if rng.random() < 0.15:
            made["data"] = [{field["@id"]: rng.choice([1, "x", None]) for field in fields}]
            for field in fields:
                field.pop("source", None)
        if rng.random() < 0.3:
            made["key"] = {"@id": fields[0]["@id"]}
        sets.append(made)
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "made",
        "description": "Made for a test.",
        "url": "https://example.org",
        "license": "https://spdx.org/licenses/CC0-1.0",
        "distribution": distribution,
        "recordSet": sets,
    }


def _field(rng: random.Random, identity: str, resource: dict[str, Any]) -> dict[str, Any]:
    key = "fileObject" if resource["@type"] == "cr:FileObject" else "fileSet"
    json_file = "json" in resource["encodingFormat"]
    column = {"column": rng.choice("kkttfdls")}
    path = {"jsonPath": rng.choice(["$.k", "$[*].k", "$.items[*].t", "$..k", "$.items[*].l[*]"])}
    whole = {
        "fileProperty": rng.choice(["filename", "fullpath", "content", "lines", "lineNumbers"])
    }
    extract = rng.choices([column, path, whole], [6, 3 * json_file, 1])[0]
    made: dict[str, Any] = {"@type": "cr:Field", "@id": identity, "name": identity}
    made["dataType"] = rng.choice(TYPES) if rng.random() < 0.4 else "sc:Text"
    made["source"] = {key: {"@id": resource["@id"]}, "extract": extract}
    if rng.random() < 0.2:
        made["source"]["transform"] = rng.choice(TRANSFORMS)
    if rng.random() < 0.1:
        made["source"]["format"] = rng.choice(["yyyy-MM-dd", "%d.%m.%Y", "#,##0", "QQ", ""])
    if rng.random() < 0.15:
        made |= {"isArray": True, "arrayShape": rng.choice(["-1", "2", "-1,2", "x"])}
    if rng.random() < 0.05:
        made["value"] = rng.choice([1, "x", [1, 2], {"a": 1}])
    if rng.random() < 0.05:
        made["subField"] = [{**made, "@id": f"{identity}/s"}]
    return made


def mutate(rng: random.Random, description: dict[str, Any]) -> None:
    """Change something somewhere."""
    places = list(_places(description))
    holder, key = rng.choice(places)
    other, there = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1 | 2:
            holder[key] = rng.choice(ODD)
        case 3:  # a copy, so that nothing contains itself
            holder[key] = json.loads(json.dumps(other[there]))
        case 4 if isinstance(holder, dict):
            holder[f"{key}x" if rng.random() < 0.5 else key[:-1]] = holder.pop(key)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if key != "@context":
            yield value, key
        if isinstance(inner, dict | list) and (key != "@context" or len(inner) < 5):
            yield from _places(inner)


def text_of(rng: random.Random, description: dict[str, Any]) -> bytes:
    data = json.dumps(description).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        at = rng.randrange(len(data))
        data = rng.choice(
            [data[:at], data[:at] + rng.choice([b"\xff", b"{", b"\0", b"]"]) + data[at:]]
        )
    return data


@contextmanager
def limited() -> Iterator[None]:
    """Refuse to wait for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wrong(folder: Path, seed: int) -> str:
    """What is wrong with the answers on the description of a seed; "" for nothing."""
    rng = random.Random(seed)
    files = [path.name for path in sorted(folder.iterdir()) if path.suffix != ".tmp"]
    description = described(rng, [name for name in files if name not in ("metadata.json", "cache")])
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        mutate(rng, description)
    (folder / "metadata.json").write_bytes(text_of(rng, description))
    refused: dict[str, str] = {}
    with limited():
        try:
            found = validate(folder, data="full", offline=True, cache=folder / "cache")
            assert found.text()
            json.dumps([found.to_dict(), found.sarif()])
            try:
                with Dataset(folder, offline=True, cache=folder / "cache") as dataset:
                    for records in dataset.metadata.record_sets:
                        try:
                            if records.fields:
                                dataset.records(records.id).to_arrow()
                        except HoldfastError as error:
                            refused[records.id] = f"{error!s}"
            except HoldfastError as error:
                refused[""] = f"{error!s}"
        except Exception as error:  # the fault that is looked for
            return f"{type(error).__name__}: {error}"
    return _disagreement(found, refused)


def _disagreement(found: Validation, refused: dict[str, str]) -> str:
    errors = {one.code for one in found.problems if one.severity.value == "error"}
    if found.valid and refused:
        return f"valid, but does not load: {refused}"
    rest = errors - NOT_OF_LOADING
    if rest and not refused and all(code > "CR9" for code in errors):
        told = [one.message for one in found.problems if one.code in rest]
        return f"loads, but is not valid: {rest} {told}"
    return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("any")
    fill(made)
    return made


# Some, and those that once ended in a traceback.
QUICK = [*range(20), 44, 60, 129, 147, 397, 4110]


def test_some_descriptions(folder: Path) -> None:
    assert {seed: said for seed in QUICK if (said := wrong(folder, seed))} == {}


@pytest.mark.full
def test_ten_thousand_descriptions(folder: Path) -> None:
    assert {seed: said for seed in range(10_000) if (said := wrong(folder, seed))} == {}
