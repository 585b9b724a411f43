"""What stands between the values of a text table: told from its first rows, and from nothing else."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from holdfast.data.croissant.describing.peeking import opened
from holdfast.data.croissant.scanning.delimited import unique_names

_HEAD = 1 << 16
_ROWS = 50
_TRIED = {"text/csv": ",;\t|", "text/tab-separated-values": "\t,;|"}


def header_of(path: Path, encoding: str) -> tuple[str, ...]:
    """The names of a text table's columns, as an extract takes them.

    Args:
        path: a local copy.
        encoding: its media type.
    """
    with opened(path) as file:
        data = file.read(_HEAD)
    utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if utf16 else "utf-8-sig", errors="ignore")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator_of(text, _TRIED[encoding]))
    return unique_names(next(filter(None, rows), []))


def separator_of(text: str, tried: str) -> str:
    """The separator by which the first rows all have the same number of values, and most of them.

    Args:
        text: the beginning of a table.
        tried: separators, the likeliest first: it is taken where none parts the rows alike.
    """
    widths = {}
    for separator in tried:
        rows = []
        try:
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
                if row:
                    rows.append(len(row))
                if len(rows) == _ROWS:
                    break
        except csv.Error:
            continue
        if len(text) >= _HEAD and len(rows) > 1:
            rows.pop()  # the last one may be cut
        if len(set(rows)) == 1 and rows[0] > 1:
            widths[separator] = rows[0]
    likeliest = tried[0]
    if likeliest in widths or not widths:
        return likeliest
    return max(widths, key=lambda separator: (widths[separator], -tried.index(separator)))
