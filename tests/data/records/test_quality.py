"""Quality on a sample of a dataset, against the definition and a plain computation."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import made
import numpy as np
import odd_jpegs
import pytest
from PIL import Image as Pillow

from holdfast.data.records.jpeg.decoding import DECODER, decode
from holdfast.data.records.jpeg.scans import image
from holdfast.data.records.measuring import comparing
from holdfast.data.records.measuring.comparing import compare, measure
from holdfast.data.records.measuring.quality import Quality, Unmeasured, mean_interval, quality
from holdfast.data.records.measuring.similarity import msssim
from holdfast.data.records.reading.records import open_records
from holdfast.data.records.reading.stores import open_store
from holdfast.data.records.writing.writer import write
from holdfast.errors import InputError
from holdfast.plain import plain
from holdfast.report import render


def pieces_of(seed: int, mode: str = "RGB", width: int = 120, height: int = 90) -> list[bytes]:
    """An image in its five pieces."""
    made_of = made.image(0, made.picture(seed, width, height, mode))
    return [bytes(piece) for piece in made_of.pieces]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A written dataset of ten colour and three grey JPEGs, one PNG and one with an orientation."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("out") / "dataset"
    for number in range(13):
        mode = "L" if number >= 10 else "RGB"
        data = made.picture(number, 150 + number, 110, mode)
        (source / f"{number:02d}.jpg").write_bytes(data)
    exif = Pillow.Exif()
    exif[0x0112] = 6
    with Pillow.open(io.BytesIO(made.picture(50, 200, 110))) as turned:
        turned.save(source / "turned.jpg", exif=exif, quality=90)
        turned.save(source / "whole.png")
    write(source, out, record_size=4, quality_images=0)
    return out


@pytest.fixture(scope="module")
def all_of_it(mixed: Path) -> Quality:
    """Every image measured."""
    return quality(mixed, images=100)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_one_image_is_compared_with_its_full_fidelity(mode: str) -> None:
    pieces = pieces_of(4, mode)
    full = decode(image(pieces))
    found = compare(pieces)
    for fidelity in range(1, 6):
        partial = decode(image(pieces[:fidelity]))
        assert found[fidelity - 1] == pytest.approx(msssim(full, partial), abs=1e-6)
    assert found[-1] == 1
    assert found[0] < found[2] < 1


def test_an_empty_piece_changes_nothing() -> None:
    pieces = pieces_of(4)
    split = [pieces[0], b"", *pieces[1:]]
    assert compare(split) == [compare(pieces)[0], *compare(pieces)]


def test_means_leave_out_what_does_not_decode() -> None:
    good = [pieces_of(1), pieces_of(2, "L")]
    damaged = [good[0][0][:-40], *good[0][1:]]
    found = measure([good[0], damaged, good[1]])
    assert found.images == 2
    expected = np.mean([compare(pieces) for pieces in good], axis=0)
    assert found.msssim == pytest.approx(expected.tolist())
    assert measure([good[0], damaged, good[1]], threads=3) == found
    assert measure([]) == ([], 0)
    assert measure([damaged]) == ([], 0)


@pytest.mark.skipif(shutil.which("jpegtran") is None, reason="needs jpegtran (libjpeg-turbo-progs)")
def test_without_pillow_an_image_that_needs_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "odd.jpg").write_bytes(odd_jpegs.ODD["4:1:0"]())
    (tmp_path / "in" / "plain.jpg").write_bytes(made.picture(1))
    monkeypatch.setitem(sys.modules, "PIL", None)
    write(tmp_path / "in", tmp_path / "out", quality_images=2)
    found = quality(tmp_path / "out")
    assert found.measured == 1
    assert [one.id for one in found.unmeasured] == ["odd.jpg"]
    assert "PIL" in found.unmeasured[0].reason


def test_of_a_large_image_the_middle_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = pieces_of(4)
    monkeypatch.setattr(comparing, "LARGEST_SIDE", 50)
    monkeypatch.setattr(comparing, "_SEVERAL_AT_ONCE", 100)
    full, partial = (decode(image(pieces[:g]))[20:70, 35:85] for g in (5, 1))
    assert compare(pieces)[0] == pytest.approx(msssim(full, partial), abs=1e-6)


def test_all_images_give_their_own_means(mixed: Path, all_of_it: Quality) -> None:
    assert (all_of_it.images, all_of_it.sampled, all_of_it.measured) == (15, 15, 14)
    assert (all_of_it.opaque, all_of_it.unmeasured) == (1, ())
    assert all_of_it.decoder == DECODER
    found: dict[str, list[float]] = {}
    with open_records(mixed) as records:
        for record in range(len(records)):
            contents = records.contents(record)
            for number, name in enumerate(contents.ids):
                if not contents.opaque[number]:
                    found[name] = compare(records.pieces(record, number))
        manifest = records.manifest
    assert set(all_of_it.frame["id"].to_pylist()) == set(found)
    for group in all_of_it.groups:
        values = {name: likeness[group.group - 1] for name, likeness in found.items()}
        mean = np.mean(list(values.values()))
        assert group.msssim == pytest.approx(mean)
        assert group.bytes == manifest.bytes_at(group.group)
        assert group.bytes_per_image == pytest.approx(group.bytes / 15)
        if group.group < 5:
            assert group.worst == pytest.approx(min(values.values()))
            assert values[group.worst_id or ""] == group.worst
    full = all_of_it.groups[-1]
    assert (full.worst, full.worst_id, full.msssim, full.cumulative_fraction) == (None, None, 1, 1)


def test_the_frame_has_every_image_at_every_fidelity(mixed: Path, all_of_it: Quality) -> None:
    rows = all_of_it.frame.to_pylist()
    assert len(rows) == 14 * 5
    with open_records(mixed) as records:
        contents = records.contents(0)
        sizes = np.cumsum(contents.lengths, axis=1)
        mine = [row for row in rows if row["id"] == contents.ids[1]]
        assert [row["group"] for row in mine] == [1, 2, 3, 4, 5]
        assert [row["bytes"] for row in mine] == sizes[1].tolist()
        assert [row["fraction"] for row in mine] == pytest.approx(sizes[1] / sizes[1, -1])


def test_the_same_seed_draws_the_same_images(mixed: Path) -> None:
    first, again, other = (quality(mixed, images=6, seed=seed) for seed in (1, 1, 2))
    assert first.to_dict() == again.to_dict()
    assert set(first.frame["id"].to_pylist()) != set(other.frame["id"].to_pylist())
    assert first.sampled == 6
    assert first.measured + first.opaque == 6
    for group in first.groups[:-1]:
        assert group.msssim_low < group.msssim < group.msssim_high <= 1  # type: ignore[operator]


def test_every_image_is_drawn_equally_often(mixed: Path) -> None:
    from holdfast.data.records.measuring.quality import _draw

    with open_records(mixed) as records:
        draws = [place for seed in range(600) for place in _draw(records, 5, seed)]
        counts = np.unique(np.array(draws), axis=0, return_counts=True)[1]
    assert len(counts) == 15
    assert np.abs(counts - 200).max() < 5 * math.sqrt(200 * 2 / 3)


def test_only_the_sampled_images_are_read(mixed: Path) -> None:
    store = open_store(mixed)
    found = quality(mixed, images=1, seed=3, store=store)
    with open_records(mixed) as records:
        whole = records.manifest.bytes_at(5)
        metadata = int(records.manifest.ends[:, 0].max())
        size = store.size("manifest.parquet")
    read = store.bytes_read - size - metadata
    assert found.measured == 1
    assert read <= max(found.frame["bytes"].to_pylist()) < whole / 5


@pytest.mark.parametrize(
    ("threshold", "fidelity"), [(0.0, 1), (1.0, 5), ("third", 3), ("above the third", 4)]
)
def test_the_lowest_fidelity_that_reaches_the_threshold(
    mixed: Path, all_of_it: Quality, threshold: float | str, fidelity: int
) -> None:
    third = all_of_it.groups[2].msssim or 0
    limit = {"third": third, "above the third": third + 1e-9}.get(str(threshold), threshold)
    assert quality(mixed, images=100, threshold=float(limit)).suggested == fidelity


def test_a_damaged_image_is_named_and_left_out(tmp_path: Path) -> None:
    made.dataset(tmp_path)
    with open_records(tmp_path) as records:
        index, contents = records.indexes[0], records.contents(0)
        path = tmp_path / records.paths[0]
        place = index.ends[1] + int(contents.starts[2, 1]) + 3
        name = contents.ids[2]
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    found = quality(tmp_path, images=10)
    assert [one.id for one in found.unmeasured] == [name]
    assert "crc32c" in found.unmeasured[0].reason
    assert found.measured == 9
    assert name not in found.frame["id"].to_pylist()


def test_one_group_and_a_single_record(tmp_path: Path) -> None:
    made.dataset(tmp_path, groups=(10,))
    found = quality(tmp_path)
    assert [group.msssim for group in found.groups] == [1]
    assert found.suggested == 1
    record = sorted(tmp_path.glob("*/*.pcr"))[0]
    assert quality(record).images == 4


def test_nothing_but_opaque_images(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for seed in range(3):
        with Pillow.open(io.BytesIO(made.picture(seed))) as picture:
            picture.save(tmp_path / "in" / f"{seed}.png")
    write(tmp_path / "in", tmp_path / "out", quality_images=0)
    found = quality(tmp_path / "out")
    assert (found.measured, found.opaque, found.suggested) == (0, 3, None)
    assert not found.sections()[0].figures
    assert found.groups[0].msssim is None
    assert json.dumps(plain(found.to_dict()), allow_nan=False)


def test_a_suggestion_is_sure_or_doubtful_or_not_made(mixed: Path, all_of_it: Quality) -> None:
    def doubts(found: Quality) -> int:
        return sum(one.doubt for one in found.unknowns())

    assert all_of_it.suggested is not None
    assert doubts(replace(all_of_it, images=14)) == 0  # all that can be measured was
    sample = quality(mixed, images=6, seed=1)
    third = sample.groups[2]
    assert third.msssim_low is not None
    assert third.msssim is not None
    sure = quality(mixed, images=6, seed=1, threshold=third.msssim_low - 1e-6)
    wide = quality(mixed, images=6, seed=1, threshold=(third.msssim_low + third.msssim) / 2)
    assert (sure.suggested, doubts(sure)) == (3, 0)
    assert (wide.suggested, doubts(wide)) == (3, 1)
    one = quality(mixed, images=1, seed=1, threshold=0.0)  # no interval at all
    assert (one.suggested, doubts(one)) == (1, 1)
    none = replace(all_of_it, measured=0, suggested=None)
    assert "Nothing measured" in none.headline


def test_the_answer_has_a_page(all_of_it: Quality) -> None:
    html = render(all_of_it.page())
    group = all_of_it.groups[(all_of_it.suggested or 0) - 1]
    assert f"Fidelity {group.group} is sufficient:" in html
    assert f"{100 * group.cumulative_fraction:.0f}\u00a0% of the bytes" in html
    named = replace(all_of_it, unmeasured=(Unmeasured("<script>", "damaged"),))
    assert "&lt;script&gt;: damaged" in render(named.page())


def test_to_dict_is_json(all_of_it: Quality) -> None:
    found = json.loads(json.dumps(plain(all_of_it.to_dict()), allow_nan=False))
    assert found["suggested"] == all_of_it.suggested
    assert len(found["per_image"]) == 70
    assert found["groups"][0]["scans_end"] == 1


@pytest.mark.parametrize("arguments", [{"images": 0}, {"threshold": 1.5}, {"threshold": math.nan}])
def test_arguments_that_cannot_be(mixed: Path, arguments: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        quality(mixed, **arguments)  # type: ignore[arg-type]


# --- The interval of a mean ----------------------------------------------------------------------


def test_the_interval_by_hand() -> None:
    values = np.array([0.2, 0.4, 0.6])
    # s = 0.2, t(0.975, 2) = 4.302653, correction sqrt(1 - 3/12)
    reach = 4.302653 * 0.2 / math.sqrt(3) * math.sqrt(0.75)
    assert mean_interval(values, 12) == pytest.approx((0.4 - reach, 0.4 + reach), abs=1e-6)


def test_the_ends_of_the_interval() -> None:
    assert mean_interval(np.array([0.5, 0.7]), 2) == pytest.approx((0.6, 0.6))
    assert mean_interval(np.array([0.5]), 1) == (0.5, 0.5)
    assert mean_interval(np.array([0.5]), 2) == (None, None)
    assert mean_interval(np.array([]), 2) == (None, None)
    assert mean_interval(np.array([0.9, 1.0, 0.99]), 9)[1] == 1


def test_the_interval_covers_as_often_as_it_says() -> None:
    draw = np.random.default_rng(5)
    population = 1 - draw.beta(2, 20, 200)
    covered = 0
    for _ in range(1000):
        low, high = mean_interval(draw.choice(population, 32, replace=False), 200)
        covered += low <= population.mean() <= high  # type: ignore[operator]
    assert 0.92 <= covered / 1000 <= 0.98
