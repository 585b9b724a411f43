"""Who wrote a line, and when: the rank and the time in its text, or in the name of its file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

PREFIX = re.compile(r"(?:\[rank\d{1,6}\]:? ?|\[[A-Za-z_]{1,32}\d{1,6}\]: ?| {0,5}\d{1,6}: )+")
"""What torchrun (``[rank3]: ``, ``[default3]:``) and ``srun --label`` (``3: ``) put before a line."""

_RANK_PREFIX = re.compile(
    r"\[rank(\d{1,6})\]|\[[A-Za-z_]{1,32}(\d{1,6})\]:| {0,5}(\d{1,6}): ", re.ASCII
)
_RANK_INSIDE = re.compile(
    r"\[Rank (\d{1,6})\]|\bRank (\d{1,6})\]|\(rank[ =](\d{1,6})\)|\bglobal_rank[=: ]{1,2}(\d{1,6})\b"
    r"|\brank[ =:]{1,2}(\d{1,6})\b",
    re.ASCII | re.IGNORECASE,
)
_RANK_IN_NAME = re.compile(
    r"rank[-_.]?(\d{1,6})(?!\d)"
    r"|(?:^|[-_.])(?:worker|task|proc|process)[-_.]?(\d{1,6})(?!\d)"
    r"|(?:stderr|stdout|err|out|log)[-_.](\d{1,6})$"
    r"|^(\d{1,5})$",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T _]"
    r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
    r"|\b[IWEF](?P<month2>\d{1,2})(?P<day2>\d\d) (?P<clock2>\d\d:\d\d:\d\d)(?:\.(?P<part2>\d{1,9}))?"
    r"|\b(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day3>\d{1,2}) "
    r"(?P<clock3>\d\d:\d\d:\d\d)(?:\.(?P<part3>\d{1,9}))?(?: (?P<year3>\d{4})\b)?",
    re.ASCII,
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LOOKED_AT = 240
"""A time stands near the start of its line."""
_LEAP_YEAR = 2000
"""Holds every day; stands in where no line says the year."""


@dataclass(frozen=True)
class Moment:
    """A time as a line gives it."""

    seconds: float
    """Since 1970, in UTC where the line says its zone, else as if its clock were UTC."""
    has_year: bool
    """False: the line has no year, and `seconds` lies in 2000."""

    def in_year(self, year: int) -> float:
        """Seconds since 1970, with `year` where the line says none."""
        if self.has_year:
            return self.seconds
        # As days from the start of the year, so that 29 February moves instead of failing.
        own = datetime(_LEAP_YEAR, 1, 1, tzinfo=UTC).timestamp()
        return datetime(year, 1, 1, tzinfo=UTC).timestamp() + self.seconds - own

    @property
    def year(self) -> int:
        """The year of `seconds`."""
        return datetime.fromtimestamp(self.seconds, UTC).year


def without_prefix(text: str) -> str:
    """The line without the rank that a launcher put before it."""
    found = PREFIX.match(text)
    return text[found.end() :] if found else text


def rank_of_line(text: str) -> int | None:
    """The rank that a line names: before it, else in it."""
    found = _RANK_PREFIX.match(text) or _RANK_INSIDE.search(text, 0, 400)
    return _first_number(found)


def rank_of_file(path: Path) -> int | None:
    """The rank in a file's name, else in its folder's.

    Known are ``rank_3.log``, ``stderr.3``, ``worker-3/out.log``, torchrun's ``attempt_0/3/stderr.log``.
    """
    stem = path.name.removesuffix(".gz")
    for suffix in (".log", ".txt", ".out", ".err"):
        stem = stem.removesuffix(suffix)
    found = _RANK_IN_NAME.search(stem)
    if found and not found[4]:
        return _first_number(found)
    parent, above = path.parent.name, path.parent.parent.name
    if above.startswith("attempt_") and parent.isdecimal():
        return int(parent)
    found = re.search(
        r"(?:^|[-_.])(?:rank|worker|task|proc)[-_.]?(\d{1,6})$", parent, re.IGNORECASE
    )
    return int(found[1]) if found else None


def _first_number(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    return next(int(group) for group in found.groups() if group is not None)


def moment_of(text: str) -> Moment | None:
    """The timestamp of a line; None if it has none.

    Formats: ISO with time zone, glog, PyTorch and NCCL (``E1120 10:49:15.123``), syslog and
    ``dmesg -T``. Seconds since boot (plain dmesg) are ignored.
    """
    found = _TIME.search(text, 0, _LOOKED_AT)
    if found is None:
        return None
    given = found.groupdict()
    year = given["year"] or given["year3"]
    month = given["month"] or given["month2"] or _MONTHS.index(given["name"]) + 1
    day = given["day"] or given["day2"] or given["day3"]
    clock = (given["clock"] or given["clock2"] or given["clock3"]).split(":")
    part = given["part"] or given["part2"] or given["part3"]
    try:
        hour, minute, second = map(int, clock)
        moment = datetime(
            int(year or _LEAP_YEAR), int(month), int(day), hour, minute, second, tzinfo=UTC
        )
        moment -= _offset(given["zone"])
        seconds = moment.timestamp()
    except (ValueError, OverflowError):  # 13 months, 61 seconds
        return None
    return Moment(seconds + (float(f"0.{part}") if part else 0.0), year is not None)


def _offset(zone: str | None) -> timedelta:
    if not zone or zone == "Z":
        return timedelta()
    digits = zone[1:].replace(":", "")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return size if zone[0] == "+" else -size
