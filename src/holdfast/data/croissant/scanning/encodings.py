"""Text that is not UTF-8, as UTF-8: the engines read nothing else."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import IO, Literal

from holdfast.data.croissant.files.members import Member
from holdfast.errors import InputError

HEAD = 1024
"""Bytes of a text by which its encoding is judged."""
_BLOCK = 1 << 20
# UTF-32's mark in little-endian order begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = re.compile(rb"[\x80-\x9f]")
_REMEDY = (
    "name the encoding of the file: --encoding NAME (in Python encoding=NAME), or charset=NAME in its "
    "encodingFormat, such as text/csv; charset=windows-1252"
)


def encoding_of(head: bytes, declared: str | None, member: Member) -> tuple[str, int]:
    """The encoding of a text as Python names it, without a byte order mark, and the mark's length.

    Args:
        head: the first `HEAD` bytes of the text, or more.
        declared: the encoding that the description or the user names; None for UTF-8, or what a mark says.
        member: the file, for messages.

    Raises:
        InputError: an encoding that contradicts the byte order mark or leaves the byte order open.
    """
    mark, marked = next((one for one in _MARKS if head.startswith(one[0])), (b"", ""))
    if declared is None:
        # Latin letters in UTF-16 are valid UTF-8 too: with a zero byte beside each.
        zeros = {place % 2 for place, byte in enumerate(head[:HEAD]) if not byte}
        if not mark and len(zeros) == 1 and head.count(0, 0, HEAD) > 1:
            raise invalid(member, "UTF-8", "line 1", "zero bytes, as of UTF-16 without a mark")
        return marked or "utf-8", len(mark)
    name = codecs.lookup(declared).name.removesuffix("-sig")
    if mark and not marked.startswith(name):
        raise InputError(
            "the byte order mark of the file contradicts its declared encoding",
            code="conflict",
            path=member.fullpath,
            place="byte 0",
            found=f"the mark of {marked}, declared {declared}",
            remedy=_REMEDY,
        )
    if name in ("utf-16", "utf-32") and not mark and head:
        expected = f"{name} with a byte order mark"
        raise invalid(member, expected, "byte 0", f"no mark before {head[:4]!r}")
    return marked or name, len(mark)


def utf8_blocks(file: IO[bytes], encoding: str, skip: int, member: Member) -> Iterator[bytes]:
    """A text as UTF-8, block by block, each byte of it checked.

    Args:
        file: the text, at its beginning.
        encoding: its encoding.
        skip: the length of its byte order mark.
        member: the file, for messages.

    Raises:
        InputError: bytes that are not of the encoding; the place is their line.
    """
    file.read(skip)
    decoder = codecs.getincrementaldecoder(encoding)()
    ends = io.IncrementalNewlineDecoder(None, translate=True)
    lines, block = 1, b"-"
    while block:
        block = file.read(_BLOCK)
        try:
            if encoding.startswith("iso8859"):
                _refuse_controls(block, encoding)
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(encoding, errors="ignore")
            lines += ends.decode(before, final=True).count("\n")
            found = f"the byte 0x{error.object[error.start]:02x}"
            raise invalid(member, encoding.upper(), f"line {lines}", found) from None
        lines += ends.decode(text).count("\n")
        yield text.encode("utf-8", "strict")


def _refuse_controls(block: bytes, encoding: str) -> None:
    """Refuse bytes without a character in ISO 8859: they are letters in the encodings of Windows."""
    if stray := _CONTROLS.search(block):
        raise UnicodeDecodeError(encoding, block, stray.start(), stray.end(), "no character")


def text_kind(file: IO[bytes], member: Member) -> Literal["marked", "ascii", "utf-8", "other"]:
    """What a whole text is by its bytes: "utf-8" has letters beyond ASCII; "marked" begins with a mark."""
    decoder, plain = codecs.getincrementaldecoder("utf-8")(), True
    block = file.read(HEAD)
    try:
        if encoding_of(block, None, member)[1]:
            return "marked"
        while block:
            plain = plain and block.isascii()
            decoder.decode(block)
            block = file.read(_BLOCK)
        decoder.decode(b"", final=True)
    except (InputError, UnicodeDecodeError):
        return "other"
    return "ascii" if plain else "utf-8"


def no_media(data: bytes) -> str:
    """Why a file that begins so is no image, sound or video: "empty" or "a text"; "" if it may be."""
    if not data:
        return "empty"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:512])
    except UnicodeDecodeError:
        return ""
    drawn = "<svg" in text or text.startswith(("P1", "P2", "P3"))  # images that are texts
    return "a text" if "".join(text.split()).isprintable() and not drawn else ""


def check_utf8(file: IO[bytes], member: Member) -> None:
    """Read all of a text that should be UTF-8.

    Raises:
        InputError: a byte that is not; the place is its line.
    """
    for _ in utf8_blocks(file, "utf-8", 0, member):
        pass


def decoded(data: bytes, declared: str | None, member: Member) -> bytes:
    """A whole text in memory as UTF-8 without a byte order mark.

    Raises:
        InputError: as `encoding_of` and `utf8_blocks`.
    """
    encoding, skip = encoding_of(data, declared, member)
    return b"".join(utf8_blocks(io.BytesIO(data), encoding, skip, member))


def invalid(member: Member, encoding: str, place: str, found: str) -> InputError:
    """A file that is not valid in its encoding."""
    return InputError(
        f"{member.fullpath} is not valid {encoding}",
        code="invalid-encoding",
        path=member.fullpath,
        place=place,
        found=found,
        expected=f"text in {encoding}",
        remedy=_REMEDY,
    )
