"""The page of a dataset's quality."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import made
import pytest

from holdfast.data.records.jpeg.decoding import decode
from holdfast.data.records.measuring.pages import quality_page
from holdfast.data.records.measuring.quality import Quality, Unmeasured, quality
from holdfast.numbers import size
from holdfast.report import render


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Quality:
    """Ten images, all measured."""
    folder = tmp_path_factory.mktemp("dataset")
    made.dataset(folder)
    return quality(folder, images=8, strips=3)


@pytest.fixture(scope="module")
def html(found: Quality) -> str:
    """Its page."""
    return render(quality_page(found))


def test_the_page_says_which_fidelity_will_do(found: Quality, html: str) -> None:
    assert found.suggested is not None
    chosen = found.groups[found.suggested - 1]
    assert 1 < found.suggested < 5
    assert f"Fidelity {found.suggested} is sufficient:" in html
    assert f"{chosen.msssim:.3f} [{chosen.msssim_low:.3f}, {chosen.msssim_high:.3f}]" in html
    assert f"{100 * chosen.cumulative_fraction:.0f}\u00a0% of the bytes" in html
    assert str(chosen.worst_id) in html
    assert "2 images were not sampled" in html


def test_the_contact_sheet_holds_every_cutting(found: Quality, html: str) -> None:
    pictures = {base64.b64encode(one).decode() for strip in found.strips for one in strip.pictures}
    # Jinja and JSON leave base64 as it is; each cutting stands in the drawing and in the live figure.
    held = re.findall(r"data:image/jpeg;base64,([A-Za-z0-9+/=]+)", html)
    assert set(held) == pictures
    assert len(pictures) == 15
    assert decode(base64.b64decode(held[0])).shape[2] == 3
    assert sum(map(len, held)) < 1_000_000


def test_only_full_fidelity(found: Quality) -> None:
    page = quality_page(replace(found, suggested=5, threshold=0.9999))
    assert page.tiles[0].value == "5"
    assert "instead of" not in page.findings[0].text


def test_a_wide_interval_is_said(found: Quality) -> None:
    assert found.suggested is not None
    chosen = found.groups[found.suggested - 1]
    assert chosen.msssim is not None
    assert chosen.msssim_low is not None
    between = (chosen.msssim + chosen.msssim_low) / 2
    page = quality_page(replace(found, threshold=between))
    assert any("measure more images" in finding.text for finding in page.findings)
    sure = quality_page(replace(found, threshold=chosen.msssim_low - 1e-6))
    assert not any("measure more images" in finding.text for finding in sure.findings)


def test_what_could_not_be_told(found: Quality) -> None:
    faults = tuple(Unmeasured(f"{n}<script>", "its crc32c does not match") for n in range(30))
    html = render(quality_page(replace(found, opaque=1, unmeasured=faults)))
    assert "1 image of the sample is stored unchanged" in html
    assert "0&lt;script&gt; was not measured: its crc32c does not match." in html
    assert "0<script>" not in html
    assert "10 more were not measured" in html
    assert "29&lt;script&gt;" not in html


def test_nothing_measured(found: Quality) -> None:
    groups = tuple(
        replace(
            group,
            msssim=None,
            msssim_low=None,
            msssim_high=None,
            worst=None,
            worst_id=None,
            ssim_luma=None,
        )
        for group in found.groups
    )
    empty = replace(
        found,
        measured=0,
        opaque=8,
        suggested=None,
        groups=groups,
        strips=(),
        frame=found.frame.slice(0, 0),
    )
    page = quality_page(empty)
    assert [section.id for section in page.sections] == ["bytes"]
    assert "8 of 8" in page.findings[0].text
    assert "8 images of the sample are stored unchanged" in render(page)


def test_one_group(tmp_path: Path) -> None:
    made.dataset(tmp_path, groups=(10,))
    found = quality(tmp_path, strips=1)
    assert found.groups[0].worst is None
    assert render(quality_page(found))


def test_many_groups_keep_their_place(tmp_path: Path) -> None:
    made.dataset(tmp_path, images=4, groups=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    html = render(quality_page(quality(tmp_path, strips=2)))
    assert html.count("data:image/jpeg;base64,") >= 20


@pytest.mark.parametrize(
    ("count", "text"), [(812, "812 B"), (1500, "1.5 kB"), (6.1e6, "6.1 MB"), (2e12, "2.0 TB")]
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text
