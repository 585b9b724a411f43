"""What a contentUrl names, and how messages and records show it."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit


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
