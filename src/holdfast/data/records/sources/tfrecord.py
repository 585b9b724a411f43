"""TFRecord files of `tf.train.Example`: each record with its length and the masked crc32c of both."""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pyarrow as pa

from holdfast.data.records.sources.columns import LABEL, Columns, Kind, kind_of
from holdfast.data.records.sources.example import (
    MAGIC_BYTES,
    Example,
    Options,
    check_ids,
    check_range,
    image_kind,
    nothing_found,
)
from holdfast.data.records.sources.protobuf import Feature, WireError, parse_example
from holdfast.data.records.sources.shards import shard_files
from holdfast.data.records.sources.values import PositionedFile
from holdfast.errors import InputError

_LENGTH = struct.Struct("<QI")  # length, its masked crc32c
_CHECK = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8
_SHARD = re.compile(r"\.tfrec|-\d{5,}+-of-\d{5}")
# Names of the convention by which TensorFlow's image data sets are written.
_USUAL_IMAGE = "image/encoded"
_USUAL_LABEL = "image/class/label"


def masked_crc32c(data: bytes | memoryview) -> int:
    """The crc32c as TFRecord stores it: rotated by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(bytes(data))
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def is_shard(name: str) -> bool:
    """Whether a file of this name is a TFRecord by the usual names."""
    return _SHARD.search(name) is not None


class TFRecord:
    """The Examples of one or more files, in order; the id is a feature called `id`, else file and number.

    A feature of one value is a scalar; if it ever has several, it is a list. Bytes are text if all of
    them are UTF-8. Every checksum is compared when the source is opened, and again when it is read.
    """

    def __init__(self, where: str, options: Options) -> None:
        self._source = Path(where)
        self._files = shard_files(where, is_shard, ".tfrecord")
        self._image, options = self._names(options)
        self._columns = Columns(options, self._source)
        self._ids: list[str] = []
        self._places = array("q")  # [N, 2] start and size of each Example
        self._sizes = array("q")
        self._firsts = [0]
        self.ignored: list[tuple[str, str]] = []
        for path in self._files:
            self._index(path)
            self._firsts.append(len(self._ids))
        if not self._ids:
            raise nothing_found(self._source, self.ignored, "Examples with an image")
        check_ids(self._ids, None, self._source)
        self.schema: pa.Schema = self._columns.settle()

    def __len__(self) -> int:
        """How many Examples there are."""
        return len(self._ids)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """Id and image bytes of every Example."""
        return zip(self._ids, self._sizes, strict=True)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The Examples with the numbers from `start` to before `stop`."""
        check_range(start, stop, len(self))
        for shard, path in enumerate(self._files):
            chosen = range(max(start, self._firsts[shard]), min(stop, self._firsts[shard + 1]))
            if not chosen:
                continue
            with PositionedFile(path) as file:
                for number in chosen:
                    yield self._example(file, number)

    def _example(self, file: PositionedFile, number: int) -> Example:
        start, size = self._places[2 * number], self._places[2 * number + 1]
        place = f"Example {self._ids[number]}"
        features = _features(_checked(file, start, size, place), file.path, place)
        image = features.pop(self._image).values[0]
        row = {name: _value(feature) for name, feature in features.items()}
        self._columns.take_id(row, file.path, place)
        return Example(self._ids[number], bytes(image), self._columns.values(row))  # type: ignore[arg-type]

    def _index(self, path: Path) -> None:
        first = len(self._ids)
        with PositionedFile(path) as file:
            for count, (start, size) in enumerate(_records(file)):
                place = f"record {count} at byte {start - _LENGTH.size:,}"
                data = _checked(file, start, size, place)
                self._take(_features(data, path, place), path, place, len(self._ids) - first)
                if len(self._places) < 2 * len(self._ids):
                    self._places.extend((start, size))

    def _take(self, features: dict[str, Feature], path: Path, place: str, number: int) -> None:
        """Note the columns of one Example, if it has an image."""
        image = features.pop(self._image, Feature()).values
        if len(image) != 1 or not _is_image(image[0]):
            self.ignored.append((f"{path.name}: {place}", f"no image in {self._image!r}"))
            return
        row = {name: _value(feature) for name, feature in features.items()}
        id_ = self._columns.take_id(row, path, place)
        for name, value in self._columns.renamed(row).items():
            self._columns.declare(name, _kind(value), path, place)
            for one in value if isinstance(value, list) else [value]:
                self._columns.check(name, one, path, place)
        self._ids.append(id_ or f"{path.name.removesuffix('.tfrecord')}/{number:06d}")
        self._sizes.append(len(image[0]))  # type: ignore[arg-type]

    def _names(self, options: Options) -> tuple[str, Options]:
        """The features of image and label, by the first Example."""
        path, place = self._files[0], "the first Example"
        with PositionedFile(path) as file:
            start, size = next(_records(file))
            features = _features(_checked(file, start, size, place), path, place)
        if options.label is None and LABEL not in features and _USUAL_LABEL in features:
            options = replace(options, label=_USUAL_LABEL)
        if options.image is not None:
            return options.image, options
        found = [
            name
            for name, feature in features.items()
            if len(feature.values) == 1
            and _is_image(feature.values[0])
            and name not in options.drop
        ]
        if _USUAL_IMAGE in found:
            found = [_USUAL_IMAGE]
        if len(found) != 1:
            parts = (f"{name} ({part.kind})" for name, part in sorted(features.items()))
            raise InputError(
                "this Example has several images" if found else "this Example has no image",
                code="no-data",
                path=path,
                place=place,
                found=", ".join(parts) or "no feature",
                expected="one feature with the bytes of an image",
                remedy="name it with image=",
            )
        return found[0], options


