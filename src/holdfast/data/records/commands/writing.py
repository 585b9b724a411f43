"""`holdfast data records write`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.records.commands.options import (
    ThreadsOption,
    groups_table,
    numbers_of,
    reporting,
)
from holdfast.numbers import counted, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holdfast.data.records.writing.writer import Written


SourceFormat = Literal["auto", "folder", "webdataset", "mds", "tfrecord", "croissant"]
"""What a source is."""


Orientation = Literal["keep", "bake"]
"""What becomes of the EXIF orientation."""


Metadata = Literal["orientation", "all"]
"""Which metadata segments stay."""


def write(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of images, WebDataset tars, MDS folder, TFRecords, or Croissant "
            "description; it is only read.",
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="DIR", help="Output folder of the dataset.")
    ],
    record_size: Annotated[
        int, typer.Option("--record-size", metavar="N", min=1, help="Number of images per record.")
    ] = 64,
    groups: Annotated[
        str,
        typer.Option(
            "--groups",
            metavar="SCANS",
            help="Last scan of each group, out of the ten scans of a color image.",
        ),
    ] = "1,2,5,6,10",
    form: Annotated[
        SourceFormat, typer.Option("--format", help="Format of the source; auto detects it.")
    ] = "auto",
    columns: Annotated[
        Path | None,
        typer.Option(
            "--columns",
            metavar="FILE",
            help="Table of additional columns (CSV, JSON lines, Parquet), joined by id or file_name.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            metavar="NAME",
            help="Suffix, column, feature or field that contains the image.",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="Column to store as `label`.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Column of the image ids.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="NAME", help="Column to leave out; repeatable."),
    ] = None,
    record_set: Annotated[
        str | None,
        typer.Option(
            "--record-set",
            metavar="NAME",
            help="Record set of a Croissant description, if several contain images.",
        ),
    ] = None,
    orientation: Annotated[
        Orientation,
        typer.Option(
            "--orientation", help="Keep the EXIF orientation tag, or rotate the image (lossless)."
        ),
    ] = "keep",
    metadata: Annotated[
        Metadata,
        typer.Option(
            "--metadata",
            help="Metadata to keep: only the orientation, or all EXIF, ICC and comments.",
        ),
    ] = "orientation",
    quality_images: Annotated[
        int,
        typer.Option(
            "--quality-images", metavar="N", min=0, help="Number of images to measure MS-SSIM on."
        ),
    ] = 32,
    max_rejected: Annotated[
        float,
        typer.Option(
            "--max-rejected",
            metavar="SHARE",
            min=0,
            max=1,
            help="Maximum share of unusable files, 0 to 1.",
        ),
    ] = 0.01,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Convert images to progressive records, losslessly; an interrupted run is resumed by a rerun."""
    from holdfast.data.records.sources import open_source
    from holdfast.data.records.writing import writer

    writer.check_apart(source, out)
    opened = open_source(
        source,
        format=form,
        columns=columns,
        image=image,
        label=label,
        id=identity,
        drop=drop or (),
        record_set=record_set,
    )
    with reporting("writing") as report:
        written = writer.write(
            opened,
            out,
            record_size=record_size,
            groups=numbers_of(groups, "--groups"),
            orientation=orientation,
            metadata=metadata,
            quality_images=quality_images,
            max_rejected=max_rejected,
            threads=threads,
            on_progress=report,
        )
    emit(written, as_json, _written)
    remark(f"dataset: {out}", quiet)


def _written(written: Written) -> RenderableType:
    from rich.console import Group as Lines

    lines = [
        f"{counted(written.images, 'image')} in {counted(written.records, 'record')}: "
        f"{size(written.bytes_in)} -> {size(written.bytes_out)} at full fidelity"
    ]
    if written.opaque:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in written.reasons.items())
        lines.append(f"stored unchanged, lossless transcoding not possible: {reasons}")
    if written.rejected:
        lines.append(f"{counted(written.rejected, 'file')} rejected: see rejected.jsonl")
    if written.ignored:
        named = ", ".join(written.passed_over[:3]) + (", ..." if written.ignored > 3 else "")
        lines.append(f"{counted(written.ignored, 'file')} ignored: {named}")
    if written.reused:
        lines.append(f"{counted(written.reused, 'record')} were intact already")
    return Lines(*lines, groups_table(written.groups, written.images))
