"""`holdfast data croissant validate`, `diff` and `rai`."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.croissant.commands.options import (
    CacheOption,
    DescriptionArgument,
    MapOption,
    pairs,
)


class How(Enum):
    """How much of the data is checked."""

    sample = "sample"
    full = "full"


def validate(
    description: DescriptionArgument,
    data: Annotated[
        How | None,
        typer.Option(
            "--data",
            help="Check the data too: what is here, its first records (sample); or all of it (full).",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="What the standard demands but tools forgive is an error."),
    ] = False,
    sarif: Annotated[
        Path | None,
        typer.Option(
            "--sarif", metavar="FILE", help="Write the findings as SARIF, for code hosts."
        ),
    ] = None,
    mapping: MapOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What is wrong with a description: rule, line and column, and what to do; exit 1 if it has errors."""
    from holdfast import whole_files
    from holdfast.data.croissant.rules import checking

    found = checking.validate(
        description,
        strict=strict,
        data=None if data is None else data.value,
        mapping=pairs(mapping, "--map"),
        cache=cache,
    )
    emit(found, as_json, lambda result: result.text().rstrip())
    if sarif is not None:
        whole_files.write_whole(sarif, json.dumps(found.sarif(), indent=2).encode())
        remark(f"findings as SARIF: {sarif}", quiet)
    if not found.valid:
        raise typer.Exit(1)


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The earlier description.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The later description.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What a new version changed, and the version number it needs; exit 1 if it has a smaller one."""
    from holdfast.data.croissant.evolving import comparing

    found = comparing.diff(old, new)
    emit(found, as_json, lambda result: result.text().rstrip())
    if not found.suffices:
        raise typer.Exit(1)


def rai(
    description: DescriptionArgument, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Which responsible-AI statements a description makes, and the questions it leaves open."""
    from holdfast.data.croissant.documenting import assessing

    emit(assessing.rai(description), as_json, lambda found: found.text().rstrip())
