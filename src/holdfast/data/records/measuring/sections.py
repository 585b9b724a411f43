"""What `quality` answers in words, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.answer import Figure, How, Section, Unknown
from holdfast.numbers import counted, interval, number, percent, size
from holdfast.report import ColumnFormat, Finding, Table, figures

if TYPE_CHECKING:
    from holdfast.data.records.measuring.quality import GroupQuality, Quality

_COLUMNS = {
    **dict.fromkeys(("fidelity", "to_scan"), ColumnFormat()),
    "bytes_per_image": ColumnFormat("per image", "bytes", 0),
    "of_full": ColumnFormat("of full", "%", 1),
    "msssim": ColumnFormat("MS-SSIM", "", 3, ("low", "high")),
    "worst": ColumnFormat("worst image", "MS-SSIM", 3),
    "worst_image": ColumnFormat("which", detail=True),
}
_HOW = How(
    [
        "MS-SSIM = mean(l c at scale 5)^w5 * product over scales j < 5 of mean(c at j)^wj",
        "l = (2 mx my + C1) / (mx^2 + my^2 + C1),  c = (2 cov + C2) / (vx + vy + C2)",
    ],
    {
        "window": "11 x 11, Gaussian, sigma 1.5 pixels",
        "weights w1..w5": "0.0448, 0.2856, 0.3001, 0.2363, 0.1333",
        "C1, C2": "(0.01 * 255)^2, (0.03 * 255)^2",
        "interval": "95 %, Student's t with the correction for a finite population",
    },
    source="Wang, Simoncelli, Bovik, Multiscale structural similarity for image quality "
    "assessment (2003)",
    notes=(
        "Each image is compared with itself at full fidelity, as it is stored, channel by channel "
        "(RGB); the channels are averaged.",
        "Images whose shorter side is under 176 pixels are compared at fewer scales. Partial images "
        "differ between decoders: compare figures of one decoder.",
    ),
)


def finding(quality: Quality) -> Finding:
    """Which fidelity is enough."""
    full = quality.groups[-1]
    if quality.suggested is None:
        return Finding(
            f"{quality.opaque} of {quality.sampled} sampled images are stored unchanged (the same at "
            f"every fidelity), {len(quality.unmeasured)} are damaged or cannot be decoded.",
            "bytes",
            lead="Nothing measured:",
        )
    chosen = quality.groups[quality.suggested - 1]
    return Finding(
        f"mean MS-SSIM {_likeness(chosen)} (required: {quality.threshold:g}) for "
        f"{percent(chosen.cumulative_fraction)} of the bytes, {size(chosen.bytes_per_image)} instead "
        f"of {size(full.bytes_per_image)} per image.",
        "bytes",
        lead=f"Fidelity {chosen.group} is sufficient:"
        if chosen is not full
        else "Only full fidelity is sufficient:",
    )


def section(quality: Quality) -> Section:
    """What each fidelity costs, and what it shows."""
    rows = [
        {
            "fidelity": group.group,
            "to_scan": group.scans_end,
            "bytes_per_image": group.bytes_per_image,
            "of_full": group.cumulative_fraction,
            "msssim": group.msssim,
            # Without an interval where all images were measured: there is nothing to estimate.
            "low": None if group.msssim_low == group.msssim_high else group.msssim_low,
            "high": None if group.msssim_low == group.msssim_high else group.msssim_high,
            "worst": group.worst,
            "worst_image": group.worst_id,
        }
        for group in quality.groups
    ]
    caption = f"{counted(quality.measured, 'image')} of {quality.images:,} measured."
    return Section(
        "bytes",
        "Bytes and similarity per fidelity",
        f"{finding(quality).lead} {finding(quality).text}",
        figures=[_figure(quality)] if quality.measured else [],
        tables=[Table(pa.Table.from_pylist(rows), _COLUMNS, caption)],
        how=_HOW,
    )


def _figure(quality: Quality) -> Figure:
    rows = [
        {
            "fidelity": group.group,
            "bytes": 100 * group.cumulative_fraction,
            "MS-SSIM": group.msssim,
            "low": group.msssim if group.msssim_low is None else group.msssim_low,
            "high": group.msssim if group.msssim_high is None else group.msssim_high,
        }
        for group in quality.groups
    ]
    return figures.lines(
        rows,
        "bytes",
        "MS-SSIM",
        "Bytes read (% of full fidelity)",
        "Mean MS-SSIM of all images",
        low="low",
        high="high",
        points=True,
        reference=quality.threshold,
        zero=False,
    )


def unknowns(quality: Quality) -> Sequence[Unknown]:
    """What makes the suggestion doubtful, and what was not measured."""
    unknown = []
    if quality.suggested is not None and quality.measured < quality.images:
        low = quality.groups[quality.suggested - 1].msssim_low
        if low is None or low < quality.threshold:
            unknown.append(
                Unknown(
                    f"Over all images, the mean at fidelity {quality.suggested} may lie below "
                    f"{quality.threshold:g}.",
                    "Measure more images (--images).",
                    doubt=True,
                )
            )
    if quality.opaque:
        unknown.append(
            Unknown(
                f"{counted(quality.opaque, 'sampled image')} stored unchanged: every fidelity reads all of "
                "their bytes, and they do not count in the means.",
                "holdfast data records info lists the reasons.",
            )
        )
    if quality.unmeasured:
        first = quality.unmeasured[0]
        unknown.append(
            Unknown(
                f"{counted(len(quality.unmeasured), 'sampled image')} not measured, such as {first.id}: "
                f"{first.reason}.",
                "See holdfast data records verify.",
            )
        )
    return unknown


def _likeness(group: GroupQuality) -> str:
    """``"0.984 [0.983, 0.986]"``."""
    mean = number(group.msssim, 3)
    if group.msssim_low is None or group.msssim_low == group.msssim_high:
        return mean
    return f"{mean} {interval(group.msssim_low, group.msssim_high, 3)}"
