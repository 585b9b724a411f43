"""The sections of the page of `quality`: bytes against likeness, the contact sheet, image by image."""

from __future__ import annotations

import base64
from typing import Any

import altair as alt
import pyarrow as pa

from holdfast.data.records.measuring.contact_sheet import HEIGHT, WIDTH
from holdfast.data.records.measuring.quality import GroupQuality, Quality
from holdfast.numbers import counted, interval, number, percent
from holdfast.report import ColumnFormat, Figure, How, Section, Table, charts
from holdfast.report.theme import colour


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
    x = charts.percent_axis(alt.X, "fraction", "Bytes read, of full fidelity", top=1.02)
    y = alt.Y("msssim", type="quantitative").scale(zero=False, nice=True).title("MS-SSIM")
    images = (
        alt.Chart(
            charts.data(row for row in found.frame.to_pylist() if row["group"] < len(found.groups))
        )
        .mark_circle(color=colour("sky"), size=26, opacity=0.45)
        .encode(
            x=x,
            y=y,
            tooltip=charts.tooltip(
                {
                    "id": "image",
                    "group": ("fidelity", "d"),
                    "msssim": ("MS-SSIM", ".4f"),
                    "bytes": ("bytes", ",d"),
                }
            ),
        )
    )
    means = [
        {
            "fraction": group.cumulative_fraction,
            "msssim": group.msssim,
            "low": group.msssim if group.msssim_low is None else group.msssim_low,
            "high": group.msssim if group.msssim_high is None else group.msssim_high,
            "fidelity": group.group,
            "label": f"{group.group}",
            "scans": scans_text(group),
        }
        for group in found.groups
    ]
    line = alt.Chart().mark_line(color=colour("reference"), strokeWidth=1.5).encode(x=x, y=y)
    points = charts.interval_points(
        x,
        y,
        "low",
        "high",
        charts.tooltip(
            {
                "fidelity": ("fidelity", "d"),
                "scans": "holds",
                "msssim": ("MS-SSIM", ".4f"),
                "low": ("from", ".4f"),
                "high": ("to", ".4f"),
                "fraction": ("bytes", ".1%"),
            }
        ),
    )
    labels = charts.line_labels(means, x, y, "label", dy=14, dx=7, fontWeight=600)
    threshold = (
        alt.Chart(charts.data([{"msssim": found.threshold}]))
        .mark_rule(color=colour("good"), strokeDash=[5, 4], strokeWidth=1.5)
        .encode(y=y)
    )
    chart = alt.layer(threshold, images, alt.layer(line, points, data=charts.data(means)), labels)
    return Figure(
        chart.properties(height=320),
        legend={
            "mean over all images, with its interval, at each fidelity": "measured",
            "one image": "sky",
            f"threshold {found.threshold:g}": "good",
        },
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
    rows = [
        {
            "id": strip.id,
            "row": row,
            "group": group,
            "picture": _data_uri(picture),
            "msssim": msssim,
        }
        for row, strip in enumerate(found.strips, 1)
        for group, (picture, msssim) in enumerate(zip(strip.pictures, strip.msssim, strict=True), 1)
    ]
    x = (
        alt.X("group", type="ordinal")
        .title("Fidelity")
        .axis(orient="top", labelAngle=0, domain=False, ticks=False)
        .scale(paddingInner=0.04, paddingOuter=0)
    )
    y = (
        alt.Y("row", type="ordinal")
        .title(None)
        .axis(domain=False, ticks=False)
        .scale(paddingInner=0.04, paddingOuter=0)
    )
    base = alt.Chart(charts.data(rows)).encode(x=x, y=y)
    pictures = base.mark_image(
        width={"expr": "bandwidth('x')"}, height={"expr": "bandwidth('y') - 18"}, yOffset=-8
    ).encode(
        url=alt.Url("picture", type="nominal"),
        tooltip=charts.tooltip(
            {"id": "image", "group": ("fidelity", "d"), "msssim": ("MS-SSIM", ".4f")}
        ),
    )
    texts = base.mark_text(
        fontSize=11, dy={"expr": "bandwidth('y') / 2 - 8"}, color=colour("muted")
    ).encode(text=alt.Text("msssim", type="quantitative", format=".3f"))
    return Figure(
        alt.layer(pictures, texts).properties(height=len(found.strips) * (HEIGHT + 22)),
        notes=[strip.id for strip in found.strips],
    )


def _data_uri(jpeg: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


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
