"""`holdfast data records quality` and `bench`; `holdfast.data.records.cli` registers them."""

from __future__ import annotations

from typing import Annotated

from holdfast.command import Answer, Integers, Positive, Share, option
from holdfast.data.records.options import Dataset, Threads, reporting


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
