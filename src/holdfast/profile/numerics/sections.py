"""What the answers of this room share: one section of rows, one figure of lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.answer import ColumnFormat, Figure, How, Section, Table
from holdfast.report import figures as standard

PALETTE = ("user", "system", "hardware", "good", "sky", "purple", "unattributed")


def section(
    id: str,
    question: str,
    sentence: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str | ColumnFormat],
    *,
    figures: Sequence[Figure] = (),
    caption: str = "",
    **how: Any,
) -> Section:
    """A section with one table; columns are labels or formats, those without a value are left out.

    Args:
        id: of the section.
        question: its heading.
        sentence: its answer.
        rows: of the table.
        columns: key of the rows -> label or format.
        figures: above the table.
        caption: of the table.
        how: of `How`: formula, parameters, source, notes.
    """
    forms = {n: ColumnFormat(c) if isinstance(c, str) else c for n, c in columns.items()}
    forms = {
        n: form for n, form in forms.items() if any(row.get(n) is not None for row in rows)
    } or forms
    names = [each for n, form in forms.items() for each in (n, *(form.interval or ()))]
    data = pa.table({n: pa.array([row.get(n) for row in rows]) for n in names})
    return Section(id, question, sentence, figures, [Table(data, forms, caption)], How(**how))


def log_lines(
    rows: Sequence[Mapping[str, Any]], x: str, y: str, x_title: str, y_title: str, series: str
) -> list[Figure]:
    """Points joined by lines on logarithmic axes, where any is positive; the legend names the series."""
    shown = [row for row in rows if row[y]]
    colours = dict(zip(dict.fromkeys(row[series] for row in shown), PALETTE, strict=False))
    log: dict[str, Any] = {"points": True, "log_x": True, "log_y": True, "meanings": colours}
    return [standard.lines(shown, x, y, x_title, y_title, series=series, **log) for _ in shown[:1]]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def digits(value: float | None) -> str:
    """A deviation in a sentence: three digits of any magnitude."""
    return "unknown" if value is None else f"{value:.3g}"
