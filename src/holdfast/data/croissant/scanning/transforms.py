"""From an extracted column to a field's value: transforms in the order written, then the declared type.

What each transform does to a value (to each element, where the value is a list); null stays null:

- regex: RE2's syntax, anchored at the start as Python's re.match is; the value of the first group that took
  part, null where the expression does not match.
- replace ``pattern/replacement``: every match of the pattern; the first "/" without a backslash divides.
- separator: a list of the parts.
- jsonPath: the first match, in structs, maps, lists, JSON and JSON text; all matches of a path with ``[*]``
  or ``..`` where the field is a list; a match per element, maybe null, where it stands in a repeated field.
- readLines: a list of the text's lines.
- format: how the declared type reads text; a bounding box's format names the order of its numbers and
  changes nothing.
- samplingRate, unArchive: nothing here; decoding and unpacking are done elsewhere.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from holdfast.data.croissant.document.model import Field, Source, Transform
from holdfast.data.croissant.scanning.casting import cast, text
from holdfast.data.croissant.scanning.columns import CONTENT, Column, extract_key
from holdfast.data.croissant.scanning.json_paths import element_match, every_match, first_match
from holdfast.data.croissant.scanning.nested import each, each_value, element
from holdfast.data.croissant.scanning.types import duckdb_type, scalar_type, shape
from holdfast.errors import InputError
from holdfast.tables import literal


def reads_content(field: Field, source: Source) -> bool:
    """Whether a field computes with the bytes of files, so that they cannot wait until after the query."""
    if extract_key(source.extract) != CONTENT:
        return False
    steps = any(step.sampling_rate is None and not step.un_archive for step in source.transforms)
    return steps or field.is_list or scalar_type(field) not in ("BLOB", "VARCHAR")


def value_sql(column: Column, field: Field, source: Source) -> Column:
    """The value of a field.

    Args:
        column: what `source.extract` gives: a column of a scan, or the value of another field.
        field: declares the type.
        source: its transforms are applied; its format is the field's.

    Returns:
        An expression; of the type `duckdb_type` says, except where the file holds a date or time of a
        finer kind, or lists that the field does not declare: both are kept. Late columns stay late.

    Raises:
        InputError: a transform that cannot be carried out, a column whose type cannot become the declared.
    """
    if column.late:
        return Column(column.sql, scalar_type(field), late=True)
    for step in source.transforms:
        column = _transformed(column, step, field)
    return _array(column, shape(field), field)


def _transformed(column: Column, step: Transform, field: Field) -> Column:
    if step.json_path is not None:
        every = element_match(column, step.json_path) if field.listed else None
        if every is None and len(shape(field)) == 1:
            every = every_match(column, step.json_path)
        return every or first_match(column, step.json_path)
    if step.regex is not None:
        pattern = step.regex
        return each_value(_texts(column, field), lambda value: _matched(value, pattern, field))
    if step.replace is not None:
        pattern, replacement = _replacement(step.replace, field)
        return each_value(
            _texts(column, field),
            lambda value: Column(
                f"regexp_replace({value.sql}, {literal(pattern)}, {literal(replacement)}, 'g')",
                "VARCHAR",
            ),
        )
    if step.separator is not None:
        separator = step.separator
        return each_value(
            _texts(column, field),
            lambda value: Column(f"string_split({value.sql}, {literal(separator)})", "VARCHAR[]"),
        )
    if step.read_lines:
        return each_value(_texts(column, field), _lines)
    return column


def _texts(column: Column, field: Field) -> Column:
    """A column as text, or lists of text; JSON becomes a list where the field is one."""
    if column.type == "JSON" and field.is_list:
        column = _json_list(column)
    return each_value(column, text)


def _lines(value: Column) -> Column:
    ended = f"regexp_replace({value.sql}, '\\r\\n?|\\n', chr(10), 'g')"
    lines = f"string_split(regexp_replace({ended}, '\\n\\z', ''), chr(10))"
    return Column(f"CASE WHEN {value.sql} = '' THEN [] ELSE {lines} END", "VARCHAR[]")


def _matched(value: Column, pattern: str, field: Field) -> Column:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            groups = re.compile(pattern).groups
        except re.error:
            groups = 1  # RE2 may know it, and says what is wrong with it otherwise
    if groups == 0:
        raise InputError(
            f"the regular expression of field {field.id!r} has no group",
            code="invalid-syntax",
            found=pattern,
            expected="one group in parentheses: what it matches becomes the value",
        )
    _check_pattern(pattern, field)
    # Of all matches the first: \A lets there be no other. A group that took no part is null there.
    anchored = literal(rf"\A(?:{pattern})")
    found = [
        f"list_extract(regexp_extract_all({value.sql}, {anchored}, {group}), 1)"
        for group in range(1, groups + 1)
    ]
    return Column(found[0] if groups == 1 else f"COALESCE({', '.join(found)})", "VARCHAR")


@lru_cache(maxsize=1024)
def re2_fault(pattern: str) -> str:
    """What RE2 says about a regular expression that it does not know; ``""`` of others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.scalar(""), pattern=rf"\A(?:{pattern})")
    except (pa.ArrowInvalid, UnicodeError) as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return ""


