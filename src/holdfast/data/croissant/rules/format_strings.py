"""How formats and replacements are written: each function says what is wrong with one, or nothing."""

from __future__ import annotations

import re

from holdfast.data.croissant.rules.forms import python_regex

BOX_FORMATS = frozenset({"center_xywh", "center_yxhw", "rel_center_xywh"}).union(
    scale + order for scale in ("", "rel_") for order in ("xyxy", "yxyx", "xywh")
)
_CLDR_LETTERS = frozenset("GyYuUrQqMLlwWdDFgEecabBhHKkjJCmsSAzZOvVXx")
_CLDR_DATE = frozenset("yYurQqMLwdDFgEec")
_STRFTIME = frozenset("aAwdbBmyYHIMpSfzZjUWcxXGuVDeFTRnthkls%C")


def date_format(value: str) -> str:
    """A date pattern of CLDR, or of strftime where it has a ``%``."""
    return _strftime(value) if "%" in value else _cldr_date(value)


def _strftime(value: str) -> str:
    directives = re.findall(r"%[-_0^#:]?(.?)", value, re.DOTALL)
    unknown = [letter for letter in directives if letter not in _STRFTIME or not letter]
    if unknown:
        return f"has %{unknown[0]}, which strftime does not know"
    if all(letter == "%" for letter in directives):
        return "has no part of a date"
    return ""


def _cldr_date(value: str) -> str:
    bare = re.sub(r"'[^']*'", "", value)
    if "'" in bare:
        return "has a quote (') that does not end"
    letters = [letter for letter in bare if letter.isascii() and letter.isalpha()]
    plain = [letter for letter in letters if letter not in _CLDR_LETTERS and letter != "T"]
    if plain:
        return f'has the letter "{plain[0]}", which stands for nothing in a date pattern of CLDR'
    if not letters:
        return "has no part of a date"
    if "Y" in letters and "w" not in letters:
        return "has YYYY, the year that a week belongs to; the year of a date is yyyy"
    if "D" in letters and "M" in letters:
        return "has DD, the day of the year; the day of the month is dd"
    if "m" in letters and not set("hHKk") & set(letters) and set("yd") & set(letters):
        return "has mm, minutes, but no hours; the month is MM"
    return ""


def has_date(value: str) -> bool:
    """Whether a format that is right has a day, a month or a year, not only a time."""
    if "%" in value:
        return bool(set(re.findall(r"%[-_0^#:]?(.)", value)) & set("aAwdbBmyYjUWcxGuVDeFs"))
    return bool(set(re.sub(r"'[^']*'", "", value)) & _CLDR_DATE)


def number_format(value: str) -> str:
    """A number pattern of CLDR."""
    return (
        "" if re.search(r"[0-9#@]", value) else "has no digit (0 or #) of a number pattern of CLDR"
    )


def box_format(value: str) -> str:
    """How Keras names the order of a box's four numbers."""
    if value.strip().casefold() in BOX_FORMATS:
        return ""
    return "is not a format of bounding boxes, such as XYXY, XYWH or CENTER_XYWH"


def replacement(value: str) -> str:
    """``pattern/replacement``: the first ``/`` that has no backslash before it divides them."""
    parts = re.split(r"(?<!\\)/", value, maxsplit=1)
    if len(parts) < 2:
        return "is not pattern/replacement: it has no / between the two"
    if not parts[0]:
        return "has no pattern before the /"
    return python_regex(parts[0])[0]
