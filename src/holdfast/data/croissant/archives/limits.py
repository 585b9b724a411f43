"""How much an archive may hold or unpack to before it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import InputError


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
