"""The page of `quality`: what each fidelity costs, and what it shows."""

from __future__ import annotations

from holdfast.data.records.measuring.quality import GroupQuality, Quality, unmeasured_text
from holdfast.data.records.measuring.sections import (
    chosen_group,
    cost_section,
    images_section,
    likeness_text,
    scans_text,
    sheet_section,
)
from holdfast.numbers import counted, interval, number, percent, size
from holdfast.report import Finding, Page, Tile, Unknown


def quality_page(found: Quality) -> Page:
    """The report of a dataset's quality; ask `quality` for `strips` to have the contact sheet."""
    chosen = chosen_group(found)
    return Page(
        title="Image quality per fidelity",
        subtitle=found.url,
        inputs=[
            ("Dataset", f"{found.url}, {counted(found.images, 'image')}"),
            ("Sample", f"{counted(found.sampled, 'image')}, drawn with seed {found.seed}"),
            (
                "Measured",
                f"{number(found.measured)}; {number(found.opaque)} stored unchanged, "
                f"{number(len(found.unmeasured))} not readable",
            ),
            ("Decoder", found.decoder),
        ],
        findings=_findings(found, chosen),
        tiles=_tiles(found, chosen),
        sections=[cost_section(found, chosen), *sheet_section(found), images_section(found)]
        if found.measured
        else [cost_section(found, chosen)],
        unknowns=_unknowns(found),
    )


def _findings(found: Quality, chosen: GroupQuality | None) -> list[Finding]:
    full = found.groups[-1]
    whole = Finding(
        f"One pass at full fidelity reads {size(full.bytes)}"
        + (
            f", {percent(full.of_stripped)} of the source files without their metadata."
            if full.of_stripped
            else "."
        ),
        "bytes",
    )
    if chosen is None:
        return [
            Finding(f"Nothing measured: {unmeasured_text(found)}.", "bytes"),
            whole,
        ]
    if chosen is full:
        findings = [
            Finding(
                f"no lower one reaches a mean MS-SSIM of {found.threshold:g}.",
                "bytes",
                lead="Only full fidelity is sufficient:",
            )
        ]
    else:
        findings = [
            Finding(
                f"{scans_text(chosen)} of 10, the lowest whose mean MS-SSIM reaches "
                f"{found.threshold:g}. It is {likeness_text(chosen)} for "
                f"{percent(chosen.cumulative_fraction)} of the bytes, "
                f"{size(chosen.bytes_per_image)} instead of "
                f"{size(full.bytes_per_image)} per image.",
                "bytes",
                lead=f"Fidelity {chosen.group} is sufficient:",
            )
        ]
    if chosen.worst is not None:
        findings.append(
            Finding(
                f"The lowest MS-SSIM at fidelity {chosen.group} is that of {chosen.worst_id}: "
                f"{number(chosen.worst, 3)}.",
                "images",
            )
        )
    if chosen.group > 1:
        below = found.groups[chosen.group - 2]
        saved = chosen.cumulative_fraction - below.cumulative_fraction
        findings.append(
            Finding(
                f"One fidelity lower would save another {percent(saved)} of the bytes, at a mean MS-SSIM "
                f"of {likeness_text(below)} and {number(below.worst, 3)} for the worst image.",
                "bytes",
            )
        )
    if chosen.msssim_low is not None and chosen.msssim_low < found.threshold:
        findings.append(
            Finding(
                f"The interval of fidelity {chosen.group} reaches below {found.threshold:g}: "
                "measure more images to decide.",
                "bytes",
            )
        )
    return [*findings, whole]


def _tiles(found: Quality, chosen: GroupQuality | None) -> list[Tile]:
    full = found.groups[-1]
    measured = Tile("Images measured", number(found.measured), note=f"of {number(found.images)}")
    value, unit = size(full.bytes).split(" ")
    whole = Tile("Bytes at full fidelity", value, unit, section_id="bytes")
    if chosen is None:
        return [measured, whole]
    low, high = chosen.msssim_low, chosen.msssim_high
    return [
        Tile(
            "Suggested fidelity",
            f"{chosen.group}",
            f"of {len(found.groups)}",
            note=f"{scans_text(chosen)}; MS-SSIM of {found.threshold:g} or more",
            section_id="bytes",
        ),
        Tile(
            "Bytes to read",
            percent(chosen.cumulative_fraction).removesuffix(" %"),
            "%",
            note=f"{size(chosen.bytes)} of {size(full.bytes)} per pass",
            section_id="bytes",
        ),
        Tile(
            "MS-SSIM",
            number(chosen.msssim, 3),
            interval="" if low is None or low == high else f"{interval(low, high, 3)} at 95 %",
            section_id="bytes",
        ),
        Tile(
            "Worst image",
            number(chosen.worst, 3),
            note=chosen.worst_id or "",
            section_id="images",
        ),
        measured,
    ]


def _unknowns(found: Quality) -> list[Unknown]:
    unknowns = []
    if found.opaque:
        unknowns.append(
            Unknown(
                f"{counted(found.opaque, 'image')} of the sample "
                f"{'is' if found.opaque == 1 else 'are'} stored unchanged because lossless transcoding "
                "failed: every fidelity reads all of their bytes, and they do not count in the means.",
                "holdfast data records info lists the reasons.",
            )
        )
    unknowns += [
        Unknown(f"{one.id} was not measured: {one.reason}.", "See holdfast data records verify.")
        for one in found.unmeasured[:20]
    ]
    if len(found.unmeasured) > 20:
        unknowns.append(Unknown(f"{len(found.unmeasured) - 20} more were not measured."))
    if 0 < found.measured < found.images:
        unknowns.append(
            Unknown(
                f"{counted(found.images - found.sampled, 'image')} were not sampled: the worst image "
                "may be among them.",
                "Measure more with --images.",
            )
        )
    unknowns.append(
        Unknown(
            "Whether a model trains as well on similar images: MS-SSIM only predicts it.",
            "holdfast data records tune compares gradients of your own model.",
        )
    )
    return unknowns
