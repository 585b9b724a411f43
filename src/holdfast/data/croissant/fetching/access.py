"""What a contentUrl names, and how the network may be used for a description and its files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from holdfast.errors import InputError

TIMEOUT_S = 30.0
"""Longest wait for a connection and between two pieces of a response, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the network may be used.

    Attributes:
        cache: folder for fetched files; None for the user's cache folder.
        offline: make no request; use what the cache has.
        timeout: seconds to wait for a connection, and for more bytes of a response.
        public_only: refuse servers whose address is not public, also after redirects.

    Raises:
        InputError: a timeout that is not a positive number.
    """

    cache: str | Path | None = None
    offline: bool = False
    timeout: float = TIMEOUT_S
    public_only: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.timeout < math.inf):
            raise InputError(
                "invalid timeout",
                code="out-of-range",
                place="timeout",
                found=f"{self.timeout:g}",
                expected="a positive number of seconds",
            )


def is_remote(url: str) -> bool:
    """Whether it must be fetched: it has a scheme (http, s3, gs ...) other than file://."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.isascii() and scheme.isalnum() and scheme.lower() != "file"


def is_web(url: str) -> bool:
    """Whether it is http or https."""
    return urlsplit(url).scheme.lower() in ("http", "https")


def file_name(url: str) -> str:
    """The last part of its path, unquoted; of its host, where it has no path."""
    parts = urlsplit(url)
    return PurePosixPath(unquote(parts.path)).name or parts.netloc