def _check_pattern(pattern: str, field: Field) -> None:
    if fault := re2_fault(pattern):
        raise InputError(
            f"the regular expression of field {field.id!r} is none that can be run",
            code="unsupported",
            found=f"{pattern}: {fault}",
            expected="RE2's syntax: no look-ahead, look-behind or back-references",
        )


def _replacement(written: str, field: Field) -> tuple[str, str]:
    halves = re.split(r"(?<!\\)/", written, maxsplit=1)
    if len(halves) == 1:
        raise InputError(
            f"the transform replace of field {field.id!r} does not say by what to replace",
            code="invalid-syntax",
            found=written,
            expected="pattern/replacement",
        )
    pattern, replacement = (half.replace("\\/", "/") for half in halves)
    _check_pattern(pattern, field)
    escapes = {"\\n": "\n", "\\t": "\t", "\\r": "\r"}
    replacement = re.sub(
        r"\\(.|$)", lambda match: escapes.get(match[0]) or _kept(match[0], match[1]), replacement
    )
    return pattern, replacement


def _kept(escaped: str, sign: str) -> str:
    r"""RE2's rewrites know \0 to \9 and \\; before any other sign the backslash stands for itself."""
    return escaped if sign and sign in "0123456789\\" else "\\\\" + sign


def _json_list(column: Column) -> Column:
    """JSON arrays, or text of them, as lists; null of null."""
    x = column.sql if column.type == "JSON" else f"CAST({column.sql} AS JSON)"
    return Column(
        f"CASE json_type({x}) WHEN 'ARRAY' THEN json_extract({x}, '$[*]') WHEN 'NULL' THEN NULL "
        f"ELSE CAST('no list: ' || CAST({x} AS VARCHAR) AS JSON[]) END",
        "JSON[]",
    )


def _array(column: Column, sizes: tuple[int, ...], field: Field) -> Column:
    """A value, or arrays of values whose sizes are as declared."""
    lists = _nested(column, sizes, field)
    if any(size > 0 for size in sizes):
        declared = duckdb_type(field)
        return Column(f"CAST({lists.sql} AS {declared})", declared)
    return lists


def _nested(column: Column, sizes: tuple[int, ...], field: Field) -> Column:
    coordinates = scalar_type(field).startswith("DOUBLE[")
    if not sizes:
        undeclared = element(column.type) and not coordinates
        # A list that the field does not declare is kept: its elements are of the declared type.
        return (
            each_value(column, lambda value: cast(value, field))
            if undeclared
            else cast(column, field)
        )
    if column.type in ("JSON", "VARCHAR"):
        column = _json_list(column)
    inner = element(column.type)
    if inner is None:
        raise InputError(
            f"field {field.id!r} is declared as an array, but each record has one value of it",
            code="conflict",
            found=f"values of type {column.type}",
            expected="lists, JSON arrays, or text with the transform separator",
            remedy="leave out isArray and repeated, or add a transform that makes a list",
        )
    rest = sizes[1:]
    flat = not element(inner) and inner not in ("JSON", "VARCHAR")
    if rest and flat and all(size > 0 for size in rest):
        column = _cut(column, rest)
    return each(column, lambda value: _nested(value, rest, field))


def _cut(column: Column, sizes: tuple[int, ...]) -> Column:
    """A flat list in lists of as many values as the inner sizes ask for; the last may be too short."""
    count = 1
    for size in sizes:
        count *= size
    parts = (
        f"list_transform([{column.sql}], lambda whole: list_transform(range(1, len(whole) + 1, {count}), "
        f"lambda place: whole[place:place + {count - 1}]))[1]"
    )
    return Column(parts, column.type + "[]")
