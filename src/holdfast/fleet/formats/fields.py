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

from holdfast.fleet.formats.columns import Column, by_distinct, coded, flat, recoded

STRANGE = "outcome "  # What a source notes of outcomes that are no known word begins so
MOST_STRANGE = 5

# What schedulers print for "there is no value"
BLANKS = (
    "", "Unknown", "None", "N/A", "(null)", "null", "UNKNOWN", "NONE", "n/a", "none",
    "unknown", "nan", "NaN",
)  # fmt: skip

# Every state that `sacct` or `squeue` of Slurm 17.11 to 25.05 can print
STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED",
    "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "POWER_UP_NODE", "PREEMPTED",
    "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD",
    "REVOKED", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
    "TIMEOUT", "UPDATE_DB",
)  # fmt: skip

_FIRST_REAL_TIME_S = 365 * 86400  # before 1971: a zero that some zone shifted into 1969 or 1970

_LOOK = 256  # rows that tell how times are written

_LOCAL_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?$"
_ZONED_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$"
EPOCH_TIME = r"^-?\d{1,12}(\.\d+)?$"

_DURATION = re.compile(
    r"^(?:(?P<days>\d+)-)?(?:(?P<a>\d+):)??(?:(?P<b>\d+):)?(?P<c>\d+)(?:\.(?P<fraction>\d+))?$"
)
_OF_GPUS = re.compile(r"(?:gres[/:])?gpu[:=]")
_SLICE = re.compile(r"[1-6]g\.\d+gb")  # 7g is the whole GPU
_GRES_GPU = re.compile(
    r"^(?:gres[/:])?gpu(?::(?P<type>[^:=(]+?))?(?:[:=](?P<count>\d+))?(?:\(.*\))?$"
)


def is_blank(values: Column) -> pa.Array:
    """True where the field is null or one of `BLANKS`."""
    array = flat(values)
    if not pa.types.is_string(array.type):
        return pc.is_null(array)
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


def are_local(values: Column) -> bool:
    """Whether the first times carry no zone, as none does that was read as ``timestamp[s]``."""
    if pa.types.is_timestamp(values.type):
        return values.null_count < len(values)
    return bool(pc.any(pc.match_substring_regex(flat(values)[:_LOOK], _LOCAL_TIME)).as_py())


def parse_time(values: Column, zone: ZoneInfo, *, ambiguous: str = "earliest") -> pa.Array:
    """As `parse_instant`, in whole seconds (int64); also of times that were read as ``timestamp[s]``."""
    array = flat(values)
    if pa.types.is_timestamp(array.type):
        seconds = _in_zone(array, zone, ambiguous)
        return pc.if_else(pc.less(seconds, _FIRST_REAL_TIME_S), None, seconds)
    return pc.floor(parse_instant(values, zone, ambiguous=ambiguous)).cast(pa.int64())


def _microseconds(array: pa.Array, zone: ZoneInfo, ambiguous: str) -> pa.Array:
    if len(array) == 0:
        return pa.array([], pa.int64())
    array = pc.if_else(is_blank(array), None, array.cast(pa.string()))
    result = _at_once(array, zone, ambiguous)
    if result is None:
        array = pc.replace_substring_regex(array, r"(:\d\d\.\d{6})\d+", r"\1")  # nanoseconds
        local = _stamps(matching(array, _LOCAL_TIME), pa.timestamp("us"))
        zoned = _stamps(matching(array, _ZONED_TIME), pa.timestamp("us", "UTC")).cast(pa.int64())
        seconds = matching(array, EPOCH_TIME).cast(pa.float64())
        epoch = pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64())
        result = pc.coalesce(_in_zone(local, zone, ambiguous), zoned, epoch)
    early = pc.less(result, _FIRST_REAL_TIME_S * 1_000_000)
    return pc.if_else(early, None, result)


