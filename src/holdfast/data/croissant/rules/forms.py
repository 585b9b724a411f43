"""How a single value must be written: each function says what is wrong with one, or nothing.

They know no description: a checksum, a date, a pattern is right or wrong wherever it stands. The answer is
the end of a sentence ("... is not 64 hexadecimal digits"), ``""`` where the value is right.
"""

from __future__ import annotations

import base64
import binascii
import re
import warnings
from collections.abc import Callable
from datetime import datetime
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast.data.croissant.scanning import formats
from holdfast.data.croissant.scanning.json_paths import steps_of
from holdfast.data.croissant.scanning.transforms import re2_fault
from holdfast.errors import InputError

_WEB = {"http", "https", "ftp", "data", "ipfs"}
_STORES = {"s3", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "r2", "hf"}
_REPOSITORIES = {"git", "ssh", "git+https", "git+http", "git+ssh"}
_WITH_HOST = {"http", "https", "ftp", "s3", "gs", "hf"}
SCHEMES = frozenset(_WEB | _STORES | _REPOSITORIES)
FILE_PROPERTIES = ("fullpath", "filename", "content", "lines", "lineNumbers")

_PART_OF_DATE = re.compile(r"\d{4}(?:-(?:0[1-9]|1[0-2]))?")


def checksum(value: str, digits: int) -> str:
    """A hash of so many hexadecimal digits, or the base64 of its bytes."""
    if re.fullmatch(rf"[0-9A-Fa-f]{{{digits}}}", value):
        return ""
    try:
        if len(base64.b64decode(value, validate=True)) == digits // 2 and value.endswith("="):
            return ""
    except (binascii.Error, ValueError):
        pass
    return f"is not {digits} hexadecimal digits (nor {digits // 2} bytes in base64)"


def date(value: str) -> str:
    """A date, or date and time, of ISO 8601; a year or a month alone are dates too."""
    if _PART_OF_DATE.fullmatch(value.strip()):
        return ""
    try:
        datetime.fromisoformat(value.strip())
    except ValueError:
        return "is not a date of ISO 8601, such as 2024-05-31 or 2024-05-31T12:00:00Z"
    return ""


def web_address(value: str) -> str:
    """An absolute URL that a browser can open."""
    parts = _split(value)
    if parts and parts.scheme in ("http", "https") and parts.hostname and " " not in value:
        return ""
    return "is not an absolute URL, such as https://example.org/data"


def array_shape(value: str) -> str:
    """Sizes with commas between them; -1 where a size varies."""
    inner = value.strip().removeprefix("(").removesuffix(")").strip().removesuffix(",")
    sizes = [size.strip() for size in inner.split(",")]
    if all(re.fullmatch(r"-1|[1-9]\d{0,17}", size, re.ASCII) for size in sizes):
        return ""
    return "is not a list of sizes, such as -1,3 (-1 for a size that varies)"


def resource_path(value: str) -> str:
    """A URL of a scheme that can be fetched, or a path that stays inside its folder or archive."""
    parts = _split(value)
    if re.match(r"[A-Za-z]:[\\/]", value) or (parts and parts.scheme == "file"):
        return "is a path of one machine: whoever else reads it looks in another place"
    if parts and parts.scheme and parts.netloc + parts.path and "://" in value:
        return ""
    if parts and parts.scheme in _WITH_HOST:
        return f"is not a URL: two slashes come after {parts.scheme}:"
    return _escape(value)


def unknown_scheme(value: str) -> str:
    """The scheme of a URL that no common tool can fetch; ``""`` for every other URL and every path."""
    parts = _split(value)
    scheme = parts.scheme if parts and "://" in value else ""
    return "" if scheme in SCHEMES or scheme == "file" else scheme


def _escape(path: str) -> str:
    for form in (path, unquote(path)):
        if form.startswith(("/", "\\")):
            return "is an absolute path: nothing outside the description's folder may be read"
        if ".." in re.split(r"[\\/]", form):
            return "leads out of its folder: no part of the path may be .."
    return ""


def pattern_escapes(value: str) -> str:
    """A glob pattern whose matches would lie outside the container."""
    return "leads out of its container" if ".." in re.split(r"[\\/]", value) else ""


def python_regex(value: str) -> tuple[str, int]:
    """What Python's `re` says about it, and how many groups capture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "", re.compile(value).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}", 0


def linear_regex(value: str) -> str:
    """A regular expression that RE2 runs, which refuses what can take exponential time."""
    fault = "" if python_regex(value)[0] else re2_fault(value)  # it may be none at all
    return fault and f"is not one that RE2 can run ({fault})"


def json_path(value: str) -> str:
    """A JSONPath that the reader of JSON can follow."""
    return _refused(lambda: steps_of(value))


def date_format(value: str, data_type: str | None) -> str:
    """A pattern of dates that the reader of values of a type can read."""
    return _refused(lambda: formats.date_format(value, data_type))


def number_format(value: str) -> str:
    """A pattern of numbers that the reader of values can read."""
    return _refused(lambda: formats.number_text("", value))


def _refused(read: Callable[[], object]) -> str:
    try:
        read()
    except InputError as error:
        return f"cannot be read: {error.found}" + (f" ({error.remedy})" if error.remedy else "")
    return ""


def replacement(value: str) -> str:
    """``pattern/replacement``: the first ``/`` that has no backslash before it divides them."""
    parts = re.split(r"(?<!\\)/", value, maxsplit=1)
    if len(parts) < 2:
        return "is not pattern/replacement: it has no / between the two"
    if not parts[0]:
        return "has no pattern before the /"
    return python_regex(parts[0])[0]


def linear_replacement(value: str) -> str:
    """The pattern of a replace as one that RE2 runs."""
    return "" if replacement(value) else linear_regex(re.split(r"(?<!\\)/", value, maxsplit=1)[0])


def _split(value: str) -> SplitResult | None:
    try:
        return urlsplit(value)
    except ValueError:
        return None
