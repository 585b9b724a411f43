"""The fields that schedulers write, as columns: times, durations, states, exit codes, GPUs.

Every function takes a whole column of strings and returns a column. A value that means "nothing"
(``Unknown``, ``None``, an empty field, a time before 1971) becomes null; `is_blank` tells it from
junk. Host lists are in `hosts`, keys and tables in `columns`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.columns import Column, by_distinct, flat

BLANKS = (
    "", "Unknown", "None", "N/A", "(null)", "null", "UNKNOWN", "NONE", "n/a", "none",
    "unknown",
)  # fmt: skip
"""What schedulers print for "there is no value"."""

STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED",
    "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "POWER_UP_NODE", "PREEMPTED",
    "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD",
    "REVOKED", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
    "TIMEOUT", "UPDATE_DB",
)  # fmt: skip
"""Every state that `sacct` or `squeue` of Slurm 17.11 to 25.05 can print."""

_FIRST_REAL_TIME_S = 365 * 86400  # before 1971: a zero that some zone shifted into 1969 or 1970

_LOCAL_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?$"
_ZONED_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$"
_EPOCH_TIME = r"^-?\d{1,12}(\.\d+)?$"

_DURATION = re.compile(
    r"^(?:(?P<days>\d+)-)?(?:(?P<a>\d+):)??(?:(?P<b>\d+):)?(?P<c>\d+)(?:\.(?P<fraction>\d+))?$"
)
_GRES_GPU = re.compile(
    r"^(?:gres[/:])?gpu(?::(?P<type>[^:=(]+?))?(?:[:=](?P<count>\d+[KMG]?))?(?:\(.*\))?$"
)


def is_blank(values: Column) -> pa.Array:
    """True where the field is null or one of `BLANKS`."""
    array = flat(values)
    return pc.or_(pc.is_null(array), pc.is_in(array, value_set=pa.array(BLANKS)))


# --- Times and durations -------------------------------------------------------------------------


def parse_instant(values: Column, zone: ZoneInfo, *, ambiguous: str = "earliest") -> pa.Array:
    """Times as written by schedulers and health checks, with fractions of a second.

    Args:
        values: strings: ISO 8601 with or without a zone, or seconds since 1970.
        zone: the zone of times that carry none. A time that a
            change of clocks skipped moves forward.
        ambiguous: ``"earliest"`` or ``"latest"``: which of the two a doubled local time means.

    Returns:
        float64 seconds since 1970 UTC; null for blanks, for times before 1971 and for junk.
    """
    # Not safe: microseconds after the year 2255 are not exact, and no time of a log.
    return pc.divide(
        _microseconds(flat(values), zone, ambiguous).cast(pa.float64(), safe=False), 1e6
    )


def parse_time(values: Column, zone: ZoneInfo, *, ambiguous: str = "earliest") -> pa.Array:
    """As `parse_instant`, in whole seconds (int64)."""
    return pc.floor(parse_instant(values, zone, ambiguous=ambiguous)).cast(pa.int64())


def _microseconds(array: pa.Array, zone: ZoneInfo, ambiguous: str) -> pa.Array:
    if len(array) == 0:
        return pa.array([], pa.int64())
    array = pc.if_else(is_blank(array), pa.scalar(None, pa.string()), array.cast(pa.string()))
    result = _local_microseconds(array, zone, ambiguous)
    if result is None:
        result = pa.nulls(len(array), pa.int64())
        local = _only(array, _LOCAL_TIME)
        if local.null_count < len(local):
            parsed = _local_microseconds(local, zone, ambiguous)
            if parsed is None:  # the right shape but no such day: find the good ones one by one
                parsed = _local_microseconds(
                    by_distinct(local, _real_time, pa.string()), zone, ambiguous
                )
            result = pc.coalesce(result, parsed)
        zoned = _only(array, _ZONED_TIME)
        if zoned.null_count < len(zoned):
            try:
                stamps = zoned.cast(pa.timestamp("us", "UTC"))
            except pa.ArrowInvalid:
                stamps = by_distinct(zoned, _real_time, pa.string()).cast(pa.timestamp("us", "UTC"))
            result = pc.coalesce(result, stamps.cast(pa.int64()))
        epoch = _only(array, _EPOCH_TIME)
        if epoch.null_count < len(epoch):
            seconds = epoch.cast(pa.float64())
            result = pc.coalesce(result, pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64()))
    early = pc.less(result, _FIRST_REAL_TIME_S * 1_000_000)
    return pc.if_else(early, pa.scalar(None, pa.int64()), result)


def _only(array: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(array, pattern), array, pa.scalar(None, pa.string()))


def _local_microseconds(array: pa.Array, zone: ZoneInfo, ambiguous: str) -> pa.Array | None:
    """Local ISO times in microseconds UTC, or None if some string is not one."""
    try:
        stamps = array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
    if zone.key != "UTC":
        stamps = pc.assume_timezone(stamps, zone.key, ambiguous=ambiguous, nonexistent="latest")
    return stamps.cast(pa.int64())


def _real_time(text: str) -> str | None:
    try:
        pa.scalar(text).cast(
            pa.timestamp("us", "UTC") if re.match(_ZONED_TIME, text) else pa.timestamp("us")
        )
    except pa.ArrowInvalid:
        return None
    return text


def parse_duration(values: Column) -> pa.Array:
    """Durations (``1-02:03:04``, ``02:03:04``, ``03:04.5``, ``1-02``) in whole seconds, int64."""
    return by_distinct(values, duration_s, pa.int64())


def duration_s(text: str) -> int | None:
    """Seconds of one duration as Slurm prints it; None if it is none."""
    match = _DURATION.match(text)
    if match is None:
        return None
    days, a, b, c = (match[name] for name in ("days", "a", "b", "c"))
    if days is not None:  # D-HH[:MM[:SS]]
        parts = [int(part) for part in (a, b, c) if part is not None]
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if b is None and a is None:
        return None  # a bare number: minutes in a time limit, seconds in ElapsedRaw, so not guessed
    return int(a or 0) * 3600 + int(b or 0) * 60 + int(c)


def parse_integer(values: Column) -> pa.Array:
    """Whole numbers (int64); null for everything else."""
    array = flat(values)
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    try:
        return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array).cast(pa.int64())
    except pa.ArrowInvalid:
        return _only(array, r"^-?\d{1,18}$").cast(pa.int64())


# --- States, exit codes, GPUs --------------------------------------------------------------------


def parse_state(values: Column) -> pa.Array:
    """The base state: ``CANCELLED by 1001`` and a truncated ``CANCELLED+`` give ``CANCELLED``.

    Returns:
        strings; null where the text is no Slurm state.
    """
    return by_distinct(values, state_of, pa.string())


@lru_cache(maxsize=4096)
def state_of(text: str) -> str | None:
    """The base state in one `State` field, or None if it is none."""
    words = text.split()
    if not words:
        return None
    word = words[0].upper()
    if word in STATES:
        return word if len(words) == 1 or words[1] == "by" else None
    if len(words) > 1:
        return None
    if word.endswith("+") and len(word) > 3:
        matches = [state for state in STATES if state.startswith(word[:-1])]
        if len(matches) == 1:
            return matches[0]
    return None


def parse_exit_code(values: Column) -> tuple[pa.Array, pa.Array]:
    """``1:15`` as two int32 columns, exit code and signal; null where the text has another form."""
    return (
        by_distinct(values, lambda text: _exit_part(text, 0), pa.int32()),
        by_distinct(values, lambda text: _exit_part(text, 1), pa.int32()),
    )


def _exit_part(text: str, part: int) -> int | None:
    pieces = text.split(":")
    if len(pieces) != 2 or not all(piece.isascii() and piece.isdigit() for piece in pieces):
        return None
    return int(pieces[part])


def parse_gpus(values: Column) -> pa.Array:
    """GPUs in a TRES or GRES field (int32); null where it is blank, 0 where it names none."""
    return by_distinct(values, gpus_of, pa.int32())


def gpus_of(text: str) -> int | None:
    """GPUs in one TRES or GRES field.

    Slurm lists the total and each type beside it (``gres/gpu=8,gres/gpu:a100=8``): the total counts
    once, and the types are added up only where no total stands.
    """
    if text in BLANKS:
        return None
    total: int | None = None
    typed = 0
    for item in re.split(r",(?![^()]*\))", text):
        match = _GRES_GPU.match(item.strip())
        if match is None:
            continue
        kind, count = match["type"], match["count"]
        if kind is not None and count is None and re.fullmatch(r"\d+[KMG]?", kind):
            kind, count = None, kind
        amount = _count(count) if count else 1
        if kind is None:
            total = (total or 0) + amount
        else:
            typed += amount
    return typed if total is None else max(total, typed)


def _count(text: str) -> int:
    scale = {"K": 1024, "M": 1024**2, "G": 1024**3}
    return int(text[:-1]) * scale[text[-1]] if text[-1] in scale else int(text)
