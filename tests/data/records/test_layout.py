"""Records against a second reader that knows the format's page alone, and against bytes made to do harm."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
import second_reader
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from holdfast.data.records.format import block, layout
from holdfast.data.records.format.layout import Index, LayoutError
from holdfast.errors import InputError, LimitError

LISTS = pa.list_(pa.uint32(), 2)


def image(name: str, pieces: list[bytes], **columns: Any) -> layout.Image:
    return layout.Image(name, pieces, 3, 2, 1, None, 7, 6, 2**64 - 1, columns)


def encode(images: list[layout.Image], groups: int, schema: pa.Schema | None = None) -> bytes:
    notes = {"scans_end": ",".join(str(end) for end in range(1, groups + 1))}
    parts, index = layout.encode(
        images, schema or pa.schema([]), groups=groups, settings=notes, measured=0
    )
    data = b"".join(parts)
    assert len(data) == index.size
    return data


def read(data: bytes) -> tuple[Index, layout.Contents]:
    index = layout.decode_footer(data[-layout.MAX_FOOTER :], len(data))
    return index, layout.decode_contents(data, index)


# --- What was written is read --------------------------------------------------------------------

CELLS = {
    "a": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "b": (pa.string(), st.text(max_size=9)),
    "c": (pa.float64(), st.floats(allow_nan=False)),
    "d": (pa.bool_(), st.booleans()),
    "e": (pa.list_(pa.int32()), st.lists(st.integers(-9, 9), max_size=3)),
    "f": (pa.binary(), st.binary(max_size=5)),
    "g": (
        pa.struct([("x", pa.int8()), ("y", pa.string())]),
        st.fixed_dictionaries({"x": st.integers(-128, 127), "y": st.text(max_size=3)}),
    ),
    "h": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["cat", "dog"])),
    "i": (pa.list_(pa.float32(), 2), st.lists(st.integers(-4, 4), min_size=2, max_size=2)),
    "j": (pa.null(), st.none()),
}


@pytest.mark.examples(12)
@settings(max_examples=40)
@given(st.data())
def test_a_second_reader_reads_what_is_written(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 6))
    names = data.draw(
        st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, unique=True)
    )
    columns = data.draw(st.lists(st.sampled_from(sorted(CELLS)), unique=True))
    schema = pa.schema([pa.field(name, CELLS[name][0]) for name in columns])
    piece = st.one_of(st.just(b""), st.binary(max_size=300))
    images = []
    for name in names:
        cells = {c: data.draw(st.one_of(st.none(), CELLS[c][1])) for c in columns}
        pieces = data.draw(st.lists(piece, min_size=groups, max_size=groups))
        images.append(image(name, pieces, **cells))
    file = encode(images, groups, schema)

    theirs = second_reader.read_record(file)
    index, contents = read(file)

    assert theirs.pieces == [list(one.pieces) for one in images]
    assert [row["id"] for row in theirs.rows] == contents.ids == names
    for name in columns:
        given_ = [one.columns[name] for one in images]
        assert [row[name] for row in theirs.rows] == given_ == contents.table[name].to_pylist()
    assert (tuple(theirs.ends), tuple(theirs.sums)) == (index.ends, index.sums)
    assert contents.columns.column_names == ["id", *columns]
    for row, one in enumerate(images):
        for group, piece_ in enumerate(one.pieces):
            start = index.ends[group] + contents.starts[row, group]
            assert file[start : start + contents.lengths[row, group]] == piece_


@pytest.mark.parametrize(("images", "groups"), [(1, 1), (1, 64), (3000, 3)])
def test_few_and_many(images: int, groups: int) -> None:
    rng = np.random.default_rng(images)
    made = [
        image(f"{k}", [rng.bytes(rng.integers(0, 3)) for _ in range(groups)]) for k in range(images)
    ]
    file = encode(made, groups)
    theirs = second_reader.read_record(file)
    index, contents = read(file)
    assert theirs.pieces == [list(one.pieces) for one in made]
    assert (index.images, index.groups, len(contents.ids)) == (images, groups, images)
    assert layout.footer_size(groups) == 24 * groups + 40


def test_the_second_readers_sums_are_those_of_the_libraries() -> None:
    rng = np.random.default_rng(0)
    for size in [*range(260), 511, 512, 1023, 1024, 1025, 1088, 1089, 4096, 10_000]:
        data = rng.bytes(size)
        assert second_reader.xxh3(data) == xxhash.xxh3_64_intdigest(data), size
        assert second_reader.crc32c(data) == google_crc32c.value(data), size
    assert second_reader.crc32c(b"123456789") == 0xE3069283


def test_offsets_beyond_32_bits_do_not_wrap() -> None:
    lengths = np.full((3, 2), 2**32 - 1, np.uint32)
    contents = layout.Contents(pa.table({}), lengths, lengths)
    assert contents.starts[-1].tolist() == [3 * (2**32 - 1)] * 2
    index = Index(1, (2**40, 2**62), (0, 0), (1.0,), 1)
    footer = layout.encode_footer(index)
    assert layout.decode_footer(footer, index.size) == index


# --- What a writer must not write ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (pa.schema([("id", pa.string())]), "taken"),
        (pa.schema([("pcr.extra", pa.int8())]), "taken"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "taken"),
        (pa.schema([("a", pa.string_view())]), "string_view"),
        (pa.schema([("a", pa.list_(pa.run_end_encoded(pa.int32(), pa.int8())))]), "run_end"),
        (pa.schema([("a", pa.sparse_union([pa.field("x", pa.int8())]))]), "union"),
        (pa.schema([("a", pa.list_(pa.int8(), 0))]), "[0]"),
    ],
)
def test_columns_that_no_record_keeps(schema: pa.Schema, found: str) -> None:
    with pytest.raises(InputError) as error:
        encode([image("x", [b"1", b""])], 2, schema)
    assert found in (error.value.found or "")


def test_a_value_that_does_not_fit_names_its_column() -> None:
    schema = pa.schema([("label", pa.int8())])
    with pytest.raises(InputError, match="label"):
        encode([image("x", [b"1"], label=300)], 1, schema)
    with refused("duplicate"):
        encode([image("x", [b"1"]), image("x", [b"2"])], 1)


def test_a_piece_of_four_gibibytes_is_refused() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 2**32

    with pytest.raises(LimitError, match="too large"):
        encode([image("x", [Long(b"1")])], 1)


# --- What a reader must refuse -------------------------------------------------------------------


def table(**changes: Any) -> pa.Table:
    """The metadata of two images in two groups, one column changed or, if None, left out."""
    columns: dict[str, Any] = {
        "id": pa.array(["a", "b"]),
        "pcr.reason": pa.array([None, None], pa.string()).dictionary_encode(),
        "pcr.width": pa.array([1, 1], pa.uint32()),
        "pcr.height": pa.array([1, 1], pa.uint32()),
        "pcr.orientation": pa.array([1, 1], pa.uint8()),
        "pcr.source_size": pa.array([1, 1], pa.uint64()),
        "pcr.stripped_size": pa.array([1, 1], pa.uint64()),
        "pcr.source_xxh3": pa.array([1, 1], pa.uint64()),
        "pcr.lengths": pa.array([[1, 0], [0, 2]], LISTS),
        "pcr.crc32c": pa.array([[1, 0], [0, 2]], LISTS),
    }
    columns.update(changes)
    return pa.table({name: column for name, column in columns.items() if column is not None})


def stream(
    rows: pa.Table, options: pa.ipc.IpcWriteOptions | None = None, batches: int = 1
) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def record_of(metadata: bytes, groups: int = 2, images: int = 2, **header: int) -> bytes:
    """Region 0 with whatever metadata block, and a header that fits it."""
    fields = {"version": 1, "groups": groups, "images": images}
    fields |= {"length": len(metadata), "unpacked": len(metadata)}
    packed = layout.HEADER.pack(layout.MAGIC, *(fields | header).values())
    return packed + struct.pack("<I", google_crc32c.value(packed)) + metadata


def test_the_block_that_the_next_tests_change_is_read() -> None:
    contents = layout.decode_contents(record_of(stream(table())))
    assert contents.starts[-1].tolist() == [1, 2]


NULL_WORD = pa.DictionaryArray.from_arrays(
    pa.array([0, 0], pa.int32()), pa.array([None], pa.string())
)
VIEWS = pa.array(["x", "y"], pa.string_view())
REPEATED = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["x"]))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": None}, "id"),
        ({"id": pa.array(["a", None])}, "without a value"),
        ({"id": pa.array(["a", "a"])}, "one id"),
        ({"id": pa.array([b"a", b"b"])}, "binary"),
        ({"pcr.reason": pa.array(["PNG", None])}, "pcr.reason is string"),
        ({"pcr.reason": NULL_WORD}, "without a value"),
        ({"pcr.orientation": pa.array([0, 1], pa.uint8())}, "orientation"),
        ({"pcr.orientation": pa.array([9, 1], pa.uint8())}, "orientation"),
        ({"pcr.width": pa.array([1, 1], pa.int64())}, "int64"),
        ({"pcr.lengths": None}, "pcr.lengths"),
        ({"pcr.lengths": pa.array([[1, 0], None], LISTS)}, "without a value"),
        ({"pcr.lengths": pa.array([[1, None], [0, 0]], LISTS)}, "without a value"),
        ({"pcr.lengths": pa.array([[1], [0]], pa.list_(pa.uint32(), 1))}, "pcr.lengths"),
        ({"pcr.lengths": pa.array([[1, 2], [0]], pa.list_(pa.uint32()))}, "pcr.lengths"),
        ({"pcr.other": pa.array([1, 2])}, "none of this version"),
        ({"views": VIEWS}, "no record keeps"),
        ({"repeated": REPEATED}, "no record keeps"),
    ],
)
def test_columns_that_are_refused(changes: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason) as error:
        layout.decode_contents(record_of(stream(table(**changes))))
    assert error.value.region == 0


def test_two_columns_of_one_name_are_refused() -> None:
    rows = table().append_column("id", pa.array(["c", "d"]))
    with pytest.raises(LayoutError, match="one name"):
        layout.decode_contents(record_of(stream(rows)))


def deltas() -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    first = table(more=pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), ["x"]))
    second = table(more=pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["x", "y"]))
    with pa.ipc.new_stream(sink, first.schema, options=options) as writer:
        writer.write_table(first)
        writer.write_table(second)
    return sink.getvalue().to_pybytes()


STREAMS: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: stream(
        table(bomb=pa.array(["\0" * 10_000_000, ""])), pa.ipc.IpcWriteOptions(compression="zstd")
    ),
    "one batch": lambda: stream(table(), batches=2),
    "grows": deltas,
    "one schema": lambda: stream(table(), batches=0),
    "continues": lambda: stream(table()) + bytes(8),
    "not an Arrow": lambda: bytes(64),
    "not an Arrow IPC": lambda: b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64),
    "cannot be read": lambda: b"",
}


@pytest.mark.parametrize("reason", STREAMS)
def test_streams_that_are_refused(reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        layout.decode_contents(record_of(STREAMS[reason]()))


@given(st.data())
def test_no_block_makes_the_reader_fail_otherwise(data: st.DataObject) -> None:
    """Any bytes of a good block changed, with a header that fits: refused, or read as something."""
    good = bytearray(stream(table()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at] = data.draw(st.one_of(st.sampled_from([0, 1, 127, 128, 255]), st.integers(0, 255)))
    cut = data.draw(st.one_of(st.just(len(good)), st.integers(0, len(good))))
    try:
        contents = layout.decode_contents(record_of(bytes(good[:cut])))
    except LayoutError:
        return
    assert contents.lengths.shape == (2, 2)
    assert len(contents.ids) == 2
    contents.table.to_pylist()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"version": 2}, "version 2"),
        ({"unpacked": 2**40}, "claims to unpack"),
        ({"unpacked": 1}, "claims to unpack"),
        ({"unpacked": 4000}, "cannot be unpacked"),
        ({"groups": 0}, "0 groups"),
        ({"groups": 65}, "65 groups"),
        ({"images": 0}, "0 images"),
        ({"images": 2**24 + 1}, "images"),
        ({"images": 3}, "2 rows for 3"),
        ({"length": 2**63}, "is cut"),
    ],
)
def test_headers_that_are_refused(header: dict[str, int], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        layout.decode_contents(record_of(stream(table()), **header))


def footer_of(**changes: Any) -> tuple[bytes, int]:
    fields = {"images": 2, "ends": (40, 41, 43), "sums": (1, 2, 3), "msssim": (0.5, 1.0)}
    index = Index(**(fields | {"measured": 1} | changes))
    return layout.encode_footer(index), index.size


@pytest.mark.parametrize(
    ("footer", "size", "reason"),
    [
        (*footer_of(ends=(40, 39, 43)), "offsets"),
        (*footer_of(ends=(35, 41, 43)), "offsets"),
        (footer_of()[0], footer_of()[1] + 1, "offsets"),
        (*footer_of(images=0), "0 images"),
        (*footer_of(images=2**24 + 1), "images"),
        (footer_of()[0][1:], footer_of()[1], "do not fit"),
        (footer_of()[0][:-1], footer_of()[1], "cut"),
        (b"", 0, "cut"),
    ],
)
def test_footers_that_are_refused(footer: bytes, size: int, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        layout.decode_footer(footer, size)


def test_a_block_and_an_index_that_disagree() -> None:
    file = encode([image("a", [b"12", b"3"]), image("b", [b"4", b""])], 2)
    index, _ = read(file)
    start = file[: index.ends[0]]
    with pytest.raises(LayoutError, match="how many images"):
        layout.decode_contents(start, Index(3, index.ends, index.sums, index.msssim, 0))
    shifted = tuple(end + 1 for end in index.ends)
    with pytest.raises(LayoutError, match="where the metadata block ends"):
        layout.decode_contents(start, Index(2, shifted, index.sums, index.msssim, 0))
    moved = (index.ends[0], index.ends[1] - 1, index.ends[2])
    with pytest.raises(LayoutError, match="sum up") as error:
        layout.decode_contents(start, Index(2, moved, index.sums, index.msssim, 0))
    assert error.value.region == 1


def test_a_block_that_shrinks_too_well_is_stored_as_it_is() -> None:
    text = "the same for all " * 10_000
    schema = pa.schema([("text", pa.string())])
    few = encode([image(str(k), [b"1"], text=text) for k in range(3)], 1, schema)
    many = encode([image(str(k), [b"1"], text=text) for k in range(8)], 1, schema)
    assert len(few) < 2**16 < 2**20 < len(many)
    for file, images in ((few, 3), (many, 8)):
        assert read(file)[1].table["text"].to_pylist() == [text] * images
        assert len(second_reader.read_record(file).rows) == images


def test_a_frame_must_unpack_to_what_the_header_says() -> None:
    packed = block.pack(stream(table()))
    size = len(stream(table()))
    layout.decode_contents(record_of(packed, unpacked=size))
    for wrong in (size - 1, size + 1):
        with pytest.raises(LayoutError, match="cannot be unpacked"):
            layout.decode_contents(record_of(packed, unpacked=wrong))
    bomb = pa.Codec("zstd").compress(bytes(2**30), asbytes=True)
    with pytest.raises(LayoutError, match="claims to unpack"):
        layout.decode_contents(record_of(bomb, unpacked=2**30))


def test_kept_types_may_be_nested() -> None:
    schema = pa.schema([("a", pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.int8())]))))])
    block.check_columns(schema)
