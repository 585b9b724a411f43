"""What the answers and errors of this room share: one section of rows, and one form of error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import ColumnFormat, Figure, How, Section, Table
from holdfast.errors import InputError


def section(
    id: str,
    question: str,
    sentence: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str | ColumnFormat],
    *,
    figures: Sequence[Figure] = (),
    formula: str | Sequence[str] = (),
    parameters: Mapping[str, object] | None = None,
    source: str = "",
    notes: str = "",
    caption: str = "",
) -> Section:
    """A section with one table; columns are labels or formats, those without a value are left out."""
    forms = {n: ColumnFormat(c) if isinstance(c, str) else c for n, c in columns.items()}
    forms = {
        n: form for n, form in forms.items() if any(row.get(n) is not None for row in rows)
    } or forms
    names = [each for n, form in forms.items() for each in (n, *(form.interval or ()))]
    data = pa.table({n: pa.array([row.get(n) for row in rows]) for n in names})
    how = How(formula, parameters or {}, source, notes)
    return Section(id, question, sentence, figures, [Table(data, forms, caption)], how)


def invalid(
    problem: str,
    code: str,
    place: str | None = None,
    found: object = None,
    expected: object = None,
    *,
    path: str | Path | None = None,
    remedy: str | None = None,
) -> InputError:
    """An error of the user's input; collections are listed."""
    return InputError(
        problem,
        code=code,
        path=path,
        place=place,
        found=_listed(found),
        expected=_listed(expected),
        remedy=remedy,
    )


def _listed(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Iterable) and not isinstance(value, tuple):
        names = [str(each) for each in value]
        return ", ".join([*names[:8], *(["..."] if len(names) > 8 else [])]) or "none"
    return str(value)


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour of its own for each of up to seven series, which makes the legend."""
    palette = ("user", "system", "hardware", "good", "sky", "purple", "unattributed")
    return dict(zip(dict.fromkeys(names), palette, strict=False))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def digits(value: float | None) -> str:
    """A deviation in a sentence: three digits of any magnitude."""
    return "unknown" if value is None else f"{value:.3g}"
