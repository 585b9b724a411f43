"""`holdfast data records write`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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


class SourceFormat(Enum):
    """What a source is."""

    auto = "auto"
    folder = "folder"
    webdataset = "webdataset"
    mds = "mds"
    tfrecord = "tfrecord"
    croissant = "croissant"


class Orientation(Enum):
    """What becomes of the EXIF orientation."""

    keep = "keep"
    bake = "bake"


class Metadata(Enum):
    """Which metadata segments stay."""

    orientation = "orientation"
    all = "all"


def write(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, WebDataset tars, an MDS folder, TFRecords, or a Croissant "
            "description; never changed.",
        ),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="The dataset's folder.")],
    record_size: Annotated[
        int, typer.Option("--record-size", metavar="N", min=1, help="Images in a record.")
    ] = 64,
    groups: Annotated[
        str,
        typer.Option(
            "--groups",
            metavar="SCANS",
            help="The last scan of each group, of the ten of a colour image.",
        ),
    ] = "1,2,5,6,10",
    form: Annotated[
        SourceFormat, typer.Option("--format", help="What the source is; auto looks at it.")
    ] = SourceFormat.auto,
    columns: Annotated[
        Path | None,
        typer.Option(
            "--columns",
            metavar="FILE",
            help="A table (CSV, JSON lines, Parquet) of more columns, joined by id or file_name.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="NAME", help="Suffix, column, feature or field of the image."
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="The column that becomes `label`.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="The column that names the images.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="NAME", help="A column to leave out.")
    ] = None,
    record_set: Annotated[
        str | None,
        typer.Option(
            "--record-set",
            metavar="NAME",
            help="Of a Croissant description: whose records, where several have images.",
        ),
    ] = None,
    orientation: Annotated[
        Orientation,
        typer.Option(
            "--orientation", help="Keep the EXIF orientation, or turn the image (lossless)."
        ),
    ] = Orientation.keep,
    metadata: Annotated[
        Metadata,
        typer.Option(
            "--metadata", help="Keep the orientation alone, or all EXIF, ICC and comments."
        ),
    ] = Metadata.orientation,
    quality_images: Annotated[
        int,
        typer.Option(
            "--quality-images", metavar="N", min=0, help="Images on which MS-SSIM is measured."
        ),
    ] = 32,
    max_rejected: Annotated[
        float,
        typer.Option(
            "--max-rejected",
            metavar="SHARE",
            min=0,
            max=1,
            help="Fail if a larger share of files cannot be used.",
        ),
    ] = 0.01,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Images -> a dataset of progressive records, losslessly; the same command again completes it."""
    from holdfast.data.records.sources import open_source
    from holdfast.data.records.writing import writer

    writer.check_apart(source, out)
    opened = open_source(
        source,
        format=form.value,
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
            orientation=orientation.value,
            metadata=metadata.value,
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
        lines.append(f"stored as they came, for they cannot be transcoded: {reasons}")
    if written.rejected:
        lines.append(f"{counted(written.rejected, 'file')} set aside: see rejected.jsonl")
    if written.ignored:
        named = ", ".join(written.passed_over[:3]) + (", ..." if written.ignored > 3 else "")
        lines.append(f"{counted(written.ignored, 'file')} passed over: {named}")
    if written.reused:
        lines.append(f"{counted(written.reused, 'record')} were there already and whole")
    return Lines(*lines, groups_table(written.groups, written.images))
