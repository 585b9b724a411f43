"""`holdfast data records quality`, `tune` and `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark, table
from holdfast.data.records.commands.options import (
    DatasetArgument,
    HtmlOption,
    ThreadsOption,
    numbers_of,
    reporting,
)
from holdfast.numbers import brief, counted, interval, percent, size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from holdfast.data.records.measuring.quality import Quality
    from holdfast.data.records.measuring.speed import Bench
    from holdfast.data.records.tuning.tuned import Tuned
    from holdfast.report import Page


PolicyName = Literal["gradient", "msssim", "loss"]
"""By what a fidelity is chosen."""


def _write_page(page: Page, html: Path, quiet: bool) -> None:
    from holdfast import report

    report.write(page, html)
    remark(f"report: {html}", quiet)


def quality(
    dataset: DatasetArgument,
    images: Annotated[
        int, typer.Option("--images", metavar="N", min=1, help="Number of images to measure.")
    ] = 32,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed for sampling images.")] = 0,
    threshold: Annotated[
        float,
        typer.Option("--threshold", metavar="V", min=0, max=1, help="Required mean MS-SSIM."),
    ] = 0.95,
    threads: ThreadsOption = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure MS-SSIM and bytes per fidelity; --html adds sample images."""
    from holdfast.data.records.measuring import quality as measuring

    found = measuring.quality(
        dataset,
        images=images,
        seed=seed,
        threshold=threshold,
        strips=6 if html else 0,
        threads=threads,
    )
    emit(found, as_json, _quality)
    if html is not None:
        from holdfast.data.records.measuring.pages import quality_page

        _write_page(quality_page(found), html, quiet)


def _quality(found: Quality) -> RenderableType:
    from rich.console import Group as Lines

    from holdfast.data.records.measuring.quality import unmeasured_text

    advice = (
        f"MS-SSIM of {found.threshold:g} is reached at fidelity {found.suggested}"
        if found.suggested
        else f"nothing measured: {unmeasured_text(found)}"
    )
    rows = [
        (
            group.group,
            group.scans_end,
            size(group.bytes_per_image),
            percent(group.cumulative_fraction),
            "–" if group.msssim is None else f"{group.msssim:.3f}",
            "–"
            if group.msssim_low == group.msssim_high
            else interval(group.msssim_low, group.msssim_high, 3),
            "–" if group.worst is None else f"{group.worst:.3f}",
            "–" if group.ssim_luma is None else f"{group.ssim_luma:.3f}",
        )
        for group in found.groups
    ]
    measured = table(
        {
            "fidelity": "right",
            "to scan": "right",
            "per image": "right",
            "of full": "right",
            "MS-SSIM": "right",
            "95 %": "right",
            "worst": "right",
            "SSIM of luma": "right",
        },
        rows,
        caption=f"{counted(found.measured, 'image')} of {found.images:,} measured",
    )
    return Lines(advice, measured)


def tune(
    dataset: DatasetArgument,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODULE:FUNCTION",
            help="Function from the number of classes to an nn.Module (default: a small CNN).",
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", min=1, help="Number of epochs.")
    ] = 30,
    label: Annotated[
        str, typer.Option("--label", metavar="NAME", help="Column of the class.")
    ] = "label",
    policy: Annotated[
        PolicyName,
        typer.Option(
            "--policy",
            help="Choose the fidelity by gradient cosine, MS-SSIM, or training loss plateau.",
        ),
    ] = "gradient",
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="V",
            help="Similarity threshold (default: 0.8 for cosine, 0.95 for MS-SSIM).",
        ),
    ] = None,
    every: Annotated[
        int,
        typer.Option(
            "--every", metavar="N", min=1, help="Number of epochs between gradient probes."
        ),
    ] = 5,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, help="Number of images per batch.")
    ] = 32,
    side: Annotated[
        int,
        typer.Option(
            "--side", metavar="PIXELS", min=8, help="Side of the square that images are resized to."
        ),
    ] = 64,
    against_full: Annotated[
        bool, typer.Option("--against-full", help="Also train at full fidelity, for comparison.")
    ] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="Torch device, such as cpu or cuda.")
    ] = "cpu",
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", help="Random seed (model, order, held-out images)."),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a classifier with a tuned fidelity per epoch, and report the bytes saved."""
    from holdfast.data.records.tuning import tuned

    found = tuned.tune(
        dataset,
        model=model,
        epochs=epochs,
        label=label,
        policy=policy,
        threshold=threshold,
        every=every,
        batch_size=batch_size,
        side=side,
        against_full=against_full,
        device=device,
        seed=seed,
    )
    emit(found, as_json, _tuned)


def _tuned(found: Tuned) -> RenderableType:
    from rich.console import Group as Lines

    from holdfast.stats import wilson_interval

    low, high = wilson_interval(found.correct, found.tested)
    lines = [
        f"most epochs at fidelity {found.usual} of {found.groups}: {brief(found.saving)} times fewer bytes "
        "than at full fidelity, including probes",
        f"accuracy {percent(found.accuracy, 1)} {interval(100 * low, 100 * high, 1)} on "
        f"{counted(found.tested, 'held-out image')}",
    ]
    if found.skipped:
        image, reason = next(iter(found.skipped.items()))
        lines.append(
            f"left out as damaged: {counted(len(found.skipped), 'image')}, such as {image}: {reason}"
        )
    if found.accuracy_full is not None:
        lines.append(f"at full fidelity {percent(found.accuracy_full, 1)}")
    return Lines(*lines, _epochs(found))


def _epochs(found: Tuned) -> Table:
    return table(
        {
            "epoch": "right",
            "fidelity": "right",
            "bytes": "right",
            "loss": "right",
            "reason": "left",
        },
        [
            (row["epoch"], row["fidelity"], size(row["bytes"]), brief(row["loss"]), row["reason"])
            for row in found.epochs
        ],
    )


def bench(
    dataset: DatasetArgument,
    fidelities: Annotated[
        str | None,
        typer.Option(
            "--fidelities",
            metavar="LIST",
            help="Fidelities to measure, such as 1,3,5 (default: all).",
        ),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            "--images", metavar="N", min=1, help="Number of images per pass (default: all)."
        ),
    ] = None,
    decode: Annotated[
        bool, typer.Option("--decode/--no-decode", help="Decode the images, or only read them.")
    ] = True,
    at_least: Annotated[
        int | None,
        typer.Option(
            "--at-least",
            metavar="PIXELS",
            min=1,
            help="Decode at 1/2, 1/4 or 1/8 scale if the shorter side keeps at least this many pixels.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure the reading speed per fidelity, and whether storage is the bottleneck."""
    from holdfast.data.records.measuring import speed

    with reporting("reading", "images") as report:
        found = speed.bench(
            dataset,
            fidelities=None if fidelities is None else numbers_of(fidelities, "--fidelities"),
            images=images,
            decode=decode,
            at_least=at_least,
            threads=threads,
            on_progress=report,
        )
    emit(found, as_json, _bench)


def _bench(found: Bench) -> Table:
    return table(
        {
            "fidelity": "right",
            "images/s": "right",
            "MB/s": "right",
            "per image": "right",
            "requests": "right",
            "waited for storage": "right",
        },
        [
            (
                one.fidelity,
                f"{one.images_per_s:,.0f}",
                f"{one.bytes_per_s / 1e6:,.1f}",
                size(one.bytes / one.images) if one.images else "–",
                f"{one.requests:,}",
                percent(one.storage_share),
            )
            for one in found.speeds
        ],
    )
