"""What a server says to a request for a part of a file, and the ways in which it may fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.data.croissant.fetching.parts import Version
from holdfast.errors import InputError

CHUNK = 1 << 18
"""Bytes that are read at a time."""

OTHER_PART = "the server sent a different range than requested"

Span = tuple[int, int]
"""[start, end) in bytes."""


class PassingFault(Exception):
    """The same request may well succeed later.

    Attributes:
        wait_s: how long the server asked to be left alone; None where it did not say.
        stalled: whether the server was silent for the whole timeout.
    """

    def __init__(self, reason: str, wait_s: float | None = None, *, stalled: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.stalled = wait_s, stalled


class BodyStream(Protocol):
    """The bytes of an answer."""

    def chunks(self) -> Iterator[bytes]:
        """Them, as they come; `PassingFault` where they break off."""

    def close(self) -> None:
        """Want no more of them."""

    def abort(self) -> None:
        """Wake a thread that waits for more of them; it meets a `PassingFault`."""


@dataclass(slots=True)
class Answer:
    """An answer whose body was not read yet.

    Attributes:
        kind: "part" (of the file, from `start` to `end`), "whole" (all of it), "unchanged" (as it was when
            it was fetched last), "no range" (there are no such bytes: the file is shorter, or empty).
        encoding: a Content-Encoding that stands between the body and the file.
    """

    kind: Literal["part", "whole", "unchanged", "no range"]
    version: Version
    start: int = 0
    end: int | None = None
    content_type: str = ""
    encoding: str = ""
    final_url: str = ""
    body: BodyStream | None = field(default=None, repr=False)

    def close(self) -> None:
        """Want no more of the body."""
        if self.body:
            self.body.close()


class Source(Protocol):
    """Something that gives the parts of one file; used by many threads."""

    def ask(
        self,
        span: Span | None,
        *,
        same_as: Version | None = None,
        unless: Version | None = None,
        decode: bool = False,
    ) -> Answer:
        """Ask for bytes.

        Args:
            span: None for the whole file; (-n, 0) for its last n bytes.
            same_as: send the part only if the file is still of this version; else the whole.
            unless: send nothing if the file is of this version.
            decode: undo a Content-Encoding of the body.

        Raises:
            PassingFault: it may succeed later.
            InputError: it will not.
        """


class RangesRefused(InputError):
    """The server does not send parts of files: fetch the whole."""


def looks_like_html(first: bytes, content_type: str) -> bool:
    """Whether a body's first bytes, and what the server calls it, are those of a web page."""
    text = first[:2048].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<meta ")):
        return True
    named = content_type.partition(";")[0].strip().lower()
    return named in ("text/html", "application/xhtml+xml") and text.startswith(b"<")
