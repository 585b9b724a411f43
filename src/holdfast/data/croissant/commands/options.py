"""What the commands share: the description, where its files are, filters, and tables of Arrow rows."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.data.croissant.fetching.access import TIMEOUT_S, Access
from holdfast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

DescriptionArgument = Annotated[
    str,
    typer.Argument(
        metavar="DESCRIPTION",
        help="Croissant description: a JSON-LD file, a folder with one, a URL, or - for stdin.",
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="ID=PATH",
        help="Use this file or folder for the FileObject ID instead of its URL; repeatable.",
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Folder for fetched files (default: ~/.cache/holdfast/croissant).",
    ),
]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Use cached files only; fetch nothing.")
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Time to wait for a server to connect or to send more bytes.",
    ),
]
PublicOption = Annotated[
    bool,
    typer.Option(
        "--public-only",
        help="Refuse loopback, private and link-local addresses, also after redirects; "
        "for descriptions by strangers.",
    ),
]
EncodingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--encoding",
        metavar="[ID=]NAME",
        help="Encoding of all text files, or of those of FileObject or FileSet ID, such as latin-1 "
        "(default: the declared one, else UTF-8); repeatable.",
    ),
]
FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="FIELD=VALUE",
        help="Only records with this value, such as split=train; repeatable. Several values of one "
        "field are alternatives.",
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
        help="Memory limit of the query engine, such as 1GiB; what exceeds it spills to disk.",
    ),
]
HtmlOption = Annotated[Path, typer.Option("--html", metavar="FILE", help="Path of the HTML page.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `access` is filled from --cache, --offline, --timeout, --public-only."""
    options = {
        "cache": (CacheOption, None),
        "offline": (OfflineOption, False),
        "timeout": (TimeoutOption, TIMEOUT_S),
        "public_only": (PublicOption, False),
    }
    parameters: list[inspect.Parameter] = []
    signature = inspect.signature(command, eval_str=True)
    for one in signature.parameters.values():
        if one.name != "access":
            parameters.append(one)
            continue
        for name, (annotation, default) in options.items():
            parameters.append(
                inspect.Parameter(name, one.kind, default=default, annotation=annotation)
            )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        access = Access(**{name: given.pop(name) for name in options})
        command(**given, access=access)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """``["a=b"]`` as a dict.

    Raises:
        InputError: if a part has no ``=``.
    """
    return {name: values[-1] for name, values in grouped(given, option).items()}


def encodings(given: Sequence[str] | None) -> str | dict[str, str] | None:
    """``["latin-1"]`` as "latin-1", ``["a=latin-1"]`` as a dict.

    Raises:
        InputError: a name without an id beside others.
    """
    alone = given[0] if given and len(given) == 1 and "=" not in given[0] else None
    return alone or (pairs(given, "--encoding") or None)


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
                "not a NAME=VALUE pair",
                code="invalid-value",
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
    """Arrow rows for the terminal: numbers right-aligned, bytes as their size."""
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
