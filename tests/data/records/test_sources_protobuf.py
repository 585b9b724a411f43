"""The wire reader against an encoder written from the specification, and against damage."""

from __future__ import annotations

import math
import struct
from contextlib import suppress

import google_crc32c
import pytest
import source_files as made
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.records.sources.protobuf import Feature, WireError, parse_example
from holdfast.data.records.sources.tfrecord import masked_crc32c

_int64 = st.integers(-(2**63), 2**63 - 1)
_float32 = st.floats(width=32, allow_nan=False)
_values = st.one_of(
    st.lists(st.binary(max_size=20), max_size=4),
    st.lists(_int64, max_size=4),
    st.lists(_float32, max_size=4),
)
_features = st.dictionaries(st.text(max_size=8), _values, max_size=5)


def plain(features: dict[str, Feature]) -> dict[str, list[object]]:
    return {
        name: [bytes(v) if isinstance(v, memoryview) else v for v in feature.values]
        for name, feature in features.items()
    }


def parse(data: bytes) -> dict[str, Feature]:
    return parse_example(memoryview(data))


@given(_features, st.booleans())
def test_what_is_encoded_is_read(features: dict[str, list[object]], packed: bool) -> None:
    found = parse(made.example(features, packed))
    assert plain(found) == features
    for name, values in features.items():
        kind = {bytes: "bytes", int: "int64", float: "float"}[type(values[0])] if values else None
        assert found[name].kind == kind


@given(_features, _features)
def test_messages_merge_as_protobuf_says(
    one: dict[str, list[object]], two: dict[str, list[object]]
) -> None:
    assert plain(parse(made.example(one) + made.example(two))) == one | two


@given(_features, st.data())
def test_a_message_that_is_cut_is_refused_or_a_whole_one(
    features: dict[str, list[object]], data: st.DataObject
) -> None:
    message = made.example(features)
    cut = data.draw(st.integers(0, len(message)))
    try:
        found = parse(message[:cut])
    except WireError:
        return
    assert cut in (0, len(message)), found


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_refused(data: bytes) -> None:
    with suppress(WireError):
        parse(data)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x08\x01", "a number where bytes should be"),  # features as a varint
        (b"\x0a", "a number is cut short"),
        (b"\x0a\x02\x00", "2 bytes where 1 are left"),
        (b"\x0b", "wire type 3"),  # a group
        (b"\x02\x00", "a field of number 0"),
        (b"\x80" * 10 + b"\x01", "more than ten bytes"),
        (made.field(1, made.field(1, made.field(1, b"\xff"))), "not UTF-8"),
        (
            made.field(1, made.field(1, made.field(2, made.field(2, made.field(1, b"abc"))))),
            "3 bytes",
        ),
    ],
)
def test_what_is_wrong_is_said(message: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        parse(message)


def test_unknown_fields_are_passed_over() -> None:
    unknown = (
        made.field(9, b"x") + made.varint(10 << 3) + b"\x05" + made.varint(11 << 3 | 1) + bytes(8)
    )
    unknown += made.varint(12 << 3 | 5) + bytes(4)
    assert plain(parse(unknown + made.example({"a": [1]}) + unknown)) == {"a": [1]}


def test_floats_keep_their_bits() -> None:
    for value in (math.inf, -math.inf, -0.0, 1e-45):
        single = struct.unpack("<f", struct.pack("<f", value))[0]
        for packed in (True, False):
            found = parse(made.example({"x": [single]}, packed))["x"].values[0]
            assert struct.pack("<d", found) == struct.pack("<d", single)


# RFC 3720, appendix B.4, and the check value of CRC-32C.
VECTORS = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
}


def test_known_checksums() -> None:
    for data, crc in VECTORS.items():
        assert google_crc32c.value(data) == crc == made.crc32c(data)
        rotated = (crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF
        assert masked_crc32c(data) == rotated
        assert struct.pack("<I", masked_crc32c(data)) == made.masked(data)
