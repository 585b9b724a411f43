"""`holdfast data records`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.command import Answer, Count, Integers, Positive, Printed, Share, option, room
from holdfast.data.records.measuring.cli import bench, quality
from holdfast.data.records.options import (
    Dataset,
    Fidelity,
    Threads,
    fidelity_of,
    groups_table,
    reporting,
)
from holdfast.numbers import counted, size
from holdfast.plain import plain
from holdfast.progress import remark
from holdfast.report.terminal import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from holdfast.data.records.checking.inspecting import Finding
    from holdfast.data.records.checking.repairing import Repaired
    from holdfast.data.records.checking.verifying import Verified
    from holdfast.data.records.describing import Description
    from holdfast.data.records.extracting.exporting import Extracted
    from holdfast.data.records.writing.writer import Written

app = room("records", "Progressive compressed records: read half the bytes.")


@app.command
def write(
    source: str,
    /,
    *,
    out: Annotated[str, option("--out", "-o", metavar="DIR")],
    record_size: Positive = 64,
    groups: Annotated[tuple[int, ...], Integers] = (1, 2, 5, 6, 10),
    form: Annotated[
        Literal["auto", "folder", "webdataset", "croissant"], option("--format")
    ] = "auto",
    columns: Annotated[Path | None, option(metavar="FILE")] = None,
    image: Annotated[str | None, option(metavar="NAME")] = None,
    label: Annotated[str | None, option(metavar="NAME")] = None,
    identity: Annotated[str | None, option("--id", metavar="NAME")] = None,
    drop: Annotated[tuple[str, ...], option(metavar="NAME")] = (),
    record_set: Annotated[str | None, option(metavar="NAME")] = None,
    orientation: Literal["keep", "bake"] = "keep",
    metadata: Literal["orientation", "all"] = "orientation",
    quality_images: Count = 32,
    max_rejected: Share = 0.01,
    threads: Threads = None,
) -> Answer:
    """Convert images to progressive records, losslessly; an interrupted run is resumed by a rerun.

    Args:
        source: Folder of images, WebDataset tars, or Croissant description; it is only read.
        out: Output folder of the dataset.
        record_size: Number of images per record.
        groups: Last scan of each group, out of the ten scans of a color image.
        form: Format of the source; auto detects it.
        columns: Table of additional columns (CSV, JSON lines, Parquet), joined by id or file_name.
        image: Suffix or field that contains the image.
        label: Column to store as `label`.
        identity: Column of the image ids.
        drop: Column to leave out; repeatable.
        record_set: Record set of a Croissant description, if several contain images.
        orientation: Keep the EXIF orientation tag, or rotate the image (lossless).
        metadata: Metadata to keep: only the orientation, or all EXIF, ICC and comments.
        quality_images: Number of images to measure MS-SSIM on.
        max_rejected: Maximum share of unusable files, 0 to 1.
    """
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
        drop=drop,
        record_set=record_set,
    )
    with reporting("writing") as report:
        written = writer.write(
            opened,
            out,
            record_size=record_size,
            groups=tuple(groups),
            orientation=orientation,
            metadata=metadata,
            quality_images=quality_images,
            max_rejected=max_rejected,
            threads=threads,
            on_progress=report,
        )
    return Printed(written, _written, wrote={"dataset": Path(out)})


def _written(written: Written) -> list[RenderableType]:
    lines: list[RenderableType] = [
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
    return [*lines, groups_table(written.groups, written.images)]


@app.command
def info(dataset: Dataset, /) -> Answer:
    """Show images, columns, and bytes and MS-SSIM per fidelity of a dataset."""
    from holdfast.data.records import describing

    return Printed(describing.info(dataset), _described)


def _described(found: Description) -> list[RenderableType]:
    lines: list[RenderableType] = [
        f"{counted(found.images, 'image')} in {counted(found.records, 'record')}"
    ]
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
    return [*lines, groups_table(found.groups, found.images)]


@app.command
def verify(
    dataset: Dataset,
    /,
    *,
    against: Annotated[str | None, option(metavar="SOURCE")] = None,
    threads: Threads = None,
) -> Answer:
    """Check every byte; report damage by record, image and group. Exit code 1 unless all is well.

    Args:
        against: Source to compare the DCT coefficients of every image with.
    """
    from holdfast.data.records.checking import verifying

    with reporting("verifying") as report:
        found = verifying.verify(dataset, against=against, threads=threads, on_progress=report)
    return Printed(found, _verified, exit_code=int(not found.ok))


def _verified(found: Verified) -> list[RenderableType]:
    checked = f"{counted(found.images, 'image')} in {counted(found.records, 'record')}, {size(found.bytes)}"
    verdict = "damaged" if found.errors else "cannot tell" if found.unknown else "OK"
    lines: list[RenderableType] = [f"{verdict}: {checked}"]
    if found.compared:
        lines.append(
            f"{counted(found.compared, 'image')} compared with the source, by coefficients"
        )
    lines += found.remarks
    if found.ok:
        return [*lines]
    more = found.error_count - len(found.errors)
    caption = f"and {more:,} more" if more else ""
    if found.errors:
        lines.append(_findings(found.errors, caption))
    if found.unknown:
        lines.append(_findings(found.unknown, "", "not compared with the source"))
    return lines


@app.command
def repair(
    dataset: str,
    /,
    *,
    source: Annotated[str | None, option(metavar="SOURCE")] = None,
    replica: Annotated[str | None, option(metavar="URL")] = None,
) -> Answer:
    """Restore damaged bytes from the source or a copy. Exit code 1 if damage remains.

    Args:
        dataset: Dataset folder.
        source: Source that the dataset was written from.
        replica: URL of another copy; only damaged bytes are fetched.
    """
    from holdfast.data.records.checking import repairing

    with reporting("repairing") as report:
        found = repairing.repair(dataset, source=source, replica=replica, on_progress=report)
    return Printed(found, _repaired, exit_code=int(not found.ok))


def _repaired(found: Repaired) -> list[RenderableType]:
    lines: list[RenderableType] = [
        f"{one.file}: {size(one.bytes)} restored from the {one.by}" for one in found.repaired
    ]
    if found.remaining:
        lines.append(_findings(found.remaining, "", "still damaged"))
    elif not found.repaired:
        lines.append("nothing to repair")
    return [*lines]


def _findings(findings: Iterable[Finding], caption: str, title: str = "") -> Table:
    return table(
        {"record": "left", "image": "left", "group": "right", "reason": "left"},
        [
            (
                one.record or "the dataset",
                one.image or "–",
                "–" if one.group is None else one.group,
                one.reason,
            )
            for one in findings
        ],
        title=title,
        caption=caption,
    )


@app.command
def cat(
    dataset: Dataset,
    /,
    *,
    image: Annotated[str | None, option(metavar="ID")] = None,
    fidelity: Fidelity = "full",
    start: Count = 0,
    limit: Count | None = None,
) -> None:
    """Print one JSON line per image with its columns, or the bytes of one image.

    Args:
        image: Print the bytes of the image with this id.
        start: Number of the first image to list.
        limit: Number of images, 0 for all (default: 10 on a terminal, else all).
    """
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
        remark(f"{counted(left, 'image')} more: --start {start + len(found.rows)}")


@app.command
def extract(
    dataset: Dataset,
    /,
    *,
    out: Annotated[str, option("--out", "-o", metavar="DIR")],
    fidelity: Fidelity = "full",
    form: Annotated[Literal["folder", "webdataset"], option("--format")] = "folder",
    shard_images: Positive = 1000,
    on_fault: Literal["raise", "skip", "degrade"] = "raise",
) -> Answer:
    """Extract images at a fidelity as files or tars.

    Args:
        out: Output folder.
        form: One file per image in folders, or WebDataset tars.
        shard_images: Number of images per tar.
        on_fault: What to do with a damaged image: fail, skip, or decode the intact part.
    """
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
    return Printed(found, _extracted, wrote={"written": Path(out)})


def _extracted(found: Extracted) -> str:
    told = [
        f"{counted(found.images, 'image')} at fidelity {found.fidelity} in "
        f"{counted(found.files, 'file')}: {size(found.bytes_written)}"
    ]
    if found.renamed:
        told.append(
            f"{counted(found.renamed, 'image')} were renamed: the id is not a usable file name"
        )
    if found.degraded:
        told.append(f"{counted(found.degraded, 'image')} have a lower fidelity due to damage")
    told += [f"damaged: {fault}" for fault in found.faults[:10]]
    return "\n".join(told)


for command in (quality, bench):
    app.command(command)
