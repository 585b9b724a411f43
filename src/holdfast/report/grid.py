"""An Arrow table -> the cells, sort keys and CSV file of a table on the page."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import math
import re
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from holdfast.numbers import interval, number
from holdfast.report.page import ColumnFormat, Table

_FORMULA = re.compile(r"^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def lay_out(table: Table, name: str) -> dict[str, Any]:
    """What the template needs of a table.

    Args:
        table: the table.
        name: its id in the page.

    Returns:
        ``heads`` (label, unit, right), ``rows`` (the escaped cells of each row as HTML), ``csv`` (a data
        URI) and the texts around them.

    Raises:
        ValueError: if a format names a column that the table lacks.
    """
    from markupsafe import Markup

    data = table.data
    formats = columns_of(table)
    for column, form in formats.items():
        for needed in (column, *(form.interval or ())):
            if needed not in data.column_names:
                raise ValueError(f"table {name}: no column {needed!r} in {data.column_names}")
    values = {column: data[column].to_pylist() for column in data.column_names}
    columns = [_cells(column, form, data, values) for column, form in formats.items()]
    count = data.num_rows
    return {
        "id": name,
        "file": f"{name}.csv",
        "caption": table.caption,
        "empty": table.empty,
        "count": f"{count:,} row{'' if count == 1 else 's'}.",
        "heads": [
            {
                "label": column.replace("_", " ") if form.label is None else form.label,
                "unit": form.unit or getattr(data.schema.field(column).type, "tz", None) or "",
                "right": is_right(data, column, form),
            }
            for column, form in formats.items()
        ],
        "rows": [Markup("".join(cells)) for cells in zip(*columns, strict=True)],
        "csv": _csv_uri(data.column_names, values, count),
    }


def columns_of(table: Table) -> Mapping[str, ColumnFormat]:
    """The columns that a table shows, with their formats."""
    return table.columns or {column: ColumnFormat() for column in table.data.column_names}


def is_numeric(kind: pa.DataType) -> bool:
    """Whether the values of an Arrow type are numbers."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def is_right(data: pa.Table, column: str, form: ColumnFormat) -> bool:
    """Whether a column stands right."""
    return is_numeric(data.schema.field(column).type) if form.right is None else form.right


def _cells(
    column: str, form: ColumnFormat, data: pa.Table, values: Mapping[str, list[Any]]
) -> list[str]:
    right = ' class="r"' if is_right(data, column, form) else ""
    kind = data.schema.field(column).type
    if pa.types.is_timestamp(kind):
        return _time_cells(values[column])
    if not is_numeric(kind):
        return [_text_cell(value, right, form) for value in values[column]]
    return [
        f'<td{right} data-v="{_raw(value)}">{escape(text)}'
        + (f' <span class="ci">{escape(ends)}</span></td>' if ends else "</td>")
        for value, text, ends in numbers(column, form, values)
    ]


def numbers(
    column: str, form: ColumnFormat, values: Mapping[str, list[Any]]
) -> list[tuple[Any, str, str]]:
    """The numbers of a column in its unit, each with its text and that of its interval, if it has one."""
    scale = 100 if form.unit == "%" else 1

    def scaled(name: str) -> list[Any]:
        return [each if each is None or scale == 1 else each * scale for each in values[name]]

    low, high = map(scaled, form.interval or (column, column))
    return [
        (
            value,
            number(value, form.digits),
            interval(lower, upper, form.digits)
            if form.interval and None not in (lower, upper)
            else "",
        )
        for value, lower, upper in zip(scaled(column), low, high, strict=True)
    ]


def _time_cells(times: list[datetime.datetime | None]) -> list[str]:
    """Wall clock times; the header names the zone."""
    whole = all(time is None or (time.second, time.microsecond) == (0, 0) for time in times)
    precision = "minutes" if whole else "seconds"
    return [
        '<td class="n" data-v=""></td>'
        if time is None
        else f'<td class="n">{time.replace(tzinfo=None).isoformat(" ", precision)}</td>'
        for time in times
    ]


def _text_cell(value: Any, right: str, form: ColumnFormat) -> str:
    plain = text_of(value)
    text = escape(plain)
    if text and form.link:
        text = f'<a href="{escape(form.link.replace("{}", quote(plain, safe="")))}">{text}</a>'
    if text and form.veiled:  # a click or the Tab key gives it the focus, which lifts the veil
        text = f'<span class="veiled" tabindex="0">{text}</span>'
    return f"<td{right}>{text}</td>" if text else f'<td{right} data-v=""></td>'


def _raw(value: Any) -> str:
    """The value for sorting and copying; empty if there is none."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(value)


def text_of(value: Any) -> str:
    """A value that is not a number as a cell shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {text_of(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(text_of(part) for part in value)
    return str(value)


def _csv_uri(columns: list[str], values: Mapping[str, list[Any]], count: int) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([_guarded(column) for column in columns])
    exported = [[_export(value) for value in values[column]] for column in columns]
    writer.writerows(zip(*exported, strict=True) if columns else ([] for _ in range(count)))
    encoded = base64.b64encode(file.getvalue().encode("utf-8")).decode()
    return f"data:text/csv;charset=utf-8;base64,{encoded}"


def _export(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _raw(value)
    return _guarded(text_of(value))


def _guarded(text: str) -> str:
    """Text that a spreadsheet would run as a formula, made harmless by an apostrophe."""
    return f"'{text}" if _FORMULA.match(text) else text
