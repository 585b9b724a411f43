"""What every archive can do: say what it holds, and give the bytes of some of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What no honest dataset needs more of; `Resources.limits` takes others.

    Attributes:
        members: entries of one archive.
        depth: archives inside one another: 1 is an archive in none.
        total: bytes that one archive unpacks to.
        ratio: unpacked bytes for each packed one, beyond `free` bytes. Tables and logs reach 20 to 50,
            repetitive JSON 100; zeros in deflate 1,032.
        free: bytes that may be unpacked whatever the ratio: any disk has them to spare.
        header: bytes of one header of a tar, long names and attributes included.
    """

    members: int = 10_000_000
    depth: int = 3
    total: int = 1 << 40
    ratio: float = 200
    free: int = 1 << 28
    header: int = 1 << 20

    def unpacked(self, size: int, packed: int, where: str, member: str | None = None) -> None:
        """Check what was unpacked, or is said to unpack, from so many packed bytes.

        Raises:
            InputError: if it passes `total` or `ratio`.
        """
        if size > self.total:
            found, most = f"{size:,} bytes", f"at most {self.total:,} bytes"
            raise too_much("total", found, most, where, member)
        if size > self.free and size > self.ratio * packed:
            found = f"{size:,} bytes out of {packed:,}"
            most = f"at most {self.ratio:,.0f} for each packed byte beyond {self.free:,} bytes"
            raise too_much("ratio", found, most, where, member)


def too_much(
    limit: str, found: str, expected: str, where: str, member: str | None = None
) -> InputError:
    """The error of an archive that passes one of the `Limits`."""
    return InputError(
        "possible archive bomb: it exceeds a limit on what archives may hold",
        code="unsafe-archive",
        path=where,
        place=None if member is None else f"member {member!r}",
        found=found,
        expected=expected,
        remedy="do not unpack it unless you know who made it; if it is right, raise the limit "
        f"(resources.limits = Limits({limit}=...)), or unpack it yourself and give that folder "
        "by --map ID=FOLDER",
    )
