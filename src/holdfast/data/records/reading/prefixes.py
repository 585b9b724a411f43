"""The part of a record that is in memory: its images at one fidelity, and what of them is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import xxhash

from holdfast.data.records.format.layout import Contents, Index
from holdfast.data.records.jpeg.parsing import EOI
from holdfast.errors import HoldfastError
from holdfast.remote import Buffer

MISMATCH = "its crc32c does not match"


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes of a record that are not what was written."""

    record: str
    """The record's path in its dataset."""
    image: str | None = None
    """The image that is hit; None where it is not one image."""
    group: int | None = None
    """The group, 1..G; 0 for the header and metadata, None for the footer or the file."""
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{', '.join(part for part in (self.record, self.place) if part)}: {self.reason}"

    @property
    def place(self) -> str:
        """Image and group, such as ``"image 4/a.jpg, group 3"``; empty if neither is known."""
        group = None if self.group is None else f"group {self.group}" if self.group else "metadata"
        image = None if self.image is None else f"image {self.image}"
        return ", ".join(part for part in (image, group) if part)


class Damaged(HoldfastError):
    """Requested bytes are damaged.

    Attributes:
        faults: which.
        path: the record of the first fault, from the dataset's folder; None if no fault is known.
        place: its image and group.
    """

    code = "damaged"

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.faults = tuple(faults)
        self.path = faults[0].record if faults else None
        self.place = faults[0].place if faults else None

    def __reduce__(self) -> tuple[type[Damaged], tuple[str, tuple[Fault, ...]]]:
        return type(self), (self.message, self.faults)


class TooManyDamaged(Damaged):
    """More images of an epoch had to be left out than `max_damaged` allows."""

    code = "too-many-rejects"


def damaged(faults: Sequence[Fault]) -> Damaged:
    """The error that names the first few faults."""
    lines = [str(fault) for fault in faults[:5]]
    if len(faults) > len(lines):
        lines.append(f"and {len(faults) - len(lines):,} more")
    lines.append("remedy: holdfast data records verify lists all damage; repair restores it")
    return Damaged("\n  ".join(lines), faults)


@dataclass(frozen=True)
class Prefix:
    """The first bytes of a record in memory: all of its images at one fidelity."""

    record: int
    """The record's number."""
    path: str
    """Its file in the dataset."""
    index: Index
    contents: Contents
    """Ids, columns and lengths of the pieces of its N images."""
    buffers: tuple[Buffer, ...]
    """[fidelity + 1] the regions 0..fidelity; short where the file is cut."""
    faults: tuple[Fault, ...] = ()
    """What is damaged."""
    bad: npt.NDArray[np.bool_] | None = None
    """[N, G] pieces that are damaged; None if none is."""

    def __len__(self) -> int:
        return self.index.images

    @property
    def fidelity(self) -> int:
        """Groups that are there."""
        return len(self.buffers) - 1

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(map(len, self.buffers))

    @cached_property
    def _starts(self) -> list[list[int]]:
        """[G][N + 1]: lists, for they are looked up one by one."""
        return self.contents.starts.T.tolist()  # type: ignore[no-any-return]

    def pieces(self, image: int, fidelity: int | None = None) -> list[Buffer]:
        """The pieces of one image, without a copy.

        Args:
            image: its number in the record.
            fidelity: 1..the prefix's; None for that.

        Raises:
            Damaged: if one of these pieces is.
        """
        groups = self.fidelity if fidelity is None else fidelity
        if not 1 <= groups <= self.fidelity:
            raise ValueError(f"fidelity {groups} of a prefix of {self.fidelity}")
        if self.bad is not None and self.bad[image, :groups].any():
            raise damaged(self.faults_of(image, groups))
        pieces: list[Buffer] = []
        for group in range(groups):
            starts = self._starts[group]
            pieces.append(memoryview(self.buffers[group + 1])[starts[image] : starts[image + 1]])
        return pieces

    def image(self, image: int, fidelity: int | None = None) -> bytes:
        """One image as a file: its pieces and the end-of-image marker, or what was stored opaque.

        Args:
            image: its number in the record.
            fidelity: 1..the prefix's; None for that.

        Raises:
            Damaged: if one of these pieces is.
        """
        return assemble(self.contents, image, self.pieces(image, fidelity))

    def images(self, fidelity: int | None = None) -> Iterator[bytes]:
        """All images in order; raises as `image`."""
        return (self.image(image, fidelity) for image in range(len(self)))

    def intact(self, image: int) -> int:
        """The highest fidelity at which an image is undamaged; 0 if it is at none."""
        if self.bad is None:
            return self.fidelity
        hit = np.flatnonzero(self.bad[image, : self.fidelity])
        return int(hit[0]) if len(hit) else self.fidelity

    def faults_of(self, image: int, fidelity: int | None = None) -> list[Fault]:
        """What is damaged of one image up to a fidelity."""
        name, groups = self.contents.ids[image], self.fidelity if fidelity is None else fidelity
        return [
            fault
            for fault in self.faults
            if fault.image == name and fault.group is not None and fault.group <= groups
        ]


def assemble(contents: Contents, image: int, pieces: Sequence[Buffer]) -> bytes:
    """The file of one image out of its first pieces."""
    return b"".join(pieces if contents.opaque[image] else (*pieces, EOI))


def holds(index: Index, region: int, buffer: Buffer) -> bool:
    """Whether a region is whole and has its sum."""
    start, end = index.region(region)
    return len(buffer) == end - start and xxhash.xxh3_64_intdigest(buffer) == index.sums[region]


def trace(
    path: str, contents: Contents, group: int, buffer: Buffer, bad: npt.NDArray[np.bool_]
) -> list[Fault]:
    """Find the images that a damaged group affects; marks them in `bad` [N]."""
    view, starts = memoryview(buffer), contents.starts[:, group - 1].tolist()
    faults = []
    for image, crc in enumerate(contents.piece_sums[:, group - 1].tolist()):
        start, end = starts[image], starts[image + 1]
        if end > len(view) and end > start:
            reason = "the file ends before it does"
        elif google_crc32c.value(bytes(view[start:end])) != crc:
            reason = MISMATCH
        else:
            continue
        bad[image] = True
        faults.append(Fault(path, contents.ids[image], group, reason))
    if not faults:
        faults.append(
            Fault(
                path, None, group, "its xxh3 is not the recorded one, though all pieces are whole"
            )
        )
    return faults
