"""docs/formats/pcr.md against the code: the worked example, the tables and the limits."""

from __future__ import annotations

import io
import re
from pathlib import Path

import google_crc32c
import pytest
import second_reader
from PIL import Image as Pillow

from holdfast.data.records.checking.inspecting import inspect
from holdfast.data.records.format import block, layout, manifest
from holdfast.data.records.jpeg import scans

HERE = Path(__file__).resolve().parent
PAGE = (HERE.parents[2] / "docs" / "formats" / "pcr.md").read_text(encoding="utf-8")
TINY = (HERE / "tiny.pcr").read_bytes()
LINE = re.compile(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} ?)+)$", re.MULTILINE)


def test_the_dump_is_the_file() -> None:
    lines = [
        line
        for text in re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)
        for line in LINE.findall(text)
    ]
    assert len(lines) == sum(
        text.count("\n") for text in re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)
    )
    assert len(lines) > 15
    for offset, text in lines:
        data = bytes.fromhex(text)
        at = int(offset, 16)
        assert TINY[at : at + len(data)] == data, offset
    assert f"a record of {len(TINY):,} bytes" in PAGE
    assert f"0x{google_crc32c.value(TINY[:32]):08X}" in PAGE


def test_records_of_today_are_read_for_ever() -> None:
    index = layout.decode_footer(TINY, len(TINY))
    contents = layout.decode_contents(TINY, index)
    assert index.ends == (728, 930, 1081)
    assert (index.msssim, index.measured) == ((0.75, 1.0), 1)
    assert contents.lengths.tolist() == [[135, 151], [67, 0]]
    assert contents.opaque.tolist() == [False, True]
    assert contents.columns.to_pylist() == [
        {"id": "ramp.jpg", "label": 0},
        {"id": "dot.png", "label": 1},
    ]
    assert inspect(TINY, "tiny.pcr", index).findings == []


def test_the_second_reader_takes_the_images_out() -> None:
    record = second_reader.read_record(TINY)
    sizes = [Pillow.open(io.BytesIO(record.image(0, fidelity))).size for fidelity in (1, 2)]
    assert sizes == [(8, 8), (8, 8)]
    full = Pillow.open(io.BytesIO(record.image(0, 2)))
    full.load()
    assert record.image(1, 1) == record.image(1, 2)
    assert Pillow.open(io.BytesIO(record.image(1, 1))).format == "PNG"
    assert layout.decode_contents(TINY).ids == [row["id"] for row in record.rows]


@pytest.mark.parametrize("bit", range(8))
def test_the_second_reader_refuses_every_flip_of_the_example(bit: int) -> None:
    for at in range(bit, len(TINY), 29):
        bad = bytearray(TINY)
        bad[at] ^= 1 << bit
        with pytest.raises(second_reader.Refused):
            second_reader.read_record(bytes(bad))


def rows(heading: str) -> list[list[str]]:
    """The table that follows a heading or a sentence."""
    part = PAGE[PAGE.index(heading) :]
    table = re.search(r"^\|-.*\n((?:\|.*\n)+)", part, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in table[1].splitlines()
    ]


def test_the_tables_of_scans_are_the_codes() -> None:
    names = ("Y", "Cb", "Cr")
    script = []
    for place, components, band, bits in rows("libjpeg writes a YCbCr image"):
        start, _, end = band.partition("-")
        high, low = bits.split(", ")
        key = (int(start), int(end or start), int(high), int(low))
        script.append((tuple(names.index(name) for name in components.split(", ")), key))
        assert int(place) == len(script)
    assert tuple(script) == scans.YCBCR_SCRIPT
    places = {}
    for band, bits, place in rows("Images of other colour spaces"):
        start, _, end = band.partition("-")
        high, low = bits.split(", ")
        places[int(start), int(end or start), int(high), int(low)] = int(place)
    assert places == scans.PLACE_OF_BAND


def test_the_numbers_are_the_codes() -> None:
    assert [int(row[0]) for row in rows("### Header")] == [0, 8, 10, 12, 16, 24, 32]
    assert layout.HEADER_SIZE == 36
    assert "header            36 bytes" in PAGE
    assert layout.footer_size(7) == 24 * 7 + 40
    assert f"{layout.MAX_FOOTER:,} bytes are always enough" in PAGE
    assert f"G, 1 to {layout.MAX_GROUPS}" in PAGE
    assert f"N, 1 to {layout.MAX_IMAGES:,}" in PAGE
    assert f"U > {block.MOST_EXPANSION} M + {block.ALWAYS_ALLOWED:,}" in PAGE
    assert layout.MAGIC.hex(" ").upper() in PAGE
    assert layout.END_MAGIC.hex(" ").upper() in PAGE
    assert manifest.FORMAT in PAGE


def test_every_column_is_described() -> None:
    named = {
        name
        for row in rows("These columns must be there")
        for name in re.findall(r"`([^`]+)`", row[0])
    }
    assert named == {*block.OWN_COLUMNS, "pcr.lengths", "pcr.crc32c"}
    described = [row[0].strip("`") for row in rows("`manifest.parquet` is a Parquet file")]
    made = manifest.Manifest((), (), (10,), layout.decode_contents(TINY).columns.schema)
    table = second_reader.pq.read_table(io.BytesIO(made.to_bytes()))
    assert described == table.schema.names
    keys = [row[0].strip("`") for row in rows("The key-value metadata")]
    assert keys == [key.decode() for key in table.schema.metadata]
