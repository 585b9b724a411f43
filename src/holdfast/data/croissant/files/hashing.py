"""Checksums and sizes as descriptions write them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.errors import InputError

Algorithm = Literal["sha256", "md5"]

_BYTES: dict[Algorithm, int] = {"sha256": 32, "md5": 16}
_SIZE = re.compile(r"\s*+(\d[\d,]*+(?:\.\d++)?)\s*+(bytes?|[kmgtpe]?i?b?)\s*+", re.IGNORECASE)
_PREFIXES = "kmgtpe"


class WrongChecksum(InputError):
    """A file that is not the one that is described."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """What a file's bytes must add up to; `hex` has 64 or 32 lower-case digits."""

    algorithm: Algorithm
    hex: str

    def __str__(self) -> str:
        return f"{self.algorithm} {self.hex}"


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, and whether it was given to the byte ("25 MB" may be anything near)."""

    bytes: int
    exact: bool


def checksum_of(sha256: str | None, md5: str | None = None) -> Checksum | None:
    """The strongest checksum that a description states; None where none of its values can be one.

    Digits may be hexadecimal in either case, or base64. An MD5 written under sha256 is taken as the MD5
    that it is.
    """
    for text, algorithms in ((sha256, ("sha256", "md5")), (md5, ("md5",))):
        for algorithm in algorithms:
            digits = _digits(text or "", _BYTES[algorithm])  # type: ignore[index]
            if digits is not None:
                return Checksum(algorithm, digits)  # type: ignore[arg-type]
    return None


def _digits(text: str, size: int) -> str | None:
    """The lower-case hex digits of a checksum of so many bytes; None if the text is none."""
    text = text.strip()
    if re.fullmatch(rf"[0-9a-fA-F]{{{2 * size}}}", text):
        return text.lower()
    bare = text.rstrip("=")
    if len(bare) != -(-size * 4 // 3):
        return None
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return None
    # The last digit has bits to spare, which must be 0: one checksum, one spelling.
    return raw.hex() if base64.b64encode(raw).decode().rstrip("=") == bare else None


def parse_size(text: str | None) -> Size | None:
    """The bytes in ``"117743 B"``, ``"97.73 TiB"``, ``"25 MB"`` or ``"1024"``; None where it says none.

    MB are a million bytes and MiB 2^20, as ISO/IEC 80000-13 has it.
    """
    match = _SIZE.fullmatch(text or "")
    if not match:
        return None
    number, unit = match[1].replace(",", ""), (match[2] or "").lower()
    if unit in ("", "b", "byte", "bytes"):
        return Size(int(number), True) if number.isdigit() else None
    if unit[0] not in _PREFIXES:
        return None
    base = 1024 if "i" in unit else 1000
    return Size(round(float(number) * base ** (_PREFIXES.index(unit[0]) + 1)), False)


def file_checksum(path: str | Path, algorithm: Algorithm = "sha256") -> Checksum:
    """The checksum of a file of this machine."""
    with Path(path).open("rb") as file:
        return Checksum(algorithm, hashlib.file_digest(file, algorithm).hexdigest())
