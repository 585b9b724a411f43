"""The simulated devices: each stage against a closed form or colour-demosaicing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demosaic_vectors import INSIDE, PATTERNS, photos
from PIL import Image

from holdfast import federated
from holdfast.errors import InputError
from holdfast.federated import demosaic, processing, sensor
from holdfast.federated.sensor import Profile, Stages

HERE = Path(__file__).parent
SIGNS = HERE.parents[1] / "examples" / "signs" / "photos"
PLAIN = Profile()
IDEAL = replace(PLAIN, gains=(1.0, 1.0), bits=16)


@pytest.fixture(scope="module")
def oracle() -> Any:
    with np.load(HERE / "demosaic.npz") as arrays:
        return dict(arrays)


# --- Sensor --------------------------------------------------------------------------------------


def test_srgb_curve_and_its_inverse() -> None:
    known = {0.0: 0.0, 0.04045: 0.04045 / 12.92, 0.5: 0.21404114048223255, 1.0: 1.0}
    for srgb, linear in known.items():
        assert sensor.linearize(np.array(srgb)) == pytest.approx(linear)
    values = np.linspace(0, 1, 1001)
    assert sensor.gamma(sensor.linearize(values)) == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_mosaic_is_that_of_colour_demosaicing(pattern: Any, oracle: Any) -> None:
    image = np.random.default_rng(0).random((1, 12, 16, 3))
    raw = sensor.expose(sensor.gamma(image), replace(IDEAL, pattern=pattern))
    assert raw[0] == pytest.approx(oracle[f"mosaic/{pattern}"], abs=1e-6)


def test_the_sensor_sees_light_through_its_colors() -> None:
    matrix = ((1.6, -0.45, -0.15), (-0.2, 1.45, -0.25), (0.0, -0.45, 1.45))
    profile = replace(PLAIN, matrix=matrix, gains=(2.0, 1.5))
    color = np.full((1, 2, 2, 3), sensor.gamma(np.array([0.3, 0.4, 0.35])))
    red, green, blue = np.linalg.solve(np.array(matrix), [0.3, 0.4, 0.35])
    raw = sensor.expose(color, profile)[0]
    assert raw == pytest.approx(np.array([[red / 2, green], [green, blue / 1.5]]), abs=1e-6)


@pytest.mark.parametrize("tier", ["high", "mid", "low"])
def test_noise_has_the_mean_and_variance_of_its_tier(tier: Any) -> None:
    shot, read = sensor.NOISE[tier]
    for level in (0.1, 0.5):
        exposure = np.full((1, 400, 400), level)
        raw = sensor.record(exposure, replace(IDEAL, tier=tier), np.random.default_rng(0))
        assert raw.mean() == pytest.approx(level, abs=5 * (shot * level + read) ** 0.5 / 400)
        assert raw.var() == pytest.approx(shot * level + read, rel=0.02)


@pytest.mark.parametrize("bits", [10, 12])
def test_raw_values_are_multiples_of_the_last_bit(bits: int) -> None:
    raw = sensor.record(
        np.full((1, 64, 64), 0.4), replace(PLAIN, bits=bits), np.random.default_rng(0)
    )
    steps = raw * (2**bits - 1)
    assert steps == pytest.approx(np.rint(steps), abs=1e-9)


# --- Demosaicing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
def test_chroma_is_bilinear(pattern: Any, oracle: Any) -> None:
    mosaic = oracle[f"mosaic/{pattern}"][None]
    sites = sensor.color_sites(pattern, 12, 16)
    ours = demosaic._with_chroma(mosaic, sites, np.zeros_like(mosaic))[0]
    inside = np.s_[1:-1, 1:-1, ::2]  # red and blue; at the edge the oracle repeats pixels
    assert ours[inside] == pytest.approx(oracle[f"bilinear/{pattern}"][inside])


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("method", [demosaic.ppg, demosaic.ahd])
def test_ramps_are_exact_inside(method: Any, pattern: Any) -> None:
    rows, columns = np.mgrid[:16, :20]
    sites = sensor.color_sites(pattern, 16, 20)
    # All colors rise alike, from different levels.
    image = (0.02 * columns + 0.01 * rows)[..., None] + np.array([0.1, 0.2, 0.15])
    mosaic = np.take_along_axis(image, sites[..., None], axis=2)[None, ..., 0]
    assert method(mosaic, replace(PLAIN, pattern=pattern))[0, 4:-4, 4:-4] == pytest.approx(
        image[4:-4, 4:-4]
    )


def test_ppg_and_ahd_are_close_to_the_best_linear_and_directional_methods(oracle: Any) -> None:
    images = photos(SIGNS)
    sites = sensor.color_sites("RGGB", 100, 100)
    mosaic = np.take_along_axis(images, sites[None, ..., None], axis=3)[..., 0]
    errors = {
        method: np.mean((method(mosaic, PLAIN) - images)[:, *INSIDE] ** 2, axis=(1, 2, 3))
        for method in (demosaic.ppg, demosaic.ahd, demosaic.binning)
    }
    assert errors[demosaic.ppg].mean() < oracle["error/bilinear"].mean()
    assert errors[demosaic.ahd].mean() < oracle["error/bilinear"].mean()
    assert errors[demosaic.ahd].mean() < 1.6 * oracle["error/menon"].mean()
    assert errors[demosaic.binning].mean() > oracle["error/bilinear"].mean()


def test_an_edge_is_followed_and_not_crossed() -> None:
    image = np.zeros((1, 16, 16, 3))
    image[:, :, 8:] = 0.8
    sites = sensor.color_sites("RGGB", 16, 16)
    mosaic = np.take_along_axis(image, sites[None, ..., None], axis=3)[..., 0]
    for method in (demosaic.ppg, demosaic.ahd):
        assert method(mosaic, PLAIN)[0, 4:-4, :, 1] == pytest.approx(image[0, 4:-4, :, 1])


def test_binning_is_the_mean_of_four_pixels() -> None:
    raw = np.array([[[0.1, 0.2], [0.4, 0.8]]])
    for pattern, color in {"RGGB": (0.1, 0.3, 0.8), "GBRG": (0.4, 0.45, 0.2)}.items():
        profile = replace(PLAIN, pattern=pattern)  # type: ignore[arg-type]
        assert demosaic.binning(raw, profile)[0] == pytest.approx(np.full((2, 2, 3), color))


# --- The other stages ----------------------------------------------------------------------------


def test_outliers_are_pulled_into_the_range_of_their_neighbors() -> None:
    raw = np.tile(np.linspace(0.2, 0.5, 16), (1, 16, 1))
    hot = raw.copy()
    hot[0, 8, 8] = 1.0
    assert processing.clamp_outliers(raw, PLAIN) == pytest.approx(raw)
    assert processing.clamp_outliers(hot, PLAIN)[0, 8, 8] == pytest.approx(raw[0, 8, 10])


def test_haar_keeps_energy_and_is_inverted() -> None:
    pixels = np.random.default_rng(0).normal(size=(4, 2, 8, 12))
    bands = processing.haar(pixels)
    assert np.sum(bands**2) == pytest.approx(np.sum(pixels**2))
    assert bands[0] == pytest.approx(pixels.sum(axis=0) / 2)
    assert processing.haar(bands) == pytest.approx(pixels)


def test_bayes_shrink_removes_noise_and_keeps_what_has_none() -> None:
    smooth = np.tile(np.linspace(0.2, 0.6, 64), (1, 64, 1))
    flat = np.full((1, 64, 64), 0.3)
    assert processing.bayes_shrink(flat, PLAIN) == pytest.approx(flat)
    noise = 0.05 * np.random.default_rng(0).normal(size=smooth.shape)
    left = processing.bayes_shrink(smooth + noise, PLAIN) - smooth
    assert left.std() < 0.6 * 0.05
    # By hand: details of +-1 and a median of 0.6745: sigma 1, sigma_x 0, so that everything goes.
    plane = np.zeros((1, 8, 8))
    plane[0, ::4, ::4] = 1.0  # of each color only one in four
    assert processing.bayes_shrink(plane, PLAIN)[0, 0, 0] < 1


def test_white_balance() -> None:
    image = np.random.default_rng(0).random((3, 8, 8, 3)) * [0.4, 0.8, 0.5]
    means = processing.gray_world(image, PLAIN).mean(axis=(1, 2))
    assert means == pytest.approx(means[:, 1:2] * np.ones(3))
    image[:, 0, 0:3] = [0.4, 0.8, 0.5]
    white = processing.white_patch(image, PLAIN)[:, 0, 0]
    assert white == pytest.approx(white[:, 1:2] * np.ones(3), rel=1e-2)


def test_gamut() -> None:
    profile = replace(PLAIN, matrix=((1.5, -0.3, -0.2), (0.0, 1.0, 0.0), (-0.1, 0.0, 1.1)))
    image = np.full((1, 1, 1, 3), [0.5, 0.4, 0.3])
    assert processing.to_srgb(image, profile)[0, 0, 0] == pytest.approx([0.57, 0.4, 0.28])
    # White stays white; a pure sRGB red is less saturated in the wider space.
    assert processing.to_prophoto(np.ones((1, 1, 1, 3)), PLAIN) == pytest.approx(1, abs=1e-3)
    red = processing.to_prophoto(np.full((1, 1, 1, 3), [1.0, 0, 0]), PLAIN)[0, 0, 0]
    assert red == pytest.approx([0.5293, 0.0983, 0.0169])


def test_equalization_uses_every_brightness_equally_often() -> None:
    image = np.random.default_rng(0).random((1, 64, 64, 1)) * np.ones(3)
    levels = np.sort(processing.equalized(image, PLAIN)[0, ..., 0].ravel())
    assert levels == pytest.approx(np.linspace(0, 1, levels.size), abs=0.02)


def test_jpeg_loses_more_at_lower_quality() -> None:
    image = photos(SIGNS)[:2]
    errors = [
        np.mean((processing.STAGES["jpeg"][quality](image, PLAIN) - image) ** 2)
        for quality in ("none", "85", "50")
    ]
    assert errors[0] == 0 < errors[1] < errors[2]
    flat = np.full((1, 16, 16, 3), 128 / 255)
    assert processing.STAGES["jpeg"]["50"](flat, PLAIN) == pytest.approx(flat, abs=1e-6)


# --- Devices -------------------------------------------------------------------------------------


def test_an_ideal_device_shows_the_photo() -> None:
    smooth = np.tile(np.linspace(0.2, 0.9, 32), (2, 3, 32, 1))
    stages = Stages(denoise="none", white_balance="none", jpeg="none")
    profile = replace(IDEAL, stages=stages)
    raw = sensor.expose(smooth.transpose(0, 2, 3, 1), profile)
    shown = processing.process(raw, profile).transpose(0, 3, 1, 2)
    assert shown[..., 4:-4] == pytest.approx(smooth[..., 4:-4], abs=5e-3)


def test_all_nine_devices_differ_and_repeat() -> None:
    profiles = federated.read_profiles()
    assert len(profiles) == 9
    images = photos(SIGNS)[:2].transpose(0, 3, 1, 2).astype(np.float32)
    taken = {name: federated.capture(images, profile, 1) for name, profile in profiles.items()}
    for name, shot in taken.items():
        assert shot.shape == images.shape
        assert shot.dtype == np.float32
        assert shot.min() >= 0
        assert shot.max() <= 1
        assert np.corrcoef(shot.mean(1).ravel(), images.mean(1).ravel())[0, 1] > 0.7
        assert np.array_equal(shot, federated.capture(images, profiles[name], 1))
        assert not np.array_equal(shot, federated.capture(images, profiles[name], 2))
    names = list(taken)
    for one, other in pairwise(names):
        assert np.abs(taken[one] - taken[other]).mean() > 0.005


def test_a_photo_does_not_depend_on_those_beside_it_but_for_noise() -> None:
    raw = np.random.default_rng(0).random((3, 16, 16))
    for profile in federated.read_profiles().values():
        together = processing.process(raw, profile)
        alone = np.concatenate(
            [processing.process(raw[place : place + 1], profile) for place in range(3)]
        )
        assert together == pytest.approx(alone)


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 1, 8, 8), (2, 3, 30, 32), (2, 3, 31, 32)])
def test_only_color_photos_can_be_taken(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as caught:
        federated.capture(np.zeros(shape), PLAIN, 0)
    assert (caught.value.code, caught.value.place) == ("unsupported", "devices")


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("bits = 40", "invalid-value", "device.x.bits"),
        ("gains = [0.5, 1.0]", "invalid-value", "device.x.gains[0]"),
        ("matrix = [[1, 0, 0], [0, 1, 0], [0, 1, 1]]", "invalid-value", "device.x.matrix"),
        ('stages = { tone = "sepia" }', "unknown-name", "device.x.stages.tone"),
        ('stages = { sharpen = "yes" }', "unknown-key", "device.x.stages.sharpen"),
    ],
)
def test_mistakes_in_a_profile(tmp_path: Path, text: str, code: str, place: str) -> None:
    path = tmp_path / "devices.toml"
    path.write_text(f"[device.x]\n{text}\n")
    with pytest.raises(InputError) as caught:
        federated.read_profiles(path)
    assert (caught.value.code, caught.value.place) == (code, place)


CONFIG = """\
model = "linear"
output = "run"
data = {{ path = "{photos}", size = 16, clients = 9, test_share = 0.3 }}
devices = {{ shares = {{ maker-a-high = 3, maker-b-low = 1 }} }}
training = {{ rounds = 2, per_round = 4 }}
"""


def test_clients_have_devices_by_their_shares(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(photos=SIGNS))
    result = federated.run_config(tmp_path / "c.toml")
    assert list(result.accuracy) == ["maker-a-high", "maker-b-low"]
    assert result.clients == 9
    from holdfast.config import read_config
    from holdfast.federated.configuration import RunConfig, client_data

    clients, _, _ = client_data(read_config(tmp_path / "c.toml", RunConfig, ""), tmp_path)
    assert sum(name.startswith("maker-a-high/") for name in clients) == 7


def test_characterization(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(photos=SIGNS))
    found = federated.characterize(tmp_path / "c.toml")
    assert found.devices == ["maker-a-high", "maker-b-low"]
    assert {"devices", "accuracy", "stages"} <= found.to_dict().keys()
    assert {"stage", "loss"} <= found.to_dict()["stages"][0].keys()
    assert np.shape(found.accuracy) == (2, 2)
    assert len(found.stages) == 12
    losses = [row["loss"] for row in found.stages]
    assert losses == sorted(losses, reverse=True)
    assert all(row["ci95"][0] <= row["loss"] <= row["ci95"][1] for row in found.stages)
    found.page()


@pytest.mark.parametrize(
    ("shares", "code"),
    [("{ phone = 1 }", "unknown-key"), ("{ maker-a-high = 0 }", "invalid-value")],
)
def test_mistakes_in_shares(tmp_path: Path, shares: str, code: str) -> None:
    text = CONFIG.format(photos=SIGNS).replace("{ maker-a-high = 3, maker-b-low = 1 }", shares)
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        federated.run_config(tmp_path / "c.toml")
    assert caught.value.code == code


def test_photos_of_a_folder(tmp_path: Path) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    image[:4] = 255  # white above black; turned by 180 degrees in the file
    folder = tmp_path / "a"
    folder.mkdir()
    turned = Image.Exif()
    turned[0x0112] = 3
    Image.fromarray(image[::-1, ::-1]).save(folder / "turned.png", exif=turned)
    (folder / "._turned.png").write_bytes(b"of macOS")
    x, y = federated.read_examples(tmp_path, size=8)
    assert x[0].transpose(1, 2, 0) * 255 == pytest.approx(image)
    assert y.tolist() == [0]
    Image.fromarray(np.full((8, 8), 30_000, np.uint16)).save(folder / "x-ray.png")
    with pytest.raises(InputError) as caught:
        federated.read_examples(tmp_path)
    assert (caught.value.code, caught.value.path) == ("invalid-value", str(folder / "x-ray.png"))


def test_labels_are_whole_numbers_or_names(tmp_path: Path) -> None:
    for labels, valid in (([0.0, 2.0], True), (["a", "b"], True), ([0.5, 2.0], False)):
        np.savez(tmp_path / "d.npz", x=np.zeros((2, 3)), y=np.array(labels))
        if valid:
            assert federated.read_examples(tmp_path / "d.npz")[1].tolist() == [0, 1]
            continue
        with pytest.raises(InputError) as caught:
            federated.read_examples(tmp_path / "d.npz")
        assert caught.value.code == "invalid-value"


@pytest.mark.parametrize("value", [1.5, -0.1, np.nan])
def test_photos_of_other_values_are_refused(value: float) -> None:
    images = np.full((2, 3, 8, 8), 0.5)
    images[1, 2, 7, 7] = value
    with pytest.raises(InputError) as refused:
        federated.capture(images, PLAIN, 0)
    assert (refused.value.code, refused.value.place) == ("invalid-value", "photos")
