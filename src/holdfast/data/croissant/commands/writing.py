"""`holdfast data croissant describe`, `migrate` and `card`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.croissant.commands.options import (
    DescriptionArgument,
    HtmlOption,
    OverwriteOption,
)

if TYPE_CHECKING:
    from holdfast.data.croissant.describing.description import Description
    from holdfast.data.croissant.documenting.pages import Card


class Target(Enum):
    """A version of the format that descriptions can be brought to."""

    v10 = "1.0"
    v11 = "1.1"


OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Where the description is written."),
]


def describe(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A folder of data, one file of it, or an archive."),
    ],
    out: OutOption = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The dataset's name.")
    ] = None,
    about: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="What it is.")
    ] = None,
    licence: Annotated[
        list[str] | None,
        typer.Option(
            "--license", metavar="SPDX", help="Its licence, by SPDX id or URL; repeatable."
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Its page.")] = None,
    creators: Annotated[
        list[str] | None,
        typer.Option("--creator", metavar="NAME", help="Who made it; repeatable."),
    ] = None,
    published: Annotated[
        str | None, typer.Option("--published", metavar="DATE", help="When, as 2026-01-31.")
    ] = None,
    version: Annotated[
        str, typer.Option("--version", metavar="X.Y.Z", help="The version of the data.")
    ] = "1.0.0",
    checksums: Annotated[
        bool, typer.Option("--checksums/--no-checksums", help="State each file's SHA-256.")
    ] = True,
    sample_rows: Annotated[
        int | None,
        typer.Option(
            "--sample-rows",
            metavar="N",
            min=1,
            help="Look at so many rows of each table only; keys and references are then not looked for.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Describe a folder of data: files, columns, types, keys, references, splits, labels."""
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
    )
    path = made.write(out, overwrite=overwrite)
    emit(made, as_json, _described)
    remark(f"description: {path}", quiet)


def migrate(
    description: DescriptionArgument,
    out: OutOption = None,
    to: Annotated[Target, typer.Option("--to", help="The version of the format.")] = Target.v11,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring a description to a newer version of the format; without --out, say what would change."""
    from holdfast.data.croissant.evolving import migrating

    made = migrating.migrate(description, to.value)
    if out is not None:
        made.write(out, overwrite=overwrite)
    emit(made, as_json, lambda result: result.text().rstrip())
    if out is not None:
        remark(f"description: {out}", quiet)


def card(
    description: DescriptionArgument,
    html: HtmlOption,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw a description as one HTML page: files, fields, joins, splits, statements, findings."""
    from holdfast.data.croissant.documenting import pages

    made = pages.card(description, html)
    emit(made, as_json, _found)
    remark(f"card: {html}", quiet)


def _described(made: Description) -> str:
    return "\n".join(f"{note.about or 'dataset'}: {note.text}" for note in made.notes)


def _found(made: Card) -> str:
    return "\n".join(f"{one.lead} {one.text}".strip() for one in made.page.findings)
