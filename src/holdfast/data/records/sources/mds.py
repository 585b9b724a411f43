"""MDS, the shards of mosaicml-streaming: `index.json` says what columns there are and how they are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.data.records.sources.columns import (
    BYTES,
    FLOAT,
    INT,
    JSON,
    TEXT,
    Columns,
    JsonText,
    Kind,
)
from holdfast.data.records.sources.example import (
    MAGIC_BYTES,
    Example,
    Options,
    check_ids,
    check_range,
    image_kind,
    nothing_found,
)
from holdfast.data.records.sources.mds_shards import Read, Shard, ShardBytes, offsets, read_index
from holdfast.data.records.sources.values import json_of, text_of
from holdfast.errors import InputError

_SCALARS = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64"),
    )
} | {"int": np.dtype("<i8")}
_TEXTS: Mapping[str, Kind] = {
    "str": TEXT,
    "str_int": INT,
    "str_float": FLOAT,
    "str_decimal": TEXT,  # as text it keeps all its digits
    "json": JSON,
}
_IMAGES = frozenset({"jpeg", "png", "jpeg_array", "jpegarray"})


_Place = tuple[int, int]
"""Start and size."""


@dataclass(frozen=True)
class _Sample:
    """Where the values of one sample lie."""

    read: Read
    values: Mapping[str, _Place]
    """Column -> start and size in the shard."""
    place: str
    """For messages."""

    def size(self, column: str) -> int:
        """Bytes of a value."""
        return self.values[column][1]

    def value(self, column: str, most: int | None = None) -> bytes:
        """The bytes of a value, or the first `most` of them."""
        start, size = self.values[column]
        return self.read(start, size if most is None else min(size, most))


class _Layout:
    """How the samples of one shard are laid out: which column is the image, what the others are.

    Args:
        shard: the shard.
        options: what the user says of it.
        bytes_: opens it.
    """

    def __init__(self, shard: Shard, options: Options, bytes_: ShardBytes) -> None:
        self.shard = shard
        self._encodings = dict(zip(shard.names, shard.encodings, strict=True))
        with bytes_.open(shard, check=False) as read:
            self._offsets = offsets(read, shard)
            self.image = self._image(options, read)
        self.kinds = {
            name: self._kind(name, encoding)
            for name, encoding in self._encodings.items()
            if name != self.image and name not in options.drop
        }

    def sample(self, read: Read, number: int) -> _Sample:
        """Where the values of a sample lie."""
        begin, end = int(self._offsets[number]), int(self._offsets[number + 1])
        place = f"sample {number}"
        varying = [size is None for size in self.shard.fixed]
        head = 4 * sum(varying)
        if begin + head > end:
            raise self._wrong_sizes(place, head, end - begin)
        sizes = iter(np.frombuffer(read(begin, head), "<u4").tolist())
        start, places = begin + head, {}
        for name, fixed in zip(self.shard.names, self.shard.fixed, strict=True):
            size = next(sizes) if fixed is None else fixed
            places[name] = start, size
            start += size
        if start != end:
            raise self._wrong_sizes(place, start - begin, end - begin)
        return _Sample(read, places, place)

    def row(self, sample: _Sample) -> dict[str, object]:
        """The values of a sample besides its image."""
        return {name: self._value(name, sample) for name in self.kinds}

    def _wrong_sizes(self, place: str, values: int, sample: int) -> InputError:
        return InputError(
            "the values of this sample do not fill it",
            code="damaged",
            path=self.shard.path,
            place=place,
            found=f"values of {values:,} bytes in a sample of {sample:,}",
            remedy="fetch the shard again",
        )

    def _image(self, options: Options, read: Read) -> str:
        """The column of the image: the only one encoded as one, else the only bytes that are one."""
        if options.image is not None:
            if self._encodings.get(options.image) in (*_IMAGES, "bytes"):
                return options.image
            found = [options.image]
        else:
            found = [name for name, encoding in self._encodings.items() if encoding in _IMAGES]
            if not found and self.shard.samples:
                first = self.sample(read, 0)
                found = [
                    name
                    for name, encoding in self._encodings.items()
                    if encoding == "bytes" and image_kind(first.value(name, MAGIC_BYTES))
                ]
            found = [name for name in found if name not in options.drop]
            if len(found) == 1:
                return found[0]
        columns = ", ".join(f"{name} ({encoding})" for name, encoding in self._encodings.items())
        raise InputError(
            "these samples have several images" if len(found) > 1 else "no column holds images",
            code="no-data",
            path=self.shard.path,
            found=columns,
            expected="one column of jpeg, png or the bytes of an image",
            remedy="name it with image=",
        )

    def _kind(self, name: str, encoding: str) -> Kind:
        if encoding in _SCALARS:
            dtype = _SCALARS[encoding]
            if self.shard.fixed[self.shard.names.index(name)] == dtype.itemsize:
                return Kind(pa.float32() if encoding == "float16" else pa.from_numpy_dtype(dtype))
        if encoding in _TEXTS:
            return _TEXTS[encoding]
        if encoding == "bytes" or encoding in _IMAGES:
            return BYTES
        if encoding.partition(":")[0] == "ndarray":
            return Kind(pa.binary(), note=((b"encoding", encoding.encode()),))
        raise InputError(
            f"column {name!r} is of an encoding that is not read",
            code="unsupported",
            path=self.shard.path,
            found=encoding,
            expected=", ".join((*_SCALARS, *_TEXTS, *sorted(_IMAGES), "bytes", "ndarray")),
            remedy=f"leave it out with drop=[{name!r}]",
        )

    def _value(self, name: str, sample: _Sample) -> object:
        encoding, data = self._encodings[name], sample.value(name)
        if encoding in _SCALARS:
            return np.frombuffer(data, _SCALARS[encoding])[0].item()
        if encoding not in _TEXTS:
            return data
        path, place = self.shard.path, f"{sample.place}, column {name}"
        text = text_of(data, path, place)
        if encoding == "json":
            return JsonText.of(json_of(text, path, place))
        try:
            return {"str_int": int, "str_float": float}.get(encoding, str)(text)
        except ValueError as error:
            raise InputError(
                "not a number", code="invalid-value", path=path, place=place, found=repr(text[:60])
            ) from error


class Mds:
    """The samples of an MDS folder, in order; the id is a column called `id`, else shard and number.

    Numbers keep their width (float16 becomes float32), `json` becomes JSON text, `ndarray` stays bytes.
    """

    def __init__(self, where: str, options: Options) -> None:
        root = Path(where)
        self._root = root.parent if root.name == "index.json" else root
        self._options = options
        self._columns = Columns(options, self._root)
        self._bytes = ShardBytes()
        self._shards = read_index(self._root)
        self._layouts = [_Layout(shard, options, self._bytes) for shard in self._shards]
        self._ids: list[str] = []
        self._sizes: list[int] = []
        self._numbers: list[
            npt.NDArray[np.int64]
        ] = []  # of each shard's samples, those with an image
        self._firsts = [0]
        self.ignored: list[tuple[str, str]] = []
        for layout in self._layouts:
            self._index(layout)
        if not self._ids:
            raise nothing_found(self._root, self.ignored, "samples with an image")
        check_ids(self._ids, None, self._root)
        self.schema: pa.Schema = self._columns.settle()

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self._ids)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """Id and image bytes of every sample."""
        return zip(self._ids, self._sizes, strict=True)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The samples with the numbers from `start` to before `stop`."""
        check_range(start, stop, len(self))
        for layout, numbers, first in zip(self._layouts, self._numbers, self._firsts, strict=False):
            chosen = range(max(start, first), min(stop, first + len(numbers)))
            if not chosen:
                continue
            with self._bytes.open(layout.shard, check=True) as read:
                for number in chosen:
                    sample = layout.sample(read, int(numbers[number - first]))
                    row = layout.row(sample)
                    self._columns.take_id(row, layout.shard.path, sample.place)
                    yield Example(
                        self._ids[number], sample.value(layout.image), self._columns.values(row)
                    )

    def _index(self, layout: _Layout) -> None:
        shard = layout.shard
        id_column = self._options.id or "id"
        for name, kind in layout.kinds.items():
            for final in self._columns.renamed({} if name == id_column else {name: kind}):
                self._columns.declare(final, kind, shard.path, f"column {name}")
        numbers = []
        with self._bytes.open(shard, check=False) as read:
            for number in range(shard.samples):
                sample = layout.sample(read, number)
                if image_kind(sample.value(layout.image, MAGIC_BYTES)) is None:
                    self.ignored.append(
                        (f"{shard.path.name}: sample {number}", "not an image by its first bytes")
                    )
                    continue
                row = layout.row(sample)
                id_ = self._columns.take_id(row, shard.path, sample.place)
                for name, value in self._columns.renamed(row).items():
                    self._columns.check(name, value, shard.path, sample.place)
                self._ids.append(id_ or f"{shard.stem}/{number:06d}")
                self._sizes.append(sample.size(layout.image))
                numbers.append(number)
        self._numbers.append(np.array(numbers, np.int64))
        self._firsts.append(len(self._ids))
