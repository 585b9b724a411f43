"""What a dataset shows at each fidelity: MS-SSIM against the full fidelity, measured on a sample."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.answer import Answer
from holdfast.data.records.arguments import check_number
from holdfast.data.records.describing import groups_of
from holdfast.data.records.jpeg.decoding import DECODER, DecodeError
from holdfast.data.records.measuring import sections
from holdfast.data.records.measuring.comparing import compare
from holdfast.errors import InputError, LimitError, MissingExtraError
from holdfast.progress import track

if TYPE_CHECKING:
    from holdfast.answer import Finding, Section, Unknown
    from holdfast.data.records.reading.records import Records
    from holdfast.data.records.reading.stores import Store

THRESHOLD = 0.95
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class GroupQuality:
    """What one fidelity costs and shows."""

    group: int
    """The fidelity, 1..G."""
    scans_end: int
    """The last scan of it, of the ten of a colour image."""
    bytes: int
    """Bytes that one pass over the dataset reads."""
    bytes_per_image: float
    """The same for one image."""
    cumulative_fraction: float
    """The same as a share of the full fidelity's."""
    of_stripped: float | None
    """The same as a share of the source files without their metadata segments."""
    msssim: float | None
    """Mean MS-SSIM of the images that were measured; None if none was."""
    msssim_low: float | None
    """The interval of the mean over all images, at 95 %; None if fewer than two were measured."""
    msssim_high: float | None
    worst: float | None
    """The lowest MS-SSIM of an image; None at full fidelity."""
    worst_id: str | None
    """The image that has it."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """An image of the sample that could not be measured."""

    id: str
    reason: str


@dataclass(frozen=True)
class Quality(Answer):
    """What each fidelity of a dataset costs and shows."""

    url: str
    images: int
    """Images of the dataset."""
    sampled: int
    """Images that were drawn."""
    measured: int
    """Those of them on which MS-SSIM could be measured."""
    opaque: int
    """Those that are stored whole, and so the same at every fidelity."""
    unmeasured: tuple[Unmeasured, ...]
    """Those that are damaged or do not decode."""
    groups: tuple[GroupQuality, ...]
    """[G]"""
    threshold: float
    suggested: int | None
    """The lowest fidelity whose mean MS-SSIM reaches the threshold; None if none was measured."""
    seed: int
    """Seed of the sample."""
    decoder: str
    """Decoder used: partial images differ between decoders."""
    frame: pa.Table
    """One row for each measured image and fidelity: `id`, `group`, `bytes` (of the image up to this group),
    `fraction` (of its full bytes), `msssim`."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Image quality per fidelity"

    def findings(self) -> Sequence[Finding]:
        """Which fidelity is enough."""
        return [sections.finding(self)]

    def sections(self) -> Sequence[Section]:
        """What each fidelity costs, and what it shows."""
        return [sections.section(self)]

    def unknowns(self) -> Sequence[Unknown]:
        """What makes the suggestion doubtful, and what was not measured."""
        return sections.unknowns(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        told: dict[str, Any] = super().to_dict()
        told["per_image"] = told.pop("frame")
        return told


def quality(
    url: str | os.PathLike[str],
    *,
    images: int = 32,
    seed: int = 0,
    threshold: float = THRESHOLD,
    threads: int | None = None,
    store: Store | None = None,
) -> Quality:
    """Measure what each fidelity of a dataset shows, on a random sample of its images.

    Only the pieces of the sampled images are read, and the metadata of their records.

    Args:
        url: the dataset's folder, a single `.pcr` file, or a URL of either.
        images: how many to draw; all, if there are fewer.
        seed: of the sample: the same seed draws the same images.
        threshold: the mean MS-SSIM that the suggested fidelity reaches.
        threads: measure at once; one for each processor by default.
        store: an open store in the place of the URL's.

    Raises:
        InputError: if there is no dataset, or an argument cannot be.
        StoreError: if the store does not give it.
    """
    from holdfast.data.records.reading.records import open_records
    from holdfast.remote import bare

    check_number("images", images, 1)
    check_number("threshold", threshold, 0, 1)
    with open_records(url, store=store) as records:
        if not records.manifest.images:
            raise InputError(
                "the dataset has no images to measure",
                code="no-data",
                path=bare(os.fspath(url)),
            )
        drawn = _draw(records, images, seed)
        results = list(_examine_all(records, drawn, threads))
        measured = [one for one in results if isinstance(one, _Measured)]
        groups = tuple(_groups(records, measured))
        return Quality(
            url=bare(os.fspath(url)),
            images=records.manifest.images,
            sampled=len(drawn),
            measured=len(measured),
            opaque=sum(one is None for one in results),
            unmeasured=tuple(one for one in results if isinstance(one, Unmeasured)),
            groups=groups,
            threshold=threshold,
            suggested=_suggest(groups, threshold),
            seed=seed,
            decoder=DECODER,
            frame=_frame(measured),
        )


# --- The sample ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Measured:
    """An image of the sample, as it was found."""

    record: int
    image: int
    id: str
    bytes: list[int]
    """[G] of its pieces up to each group."""
    msssim: list[float]
    """[G]"""


def _draw(records: Records, images: int, seed: int) -> list[tuple[int, int]]:
    """(record, image) of a uniform sample without replacement, in the order of the dataset."""
    counts = records.manifest.counts
    total = int(counts.sum())
    chosen = np.random.default_rng(seed).choice(total, min(images, total), replace=False)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    found = np.searchsorted(firsts, np.sort(chosen), side="right") - 1
    return [
        (int(record), int(number - firsts[record]))
        for record, number in zip(found, np.sort(chosen), strict=True)
    ]


def _examine_all(
    records: Records, drawn: Sequence[tuple[int, int]], threads: int | None
) -> Iterator[_Measured | Unmeasured | None]:
    workers = threads or len(os.sched_getaffinity(0))
    with (
        ThreadPoolExecutor(workers) as pool,
        track("Measuring", len(drawn), "images") as progress,
    ):
        for result in pool.map(lambda place: _examine(records, *place), drawn):
            progress.advance(1)
            yield result


def _examine(records: Records, record: int, image: int) -> _Measured | Unmeasured | None:
    """Measure one image; None if it is opaque."""
    from holdfast.data.records.reading.records import Damaged

    name = f"image {image} of {records.paths[record]}"
    try:
        contents = records.contents(record)
        name = contents.ids[image]
        if contents.opaque[image]:
            return None
        pieces = records.pieces(record, image)
        likeness = compare(pieces)
    except Damaged as error:
        return Unmeasured(name, "; ".join(fault.reason for fault in error.faults))
    except (DecodeError, LimitError, MissingExtraError) as error:
        return Unmeasured(name, f"it does not decode: {error}")
    sizes = np.cumsum([len(piece) for piece in pieces]).tolist()
    return _Measured(record, image, name, sizes, likeness)


# --- What it says about the dataset --------------------------------------------------------------


def _groups(records: Records, measured: Sequence[_Measured]) -> Iterator[GroupQuality]:
    images = records.manifest.images
    for number, group in enumerate(groups_of(records.manifest)):
        values = np.array([one.msssim[number] for one in measured])
        low, high = mean_interval(values, images)
        worst = int(values.argmin()) if measured and values.min() < 1 else None
        yield GroupQuality(
            group=group.group,
            scans_end=group.scans_end,
            bytes=group.bytes,
            bytes_per_image=group.bytes / images,
            cumulative_fraction=group.cumulative_fraction,
            of_stripped=group.of_stripped,
            msssim=float(values.mean()) if measured else None,
            msssim_low=low,
            msssim_high=high,
            worst=None if worst is None else float(values[worst]),
            worst_id=None if worst is None else measured[worst].id,
        )


def mean_interval(
    values: npt.NDArray[np.float64], population: int
) -> tuple[float | None, float | None]:
    """The interval of a mean over all images from a sample of them, at 95 %.

    Student's t with the correction for a finite population: all images give the mean itself. A
    likeness is at most 1, and so are the ends.

    Args:
        values: [n] of a sample drawn without replacement.
        population: from how many.

    Returns:
        Lower and upper end; None if there are fewer than two values, and more images.
    """
    from scipy.special import stdtrit

    count = len(values)
    if count == population and count:
        return float(values.mean()), float(values.mean())
    if count < 2:
        return None, None
    error = values.std(ddof=1) / math.sqrt(count) * math.sqrt(1 - count / population)
    reach = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2) * error)
    mean = float(values.mean())
    return mean - reach, min(mean + reach, 1.0)


def _suggest(groups: Sequence[GroupQuality], threshold: float) -> int | None:
    passing = (
        group.group for group in groups if group.msssim is not None and group.msssim >= threshold
    )
    return next(passing, None)


def _frame(measured: Sequence[_Measured]) -> pa.Table:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("group", pa.int32()),
            ("bytes", pa.int64()),
            ("fraction", pa.float64()),
            ("msssim", pa.float64()),
        ]
    )
    rows = [
        {
            "id": one.id,
            "group": number + 1,
            "bytes": size,
            "fraction": size / one.bytes[-1],
            "msssim": one.msssim[number],
        }
        for one in measured
        for number, size in enumerate(one.bytes)
    ]
    return pa.Table.from_pylist(rows, schema=schema)
