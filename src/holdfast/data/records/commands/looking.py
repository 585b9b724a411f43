"""`holdfast data records info`, `cat` and `extract`."""

from __future__ import annotations

import json
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.console import JsonOption, QuietOption, emit, plain, remark
from holdfast.data.records.commands.options import (
    DatasetArgument,
    FidelityOption,
    fidelity_of,
    groups_table,
    reporting,
)
from holdfast.numbers import counted, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holdfast.data.records.describing import Description
    from holdfast.data.records.extracting.exporting import Extracted


class Target(Enum):
    """What a dataset is taken out as."""

    folder = "folder"
    webdataset = "webdataset"


class OnFault(Enum):
    """What is done about damage."""

    stop = "raise"
    skip = "skip"
    degrade = "degrade"


def info(dataset: DatasetArgument, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """What a dataset is: images, columns, and what each fidelity costs and shows."""
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
        lines.append(f"stored as they came, for they cannot be transcoded: {told}")
    return Lines(*lines, groups_table(found.groups, found.images))


def cat(
    dataset: DatasetArgument,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="ID", help="Write this image's file to stdout instead."),
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
    """The images of a dataset with their columns, a line of JSON each; or one image's bytes."""
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
    ] = Target.folder,
    shard_images: Annotated[
        int, typer.Option("--shard-images", metavar="N", min=1, help="Number of images per tar.")
    ] = 1000,
    on_fault: Annotated[
        OnFault,
        typer.Option(
            "--on-fault",
            help="What to do with a damaged image: fail, skip, or decode the intact part.",
        ),
    ] = OnFault.stop,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """A dataset -> one JPEG an image, at a fidelity; after a kill, the same command completes it."""
    from holdfast.data.records.extracting import exporting

    with reporting("extracting") as report:
        found = exporting.extract(
            dataset,
            out,
            fidelity=fidelity_of(fidelity),
            format=form.value,
            shard_images=shard_images,
            on_fault=on_fault.value,
            on_progress=report,
        )
    emit(found, as_json, _extracted)
    remark(f"written: {out}", quiet)


def _extracted(found: Extracted) -> str:
    told: list[Any] = [
        f"{counted(found.images, 'image')} at fidelity {found.fidelity} in "
        f"{counted(found.files, 'file')}: {size(found.bytes_written)}"
    ]
    if found.resumed:
        told.append(f"{counted(found.resumed, 'image')} were there already")
    if found.renamed:
        told.append(f"{counted(found.renamed, 'image')} have a file name that is not their id")
    if found.degraded:
        told.append(f"{counted(found.degraded, 'image')} are of a lower fidelity, for damage")
    told += [f"damaged: {fault}" for fault in found.faults[:10]]
    return "\n".join(told)
