"""Checksums and sizes are read as descriptions write them; hashes do not depend on the order of arrival."""

from __future__ import annotations

import base64
import hashlib
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.croissant.files.hashing import (
    Checksum,
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


def test_the_checksum_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_checksum(tmp_path / "a").hex == hashlib.sha256(b"abc").hexdigest()
    assert file_checksum(tmp_path / "a", "md5").hex == hashlib.md5(b"abc").hexdigest()
