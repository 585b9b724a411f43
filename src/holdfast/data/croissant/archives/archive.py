"""What every archive can do: say what it holds, and give the bytes of some of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from holdfast.errors import InputError

Opener = Callable[[], IO[bytes]]
"""Opens the bytes of an archive at their start, as often as they are gone through."""

STEP = 1 << 20
"""Bytes that are unpacked at a time."""


class Archive(ABC):
    """An open archive.

    Attributes:
        where: what it is called in messages.
        sizes: path from its root -> bytes of that member unpacked, in the archive's order; None where that
            is only known once it is unpacked.
        forward: going back to an earlier member unpacks everything before it again.
    """

    where: str
    sizes: Mapping[str, int | None]
    forward = False

    @abstractmethod
    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, piece by piece.

        Raises:
            InputError: if they are damaged, cut short, locked, or more than the limits allow.
        """

    @abstractmethod
    def packed(self, name: str) -> int:
        """Bytes that a member takes in the file; for those compressed together, what all of them take."""

    @abstractmethod
    def position(self, name: str) -> int:
        """Where a member stands: those read in this order are read in one pass."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def damaged(where: str, name: str | None, found: object, expected: str) -> InputError:
    """The error of an archive that is not whole."""
    return InputError(
        "damaged or truncated archive",
        code="damaged",
        path=where,
        place=None if name is None else f"member {name!r}",
        found=str(found) or type(found).__name__,
        expected=expected,
        remedy="download or rebuild it",
    )
