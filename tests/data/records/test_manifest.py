"""Manifests against a second reader, every bit of one flipped, and manifests made to do harm."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import second_reader
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.records.format import manifest as manifest_module
from holdfast.data.records.format.layout import Index, LayoutError
from holdfast.data.records.format.manifest import Manifest

COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("label", pa.int32(), metadata={"names": '["cat", "dog"]'}),
    ]
)


def index(ends: tuple[int, ...] = (40, 50, 60), images: int = 2, measured: int = 1) -> Index:
    groups = len(ends) - 1
    return Index(images, ends, (2**64 - 1, *range(groups)), (0.5,) * groups, measured)


def manifest(**changes: Any) -> Manifest:
    fields = {
        "paths": ("records-00/000000.pcr", "records-00/000001.pcr"),
        "records": (index(), index((40, 40, 2**62))),
        "scans_end": (1, 10),
        "schema": COLUMNS,
        "notes": {"settings": {"é": 1}},
    }
    return Manifest(**(fields | changes))


def test_a_second_reader_reads_it() -> None:
    made = manifest()
    theirs = second_reader.read_manifest(made.to_bytes())
    assert [row["path"] for row in theirs.rows] == list(made.paths)
    for row, record in zip(theirs.rows, made.records, strict=True):
        assert row["ends"] == list(record.ends)
        assert row["sums"] == list(record.sums)
        assert row["msssim"] == list(record.msssim)
        assert (row["size"], row["images"], row["measured"]) == (record.size, 2, 1)
    assert theirs.scans_end == [1, 10]
    assert theirs.notes == made.notes
    assert theirs.columns.equals(COLUMNS, check_metadata=True)


sums = st.integers(0, 2**64 - 1)


@settings(max_examples=30)
@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 5))
    records = []
    for _ in range(data.draw(st.integers(0, 4))):
        ends = sorted(data.draw(st.integers(36, 2**62)) for _ in range(groups + 1))
        records.append(
            Index(
                images=data.draw(st.integers(1, 2**24)),
                ends=tuple(ends),
                sums=tuple(data.draw(sums) for _ in ends),
                msssim=tuple(data.draw(st.floats(0, 1)) for _ in ends[1:]),
                measured=data.draw(st.integers(0, 9)),
            )
        )
    made = manifest(
        paths=tuple(f"r/{number}.pcr" for number in range(len(records))),
        records=tuple(records),
        scans_end=tuple(range(1, groups + 1)),
        notes=data.draw(st.dictionaries(st.text(), st.integers() | st.text(), max_size=3)),
    )
    read = Manifest.from_bytes(made.to_bytes())
    assert read == made
    assert read.schema.equals(COLUMNS, check_metadata=True)
    assert read.ends.shape == (len(records), groups + 1)
    assert read.bytes_at(1) == sum(record.ends[1] for record in records)


def test_means_are_weighted_and_nan_where_nothing_was_measured() -> None:
    unmeasured = Index(1, (40, 50), (0, 0), (math.nan,), 0)
    half = Index(1, (40, 50), (0, 0), (0.5,), 3)
    full = Index(1, (40, 50), (0, 0), (1.0,), 1)
    paths = ("a", "b", "c")
    made = manifest(paths=paths, records=(unmeasured, half, full), scans_end=(10,))
    assert Manifest.from_bytes(made.to_bytes()).msssim() == [0.625]
    made = manifest(paths=paths[:1], records=(unmeasured,), scans_end=(10,))
    read = Manifest.from_bytes(made.to_bytes())
    assert math.isnan(read.msssim()[0])
    assert math.isnan(read.records[0].msssim[0])


def test_classes_are_those_of_the_column() -> None:
    assert manifest().classes() == ["cat", "dog"]
    assert manifest().classes("id") is None
    assert manifest().classes("nothing") is None


def test_every_flipped_bit_is_noticed() -> None:
    good = manifest().to_bytes()
    for at in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            with pytest.raises(LayoutError):
                Manifest.from_bytes(bad)


def test_every_cut_and_every_byte_more_is_noticed() -> None:
    good = manifest().to_bytes()
    for size in range(len(good)):
        with pytest.raises(LayoutError):
            Manifest.from_bytes(good[:size])
    for more in (good + b"\0", b"\0" + good, good + good):
        with pytest.raises(LayoutError):
            Manifest.from_bytes(more)


def test_notes_that_look_like_a_seal_are_no_seal() -> None:
    made = manifest(notes={"pcr-dataset/1 xxh3-64 ": "pcr-dataset/1 xxh3-64 0123456789abcdef"})
    data = made.to_bytes()
    assert Manifest.from_bytes(data) == made
    assert second_reader.read_manifest(data).notes == made.notes


# --- Sealed, but not to be believed --------------------------------------------------------------

ROW: dict[str, Any] = {
    "path": "records-00/000000.pcr",
    "images": 2,
    "size": 60 + 24 * 2 + 40,
    "ends": [40, 50, 60],
    "sums": [1, 2, 3],
    "msssim": [0.5, 1.0],
    "measured": 1,
}
TYPES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("images", pa.uint32(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("ends", pa.list_(pa.uint64()), nullable=False),
        pa.field("sums", pa.list_(pa.uint64()), nullable=False),
        pa.field("msssim", pa.list_(pa.float64()), nullable=False),
        pa.field("measured", pa.uint32(), nullable=False),
    ]
)
NOTES = {
    "format": "pcr-dataset/1",
    "scans_end": "[1, 10]",
    "columns": base64.b64encode(COLUMNS.serialize()).decode(),
    "notes": "{}",
}


def sealed(
    rows: list[dict[str, Any]],
    notes: dict[str, str] | None = None,
    types: pa.Schema = TYPES,
    times: int = 1,
) -> bytes:
    """A file that any other program could have made and sealed."""
    notes = NOTES | (notes or {}) | {"seal": "pcr-dataset/1 xxh3-64 " + "0" * 16}
    file = io.BytesIO()
    with pq.ParquetWriter(file, types, store_schema=False) as writer:
        table = pa.Table.from_pylist(rows, types)
        writer.write_table(table.take(pa.array(list(range(len(rows))) * times)))
        writer.add_key_value_metadata(notes)
    data = file.getvalue()
    at = data.rindex(b"xxh3-64 ") + 8
    digits = xxhash.xxh3_64_hexdigest(data).encode()
    return data[:at] + digits + data[at + 16 :]


def test_the_file_that_the_next_tests_change_is_read() -> None:
    read = Manifest.from_bytes(sealed([ROW]))
    assert read.records == (Index(2, (40, 50, 60), (1, 2, 3), (0.5, 1.0), 1),)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x.pcr", "a/../../x.pcr", "a//b", "a/", "./a", ".a", "a/.b", "a\\b",
        "c:x", "%2e%2e/x", "a b", "a\n", "a\0", "s3://a/b", "ä", "a" * 1025,
    ],
)  # fmt: skip
def test_paths_that_could_lead_out_are_refused(path: str) -> None:
    with pytest.raises(LayoutError, match="cannot be a record"):
        Manifest.from_bytes(sealed([ROW | {"path": path}]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"images": 0}, "contradicts"),
        ({"images": 2**24 + 1}, "contradicts"),
        ({"size": 1}, "contradicts"),
        ({"ends": [40, 50, 45], "size": 45 + 88}, "contradicts"),
        ({"ends": [35, 50, 60]}, "contradicts"),
        ({"ends": [40, 50], "size": 50 + 64}, "contradicts"),
        ({"ends": [], "sums": [], "msssim": []}, "contradicts"),
        ({"ends": [40, 50, 2**64 - 200], "size": 2**64 - 112}, "contradicts"),
        ({"sums": [1, 2]}, "contradicts"),
        ({"msssim": [1.0]}, "contradicts"),
        ({"ends": [40, None, 60]}, "missing"),
        ({"msssim": [None, 1.0]}, "missing"),
        ({"ends": [40, 60], "sums": [1, 2], "msssim": [1.0], "size": 60 + 64}, "groups"),
    ],
)
def test_rows_that_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        Manifest.from_bytes(sealed([ROW | change]))


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ({"format": "pcr-dataset/2"}, "pcr-dataset/2"),
        ({"scans_end": "5"}, "not a list"),
        ({"scans_end": "[1, 1.5]"}, "not a list"),
        ({"scans_end": "[true, 2]"}, "not a list"),
        ({"scans_end": "[]"}, "rise"),
        ({"scans_end": "[10, 1]"}, "rise"),
        ({"scans_end": "["}, "cannot be read"),
        ({"scans_end": "[" * 100_000}, "cannot be read"),
        ({"notes": "[]"}, "not a JSON object"),
        ({"columns": "AAAA"}, "cannot be read"),
        ({"columns": ""}, "cannot be read"),
    ],
)
def test_notes_that_are_refused(notes: dict[str, str], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        Manifest.from_bytes(sealed([ROW], notes))


def test_other_columns_are_refused() -> None:
    with pytest.raises(LayoutError, match="columns"):
        Manifest.from_bytes(sealed([ROW], types=TYPES.set(1, pa.field("images", pa.int64()))))
    with pytest.raises(LayoutError, match="columns"):
        Manifest.from_bytes(sealed([ROW], types=TYPES.append(pa.field("more", pa.int8()))))


def test_what_unpacks_to_much_more_than_it_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "_ALWAYS_ALLOWED", 2**20)
    many = sealed([ROW | {"ends": [40] * 1000}], times=200)
    assert len(many) < 2**14
    with pytest.raises(LayoutError, match="more than fits"):
        Manifest.from_bytes(many)
    long = sealed([ROW | {"path": "a" * 2**15}], times=20)
    with pytest.raises(LayoutError, match="cannot be a record"):
        Manifest.from_bytes(long)


def test_two_rows_of_one_record_are_refused() -> None:
    with pytest.raises(LayoutError, match="twice"):
        Manifest.from_bytes(sealed([ROW, ROW]))
    with pytest.raises(LayoutError, match="twice"):
        manifest(paths=("a", "a")).to_bytes()


def test_a_manifest_that_no_reader_takes_is_not_written() -> None:
    with pytest.raises(LayoutError, match="groups"):
        dataclasses.replace(manifest(), scans_end=(10,)).to_bytes()
    with pytest.raises(LayoutError, match="cannot be a record"):
        manifest(paths=("../a", "b")).to_bytes()
    assert json.loads(json.dumps(manifest().notes)) == manifest().notes


@pytest.mark.parametrize("names", ["no JSON", '{"a": 1}', "[1, 2]", "[" * 100_000])
def test_names_of_classes_that_are_none_are_no_names(names: str) -> None:
    label = pa.field("label", pa.int32(), metadata={"names": names})
    assert manifest_module.Manifest((), (), (1, 10), pa.schema([label])).classes() is None
