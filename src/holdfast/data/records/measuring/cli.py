"""`holdfast data records quality`, `tune` and `bench`; `holdfast.data.records.cli` registers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.command import Answer, Integers, Positive, Printed, Share, common, option
from holdfast.data.records.options import Dataset, Threads, reporting
from holdfast.numbers import brief, counted, interval, percent, size
from holdfast.report.terminal import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from holdfast.answer import Page
    from holdfast.data.records.measuring.quality import Quality
    from holdfast.data.records.measuring.speed import Bench
    from holdfast.data.records.tuning.tuned import Tuned


def quality(
    dataset: Dataset,
    /,
    *,
    images: Positive = 32,
    seed: int = 0,
    threshold: Share = 0.95,
    threads: Threads = None,
) -> Answer:
    """Measure MS-SSIM and bytes per fidelity; --html adds sample images.

    Args:
        images: Number of images to measure.
        seed: Seed for sampling images.
        threshold: Required mean MS-SSIM.
    """
    from holdfast.data.records.measuring import quality as measuring

    found = measuring.quality(
        dataset,
        images=images,
        seed=seed,
        threshold=threshold,
        strips=6 if common().html else 0,
        threads=threads,
    )

    def page() -> Page:
        from holdfast.data.records.measuring.pages import quality_page

        return quality_page(found)

    return Printed(found, _quality, page=page)


def _quality(found: Quality) -> list[RenderableType]:
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
    return [advice, measured]


def tune(
    dataset: Dataset,
    /,
    *,
    model: Annotated[str | None, option(metavar="MODULE:FUNCTION")] = None,
    epochs: Positive = 30,
    label: Annotated[str, option(metavar="NAME")] = "label",
    policy: Literal["gradient", "msssim", "loss"] = "gradient",
    threshold: Annotated[float | None, option(metavar="V")] = None,
    every: Positive = 5,
    batch_size: Positive = 32,
    side: Annotated[int, option(metavar="PIXELS", at_least=8)] = 64,
    against_full: bool = False,
    device: Annotated[str, option(metavar="NAME")] = "cpu",
    seed: int = 0,
) -> Answer:
    """Train a classifier with a tuned fidelity per epoch, and report the bytes saved.

    Args:
        model: Function from the number of classes to an nn.Module (default: a small CNN).
        epochs: Number of epochs.
        label: Column of the class.
        policy: Choose the fidelity by gradient cosine, MS-SSIM, or training loss plateau.
        threshold: Similarity threshold (default: 0.8 for cosine, 0.95 for MS-SSIM).
        every: Number of epochs between gradient probes.
        batch_size: Number of images per batch.
        side: Side of the square that images are resized to.
        against_full: Also train at full fidelity, for comparison.
        device: Torch device, such as cpu or cuda.
        seed: Random seed (model, order, held-out images).
    """
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
    return Printed(found, _tuned)


def _tuned(found: Tuned) -> list[RenderableType]:
    from holdfast.stats import wilson_interval

    low, high = wilson_interval(found.correct, found.tested)
    lines: list[RenderableType] = [
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
    return [*lines, _epochs(found)]


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
        found = speed.bench(
            dataset,
            fidelities=fidelities,
            images=images,
            decode=decode,
            at_least=at_least,
            threads=threads,
            on_progress=report,
        )
    return Printed(found, _bench)


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
