"""From what a file holds to the declared type, one value at a time.

A value that does not fit fails when the query runs, in a cast that `TRY` can catch (so DuckDB's error() is
not used: nothing catches that). Nothing is rounded or cut off on the way: 3.0 is an Integer, 3.5 is none.
"""

from __future__ import annotations

import re

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.scanning.columns import Column
from holdfast.data.croissant.scanning.formats import date_format, number_text
from holdfast.data.croissant.scanning.nested import each_value, element, members
from holdfast.data.croissant.scanning.types import data_type, scalar_type, value_format
from holdfast.errors import InputError
from holdfast.tables import literal

NULL_WORDS = (
    "", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "n/a", "#N/A", "<NA>", "-nan",
)  # fmt: skip
"""Text that stands for no value where a number, date or boolean is declared; sc:Text keeps such words."""

# A pattern, because DuckDB turns a long IN into a join, which costs more than the casts themselves.
_WORDS = literal(rf"\s*(?:{'|'.join(map(re.escape, NULL_WORDS))})\s*")
INTEGERS = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
}  # fmt: skip
ZONES = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_TIMES = ("TIMESTAMP", "DATE", "TIME")
_WHOLE = literal(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_PARTS = literal(r"([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?\s*$")
_ZONED = r":\d\d(?:\.\d*)?\s*(?:[zZ]|[+-]\d|[A-Za-z])"
_FINE = r"\.\d{6}\d*[1-9]"  # digits that microseconds have no room for


def cast(column: Column, field: Field) -> Column:
    """One value as its field declares it.

    Dates and times that a file holds as such keep their own type where the declared one would lose a part
    of them: a timestamp under sc:Date stays a timestamp.

    Raises:
        InputError: nothing of the column's type can become what is declared.
    """
    target = scalar_type(field)
    kind = data_type(field)
    if kind in ("cr:BoundingBox", "cr:SegmentationMask") and target != "BLOB":
        return _coordinates(column, field)
    if target == "VARCHAR":
        return text(column)
    if target == "BLOB":
        return _bytes(column, field)
    if column.type == "JSON" and target in INTEGERS:
        return Column(_parsed(_exact(column), field, target), target)
    if column.type in ("JSON", "BLOB") or column.type.startswith("ENUM("):
        column = text(column)
    if target in ("DATE", "TIME") or target.startswith("TIMESTAMP"):
        return _time(column, field, target)
    if column.type == "VARCHAR":
        return _in_half_range(Column(_parsed(column.sql, field, target), target), kind)
    if element(column.type) or column.type.startswith((*_TIMES, "STRUCT(", "MAP(")):
        raise _unfit(column, field)
    return _in_half_range(Column(_number(column, target), target), kind)


def text(column: Column) -> Column:
    """A value as text: what JSON strings say, UTF-8 bytes decoded, structs and lists as JSON."""
    x = column.sql
    if column.type == "VARCHAR":
        return column
    if column.type == "JSON":
        return Column(f"({x} ->> '$')", "VARCHAR")
    if column.type == "BLOB":
        return Column(f"decode({x})", "VARCHAR")
    if element(column.type) or column.type.startswith(("STRUCT(", "MAP(")):
        return Column(f"CAST(to_json({x}) AS VARCHAR)", "VARCHAR")
    return Column(f"CAST({x} AS VARCHAR)", "VARCHAR")


def _exact(column: Column) -> str:
    """JSON as text, without numbers that are known as DOUBLE alone: from 2**53 on they may be rounded."""
    x, plain = column.sql, text(column).sql
    rounded = f"json_type({x}) = 'DOUBLE' AND abs(TRY_CAST({x} AS DOUBLE)) >= {2**53}"
    return f"CASE WHEN {rounded} THEN 'rounded: ' || {plain} ELSE {plain} END"


def _unfit(column: Column, field: Field) -> InputError:
    return InputError(
        f"the values of field {field.id!r} cannot become what it declares",
        code="conflict",
        found=f"values of type {column.type}",
        expected=", ".join(field.data_types) or "text",
        remedy="declare the type that the file holds, or add a transform that takes the value out of it",
    )


def _or_null(attempt: str, x: str, last: str) -> str:
    """`attempt`, NULL where it fails; there NULL for words of no value, and else `last`, which fails."""
    return (
        f"COALESCE({attempt}, CASE WHEN regexp_full_match({x}, {_WORDS}) THEN NULL ELSE {last} END)"
    )


def _parsed(x: str, field: Field, target: str) -> str:
    """Text as a number or boolean."""
    if target == "BOOLEAN":
        return _or_null(f"TRY_CAST({x} AS BOOLEAN)", x, f"CAST({x} AS BOOLEAN)")
    written, divisor = value_format(field), 1
    if written:
        x, divisor = number_text(x, written)
    if target in INTEGERS and divisor == 1:
        # DuckDB's own cast takes 1_000 and 0x10, and rounds 3.5. Most numbers are as it writes them itself.
        whole = f"TRY_CAST({x} AS {target})"
        return _or_null(
            f"CASE WHEN CAST({whole} AS VARCHAR) = {x} OR {_is_whole(x)} THEN {whole} END",
            x,
            f"CAST('not an integer: ' || {x} AS {target})",
        )
    kind = "FLOAT" if target == "FLOAT" else "DOUBLE"
    number = f"TRY_CAST({x} AS {kind})"
    # The cast takes 1_000, and makes 1e400 infinite.
    wrong = f"(contains({x}, '_') OR (isinf({number}) AND NOT regexp_matches({x}, '(?i)inf')))"
    # NaN is a word for no value.
    number = _or_null(
        f"CASE WHEN NOT (isnan({number}) OR {wrong}) THEN {number} END",
        x,
        f"CASE WHEN isnan({number}) THEN NULL ELSE CAST('not a number: ' || {x} AS {kind}) END",
    )
    if divisor == 1:
        return number
    return _number(Column(f"({number} / {divisor})", "DOUBLE"), target)


def _is_whole(x: str) -> str:
    """Whether text is a decimal number, an exponent included, whose fraction is nothing but zeros."""
    before, after, power = (f"regexp_extract({x}, {_PARTS}, {group})" for group in (1, 2, 3))
    digits = f"strlen(rtrim({before} || {after}, '0'))"
    moved = f"CASE WHEN {power} = '' THEN 0 ELSE TRY_CAST({power} AS BIGINT) END"
    return f"(regexp_full_match({x}, {_WHOLE}) AND {digits} <= strlen({before}) + {moved})"


def _number(column: Column, target: str) -> str:
    """A number or boolean as another kind of number or boolean."""
    x = column.sql
    if column.type == target:
        return x
    if target == "BOOLEAN":
        return (
            f"CASE {x} WHEN 1 THEN TRUE WHEN 0 THEN FALSE "
            f"ELSE CAST(CAST({x} AS VARCHAR) || ' is not a boolean' AS BOOLEAN) END"
            if column.type != "BOOLEAN"
            else x
        )
    if target in INTEGERS and column.type not in INTEGERS and column.type != "BOOLEAN":
        return (
            f"CASE WHEN isnan(CAST({x} AS DOUBLE)) THEN NULL "
            f"WHEN {x} = trunc({x}) THEN CAST({x} AS {target}) "
            f"ELSE CAST('not an integer: ' || {x} AS {target}) END"
        )
    return f"CAST({x} AS {target})"


def _time(column: Column, field: Field, target: str) -> Column:
    """A date, a time of day, or both."""
    written = value_format(field)
    if column.type.startswith(_TIMES):
        return _held_time(column, field, target)
    if written and (column.type in INTEGERS):
        column = text(column)  # a year, or 20201231
    if column.type != "VARCHAR":
        raise _unfit(column, field)
    x = column.sql
    if written:
        pattern = date_format(written, data_type(field))
        read = f"regexp_replace({x}, '[zZ]$', '+00')" if "%z" in pattern.strptime else x
        form = literal(pattern.strptime)
        attempt = f"try_strptime({read}, {form})"
        wrong = f"CAST('not of the years 1 to 9999: ' || {x} AS TIMESTAMP)"
        last = f"CASE WHEN {attempt} IS NULL THEN strptime({read}, {form}) ELSE {wrong} END"
        parsed = _or_null(_in_calendar(attempt), x, last)
        if pattern.zone and not target.endswith("ZONE"):
            parsed = f"({parsed} AT TIME ZONE 'UTC')"
        return Column(f"CAST({parsed} AS {target})", target)
    if target.startswith("TIMESTAMP"):
        # A cast to TIMESTAMP would drop an offset without a word, one to TIMESTAMPTZ invent it.
        fits = f"NOT regexp_matches({x}, {literal(_FINE if field.zoned else f'{_FINE}|{_ZONED}')})"
        if field.zoned:
            fits += f" AND regexp_matches({x}, {literal(_ZONED)})"
        last = f"CAST('not such a time: ' || {x} AS {target})"
        attempt = _in_calendar(f"TRY_CAST({x} AS {target})")
        return Column(_or_null(f"CASE WHEN {fits} THEN {attempt} END", x, last), target)
    if target == "DATE":
        stamp = f"({_in_calendar(f'TRY_CAST({x} AS TIMESTAMP)')})"
        day = f"CAST({stamp} AS DATE)"
        other = f"CAST('no date alone: ' || {x} AS DATE)"
        last = f"CASE WHEN {stamp} = {day} THEN {day} ELSE {other} END"
        attempt = _in_calendar(f"TRY_CAST({x} AS DATE)")
        return Column(_or_null(f"CASE WHEN strlen({x}) <= 10 THEN {attempt} END", x, last), target)
    fits = f"NOT regexp_matches({x}, {literal(f'{_FINE}|{_ZONED}')})"
    time = f"CASE WHEN {fits} THEN TRY_CAST({x} AS TIME) END"
    return Column(_or_null(time, x, f"CAST('not a time of day: ' || {x} AS TIME)"), target)


def _in_half_range(number: Column, kind: str | None) -> Column:
    """A Float16 as it is: from 65,520 on, half of the way to the next number, it would become infinite."""
    if kind != "cr:Float16":
        return number
    x = number.sql
    last = f"CAST('beyond Float16: ' || CAST({x} AS VARCHAR) AS FLOAT)"
    return Column(f"CASE WHEN abs({x}) < 65520 OR isinf({x}) THEN {x} ELSE {last} END", "FLOAT")


def _in_calendar(time: str) -> str:
    """A date or time of the years 1 to 9999, else null: neither ISO 8601 nor Python writes others.

    Args:
        time: SQL that does not fail, for it is computed twice.
    """
    return f"CASE WHEN year({time}) BETWEEN 1 AND 9999 THEN {time} END"


def _held_time(column: Column, field: Field, target: str) -> Column:
    """A date or time that the file holds as one; formats say how text is read, and are not needed."""
    x, held = column.sql, column.type
    if not held.startswith("TIME") or held.startswith("TIMESTAMP"):
        last = f"CAST('not of the years 1 to 9999: ' || CAST({x} AS VARCHAR) AS {held})"
        if not held.endswith("_NS"):  # nanoseconds reach from 1677 to 2262
            x = f"CASE WHEN year({x}) BETWEEN 1 AND 9999 THEN {x} ELSE {last} END"
    if held in (*ZONES, "TIMESTAMP_NS") and target != "TIME":
        return Column(x, held)
    if held.startswith("TIMESTAMP") and target != "TIME":
        return Column(x if held == "TIMESTAMP" else f"CAST({x} AS TIMESTAMP)", "TIMESTAMP")
    if held == "DATE" and target != "TIME":
        if target.endswith("ZONE"):
            return Column(f"(CAST({x} AS TIMESTAMP) AT TIME ZONE 'UTC')", target)
        return Column(x if target == "DATE" else f"CAST({x} AS {target})", target)
    if held.startswith("TIME") and not held.startswith("TIMESTAMP") and target == "TIME":
        if held in ("TIME", "TIME_NS"):
            return column
        return Column(f"CAST({x} AS TIME)", "TIME")
    raise _unfit(column, field)


def _bytes(column: Column, field: Field) -> Column:
    """A file's bytes out of a table: a BLOB, or the struct {bytes, path} that Hugging Face writes."""
    if column.type == "BLOB":
        return column
    inner = members(column.type)
    if inner and inner.get("bytes") == "BLOB":
        return Column(f"struct_extract({column.sql}, 'bytes')", "BLOB")
    raise InputError(
        f"field {field.id!r} declares a picture, sound or film, but its column holds none",
        code="conflict",
        found=f"values of type {column.type}",
        expected="bytes, or a struct with bytes",
        remedy='declare sc:Text, or take the bytes out with the transform {"jsonPath": "bytes"}',
    )


def _coordinates(column: Column, field: Field) -> Column:
    """The four numbers of a box, or the points of a polygon; in the order that the file gives them.

    Text has numbers separated by blanks or commas, in brackets or not.
    """
    target = scalar_type(field)
    x = column.sql
    if column.type in ("VARCHAR", "JSON", "BLOB"):
        plain = text(column).sql
        bare = f"trim({plain}, ' []()')"
        column = Column(
            f"CASE WHEN regexp_full_match({plain}, {_WORDS}) THEN NULL WHEN {bare} = '' THEN [] "
            f"ELSE string_split_regex({bare}, '[],;()[\\s]+') END",
            "VARCHAR[]",
        )
    inner = element(column.type)
    if inner is None:
        raise _unfit(column, field)
    plain_field = Field(
        at=field.at, id=field.id, key=field.key, short=field.short, data_types=("sc:Float",)
    )
    x = each_value(column, lambda value: cast(value, plain_field)).sql
    if target == "DOUBLE[4]" or element(inner):
        return Column(f"CAST({x} AS {target})", target)
    # One list of x y x y ...: cut into pairs; an odd one out does not fit DOUBLE[2].
    pairs = (
        f"list_transform([{x}], lambda line: list_transform(range(1, len(line) + 1, 2), "
        "lambda place: line[place:place + 1]))[1]"
    )
    return Column(f"CAST({pairs} AS {target})", target)
