"""`holdfast data records`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Count, Integers, Positive, Share, option, room
from holdfast.data.records.options import (
    Dataset,
    Fidelity,
    Threads,
    fidelity_of,
    reporting,
)
from holdfast.numbers import counted
from holdfast.plain import plain
from holdfast.progress import remark

app = room("records", "Progressive compressed records: read half the bytes.")


@app.command
def write(
    source: str,
    /,
    *,
    out: Annotated[str, option("--output", "-o", "--out", metavar="DIR")],
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
        return writer.write(
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


@app.command
def info(dataset: Dataset, /) -> Answer:
    """Show images, columns, and bytes and MS-SSIM per fidelity of a dataset."""
    from holdfast.data.records import describing

    return describing.info(dataset)


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
        return verifying.verify(dataset, against=against, threads=threads, on_progress=report)


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
        return repairing.repair(dataset, source=source, replica=replica, on_progress=report)


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
    from holdfast.data.records.export import samples

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
    out: Annotated[str, option("--output", "-o", "--out", metavar="DIR")],
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
    from holdfast.data.records.export import exporting

    with reporting("extracting") as report:
        return exporting.extract(
            dataset,
            out,
            fidelity=fidelity_of(fidelity),
            format=form,
            shard_images=shard_images,
            on_fault=on_fault,
            on_progress=report,
        )


@app.command
def quality(
    dataset: Dataset,
    /,
    *,
    images: Positive = 32,
    seed: int = 0,
    threshold: Share = 0.95,
    threads: Threads = None,
) -> Answer:
    """Measure MS-SSIM and bytes per fidelity.

    Args:
        images: Number of images to measure.
        seed: Seed for sampling images.
        threshold: Required mean MS-SSIM.
    """
    from holdfast.data.records.measuring import quality as measuring

    return measuring.quality(
        dataset, images=images, seed=seed, threshold=threshold, threads=threads
    )


@app.command
def bench(
    dataset: Dataset,
    /,
    *,
    fidelities: Annotated[tuple[int, ...] | None, Integers] = None,
    images: Positive | None = None,
    decode: Annotated[bool, option(negative="--no-decode")] = True,
    at_least: Annotated[Positive | None, option(metavar="PIXELS")] = None,
    threads: Threads = None,
) -> Answer:
    """Measure the reading speed per fidelity, and whether storage is the bottleneck.

    Args:
        fidelities: Fidelities to measure, such as 1,3,5 (default: all).
        images: Number of images per pass (default: all).
        decode: Decode the images, or only read them.
        at_least: Decode at 1/2, 1/4 or 1/8 scale if the shorter side keeps at least this many pixels.
    """
    from holdfast.data.records.measuring import speed

    with reporting("reading", "images") as report:
        return speed.bench(
            dataset,
            fidelities=fidelities,
            images=images,
            decode=decode,
            at_least=at_least,
            threads=threads,
            on_progress=report,
        )
