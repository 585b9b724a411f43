"""Names of text encodings: the parameter charset of media types."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.errors import InputError

_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([^"';\s]+)""", re.IGNORECASE)


def charset_of(media_types: Iterable[str]) -> str | None:
    """The charset that a media type states, such as latin-1 in ``text/csv; charset=latin-1``."""
    found = (_CHARSET.search(text) for text in media_types)
    return next((match[1] for match in found if match), None)


def is_charset(name: str) -> bool:
    """Whether Python knows a text encoding of that name."""
    try:
        "a".encode(name)
    except (LookupError, ValueError):  # also those from bytes to bytes, such as base64
        return False
    return True


def checked_charset(name: str, resource: str | None = None) -> str:
    """The name itself.

    Raises:
        InputError: no encoding of text has it.
    """
    if is_charset(name):
        return name
    raise InputError(
        "unknown text encoding",
        code="unknown-name",
        place="encoding" if resource is None else f"resource {resource!r}",
        found=repr(name),
        expected="a name such as utf-8, windows-1252, shift_jis or utf-16",
        remedy="correct the charset of encodingFormat, or give another with --encoding NAME",
    )
