"""Where the files of a dataset stand: in its folder, or in an archive in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from holdfast.data.croissant.describing.kinds import Kind, ending, kind_of


@dataclass(frozen=True, order=True)
class Place:
    """One file.

    Attributes:
        archive: the path of the archive that it is in, from the dataset's folder; "" where it is in none.
        path: its path from the archive's root, or from the dataset's folder, with ``/``.
        size: bytes, unpacked.
    """

    archive: str
    path: str
    size: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.path).name

    @property
    def ending(self) -> str:
        """Its ending as written, such as ``.csv.gz``."""
        return ending(self.name)

    @property
    def kind(self) -> Kind:
        """What its name says it holds."""
        return kind_of(self.name)[0]

    @property
    def encoding(self) -> str:
        """Its media type; a compressed table's is the table's."""
        return kind_of(self.name)[1]

    def __str__(self) -> str:
        return f"{self.archive}!{self.path}" if self.archive else self.path


@dataclass(frozen=True)
class Note:
    """What a reader of the description should know about how it came about.

    Attributes:
        about: the id, or the path of the file, that it is about; "" for the dataset.
        kind: "inferred" from evidence that stands in `text`; "unknown": could not be told, left out;
            "skipped": a file that no record set describes, or that is not described at all.
        text: one sentence.
    """

    about: str
    kind: Literal["inferred", "unknown", "skipped"]
    text: str
