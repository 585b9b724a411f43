"""`holdfast data croissant`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Output, Positive, Stream, common, option, room
from holdfast.data.croissant.loading.cli import download, load, sql
from holdfast.data.croissant.options import (
    AccessOptions,
    Description,
    FileOptions,
    Overwrite,
)
from holdfast.errors import InputError

app = room("croissant", "Descriptions of datasets: check, load, write them.")

NewDescription = Annotated[
    Output | None,
    option("--output", "-o", "--out", metavar="FILE", help="Path of the new description."),
]


@app.command
def validate(
    description: Description,
    /,
    *,
    data: Literal["sample", "full"] | None = None,
    strict: bool = False,
    sarif: Annotated[Path | None, option(metavar="FILE")] = None,
    files: FileOptions = FileOptions(),
    access: AccessOptions = AccessOptions(),
) -> Answer:
    """Check a description against the standard; exit 1 on errors.

    Each finding has a rule, a line and column, and a hint. --data checks the files as well; with
    --data full, the exit code is also 1 if something could not be checked.

    Args:
        data: Check the data too: the first records of local files (sample), or fetch and check all (full).
        strict: Report violations of the standard that tools tolerate as errors.
        sarif: Write the findings to a SARIF file, for code hosts.
    """
    from holdfast.data.croissant.rules import checking
    from holdfast.files import write_whole

    validation = checking.validate(
        description, strict=strict, data=data, **files.build(), **vars(access)
    )
    if sarif is not None:
        write_whole(sarif, json.dumps(validation.sarif(), indent=2).encode())
    return replace(validation, log=sarif)


@app.command
def describe(
    folder: Path,
    /,
    *,
    out: NewDescription = None,
    name: Annotated[str | None, option(metavar="NAME")] = None,
    about: Annotated[
        str | None, option("--description", metavar="TEXT", allow_leading_hyphen=True)
    ] = None,
    licence: Annotated[tuple[str, ...], option("--license", metavar="SPDX")] = (),
    url: Annotated[str | None, option(metavar="URL")] = None,
    creators: Annotated[tuple[str, ...], option("--creator", metavar="NAME")] = (),
    published: Annotated[str | None, option(metavar="DATE")] = None,
    version: Annotated[str, option(metavar="X.Y.Z")] = "1.0.0",
    checksums: Annotated[bool, option(negative="--no-checksums")] = True,
    sample_rows: Positive | None = None,
    encoding: Annotated[str | None, option(metavar="NAME")] = None,
    overwrite: Overwrite = False,
) -> Answer:
    """Write a description of a folder of data: files, columns, types, keys, references, splits, labels.

    Args:
        folder: Folder of data, a single file, or an archive.
        name: Name of the dataset.
        about: Description of the dataset.
        licence: License of the dataset, as SPDX id or URL; repeatable.
        url: Web page of the dataset.
        creators: Creator of the dataset; repeatable.
        published: Publication date, such as 2026-01-31.
        version: Version of the data.
        checksums: Include the SHA-256 of each file.
        sample_rows: Maximum number of rows read per table (default: all); without all rows, keys and
            references are not inferred.
        encoding: Encoding of CSV, TSV and text files that are not UTF-8, such as latin-1.
    """
    from holdfast.data.croissant.describing import folders

    draft = folders.describe(
        folder,
        name=name,
        description=about,
        license=list(licence) or None,
        url=url,
        creators=creators,
        date_published=published,
        version=version,
        checksums=checksums,
        sample_rows=sample_rows,
        encoding=encoding,
    )
    path = draft.write(out, overwrite=overwrite)
    return replace(draft, path=path)


for command in (load, sql, download):
    app.command(command)


@app.command
def migrate(
    description: Description,
    /,
    *,
    out: NewDescription = None,
    overwrite: Overwrite = False,
    access: AccessOptions = AccessOptions(),
) -> Answer:
    """Convert a description to the newest version of the format; without -o, list the changes only."""
    from holdfast.data.croissant.document.reading import read_document
    from holdfast.data.croissant.versions import migration

    made = migration.migrate(read_document(description, access.build()))
    if out is not None:
        made.write(out, overwrite=overwrite)
    return replace(made, out=out)


@app.command
def diff(
    old: Stream,
    new: Stream,
    /,
    *,
    access: AccessOptions = AccessOptions(),
) -> Answer:
    """Compare two descriptions: changes, and the version number they call for.

    Exit 1 where the version is too low, or where the descriptions cannot tell.

    Args:
        old: Older description: a file, folder, URL or -.
        new: Newer description: a file, folder, URL or -.
    """
    from holdfast.data.croissant.versions import comparison

    return comparison.diff(old, new, access.build())


@app.command
def rai(description: Description, /, *, access: AccessOptions = AccessOptions()) -> Answer:
    """List the responsible-AI statements of a description and the questions it leaves open."""
    from holdfast.data.croissant.cards import rai_statements
    from holdfast.data.croissant.document.reading import read_document

    return rai_statements.rai(read_document(description, access.build()))


@app.command
def card(description: Description, /, *, access: AccessOptions = AccessOptions()) -> Answer:
    """Write an HTML page (--html) about a dataset: files, fields, joins, splits, statements, findings."""
    from holdfast.data.croissant.cards import card_page
    from holdfast.data.croissant.document.reading import read_document

    html = common().html
    if html is None:
        raise InputError("a card is a page", code="usage", place="--html", expected="--html FILE")
    return card_page.card(read_document(description, access.build()), html)