def _at_once(array: pa.Array, zone: ZoneInfo, ambiguous: str) -> pa.Array | None:
    """Times that are all local ones or all carry a zone, in microseconds; None if they are neither."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            array[:_LOOK].cast(kind)  # every text that is none costs as much as a hundred that are
            stamps = array.cast(kind)
        except pa.ArrowInvalid:
            continue
        return stamps.cast(pa.int64()) if kind.tz else _in_zone(stamps, zone, ambiguous)
    return None


def matching(array: pa.Array, pattern: str) -> pa.Array:
    """The texts that match a pattern; null for the others."""
    return pc.if_else(pc.match_substring_regex(array, pattern), array, None)


def _in_zone(stamps: pa.Array, zone: ZoneInfo, ambiguous: str) -> pa.Array:
    """Local times in UTC, in their unit."""
    if zone.key != "UTC":
        stamps = pc.assume_timezone(stamps, zone.key, ambiguous=ambiguous, nonexistent="latest")
    return stamps.cast(pa.int64())


def _stamps(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO texts as times; null for those of the right shape that name no such day."""
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:  # find the good ones one by one
        return by_distinct(array, lambda text: _stamp(text, kind), kind)


def _stamp(text: str, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return None


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
    """Whole numbers (int64), also as pandas writes them into a column with gaps (``64.0``); else null."""
    array = flat(values)
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    try:
        return pc.if_else(pc.equal(array, ""), None, array).cast(pa.int64())
    except pa.ArrowInvalid:
        trimmed = pc.replace_substring_regex(pc.ascii_trim_whitespace(array), r"\.0*$", "")
        return matching(trimmed, r"^-?\d{1,18}$").cast(pa.int64())


# --- States, exit codes, GPUs --------------------------------------------------------------------


def parse_state(values: Column) -> pa.Array:
    """The base state: ``CANCELLED by 1001`` and a truncated ``CANCELLED+`` give ``CANCELLED``.

    Returns:
        strings, coded; null where the text is not a Slurm state.
    """
    return recoded(values, state_of)


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
    """``1:15`` as two int64 columns, exit code and signal; null where the text has another form."""
    texts = coded(values)
    parts = pc.extract_regex(texts.dictionary, r"^(?P<code>[0-9]+):(?P<signal>[0-9]+)$")
    numbers = (parse_integer(pc.struct_field(parts, part)) for part in ("code", "signal"))
    code, signal = (each.take(texts.indices) for each in numbers)
    return code, signal


def parse_gpus(values: Column) -> pa.Array:
    """GPUs in a TRES or GRES field (int32); null where it is blank, 0 where it names none."""
    return by_distinct(values, gpus_of, pa.int32())


def gpus_of(text: str) -> int | None:
    """GPUs in one TRES or GRES field.

    Slurm lists the total and each type beside it (``gres/gpu=8,gres/gpu:a100=8``): the total counts
    once, and the types are added up only where no total stands. Slices of a GPU (MIG) are no GPUs. A count
    that is no whole number gives -1, which `clean` rejects: the row is damaged.
    """
    if text in BLANKS:
        return None
    total = None
    typed = slices = 0
    for item in re.split(r",(?![^()]*\))", text):
        match = _GRES_GPU.match(item.strip())
        if match is None:
            if _OF_GPUS.match(item.strip()):
                return -1
            continue
        kind = match["type"]
        count = match["count"]
        if kind is not None and count is None and kind.isdecimal():
            kind, count = None, kind
        amount = int(count) if count else 1
        if kind is None:
            total = (total or 0) + amount
        elif _SLICE.search(kind):
            slices += amount
        else:
            typed += amount
    return typed if total is None else max(total - slices, typed)


# --- Health events -------------------------------------------------------------------------------
#
# Times are ISO 8601 with or without a zone, or seconds, milliseconds, microseconds or nanoseconds since
# 1970. An exit code is read as monitoring plugins mean it: 0 ok, 1 warn, 2 fail, else warn. Tickets are
# events whose check is ``ticket``.

_HIGH = {"high", "critical", "crit", "fatal", "error", "err", "emerg", "alert", "major", "p1", "p0"}
_LOW = {"low", "warn", "warning", "medium", "minor", "notice", "info", "p2", "p3", "p4", "p5"}
_OK = {
    "ok", "pass", "passed", "success", "successful", "succeeded", "healthy", "resolved", "recovered",
    "cleared", "good", "normal", "up", "online", "ready", "true", "yes", "green", "0",
}  # fmt: skip
_WARN = {"warn", "warning", "degraded", "unknown", "skipped", "1", "3"}
_FAIL = {
    "fail", "failed", "failure", "failing", "unhealthy", "firing", "bad", "abnormal", "broken", "down",
    "offline", "timeout", "timed out", "nok", "not ok", "false", "no", "red", "2",
}  # fmt: skip
_XID = r"(?i)\bxid\b(?:\s*\([^)]*\))?[\s:=#]*(?P<xid>[0-9]{1,4})\b"


def severities(values: Column) -> pa.Array:
    """HIGH, LOW or "" (not said)."""
    return by_distinct(
        _words(values),
        lambda word: "HIGH" if word in _HIGH else "LOW" if word in _LOW else "",
        pa.string(),
    )


def results(values: Column) -> pa.Array:
    """``ok``, ``warn`` or ``fail``; none at all, or none that is known, means ``fail``."""
    return by_distinct(_words(values), _result, pa.string())


def _result(word: str) -> str:
    if word in _OK:
        return "ok"
    return "warn" if word in _WARN or (word.isdecimal() and word != "2") else "fail"


def strange_results(values: Column) -> dict[str, int]:
    """Outcomes that are no known word, and how often: the first few, as a source notes them."""
    words = _words(values)
    known = pa.array(["", *_OK, *_WARN, *_FAIL, *_HIGH])
    strange = pc.invert(pc.or_(pc.is_in(words, value_set=known), pc.ascii_is_decimal(words)))
    counts = pc.value_counts(words.filter(strange))[:MOST_STRANGE].to_pylist()
    return {f"{STRANGE}{row['values'][:40]}": row["counts"] for row in counts}


def _words(values: Column) -> pa.Array:
    return pc.fill_null(pc.utf8_lower(pc.utf8_trim_whitespace(texts(values))), "")


def event_times(values: Column, zone: ZoneInfo) -> pa.Array:
    """Times of events in seconds since 1970 UTC (float64); null where there is none.

    Args:
        values: strings in ISO 8601, or numbers (also as strings) in seconds, milliseconds,
            microseconds or nanoseconds since 1970.
        zone: of times without one.
    """
    array = flat(values)
    if pa.types.is_timestamp(array.type):
        if array.type.tz is None:
            array = pc.assume_timezone(array, zone.key, ambiguous="earliest", nonexistent="latest")
        stamps = array.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        seconds = pc.divide(stamps.cast(pa.float64(), safe=False), 1e6)  # the year 5 is inexact
    elif pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        seconds = _scaled(array.cast(pa.float64()))
    else:
        array = array.cast(pa.string())
        size = pc.binary_length(array)
        long = pc.and_(pc.greater_equal(size, 13), pc.less_equal(size, 19))
        digits = pc.and_(pc.ascii_is_decimal(array), long)
        fine = pc.if_else(digits, array, None).cast(pa.float64())
        seconds = parse_instant(pc.if_else(digits, None, array), zone)
        seconds = pc.coalesce(seconds, _scaled(fine))
    real = pc.greater_equal(seconds, 31_536_000.0)  # 1969 and 1970 are clocks that were never set
    bounded = pc.min_element_wise(seconds, 1e12)  # fits whole seconds; `clean` rejects it
    return pc.if_else(real, bounded, None)


def _scaled(numbers: pa.Array) -> pa.Array:
    for limit, factor in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):  # the years 1973 to 5138
        numbers = pc.if_else(pc.greater(numbers, limit), pc.divide(numbers, factor), numbers)
    return numbers


def texts(values: Column) -> pa.Array:
    """Any column as strings; null where it holds lists or objects."""
    array = flat(values)
    if pa.types.is_nested(array.type):
        return pa.nulls(len(array), pa.string())
    return array.cast(pa.string())


def xids(column: Column, *texts: pa.Array) -> pa.Array:
    """XIDs (int32) as given, else out of what the check or the message says."""
    array = flat(column)
    if pa.types.is_floating(array.type):
        array = array.cast(pa.int64(), safe=False)
    strings = pc.utf8_trim_whitespace(array.cast(pa.string()))
    found = matching(strings, r"^\d{1,4}$").cast(pa.int32())
    for source in map(coded, texts):
        words = source.dictionary
        if pc.any(pc.match_substring(words, "xid", ignore_case=True)).as_py():
            number = pc.struct_field(pc.extract_regex(words, _XID), "xid").cast(pa.int32())
            found = pc.coalesce(found, number.take(source.indices))
    return found
