"""What a writer is about to write, known before the first image is read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from holdfast.data.records.format import block
from holdfast.data.records.sources import Example, Source
from holdfast.data.records.writing.settings import Settings
from holdfast.errors import InputError


@dataclass(frozen=True, slots=True)
class Rejected:
    """An image that is set aside."""

    id: str
    reason: str

    def to_line(self) -> bytes:
        """The line of `rejected.jsonl`."""
        return (
            json.dumps({"id": self.id, "reason": self.reason}, ensure_ascii=False).encode() + b"\n"
        )


@dataclass(frozen=True)
class Plan:
    """The images of a source in order, the settings, and a number that stands for both."""

    source: Source
    settings: Settings
    texts: dict[str, str]
    """What each record notes: settings, and the programs that its bytes come from."""
    id_sums: npt.NDArray[np.uint64]
    """[N] xxh3-64 of each id."""
    sizes: npt.NDArray[np.uint64]
    """[N] bytes of each image."""

    @classmethod
    def of(cls, source: Source, settings: Settings, programs: dict[str, str]) -> Plan:
        """List a source.

        Args:
            source: the images.
            settings: how they are written.
            programs: what the bytes of records depend on besides: another version starts anew.

        Raises:
            InputError: if there is no image, an id stands twice, or a column cannot be kept.
        """
        block.check_columns(source.schema)
        id_sums, sizes = array("Q"), array("Q")
        for id_, size in source.ids_and_sizes():
            id_sums.append(xxhash.xxh3_64_intdigest(id_.encode("utf-8", "surrogatepass")))
            sizes.append(size)
        if not sizes:
            raise InputError(
                "the source contains no images", code="no-data", expected="at least one"
            )
        plan = cls(
            source=source,
            settings=settings,
            texts=settings.to_texts() | programs,
            id_sums=np.array(id_sums, np.uint64),
            sizes=np.array(sizes, np.uint64),
        )
        plan._check_ids()
        return plan

    def number(self, turn: int) -> int:
        """64 bits that name the folder of the records; a plan has one for each of two turns."""
        digest = xxhash.xxh3_64(
            json.dumps([turn, self.texts, _columns(self.source.schema)]).encode()
        )
        digest.update(self.id_sums.astype("<u8").tobytes())
        digest.update(self.sizes.astype("<u8").tobytes())
        return digest.intdigest()

    @property
    def images(self) -> int:
        """N."""
        return len(self.sizes)

    def records(self) -> Iterator[range]:
        """The numbers of the images of each record."""
        step = self.settings.record_size
        for start in range(0, self.images, step):
            yield range(start, min(start + step, self.images))

    def measured(self) -> frozenset[int]:
        """The numbers of the images whose quality is measured: one of each of as many equal parts.

        Where in its part an image stands is drawn by a hash, so that a source that repeats itself is
        not always met at the same place.
        """
        count = min(self.settings.quality_images, self.images)
        edges = [part * self.images // count for part in range(count + 1)] if count else []
        return frozenset(
            start + xxhash.xxh3_64_intdigest(b"quality %d" % part) % (end - start)
            for part, (start, end) in enumerate(pairwise(edges))
        )

    def read(self, numbers: range) -> Iterator[Example | Rejected]:
        """The images with these numbers, in order; those that cannot be stored as `Rejected`.

        Raises:
            InputError: if the source is no longer what it was when it was listed.
        """
        at = numbers.start
        examples: Iterator[Example] | None = None
        while at < numbers.stop:
            try:
                examples = examples or self.source.read(at, numbers.stop)
                found = self._checked(at, next(examples, None))
            except (OSError, InputError) as error:
                examples = None  # what failed does not go on: start again after it
                found = Rejected(self._id(at), f"cannot be read: {_said(error)}")
            yield found
            at += 1

    def _checked(self, number: int, example: Example | None) -> Example | Rejected:
        if example is None:
            raise SourceChanged(self._id(number))
        if not example.data:
            return Rejected(example.id, "empty")
        if len(example.data) > block.MAX_PIECE:
            return Rejected(example.id, f"larger than {block.MAX_PIECE:,} bytes")
        id_sum = xxhash.xxh3_64_intdigest(example.id.encode("utf-8", "surrogatepass"))
        if (id_sum, len(example.data)) != (self.id_sums[number], self.sizes[number]):
            raise SourceChanged(example.id)
        return example

    def _id(self, number: int) -> str:
        return next(islice(self.source.ids_and_sizes(), number, None))[0]

    def _check_ids(self) -> None:
        if len(np.unique(self.id_sums)) == self.images:
            return
        seen: set[str] = set()
        for id_, _ in self.source.ids_and_sizes():
            if id_ in seen:
                raise InputError(
                    "two images of the source have the same id",
                    code="duplicate",
                    found=repr(id_),
                    expected="an id for each image",
                )
            seen.add(id_)


class SourceChanged(Exception):
    """An image is not the one that was listed."""


def _said(error: OSError | InputError) -> str:
    """What an error says, without the path, which is none of the dataset's."""
    if isinstance(error, InputError):
        return ": ".join(part for part in (error.problem, error.found) if part)
    return error.strerror or type(error).__name__


def _columns(schema: pa.Schema) -> list[list[object]]:
    """The columns, so that JSON can hold them."""
    return [
        [
            field.name,
            str(field.type),
            sorted(
                (key.decode("latin-1"), value.decode("latin-1"))
                for key, value in (field.metadata or {}).items()
            ),
        ]
        for field in schema
    ]
