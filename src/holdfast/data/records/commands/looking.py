"""`holdfast data records info`, `cat` and `extract`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark
from holdfast.data.records.commands.options import (
    DatasetArgument,
    FidelityOption,
    fidelity_of,
    groups_table,
    reporting,
)
from holdfast.numbers import counted, size
from holdfast.plain import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holdfast.data.records.describing import Description
    from holdfast.data.records.extracting.exporting import Extracted


Target = Literal["folder", "webdataset"]
"""What a dataset is taken out as."""


OnFault = Literal["raise", "skip", "degrade"]
"""What is done about damage."""


def info(dataset: DatasetArgument, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Show images, columns, and bytes and MS-SSIM per fidelity of a dataset."""
    from holdfast.data.records import describing

    emit(describing.info(dataset), as_json, _described)


def _described(found: Description) -> RenderableType:
    from rich.console import Group as Lines

    lines = [f"{counted(found.images, 'image')} in {counted(found.records, 'record')}"]
    if found.columns:
        lines.append(
            "columns: " + ", ".join(f"{name} {kind}" for name, kind in found.columns.items())
        )
    if found.classes:
        shown = ", ".join(found.classes[:10]) + (", ..." if len(found.classes) > 10 else "")
        lines.append(f"{counted(len(found.classes), 'class', 'classes')}: {shown}")
    reasons = found.notes.get("reasons")
    if isinstance(reasons, dict) and reasons:
        told = ", ".join(f"{count} {why}" for why, count in reasons.items())
        lines.append(f"stored unchanged, lossless transcoding not possible: {told}")
    return Lines(*lines, groups_table(found.groups, found.images))


def cat(
    dataset: DatasetArgument,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="ID", help="Print the bytes of the image with this id."),
    ] = None,
    fidelity: FidelityOption = "full",
    start: Annotated[
        int, typer.Option("--start", metavar="N", min=0, help="Number of the first image to list.")
    ] = 0,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help="Number of images, 0 for all (default: 10 on a terminal, else all).",
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Print one JSON line per image with its columns, or the bytes of one image."""
    from holdfast.data.records.extracting import samples

    if image is not None:
        sys.stdout.buffer.write(samples.image_bytes(dataset, image, fidelity=fidelity_of(fidelity)))
        return
    if limit is None:  # a program that reads the lines shall not miss any
        limit = 10 if sys.stdout.isatty() else 0
    found = samples.samples(dataset, start=start, count=limit or None)
    for row in found.rows:
        print(json.dumps(plain(row), ensure_ascii=False))
    left = found.images - start - len(found.rows)
    if left > 0:
        remark(f"{counted(left, 'image')} more: --start {start + len(found.rows)}", quiet)


def extract(
    dataset: DatasetArgument,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Output folder.")],
    fidelity: FidelityOption = "full",
    form: Annotated[
        Target, typer.Option("--format", help="One file per image in folders, or WebDataset tars.")
    ] = "folder",
    shard_images: Annotated[
        int, typer.Option("--shard-images", metavar="N", min=1, help="Number of images per tar.")
    ] = 1000,
    on_fault: Annotated[
        OnFault,
        typer.Option(
            "--on-fault",
            help="What to do with a damaged image: fail, skip, or decode the intact part.",
        ),
    ] = "raise",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Extract images at a fidelity as files or tars; an interrupted run is resumed by a rerun."""
    from holdfast.data.records.extracting import exporting

    with reporting("extracting") as report:
        found = exporting.extract(
            dataset,
            out,
            fidelity=fidelity_of(fidelity),
            format=form,
            shard_images=shard_images,
            on_fault=on_fault,
            on_progress=report,
        )
    emit(found, as_json, _extracted)
    remark(f"written: {out}", quiet)


def _extracted(found: Extracted) -> str:
    told = [
        f"{counted(found.images, 'image')} at fidelity {found.fidelity} in "
        f"{counted(found.files, 'file')}: {size(found.bytes_written)}"
    ]
    if found.resumed:
        told.append(f"{counted(found.resumed, 'image')} were written by an earlier run")
    if found.renamed:
        told.append(
            f"{counted(found.renamed, 'image')} were renamed: the id is not a usable file name"
        )
    if found.degraded:
        told.append(f"{counted(found.degraded, 'image')} have a lower fidelity due to damage")
    told += [f"damaged: {fault}" for fault in found.faults[:10]]
    return "\n".join(told)
