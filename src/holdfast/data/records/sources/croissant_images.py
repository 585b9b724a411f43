"""The images of a record set: files, found and looked into one by one, or bytes in a column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from holdfast.data.croissant.files.hashing import WrongChecksum
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.loading.late import is_late
from holdfast.data.croissant.loading.lazy_table import batches_of
from holdfast.data.records.sources.example import MAGIC_BYTES
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.croissant import Dataset, LazyRecordSet

Image = Member | bytes | None
"""What a record has for an image: the file that is one, the bytes of one, or nothing."""
Fault = InputError | OSError


class Beginning(NamedTuple):
    """How an image begins, and how long it is."""

    data: bytes
    size: int


class Images:
    """The images of a record set, in its order.

    Args:
        dataset: the description.
        records: the record set with the image as its only column.
    """

    def __init__(self, dataset: Dataset, records: LazyRecordSet) -> None:
        self.records = records
        self._dataset = dataset

    @cached_property
    def are_files(self) -> bool:
        """Whether each image is a file, so that reading the records reads none of them."""
        with self._dataset.opened() as assembler:
            sql = self.records.select(assembler, ["image"], ordered=True)
            made = assembler.connection.sql(f"FROM (\n{sql}\n) LIMIT 0").to_arrow_table()
        return is_late(made.schema.field(0).type)

    def rows(self, at_once: int) -> Iterator[Image]:
        """One value a record, of which `at_once` are asked of the engine at a time; files are not read."""
        if not self.are_files:
            for batch in self.records.batches(at_once):
                yield from batch.column(0).to_pylist()
            return
        with self._dataset.opened() as assembler:
            sql = self.records.select(assembler, ["image"], ordered=True)
            members = assembler.late[0]
            reader = assembler.connection.sql(sql).to_arrow_reader(at_once)
            try:
                for batch in batches_of(reader):
                    for place in pc.struct_field(batch.column(0), [0]).to_pylist():
                        yield None if place is None else members[place]
            finally:
                del reader  # a result that is left open would keep the connection busy

    def contents(self, images: Sequence[Image]) -> Iterator[bytes | Fault | None]:
        """The bytes of each; of a file that cannot be read, why.

        Raises:
            WrongChecksum: of an archive, in which every file is in doubt.
        """
        resources = self._dataset.resources
        return _each(images, lambda members: resources.read(members))

    def beginnings(self, images: Sequence[Image]) -> Iterator[Beginning | Fault | None]:
        """The same of each: plain files are opened, and no more read of them.

        Raises:
            WrongChecksum: as `contents`.
        """
        packed = self.contents([one for one in images if not _is_plain(one)])
        plain = _each([one for one in images if _is_plain(one)], self._starts)
        for image in images:
            found = next(plain if _is_plain(image) else packed)
            yield Beginning(found[:MAGIC_BYTES], len(found)) if isinstance(found, bytes) else found

    def _starts(self, members: Sequence[Member]) -> Iterator[Beginning]:
        for member in members:
            path = self._dataset.resources.path(member)
            with path.open("rb") as file:
                start = file.read(MAGIC_BYTES)
                yield Beginning(start, path.stat().st_size)


def _is_plain(image: Image) -> bool:
    return isinstance(image, Member) and image.inside is None


def _each(
    images: Sequence[Image], read: Callable[[Sequence[Member]], Iterator[Any]]
) -> Iterator[Any]:
    """Values of the images, with files read by `read`; continues after a file that fails."""
    at = 0
    while at < len(images):
        values = read([one for one in images[at:] if isinstance(one, Member)])
        for image in images[at:]:
            try:
                value = next(values) if isinstance(image, Member) else image
            except (OSError, InputError) as error:
                if isinstance(error, WrongChecksum) and not _is_plain(image):
                    raise
                value = error
            yield value
            at += 1
            if isinstance(value, Exception):
                break
    return
