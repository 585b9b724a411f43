"""`holdfast data croissant validate`, `diff` and `rai`."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.croissant.commands.options import (
    DescriptionArgument,
    EncodingOption,
    MapOption,
    encodings,
    pairs,
    with_access,
)
from holdfast.data.croissant.fetching.access import Access


class How(Enum):
    """How much of the data is checked."""

    sample = "sample"
    full = "full"


@with_access
def validate(
    description: DescriptionArgument,
    data: Annotated[
        How | None,
        typer.Option(
            "--data",
            help="Check the data as well: the first records of local files (sample), or fetch and "
            "check everything (full).",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Report violations of the standard that tools tolerate as errors."
        ),
    ] = False,
    sarif: Annotated[
        Path | None,
        typer.Option(
            "--sarif", metavar="FILE", help="Write the findings to a SARIF file, for code hosts."
        ),
    ] = None,
    mapping: MapOption = None,
    encoding: EncodingOption = None,
    access: Access = Access(),  # noqa: B008  # replaced by options
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check a description against the standard; exit 1 on errors.

    Each finding has a rule, a line and column, and a hint. --data checks the files as well.
    """
    from holdfast import files
    from holdfast.data.croissant.rules import checking

    found = checking.validate(
        description,
        strict=strict,
        data=None if data is None else data.value,
        mapping=pairs(mapping, "--map"),
        encoding=encodings(encoding),
        **asdict(access),
    )
    emit(found, as_json, lambda result: result.text().rstrip())
    if sarif is not None:
        files.write_whole(sarif, json.dumps(found.sarif(), indent=2).encode())
        remark(f"findings as SARIF: {sarif}", quiet)
    if not found.valid:
        raise typer.Exit(1)


@with_access
def diff(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="Older description: a file, folder, URL or -.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="Newer description: a file, folder, URL or -.")
    ],
    access: Access = Access(),  # noqa: B008
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare two descriptions: changes, and the version number they call for; exit 1 if it is too low."""
    from holdfast.data.croissant.evolving import comparing

    found = comparing.diff(old, new, access)
    emit(found, as_json, lambda result: result.text().rstrip())
    if not found.suffices:
        raise typer.Exit(1)


@with_access
def rai(
    description: DescriptionArgument,
    access: Access = Access(),  # noqa: B008
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the responsible-AI statements of a description and the questions it leaves open."""
    from holdfast.data.croissant.document.reading import read_document
    from holdfast.data.croissant.documenting import assessing

    emit(
        assessing.rai(read_document(description, access)),
        as_json,
        lambda found: found.text().rstrip(),
    )