def _records(file: PositionedFile) -> Iterator[tuple[int, int]]:
    """Start and size of every record; the lengths' checksums are compared."""
    position, end = 0, file.size
    if not end:
        raise InputError("this file is empty", code="empty-input", path=file.path, found="0 bytes")
    while position < end:
        place = f"byte {position:,}"
        if position + _LENGTH.size > end:
            raise _cut(file.path, place, end - position, _LENGTH.size)
        head = file.read(position, _LENGTH.size)
        size, check = _LENGTH.unpack(head)
        if masked_crc32c(head[:8]) != check:
            raise _no_record(file.path, place, head)
        start = position + _LENGTH.size
        if start + size + _CHECK.size > end:
            raise _cut(file.path, place, end - start, size + _CHECK.size)
        yield start, size
        position = start + size + _CHECK.size


def _no_record(path: Path, place: str, head: bytes) -> InputError:
    if head.startswith(b"\x1f\x8b"):
        return InputError(
            "this TFRecord is compressed, so that its records cannot be reached one by one",
            code="unsupported",
            path=path,
            found="gzip",
            expected="an uncompressed TFRecord (images hardly shrink anyway)",
            remedy=f"gunzip --suffix='' --keep --stdout {path.name} > uncompressed.tfrecord",
        )
    return InputError(
        "the checksum of a record's length does not match: the file is damaged, or not a TFRecord",
        code="damaged",
        path=path,
        place=place,
        found=head.hex(" "),
        expected="8 bytes of length and their masked crc32c",
        remedy="fetch it again",
    )


def _cut(path: Path, place: str, found: int, expected: int) -> InputError:
    return InputError(
        "this file is cut short within a record",
        code="damaged",
        path=path,
        place=place,
        found=f"{found:,} bytes",
        expected=f"{expected:,} bytes",
        remedy="fetch it again",
    )


def _checked(file: PositionedFile, start: int, size: int, place: str) -> memoryview:
    """The bytes of a record after its checksum was compared."""
    data = memoryview(file.read(start, size + _CHECK.size))
    if masked_crc32c(data[:size]) != _CHECK.unpack(data[size:])[0]:
        raise InputError(
            "the checksum of a record does not match: it is damaged",
            code="damaged",
            path=file.path,
            place=place,
            expected=f"the masked crc32c that stands after its {size:,} bytes",
            remedy="fetch the file again",
        )
    return data[:size]


def _features(data: memoryview, path: Path, place: str) -> dict[str, Feature]:
    try:
        return parse_example(data)
    except WireError as error:
        raise InputError(
            "this record is not a tf.train.Example",
            code="invalid-value",
            path=path,
            place=place,
            found=str(error),
        ) from error


def _is_image(value: object) -> bool:
    return isinstance(value, memoryview) and image_kind(bytes(value[:MAGIC_BYTES])) is not None


def _value(feature: Feature) -> object:
    """None, a scalar or a list; bytes as text where they are UTF-8."""
    values = [_text(v) if isinstance(v, memoryview) else v for v in feature.values]
    if not values:
        return None
    return values[0] if len(values) == 1 else values


def _text(value: memoryview) -> str | bytes:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        return bytes(value)


def _kind(value: object) -> Kind:
    """The kind of a feature: numbers are float32 there."""
    if isinstance(value, list):
        types = {_kind(one).type for one in value}
        return Kind(pa.list_(types.pop() if len(types) == 1 else pa.binary()))
    return Kind(pa.float32()) if isinstance(value, float) else kind_of(value)
