"""Checksums and sizes are read as descriptions write them; hashes do not depend on the order of arrival."""

from __future__ import annotations

import base64
import hashlib
import string
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.croissant.fetching.parts import Spans
from holdfast.data.croissant.files.hashing import (
    Checksum,
    RunningHash,
    Size,
    checksum_of,
    file_checksum,
    parse_size,
)


@given(st.binary(max_size=40))
def test_every_spelling_of_a_checksum(data: bytes) -> None:
    for name, field in (("sha256", "sha256"), ("md5", "md5"), ("md5", "sha256")):
        made = hashlib.new(name, data)
        expected = Checksum(name, made.hexdigest())  # type: ignore[arg-type]
        packed = base64.b64encode(made.digest()).decode()
        for text in (
            made.hexdigest(),
            made.hexdigest().upper(),
            f" {made.hexdigest()}\n",
            packed,
            packed.rstrip("="),
        ):
            found = checksum_of(text) if field == "sha256" else checksum_of(None, text)
            assert found == expected


@given(st.text(string.hexdigits + "+/=-_ ghijk", max_size=70))
def test_a_text_is_a_checksum_or_none(text: str) -> None:
    found = checksum_of(text)
    if found:
        raw = bytes.fromhex(found.hex)
        assert len(raw) == {"sha256": 32, "md5": 16}[found.algorithm]
        assert text.strip().lower() == found.hex or base64.b64encode(raw).decode().rstrip(
            "="
        ) == text.strip().rstrip("=")


@pytest.mark.parametrize(
    "text", ["", "sha256", "0" * 63, "g" * 64, "https://github.com/mlcommons/croissant/issues/80"]
)
def test_what_is_no_checksum(text: str) -> None:
    assert checksum_of(text) is None
    assert checksum_of(text, "0" * 32) == Checksum("md5", "0" * 32)


def test_the_stronger_goes_first() -> None:
    assert checksum_of("0" * 64, "1" * 32) == Checksum("sha256", "0" * 64)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("117743 B", Size(117743, True)),
        ("1024", Size(1024, True)),
        (" 1,024 bytes ", Size(1024, True)),
        ("1 byte", Size(1, True)),
        ("25 MB", Size(25_000_000, False)),
        ("36.809 KB", Size(36_809, False)),
        ("97.73 TiB", Size(107_455_098_161_408, False)),
        ("2GiB", Size(2 << 30, False)),
        ("3 M", Size(3_000_000, False)),
        ("1.5 B", None),
        ("1.5", None),
        ("many", None),
        ("25 XB", None),
        ("-1 B", None),
        (",", None),
        (", MB", None),
        ("5 i", None),
        ("", None),
        (None, None),
    ],
)
def test_sizes(text: str | None, size: Size | None) -> None:
    found = parse_size(text)
    if size and not size.exact:
        assert found is not None
        assert not found.exact
        assert found.bytes == pytest.approx(size.bytes, rel=1e-3)
    else:
        assert found == size


@given(st.text("0123456789.,kmgtpeibKMB ", max_size=12))
def test_no_size_crashes(text: str) -> None:
    found = parse_size(text)
    assert found is None or found.bytes >= 0


@given(st.binary(max_size=300), st.data())
def test_a_hash_in_any_order_of_arrival(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted({0, len(data), *draw.draw(st.lists(st.integers(0, len(data)), max_size=8))})
    pieces = draw.draw(st.permutations(list(pairwise(cuts))))
    running, have = RunningHash(("sha256", "md5")), Spans()

    def read(offset: int, size: int) -> bytes:
        return data[offset : min(offset + size, have.front)]

    for start, end in pieces:
        have.add(start, end)
        running.add(start, data[start:end])
        if draw.draw(st.booleans()):
            running.catch_up(read, have.front)
    running.catch_up(read, have.front)
    assert running.offset == have.front == len(data)
    assert {name: made.hex for name, made in running.checksums().items()} == {
        name: hashlib.new(name, data).hexdigest() for name in ("sha256", "md5")
    }


def test_a_file_that_became_shorter() -> None:
    with pytest.raises(EOFError):
        RunningHash(("sha256",)).catch_up(lambda offset, size: b"", 5)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12),
    st.integers(0, 60),
    st.integers(1, 20),
)
def test_spans_are_sets_of_bytes(pairs: list[tuple[int, int]], size: int, piece: int) -> None:
    spans, expected = Spans(), set[int]()
    for start, end in pairs:
        start, end = min(start, end), max(start, end)
        spans.add(start, end)
        expected |= set(range(start, end))
    assert {byte for start, end in spans.spans for byte in range(start, end)} == expected
    assert spans.total == len(expected)
    assert spans.front == next(byte for byte in range(52) if byte not in expected)
    assert all(first[1] < second[0] for first, second in pairwise(spans.spans))
    missing = list(spans.missing(size, piece))
    assert all(0 < end - start <= piece for start, end in missing)
    assert [byte for start, end in missing for byte in range(start, end)] == sorted(
        set(range(size)) - expected
    )


def test_the_checksum_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_checksum(tmp_path / "a").hex == hashlib.sha256(b"abc").hexdigest()
    assert file_checksum(tmp_path / "a", "md5").hex == hashlib.md5(b"abc").hexdigest()
