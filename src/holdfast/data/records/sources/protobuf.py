"""The wire format of Protocol Buffers, as far as `tf.train.Example` needs it.

Source: protobuf.dev, "Encoding"; tensorflow/core/example/example.proto and feature.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WORD = 1 << 64


class WireError(ValueError):
    """Bytes that are not a message of the expected kind."""


@dataclass
class Feature:
    """The values of one feature of an Example."""

    kind: Literal["bytes", "float", "int64"] | None = None
    """None: no list was set."""
    values: list[memoryview] | list[float] | list[int] = field(default_factory=list)


def parse_example(message: memoryview) -> dict[str, Feature]:
    """The features of a serialised `tf.train.Example` by name.

    Repeated fields are merged and unknown ones passed over, as every reader of the format does.

    Raises:
        WireError: if it is cut short or no such message.
    """
    features: dict[str, Feature] = {}
    for number, value in _fields(message):
        if number == 1:
            for inner, entry in _fields(_message(value)):
                if inner == 1:
                    name, feature = _entry(_message(entry))
                    features[name] = feature
    return features


def _entry(message: memoryview) -> tuple[str, Feature]:
    """Key and value of one entry of the map of features."""
    name, feature = "", Feature()
    for number, value in _fields(message):
        if number == 1:
            try:
                name = str(_message(value), "utf-8")
            except UnicodeDecodeError as error:
                raise WireError("the name of a feature is not UTF-8") from error
        elif number == 2:
            _merge_feature(feature, _message(value))
    return name, feature


def _merge_feature(feature: Feature, message: memoryview) -> None:
    for number, value in _fields(message):
        kind = {1: "bytes", 2: "float", 3: "int64"}.get(number)
        if kind is None:
            continue
        if feature.kind != kind:  # of a `oneof` the last one counts
            feature.kind, feature.values = kind, []  # type: ignore[assignment]
        for inner, item in _fields(_message(value)):
            if inner == 1:
                feature.values.extend(_values(kind, item))  # type: ignore[arg-type]


def _values(kind: str, item: int | memoryview) -> list[memoryview] | list[float] | list[int]:
    """The values in one field of a list, packed or not."""
    if kind == "bytes":
        return [_message(item)]
    if kind == "float":
        if isinstance(item, memoryview):
            if len(item) % 4:
                raise WireError(f"packed floats of {len(item)} bytes")
            return np.frombuffer(item, "<f4").astype(float).tolist()  # type: ignore[no-any-return]
        return [float(np.uint32(item & 0xFFFFFFFF).view(np.float32))]
    if isinstance(item, int):
        return [_signed(item)]
    numbers, position = [], 0
    while position < len(item):
        number, position = _varint(item, position)
        numbers.append(_signed(number))
    return numbers


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of every field."""
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise WireError(f"a field of number {number}")
        if wire == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire == _BYTES:
            size, position = _varint(message, position)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise WireError(f"a field of wire type {wire}")
        if size > end - position:
            raise WireError(f"a field of {size:,} bytes where {end - position:,} are left")
        piece = message[position : position + size]
        position += size
        yield number, piece if wire == _BYTES else int.from_bytes(piece, "little")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message):
            raise WireError("a number is cut short")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _WORD, position
        shift += 7
        if shift >= 70:
            raise WireError("a number of more than ten bytes")


def _signed(value: int) -> int:
    return value - _WORD if value >= _WORD >> 1 else value


def _message(value: int | memoryview) -> memoryview:
    if not isinstance(value, memoryview):
        raise WireError("a number where bytes should be")
    return value
