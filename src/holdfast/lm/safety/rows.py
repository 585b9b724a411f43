"""Rows of CSV and JSON-lines files that users bring: fragments, prompts, responses, labels."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import InputError

Row = dict[str, str]
_LONGEST_FIELD = 1 << 24


def read_rows(
    path: str | Path,
    needed: Sequence[str],
    what: str,
    also: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, Row]]:
    """The rows of a file with their line numbers, read one by one.

    Args:
        path: CSV with a header, or JSON lines where the suffix is ``.jsonl``.
        needed: columns that every row has.
        what: what the file holds, for messages.
        also: other names of columns -> the names used here.

    Raises:
        InputError: ``not-found``, ``unreadable``, ``missing-column``, ``invalid-syntax``.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = _json_rows if path.suffix == ".jsonl" else _csv_rows
            for line, row in reader(path, file):
                for other, name in (also or {}).items():
                    if other in row:
                        row.setdefault(name, row.pop(other))
                missing = [name for name in needed if row.get(name) is None]
                if missing:
                    raise InputError(
                        f"{what} lack a column",
                        code="missing-column",
                        path=path,
                        place=f"line {line}",
                        found=", ".join(row),
                        expected=", ".join(missing),
                    )
                yield line, row
    except OSError as error:
        raise InputError(
            f"{what} cannot be read",
            code="not-found" if isinstance(error, FileNotFoundError) else "unreadable",
            path=path,
            found=error.strerror,
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} are not UTF-8", code="invalid-encoding", path=path, found=str(error)
        ) from error


def invalid_row(path: Path | str, line: int, problem: str, found: str, expected: str) -> InputError:
    """The error of a value in a row."""
    return InputError(
        problem,
        code="invalid-value",
        path=path,
        place=f"line {line}",
        found=found[:80] or "nothing",
        expected=expected,
    )


def _csv_rows(path: Path, file: Any) -> Iterator[tuple[int, Row]]:
    before = csv.field_size_limit(_LONGEST_FIELD)  # a response may be longer than the default
    try:
        reader = csv.DictReader(file, strict=True)
        line = 2
        for row in reader:
            if None in row or None in row.values():
                raise _invalid(path, line, "CSV", f"not {len(reader.fieldnames or ())} columns")
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise _invalid(path, reader.line_num, "CSV", str(error)) from error
    finally:
        csv.field_size_limit(before)


def _json_rows(path: Path, file: Any) -> Iterator[tuple[int, Row]]:
    for line, text in enumerate(file, 1):
        try:
            row = json.loads(text)
        except ValueError as error:
            raise _invalid(path, line, "JSON", str(error)) from error
        if not isinstance(row, dict):
            raise _invalid(path, line, "JSON", text[:80])
        yield (
            line,
            {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in row.items()
                if value is not None
            },
        )


def _invalid(path: Path, line: int, form: str, found: str) -> InputError:
    return InputError(
        f"not valid {form}",
        code="invalid-syntax",
        path=path,
        place=f"line {line}",
        found=found,
        expected="a header and as many fields in every row"
        if form == "CSV"
        else "an object per line",
    )
