"""MS-SSIM against torchmetrics, a plain float64 twin, and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import convolve2d

from holdfast.data.records.measuring.similarity import (
    WEIGHTS,
    WINDOW,
    msssim,
    scales,
)

C1, C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def picture(height: int, width: int, seed: int = 0, channels: int = 3) -> np.ndarray:
    """Waves, an edge and noise: uint8 [H, W, C]."""
    noise = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    made = np.stack(
        [127 + 100 * np.sin(x / (5 + 4 * c) + y / (23 - 5 * c)) for c in range(channels)], axis=-1
    )
    made[:, width // 3 :] += 40
    return (made + noise.normal(0, 8, made.shape)).clip(0, 255).astype(np.uint8)


def spoilt(image: np.ndarray, how: str, seed: int = 1) -> np.ndarray:
    """The image with one kind of loss."""
    values = image.astype(float)
    if how == "noise":
        values += np.random.default_rng(seed).normal(0, 30, image.shape)
    elif how == "blocks":
        height, width = (8 * (side // 8) for side in image.shape[:2])
        blocks = values[:height, :width].reshape(height // 8, 8, width // 8, 8, -1)
        blocks[:] = blocks.mean((1, 3), keepdims=True)
        values[:height, :width] = blocks.reshape(height, width, -1)
    elif how == "darker":
        values *= 0.6
    elif how == "one channel":
        values[:, :, 2] = 128
    return values.clip(0, 255).round().astype(np.uint8)


LOSSES = ("noise", "blocks", "darker", "one channel")


def twin_terms(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Means of the contrast-structure term and of SSIM of two planes: the definition, in float64."""
    place = np.arange(WINDOW) - WINDOW // 2
    line = np.exp(-(place**2) / (2 * 1.5**2))
    window = np.outer(line, line) / line.sum() ** 2

    def mean(values: np.ndarray) -> np.ndarray:
        return convolve2d(values, window, mode="valid")

    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    term = (2 * cov + C2) / (vx + vy + C2)
    return term.mean(), (term * (2 * mx * my + C1) / (mx**2 + my**2 + C1)).mean()


def twin_msssim(x: np.ndarray, y: np.ndarray) -> float:
    """MS-SSIM of two images [H, W, C], channel by channel."""
    found = []
    levels = scales(*x.shape[:2])
    weights = np.array(WEIGHTS[:levels]) * sum(WEIGHTS) / sum(WEIGHTS[:levels])
    for channel in range(x.shape[2]):
        a, b = x[:, :, channel].astype(float), y[:, :, channel].astype(float)
        product = 1.0
        for level, weight in enumerate(weights):
            contrast, whole = twin_terms(a, b)
            product *= max(whole if level == levels - 1 else contrast, 0) ** weight
            a, b = (
                v[: v.shape[0] // 2 * 2, : v.shape[1] // 2 * 2]
                .reshape(v.shape[0] // 2, 2, v.shape[1] // 2, 2)
                .mean((1, 3))
                for v in (a, b)
            )
        found.append(product)
    return float(np.mean(found))


@pytest.mark.quick(6)
@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("size", [(176, 201), (90, 61), (11, 11), (23, 40)])
def test_as_the_definition_in_float64(size: tuple[int, int], how: str) -> None:
    x = picture(*size)
    y = spoilt(x, how)
    assert msssim(x, y) == pytest.approx(twin_msssim(x, y), abs=2e-5)


@pytest.mark.parametrize(
    ("size", "how"),
    [
        *(pytest.param((181, 177), how, marks=pytest.mark.full) for how in LOSSES),
        ((182, 203), "blocks"),
    ],
)
def test_as_torchmetrics(size: tuple[int, int], how: str) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    from torchmetrics.functional.image import (
        multiscale_structural_similarity_index_measure as their_msssim,
    )
    from torchmetrics.functional.image import structural_similarity_index_measure as their_ssim

    x = picture(*size)
    y = spoilt(x, how)
    # One "image" a channel, so that each channel's product is taken before the mean.
    a, b = (torch.tensor(v).permute(2, 0, 1)[:, None].double() for v in (x, y))
    theirs = their_msssim(b, a, data_range=255.0, normalize="relu", reduction="none")
    # Their last scale mirrors the border, where all others leave it out: take that factor again.
    for _ in range(4):
        a, b = (torch.nn.functional.avg_pool2d(v, 2) for v in (a, b))
    mirrored, full = their_ssim(b, a, data_range=255.0, return_full_image=True, reduction="none")
    inside = full[:, 0, 5:-5, 5:-5].mean((1, 2))
    corrected = theirs * (inside / mirrored) ** WEIGHTS[-1]
    assert msssim(x, y) == pytest.approx(corrected.mean().item(), abs=1e-5)
    assert msssim(x, y) == pytest.approx(theirs.mean().item(), abs=0.01)


@pytest.mark.parametrize("size", [(200, 180), (64, 48), (11, 300), (5, 3), (1, 1)])
def test_an_image_is_like_itself(size: tuple[int, int]) -> None:
    x = picture(*size)
    assert msssim(x, x) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("a", "b"), [(0, 255), (100, 130), (255, 250), (7, 7)])
def test_constant_images_differ_in_luminance_alone(a: int, b: int) -> None:
    x, y = (np.full((190, 200, 3), value, np.uint8) for value in (a, b))
    luminance = (2 * a * b + C1) / (a * a + b * b + C1)
    assert msssim(x, y) == pytest.approx(luminance ** WEIGHTS[-1], abs=1e-4)


def test_a_negative_has_no_structure_in_common() -> None:
    x = picture(200, 200)
    assert msssim(x, 255 - x) == 0


def test_the_channels_are_averaged() -> None:
    x = picture(180, 190)
    y = spoilt(x, "one channel")
    last = msssim(x[:, :, 2:], y[:, :, 2:])
    assert last < 0.5
    assert msssim(x, y) == pytest.approx((2 + last) / 3, abs=1e-6)


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_symmetric_transposable_and_bounded(
    height: int, width: int, channels: int, seed: int
) -> None:
    noise = np.random.default_rng(seed)
    x, y = noise.integers(0, 256, (2, height, width, channels), np.uint8)
    found = msssim(x, y)
    assert 0 <= found <= 1
    assert msssim(y, x) == pytest.approx(found, abs=1e-5)
    assert msssim(x.swapaxes(0, 1), y.swapaxes(0, 1)) == pytest.approx(found, abs=1e-4)


@pytest.mark.parametrize(
    ("side", "levels"),
    [(1, 1), (10, 1), (11, 1), (21, 1), (22, 2), (44, 3), (88, 4), (175, 4), (176, 5), (9999, 5)],
)
def test_as_many_scales_as_the_window_fits(side: int, levels: int) -> None:
    assert scales(side, side + 50) == scales(side + 50, side) == levels


def test_more_loss_is_less_alike() -> None:
    x = picture(200, 260)
    noise = np.random.default_rng(3).normal(0, 1, x.shape)
    found = [
        msssim(x, (x + level * noise).clip(0, 255).astype(np.uint8)) for level in (5, 15, 40, 90)
    ]
    assert found == sorted(found, reverse=True)


def test_images_of_two_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="compared"):
        msssim(picture(30, 40), picture(40, 30))
