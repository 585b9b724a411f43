"""`holdfast data croissant describe`, `migrate` and `card`."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.croissant.commands.options import (
    DescriptionArgument,
    HtmlOption,
    OverwriteOption,
    with_access,
)
from holdfast.data.croissant.fetching.access import Access

if TYPE_CHECKING:
    from holdfast.data.croissant.describing.description import Description
    from holdfast.data.croissant.documenting.pages import Card


class Target(Enum):
    """A version of the format that descriptions can be converted to."""

    v10 = "1.0"
    v11 = "1.1"


OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Path of the new description."),
]


def describe(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder of data, a single file, or an archive."),
    ],
    out: OutOption = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the dataset.")
    ] = None,
    about: Annotated[
        str | None,
        typer.Option("--description", metavar="TEXT", help="Description of the dataset."),
    ] = None,
    licence: Annotated[
        list[str] | None,
        typer.Option(
            "--license",
            metavar="SPDX",
            help="License of the dataset, as SPDX id or URL; repeatable.",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Web page of the dataset.")
    ] = None,
    creators: Annotated[
        list[str] | None,
        typer.Option("--creator", metavar="NAME", help="Creator of the dataset; repeatable."),
    ] = None,
    published: Annotated[
        str | None,
        typer.Option("--published", metavar="DATE", help="Publication date, such as 2026-01-31."),
    ] = None,
    version: Annotated[
        str, typer.Option("--version", metavar="X.Y.Z", help="Version of the data.")
    ] = "1.0.0",
    checksums: Annotated[
        bool, typer.Option("--checksums/--no-checksums", help="Include the SHA-256 of each file.")
    ] = True,
    sample_rows: Annotated[
        int | None,
        typer.Option(
            "--sample-rows",
            metavar="N",
            min=1,
            help="Maximum number of rows read per table (default: all); with it, keys and references "
            "are not inferred.",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            metavar="NAME",
            help="Encoding of CSV, TSV and text files that are not UTF-8, such as latin-1.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a description of a folder of data: files, columns, types, keys, references, splits, labels."""
    from holdfast.data.croissant.describing import folders

    made = folders.describe(
        folder,
        name=name,
        description=about,
        license=licence,
        url=url,
        creators=creators or (),
        date_published=published,
        version=version,
        checksums=checksums,
        sample_rows=sample_rows,
        encoding=encoding,
    )
    path = made.write(out, overwrite=overwrite)
    made = replace(made, path=path)  # as it was written
    emit(made, as_json, _described)
    remark(f"description: {path}", quiet)


@with_access
def migrate(
    description: DescriptionArgument,
    out: OutOption = None,
    to: Annotated[
        Target, typer.Option("--to", help="Version of the Croissant format.")
    ] = Target.v11,
    overwrite: OverwriteOption = False,
    access: Access = Access(),  # noqa: B008
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Convert a description to a newer version of the format; without --out, list the changes only."""
    from holdfast.data.croissant.document.reading import read_document
    from holdfast.data.croissant.evolving import migrating

    made = migrating.migrate(read_document(description, access), to.value)
    if out is not None:
        made.write(out, overwrite=overwrite)
    emit(made, as_json, lambda result: result.text().rstrip())
    if out is not None:
        remark(f"description: {out}", quiet)


@with_access
def card(
    description: DescriptionArgument,
    html: HtmlOption,
    access: Access = Access(),  # noqa: B008
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write an HTML page about a dataset: files, fields, joins, splits, statements, findings."""
    from holdfast.data.croissant.document.reading import read_document
    from holdfast.data.croissant.documenting import pages

    made = pages.card(read_document(description, access), html)
    emit(made, as_json, _found)
    remark(f"card: {html}", quiet)


def _described(made: Description) -> str:
    return "\n".join(f"{note.about or 'dataset'}: {note.text}" for note in made.notes)


def _found(made: Card) -> str:
    return "\n".join(f"{one.lead} {one.text}".strip() for one in made.page.findings)
