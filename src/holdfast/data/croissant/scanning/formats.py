"""How text is read as dates and numbers: patterns of CLDR (yyyy-MM-dd, #,##0.00) and strftime (%Y-%m-%d).

CLDR: Unicode Technical Standard 35, part 4 (dates) and part 3 (numbers). Months and days are read in
English; in numbers "." is the decimal and "," the grouping separator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.errors import InputError
from holdfast.tables import literal

_STRFTIME = {letter: f"%{letter}" for letter in "aAbBdfgHIjmMnpSUwWyYzZ%"} | {
    "D": "%m/%d/%y",
    "e": "%-d",
    "F": "%Y-%m-%d",
    "h": "%b",
    "R": "%H:%M",
    "T": "%H:%M:%S",
}
_CLDR = {
    "y": {1: "%Y", 2: "%y", 4: "%Y"},
    "u": {1: "%Y", 4: "%Y"},
    "M": {1: "%-m", 2: "%m", 3: "%b", 4: "%B"},
    "L": {1: "%-m", 2: "%m", 3: "%b", 4: "%B"},
    "d": {1: "%-d", 2: "%d"},
    "D": {1: "%-j", 3: "%j"},
    "E": {1: "%a", 2: "%a", 3: "%a", 4: "%A"},
    "H": {1: "%-H", 2: "%H"},
    "h": {1: "%-I", 2: "%I"},
    "m": {1: "%-M", 2: "%M"},
    "s": {1: "%-S", 2: "%S"},
    "S": dict.fromkeys(range(1, 7), "%f") | {9: "%n"},
    "a": {1: "%p", 2: "%p", 3: "%p"},
    "X": {1: "%z", 2: "%z", 3: "%z"},
    "x": {1: "%z", 2: "%z", 3: "%z"},
    "Z": {1: "%z", 2: "%z", 3: "%z", 5: "%z"},
    "V": {2: "%Z"},
    "z": {1: "%Z", 2: "%Z", 3: "%Z"},
    "T": {1: "T"},  # no letter of CLDR, and often written without its quotes
}
_SLIPS = {
    "Y": "YYYY is the year that a week belongs to; the year of a date is yyyy",
    "D": "DD is the day of the year; the day of the month is dd",
}
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")
_NUMBER = re.compile(
    r"(?P<before>(?:'[^']*'|[^#0,.;'])*)(?P<body>[#0,]+(?:\.[#0]+)?)(?P<power>E\+?0+)?(?P<after>(?:'[^']*'|[^#0,.;'])*)"
)


@dataclass(frozen=True)
class DateFormat:
    """A pattern of dates.

    Attributes:
        strptime: the pattern as DuckDB's strptime takes it.
        time: it has an hour.
        zone: it has an offset or a zone.
        nanoseconds: it has more digits than microseconds.
    """

    strptime: str
    time: bool
    zone: bool
    nanoseconds: bool = False


def is_date_type(data_type: str | None) -> bool:
    """Whether values of a data type are read by a pattern of dates."""
    return data_type in ("sc:Date", "sc:DateTime", "sc:Time")


def date_format(pattern: str, data_type: str | None = None) -> DateFormat:
    """A pattern of CLDR or, where it has a "%", of strftime.

    Args:
        pattern: the pattern.
        data_type: what its text stands for, such as sc:Date.

    Raises:
        InputError: naming the letter that cannot be read, or what the pattern lacks for the type: a date
            with a time of day alone would be one of the year 1900.
    """
    translated = _from_strftime(pattern) if "%" in pattern else _from_cldr(pattern)
    letters = set(re.findall(r"%-?(.)", translated.replace("%%", "")))
    hours, dated = bool(letters & set("HI")), bool(letters & set("aAbBdjmUwWyY"))
    wrong = ""
    if data_type == "sc:Time" and not hours:
        wrong = "no hours"
    elif data_type in ("sc:Date", "sc:DateTime") and not dated:
        wrong = "no part of a date"
    elif dated and "M" in letters and not hours:
        wrong = "minutes without hours: the month is MM, in strftime %m"
    if wrong:
        raise InputError(
            f"the format {pattern!r} does not describe a value of {data_type or 'a time'}",
            code="invalid-syntax",
            found=wrong,
            expected="such as yyyy-MM-dd or HH:mm:ss",
        )
    zone, fine = bool(letters & set("zZ")), "n" in letters
    if zone and fine:
        raise InputError(
            f"the format {pattern!r} has both nanoseconds and a zone",
            code="unsupported",
            found=pattern,
            expected="one of the two: instants are kept in microseconds",
        )
    return DateFormat(translated, hours, zone, fine)


def _from_strftime(pattern: str) -> str:
    def one(match: re.Match[str]) -> str:
        known = _STRFTIME.get(match[2])
        if known is None or (match[1] and match[2] not in "dmHIMSyj"):
            raise _unreadable(pattern, match[0])
        return f"%-{match[2]}" if match[1] else known

    return re.sub(r"%(-?)(.?)", one, pattern, flags=re.DOTALL)


def _from_cldr(pattern: str) -> str:
    made: list[str] = []
    end = 0
    for piece in _PIECE.finditer(pattern):
        if piece.start() != end:
            break
        end = piece.end()
        quoted, letter, sign = piece.groups()
        if letter:
            known = _CLDR.get(letter, {}).get(len(piece[0]))
            if known is None:
                raise _unreadable(pattern, piece[0])
            made.append(known)
        else:
            plain = sign if quoted is None else quoted.replace("''", "'") or "'"
            made.append(plain.replace("%", "%%"))
    if end < len(pattern):
        raise _unreadable(pattern, pattern[end:])
    return "".join(made)


def _unreadable(pattern: str, part: str) -> InputError:
    return InputError(
        f"the format {pattern!r} has a part that cannot be read: {part!r}",
        code="invalid-syntax",
        found=part,
        expected="letters of CLDR's date patterns (y M d E H h m s S a X x Z z) or of strftime",
        remedy=_SLIPS.get(part[:1], "write the format with those, such as yyyy-MM-dd HH:mm:ss"),
    )


def number_text(sql: str, pattern: str) -> tuple[str, int]:
    """A number's digits out of text that a CLDR number pattern describes.

    Args:
        sql: an expression of type VARCHAR.
        pattern: such as ``#,##0.00``, ``0.##E0``, ``¤#,##0.00`` or ``#0.#%``.

    Returns:
        An expression of text that casts to a number, and by what that number is to be divided (100 for
        percent, 1000 for per mille).

    Raises:
        InputError: a pattern that is none, or has a part for negative numbers.
    """
    parts = _NUMBER.fullmatch(pattern)
    if parts is None:
        raise InputError(
            f"the format {pattern!r} is not a valid number pattern",
            code="invalid-syntax",
            found=pattern,
            expected="digits 0 and #, one decimal point, an exponent E0, text before and after",
            remedy="write a pattern such as #,##0.00 or 0.##E0",
        )
    made = f"trim({sql})"
    around = parts["before"] + parts["after"]
    for text in (parts["before"], parts["after"]):
        plain = text.replace("'", "").strip()
        for sign in filter(None, re.split(r"([¤%‰+-])", plain)):
            if sign == "¤":
                made = f"regexp_replace({made}, '\\p{{Sc}}', '')"
            elif sign not in "+-":
                made = f"replace({made}, {literal(sign.strip())}, '')"
    if "," in parts["body"]:
        made = f"replace({made}, ',', '')"
    return f"trim({made})", 100 if "%" in around else 1000 if "‰" in around else 1
