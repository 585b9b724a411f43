"""Crops and sizes against Pillow and their definition; what they depend on; mixed sizes in a batch."""

from __future__ import annotations

import io
from itertools import islice

import made
import numpy as np
import pytest
from PIL import Image as Pillow

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from holdfast.data.records.jpeg.decoding import decode  # noqa: E402
from holdfast.data.records.loading.cropping import random_box  # noqa: E402
from holdfast.data.records.loading.dataset import Dataset  # noqa: E402
from holdfast.data.records.loading.loader import Loader, MissingValue, MixedSizes  # noqa: E402
from holdfast.data.records.writing.writer import write  # noqa: E402
from holdfast.errors import InputError  # noqa: E402

# width, height of photos: both orientations, small, thin, and one that is stored on its side
SIZES = [(640, 427), (427, 640), (500, 500), (90, 70), (33, 400), (300, 200)]
SIDEWAYS = 5


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A dataset of photos of different sizes, and their files."""
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "in").mkdir()
    files = []
    for number, (width, height) in enumerate(SIZES):
        with Pillow.open(io.BytesIO(made.picture(number, width, height))) as image:
            exif = Pillow.Exif()
            exif[0x0112] = 6 if number == SIDEWAYS else 1
            image.save(folder / "in" / f"{number}.jpg", quality=90, exif=exif)
        files.append((folder / "in" / f"{number}.jpg").read_bytes())
    png = io.BytesIO()
    Pillow.fromarray(decode(files[0])).save(png, "PNG")
    (folder / "in" / "6.png").write_bytes(png.getvalue())  # stored as it is, decoded by Pillow
    write(folder / "in", folder / "d", record_size=3)
    return folder / "d", [*files, png.getvalue()]


def upright(file: bytes, number: int, at_least: int | None = None):
    return decode(file, orientation=6 if number == SIDEWAYS else 1, at_least=at_least)


def by_pillow(pixels, height: int, width: int):
    image = Pillow.fromarray(pixels).resize((width, height), Pillow.Resampling.BILINEAR)
    return np.asarray(image).astype(int)


def delivered(item):
    assert item["image"].dtype == torch.uint8
    return item["image"].permute(1, 2, 0).numpy().astype(int)


@pytest.mark.parametrize("resize", [(50, 60), 64, 100])
def test_resizing_is_pillows(photos, resize):
    """At the divisor that the size allows; within the 2 of 255 that two roundings make."""
    folder, files = photos
    for item in Dataset(folder, resize=resize, shuffle=False):
        number = int(item["id"][0])
        height, width = upright(files[number], number).shape[:2]
        shorter = min(height, width)
        target = (
            resize
            if isinstance(resize, tuple)
            else (resize * height // shorter, resize * width // shorter)
        )
        divisor = next(
            n
            for n in (8, 4, 2, 1)
            if n == 1 or (height // n >= target[0] and width // n >= target[1])
        )
        small = upright(files[number], number, -(-shorter // divisor))
        assert small.shape[:2] == (-(-height // divisor), -(-width // divisor))
        assert delivered(item).shape[:2] == target
        assert np.abs(delivered(item) - by_pillow(small, *target)).max() <= 2


@pytest.mark.parametrize(
    ("crop", "resize"), [(56, None), ((40, 60), None), (32, 70), (20, (30, 40))]
)
def test_a_center_crop_is_a_resize_and_its_middle(photos, crop, resize):
    folder, _ = photos
    high, wide = crop if isinstance(crop, tuple) else (crop, crop)
    whole = Dataset(folder, shuffle=False, resize=resize or round(max(high, wide) * 256 / 224))
    cropped = Dataset(folder, shuffle=False, crop=crop, crop_mode="center", resize=resize)
    for full, item in zip(whole, cropped, strict=True):
        full, item = delivered(full), delivered(item)
        top, left = round((full.shape[0] - high) / 2), round((full.shape[1] - wide) / 2)
        assert np.array_equal(item, full[top : top + high, left : left + wide])


@pytest.mark.parametrize("crop", [24, (16, 40)])
def test_a_random_crop_is_the_box_of_its_seed_resized(photos, crop):
    folder, files = photos
    high, wide = crop if isinstance(crop, tuple) else (crop, crop)
    data = Dataset(folder, crop=crop, shuffle=False, seed=3)
    data.set_epoch(2)
    for number, item in enumerate(data):
        pixels = upright(files[number], number)
        height, width = pixels.shape[:2]
        y, x, h, w = random_box(height, width, np.random.default_rng([3, 2, number]))
        assert 0.08 * 0.9 < h * w / (height * width) <= 1 or number == 4
        divisor = next(n for n in (8, 4, 2, 1) if n == 1 or (h // n >= high and w // n >= wide))
        small = upright(files[number], number, -(-min(height, width) // divisor))
        down, across = small.shape[0] / height, small.shape[1] / width
        y, h, x, w = (
            round(y * down),
            max(1, round(h * down)),
            round(x * across),
            max(1, round(w * across)),
        )
        expected = by_pillow(small[y : y + h, x : x + w], high, wide)
        assert np.abs(delivered(item) - expected).max() <= 2


def test_boxes_are_drawn_as_defined():
    """Uniform in area, log-uniform in aspect ratio; the middle where none fits."""
    boxes = [random_box(1000, 1000, np.random.default_rng([0, n])) for n in range(4000)]
    area = np.array([h * w / 1e6 for _, _, h, w in boxes])
    ratio = np.array([w / h for _, _, h, w in boxes])
    assert all(0 <= y <= 1000 - h and 0 <= x <= 1000 - w for y, x, h, w in boxes)
    assert area.min() == pytest.approx(0.08, abs=0.01)
    # Every box of less than 3/4 of the area fits at every aspect ratio: among these nothing is rejected.
    assert np.mean(area[area < 0.7] < 0.3) == pytest.approx(0.22 / 0.62, abs=0.03)
    assert np.median(ratio) == pytest.approx(1, abs=0.03)
    assert (ratio.min(), ratio.max()) == pytest.approx((3 / 4, 4 / 3), abs=0.01)
    assert random_box(1000, 10, np.random.default_rng(0)) == (493, 0, 13, 10)
    assert random_box(10, 1000, np.random.default_rng(0)) == (0, 493, 10, 13)
    assert random_box(1, 1, np.random.default_rng(0)) == (0, 0, 1, 1)


def test_crops_depend_on_seed_epoch_and_image_alone(photos):
    """Not on threads, workers, ranks, order, or where a run was resumed."""
    folder, _ = photos

    def data(**options):
        return Dataset(folder, **{"crop": 24, "seed": 5} | options)

    def images(batches):
        return {
            name: one
            for batch in batches
            for name, one in zip(batch["id"], batch["image"], strict=True)
        }

    first = {item["id"]: item["image"] for item in data()}
    fork = {"num_workers": 2, "multiprocessing_context": "fork"}
    runs = [
        images(Loader(data(threads=0), 2)),
        images(Loader(data(), 3, **fork)),
        images(Loader(data(rank=0, ranks=2), 2)) | images(Loader(data(rank=1, ranks=2), 2)),
        images(DataLoader(data().indexed(), batch_size=4)),
        {item["id"]: item["image"] for item in map(data().__getitem__, range(7))},
    ]
    loader = Loader(data(), 2)
    head = list(islice(loader, 2))
    later = Loader(data(), 2)
    later.load_state_dict(loader.state_dict())
    runs.append(images(head) | images(later))
    for run in runs:
        assert run.keys() == first.keys()
        assert all(torch.equal(run[name], first[name]) for name in first)
    other = data()
    other.set_epoch(1)
    for changed in (other, data(seed=6)):
        assert not any(torch.equal(item["image"], first[item["id"]]) for item in changed)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "values", [[1, None], [None, None], [None, "a"], [2.5, None], [None, True]]
)
def test_a_missing_value_in_a_batch_names_column_and_image(tmp_path, workers, values):
    data = made.picture(0)
    rows = [{"image": data, "id": f"{n}", "extra": v} for n, v in enumerate(values)]
    rows.append({"image": data, "id": "full", "extra": next(filter(None, values), 1)})
    write(rows, tmp_path / "out")
    read = Dataset(tmp_path / "out", shuffle=False)
    options = {"multiprocessing_context": "fork"} if workers else {}
    with pytest.raises(MissingValue) as raised:
        list(Loader(read, 3, workers, **options))
    assert raised.value.code == "missing-value"
    if not workers:
        assert raised.value.place == "column extra"
        assert raised.value.found == f"null in {values.index(None)}"
    assert len(list(Loader(Dataset(tmp_path / "out", columns=[]), 3))) == 1


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("pairs", [False, True])
def test_photos_of_different_sizes_are_an_error_that_says_what_to_do(photos, workers, pairs):
    options = {"multiprocessing_context": "fork"} if workers else {}
    transform = (lambda item: (item["image"], 1)) if pairs else None
    data = Dataset(photos[0], shuffle=False, transform=transform)
    with pytest.raises(MixedSizes) as raised:
        list(Loader(data, 4, workers, **options))
    assert raised.value.code == "mixed-sizes"
    if not workers:
        names = ("number 0", "number 1") if pairs else ("0.jpg", "1.jpg")
        assert raised.value.found == f"{names[0]} [3, 427, 640] and {names[1]} [3, 640, 427]"
    assert "crop=" in str(raised.value)
    assert "resize=" in str(raised.value)
    listed = Loader(data, 4, collate_fn=list)
    assert [len(batch) for batch in listed] == [4, 3]


@pytest.mark.parametrize(
    ("options", "code", "place"),
    [
        ({"crop": 0}, "invalid-value", "crop"),
        ({"crop": (3, 4, 5)}, "invalid-value", "crop"),
        ({"resize": "large"}, "invalid-value", "resize"),
        ({"crop": 9, "crop_mode": "middle"}, "invalid-value", "crop_mode"),
        ({"crop": 9, "resize": 20}, "conflict", "resize"),
        ({"crop": 30, "resize": 20, "crop_mode": "center"}, "conflict", "crop, resize"),
        ({"crop": 30, "at_least": 40}, "conflict", "crop, resize"),
        ({"resize": 30, "decode": False}, "conflict", "crop, resize"),
    ],
)
def test_sizes_that_cannot_be(photos, options, code, place):
    with pytest.raises(InputError) as raised:
        Dataset(photos[0], **options)
    assert (raised.value.code, raised.value.place) == (code, place)
