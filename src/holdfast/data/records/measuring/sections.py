"""The sections of the page of `quality`: bytes against likeness, the contact sheet, image by image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from holdfast.data.records.measuring.contact_sheet import HEIGHT, WIDTH
from holdfast.data.records.measuring.quality import GroupQuality, Quality
from holdfast.numbers import counted, interval, number, percent
from holdfast.report import ColumnFormat, Figure, How, Section, Table, figures


def chosen_group(found: Quality) -> GroupQuality | None:
    """The suggested fidelity."""
    return None if found.suggested is None else found.groups[found.suggested - 1]


def likeness_text(group: GroupQuality) -> str:
    """``"0.984 [0.983, 0.986]"``."""
    mean = number(group.msssim, 3)
    if group.msssim_low is None or group.msssim_low == group.msssim_high:
        return mean
    return f"{mean} {interval(group.msssim_low, group.msssim_high, 3)}"


def scans_text(group: GroupQuality) -> str:
    """``"scan 1"``, ``"scans 1 to 5"``."""
    return "scan 1" if group.scans_end == 1 else f"scans 1 to {group.scans_end}"


def cost_section(found: Quality, chosen: GroupQuality | None) -> Section:
    """What each fidelity costs, and what it shows."""
    if chosen is None:
        sentence = "No image of the sample could be measured; the table contains only the bytes."
    else:
        sentence = (
            f"Fidelity {chosen.group} has a mean MS-SSIM of {likeness_text(chosen)} for "
            f"{percent(chosen.cumulative_fraction)} of the bytes."
        )
    return Section(
        "bytes",
        "Bytes and similarity per fidelity",
        sentence,
        figures=[_cost_figure(found)] if found.measured else [],
        tables=[_groups_table(found)],
        how=How(
            [
                "MS-SSIM = mean(l c at scale 5)^w5 * product over scales j < 5 of mean(c at j)^wj",
                "l = (2 mx my + C1) / (mx^2 + my^2 + C1),  c = (2 cov + C2) / (vx + vy + C2)",
            ],
            {
                "window": "11 x 11, Gaussian, sigma 1.5 pixels",
                "weights w1..w5": "0.0448, 0.2856, 0.3001, 0.2363, 0.1333",
                "C1, C2": "(0.01 * 255)^2, (0.03 * 255)^2",
                "threshold": found.threshold,
                "interval": "95 %, Student's t with the correction for a finite population",
            },
            source="Wang, Simoncelli, Bovik, Multiscale structural similarity for image quality "
            "assessment (2003)",
            notes=(
                "Each image is compared with itself at full fidelity, as it is stored, channel by channel "
                "(RGB); the channels are averaged. Luma alone would hide what the colour scans bring.",
                "Images whose shorter side is under 176 pixels are compared at fewer scales. Partial "
                "images differ between decoders: compare figures of one decoder.",
            ),
        ),
    )


def _cost_figure(found: Quality) -> Figure:
    rows = [
        {
            "fidelity": group.group,
            "holds": scans_text(group),
            "bytes": 100 * group.cumulative_fraction,
            "MS-SSIM": group.msssim,
            "low": group.msssim if group.msssim_low is None else group.msssim_low,
            "high": group.msssim if group.msssim_high is None else group.msssim_high,
        }
        for group in found.groups
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
        reference=found.threshold,
        zero=False,
    )


def _groups_table(found: Quality) -> Table:
    rows = [
        {
            "fidelity": group.group,
            "scans": group.scans_end,
            "kilobytes_per_image": group.bytes_per_image / 1e3,
            "of_full": group.cumulative_fraction,
            "of_stripped": group.of_stripped,
            "msssim": group.msssim,
            # Without an interval where all images were measured: there is nothing to estimate.
            "msssim_low": None if group.msssim_low == group.msssim_high else group.msssim_low,
            "msssim_high": None if group.msssim_low == group.msssim_high else group.msssim_high,
            "worst": group.worst,
            "worst_image": group.worst_id,
            "ssim_luma": group.ssim_luma,
        }
        for group in found.groups
    ]
    floats = ("of_stripped", "msssim", "msssim_low", "msssim_high", "worst", "ssim_luma")
    schema = pa.schema(
        [
            ("fidelity", pa.int32()),
            ("scans", pa.int32()),
            ("kilobytes_per_image", pa.float64()),
            ("of_full", pa.float64()),
            *((name, pa.float64()) for name in floats[:5]),
            ("worst_image", pa.string()),
            ("ssim_luma", pa.float64()),
        ]
    )
    return Table(
        pa.Table.from_pylist(rows, schema=schema),
        {
            "fidelity": ColumnFormat(),
            "kilobytes_per_image": ColumnFormat("per image", "kB", 1),
            "of_full": ColumnFormat("of full", "%", 1),
            "msssim": ColumnFormat("MS-SSIM", "", 3, ("msssim_low", "msssim_high")),
            "worst": ColumnFormat("worst image", "MS-SSIM", 3),
            "ssim_luma": ColumnFormat("SSIM", "luma", 3),
        },
        "One row per fidelity.",
    )


# --- The contact sheet ---------------------------------------------------------------------------


def sheet_section(found: Quality) -> list[Section]:
    """The contact sheet, if there are cuttings for one."""
    if not found.strips:
        return []
    return [
        Section(
            "sheet",
            "Sample images",
            f"Crops of {counted(len(found.strips), 'image')} of the sample, from the lowest MS-SSIM at "
            f"fidelity 1 to the highest: up to {WIDTH} x {HEIGHT} pixels, where the image has most "
            "contrast. Below each crop is the MS-SSIM of the whole image.",
            figures=[_sheet_figure(found)],
        )
    ]


def _sheet_figure(found: Quality) -> Figure:
    """One row of images per image of the sample, one column per fidelity."""
    images = [
        (f"fidelity {group}: {msssim:.3f}", picture)
        for strip in found.strips
        for group, (picture, msssim) in enumerate(zip(strip.pictures, strip.msssim, strict=True), 1)
    ]
    sheet = figures.image_grid(images, columns=len(found.strips[0].pictures), side=WIDTH)
    return replace(sheet, notes=[strip.id for strip in found.strips])


# --- Image by image ------------------------------------------------------------------------------


def images_section(found: Quality) -> Section:
    """The images of the sample, the one that loses most first."""
    shown = _shown(found)
    lower = found.groups[:-1]
    return Section(
        "images",
        "Images with the lowest similarity",
        "All images are identical at every fidelity."
        if shown.worst is None
        else f"At fidelity {shown.group} the lowest MS-SSIM is {number(shown.worst, 3)}, of "
        f"{shown.worst_id}.",
        tables=[
            Table(
                _by_image(found, shown.group),
                {
                    "id": ColumnFormat("image"),
                    "kilobytes": ColumnFormat("full size", "kB", 1),
                    **{
                        f"fidelity_{group.group}": ColumnFormat(
                            f"fidelity {group.group}", "MS-SSIM", 3
                        )
                        for group in lower
                    },
                },
                f"One row per image of the sample, the lowest at fidelity {shown.group} first.",
            )
        ],
    )


def _shown(found: Quality) -> GroupQuality:
    """The suggested fidelity; below the full one, where images differ, if there is any."""
    below_full = max(len(found.groups) - 1, 1)
    return found.groups[min(found.suggested or 1, below_full) - 1]


def _by_image(found: Quality, fidelity: int) -> pa.Table:
    rows: dict[str, dict[str, Any]] = {}
    for row in found.frame.to_pylist():
        made = rows.setdefault(row["id"], {"id": row["id"]})
        made["kilobytes"] = row["bytes"] / 1e3  # the last row of an image is its full fidelity
        made[f"fidelity_{row['group']}"] = row["msssim"]
    return pa.Table.from_pylist(sorted(rows.values(), key=lambda row: row[f"fidelity_{fidelity}"]))
