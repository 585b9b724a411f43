"""A source of examples that stand in a list; and what a dataset holds, read by the layout alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import made
import pyarrow as pa
import xxhash

from holdfast.data.records.format import layout
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.sources import Example

CLASSES = pa.schema([pa.field("label", pa.int32(), metadata={"names": '["even", "odd"]'})])


@dataclass
class Listed:
    """A source in memory; an exception in the place of an example is raised when it is read."""

    examples: Sequence[Example | Exception]
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    ignored: list[tuple[str, str]] = field(default_factory=list)
    taken: int = 0
    """Examples that were read."""

    def __len__(self) -> int:
        return len(self.examples)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        for number, one in enumerate(self.examples):
            yield (one.id, len(one.data)) if isinstance(one, Example) else (f"bad {number}", 9)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        for one in self.examples[start:stop]:
            self.taken += 1
            if isinstance(one, Exception):
                raise one
            yield one


def of_pictures(seeds: Sequence[int], size: int | None = None) -> Listed:
    """Small pictures, one a seed; all as long as `size` says, if it does."""
    examples = [
        Example(f"{number:03d}.jpg", padded(made.picture(seed), size), {"label": number % 2})
        for number, seed in enumerate(seeds)
    ]
    return Listed(examples, CLASSES)


def padded(data: bytes, size: int | None) -> bytes:
    """A JPEG with a comment that makes it so long."""
    if size is None:
        return data
    comment = b"\xff\xfe" + (size - len(data) - 2).to_bytes(2, "big")
    return data[:2] + comment + bytes(size - len(data) - 4) + data[2:]


@dataclass(frozen=True)
class OnDisk:
    """A dataset, every sum of it checked."""

    manifest: Manifest
    contents: list[layout.Contents]
    images: dict[str, bytes]
    """id -> the image at full fidelity; opaque ones as they are."""
    pieces: dict[str, list[bytes]]


def on_disk(folder: Path) -> OnDisk:
    """Read a dataset by its manifest; whatever is not whole fails."""
    manifest = Manifest.from_bytes((folder / NAME).read_bytes())
    found = OnDisk(manifest, [], {}, {})
    for path, index in zip(manifest.paths, manifest.records, strict=True):
        data = (folder / path).read_bytes()
        assert len(data) == index.size
        assert layout.encode_footer(index) == data[index.ends[-1] :]
        for region in range(index.groups + 1):
            start, end = index.region(region)
            assert xxhash.xxh3_64_intdigest(data[start:end]) == index.sums[region], (path, region)
        contents = layout.decode_contents(data, index)
        found.contents.append(contents)
        for row, id_ in enumerate(contents.ids):
            pieces = []
            for group, end in enumerate(index.ends[:-1]):
                start = end + int(contents.starts[row, group])
                pieces.append(data[start : start + int(contents.lengths[row, group])])
            assert id_ not in found.images
            found.pieces[id_] = pieces
            end = b"" if contents.opaque[row] else b"\xff\xd9"
            found.images[id_] = b"".join(pieces) + end
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Path from the folder -> bytes, of every file below it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
