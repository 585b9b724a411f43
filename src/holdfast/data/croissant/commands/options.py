"""What the commands share: the description, where its files are, filters, and tables of Arrow rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

DescriptionArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DESCRIPTION", help="A Croissant file, or the folder that holds metadata.json."
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="ID=PATH",
        help="Take the FileObject ID from this file or folder instead of its URL; repeatable.",
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", metavar="DIR", help="Where fetched files are kept."),
]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Fetch nothing; take what the cache has.")
]
FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="FIELD=VALUE",
        help="Only records with this value, such as split=train; repeatable; values of one field are "
        "alternatives.",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B", help="Only these fields, by id or short name."),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="What the engine may use, such as 1GiB; more spills to disk.",
    ),
]
HtmlOption = Annotated[Path, typer.Option("--html", metavar="FILE", help="The page to write.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """``["a=b"]`` as a dict.

    Raises:
        InputError: if a part has no ``=``.
    """
    return {name: values[-1] for name, values in grouped(given, option).items()}


def grouped(given: Sequence[str] | None, option: str) -> dict[str, list[str]]:
    """``["a=b", "a=c"]`` as ``{"a": ["b", "c"]}``.

    Raises:
        InputError: if a part has no ``=``.
    """
    found: dict[str, list[str]] = {}
    for part in given or ():
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InputError(
                "this is no pair",
                place=option,
                found=part,
                expected="NAME=VALUE, as in split=train",
            )
        found.setdefault(name, []).append(value)
    return found


def names_of(columns: str | None) -> list[str] | None:
    """Names separated by commas."""
    return (
        None if columns is None else [part.strip() for part in columns.split(",") if part.strip()]
    )


def rows_table(rows: pa.Table, width: int = 40) -> Table:
    """Arrow rows for the terminal; numbers stand right, bytes as their size."""
    import pyarrow as pa

    from holdfast.console import table

    right = [
        pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in rows.schema
    ]
    return table(
        {
            name: "right" if numeric else "left"
            for name, numeric in zip(rows.column_names, right, strict=True)
        },
        [[_cell(value, width) for value in row.values()] for row in rows.to_pylist()],
    )


def shown(value: Any) -> Any:
    """A value as a terminal or JSON can show it: bytes by their size."""
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    if isinstance(value, dict):
        return {name: shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shown(part) for part in value]
    return value


def _cell(value: Any, width: int) -> str:
    if value is None:
        return "–"
    value = shown(value)
    structured = isinstance(value, (dict, list))
    text = json.dumps(value, default=str, ensure_ascii=False) if structured else str(value)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
