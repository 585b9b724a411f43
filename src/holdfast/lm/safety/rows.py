"""Rows of CSV files that users bring: fragments, prompts, responses, verdicts."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import InputError

Row = dict[str, str]
_LONGEST_FIELD = 1 << 24
_SYNONYMS = {"release_prompt_id": "id", "prompt_text": "prompt", "label": "verdict"}
"""Columns of AILuminate's releases, and of labels -> their names here."""


def read_rows(path: str | Path, needed: Sequence[str], what: str) -> Iterator[tuple[int, Row]]:
    """The rows of a CSV file with their line numbers, read one by one.

    Args:
        path: UTF-8, with a header.
        needed: columns that it has.
        what: what the file holds, for messages.

    Raises:
        InputError: ``not-found``, ``unreadable``, ``missing-column``, ``invalid-syntax``,
            ``invalid-encoding``.
    """
    path, before = Path(path), csv.field_size_limit(_LONGEST_FIELD)  # responses are long
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _rows(path, file, needed, what)
    except OSError as error:
        code = "not-found" if isinstance(error, FileNotFoundError) else "unreadable"
        found = error.strerror
        raise InputError(f"{what} cannot be read", code=code, path=path, found=found) from error
    except UnicodeDecodeError as error:
        problem, found = f"{what} are not UTF-8", str(error)
        raise InputError(problem, code="invalid-encoding", path=path, found=found) from error
    finally:
        csv.field_size_limit(before)


def _rows(path: Path, file: Any, needed: Sequence[str], what: str) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(file, strict=True)
    names = [_SYNONYMS.get(name, name) for name in reader.fieldnames or ()]
    if missing := [name for name in needed if name not in names]:
        facts = {"found": ", ".join(names), "expected": ", ".join(missing)}
        raise InputError(f"{what} lack a column", code="missing-column", path=path, **facts)
    reader.fieldnames = names
    line = reader.line_num + 1
    try:
        for row in reader:
            if None in row or None in row.values():
                raise csv.Error(f"a row that has not {len(names)} fields")  # noqa: TRY301
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            "not valid CSV",
            code="invalid-syntax",
            path=path,
            place=f"line {line}",
            found=str(error),
        ) from error


def invalid_row(path: Path | str, line: int, problem: str, found: str, expected: str) -> InputError:
    """The error of a value in a row."""
    facts = {"place": f"line {line}", "found": found[:80] or "nothing", "expected": expected}
    return InputError(problem, code="invalid-value", path=path, **facts)
