"""Images of one size for batches: random resized crops, center crops, resizing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from torch.nn.functional import interpolate

from holdfast.data.records.arguments import check_choice
from holdfast.data.records.jpeg.decoding import check_pixels
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.records.jpeg.decoding import Pixels

Size: TypeAlias = int | tuple[int, int]
CropMode: TypeAlias = Literal["random", "center"]

_AREA = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10
_CENTER_SHARE = 224 / 256
"""Share of the shorter side kept by a center crop without `resize`, as in ImageNet evaluation."""


@dataclass(frozen=True)
class Sizing:
    """How images are brought to one size, by bilinear interpolation with antialiasing.

    Args:
        crop: side, or (height, width), of what is delivered; None to deliver the whole image.
        mode: ``"random"`` cuts out 8 to 100 % of the area with an aspect ratio of 3:4 to 4:3, and resizes
            that (torchvision's `RandomResizedCrop`, FFCV's `RandomResizedCropRGBImageDecoder`);
            ``"center"`` resizes, and cuts from the center (`Resize` and `CenterCrop`).
        resize: an int makes the shorter side so long and keeps the aspect ratio; (height, width) does not.
            None for 256/224 of a center crop's longer side.

    Raises:
        InputError: if these do not go together.
    """

    crop: Size | None
    mode: CropMode
    resize: Size | None

    def __post_init__(self) -> None:
        crop, resize = _pair("crop", self.crop), _pair("resize", self.resize)
        check_choice("crop_mode", self.mode, ("random", "center"))
        if crop and resize and self.mode == "random":
            raise InputError(
                "a random resized crop has only the size that crop= gives",
                code="conflict",
                place="resize",
                found=str(self.resize),
                remedy='leave resize out, or set crop_mode="center"',
            )
        if crop and resize and (crop[0] > resize[0] or crop[1] > resize[1]):
            raise InputError(
                "the crop is larger than the resized image",
                code="conflict",
                place="crop, resize",
                found=f"{self.crop} of {self.resize}",
                expected="a crop that fits into what resize= leaves",
            )

    def reader(
        self, draw: Callable[[], np.random.Generator]
    ) -> tuple[Callable[[int, int], int], Callable[[Pixels], Pixels]]:
        """What decodes one image small, and what makes its decoded pixels the size that is wanted.

        Args:
            draw: makes the random numbers of this image in this epoch.

        Returns:
            (height, width) of the upright image -> the divisor to decode at; and a function of the pixels.
        """
        if self.crop is not None and self.mode == "random":
            target = _pair("crop", self.crop)
            assert target is not None
            # The same share of the image at any divisor: drawn before its pixels are known.
            boxes: list[tuple[float, float, float, float]] = []

            def divisor(height: int, width: int) -> int:
                top, left, high, wide = random_box(height, width, draw())
                boxes.append((top / height, left / width, high / height, wide / width))
                return _divisor(high, wide, *target)

            def make(pixels: Pixels) -> Pixels:
                height, width = pixels.shape[:2]
                top, left, high, wide = boxes[-1]
                y, x = round(top * height), round(left * width)
                high, wide = max(1, round(high * height)), max(1, round(wide * width))
                return resized(pixels[y : y + high, x : x + wide], *target)

            return divisor, make

        sizes: list[tuple[int, int]] = []

        def whole_divisor(height: int, width: int) -> int:
            sizes.append(self._whole(height, width))
            return _divisor(height, width, *sizes[-1])

        def make_whole(pixels: Pixels) -> Pixels:
            made = resized(pixels, *sizes[-1])
            crop = _pair("crop", self.crop)
            return made if crop is None else _center(made, *crop)

        return whole_divisor, make_whole

    def _whole(self, height: int, width: int) -> tuple[int, int]:
        """The size of the whole image before a center crop."""
        resize = self.resize
        if resize is None:
            crop = _pair("crop", self.crop)
            assert crop is not None
            resize = round(max(crop) / _CENTER_SHARE)
        if not isinstance(resize, int):
            return resize
        shorter = min(height, width)
        target = resize * height // shorter, resize * width // shorter
        check_pixels(*target)
        return target


def _pair(name: str, size: object) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = (size, size) if isinstance(size, int) else size
    if (
        not isinstance(pair, tuple)
        or len(pair) != 2
        or not all(isinstance(side, int) and side >= 1 for side in pair)
    ):
        raise InputError(
            f"invalid {name}",
            code="invalid-value",
            place=name,
            found=repr(size),
            expected="a number of pixels, or (height, width)",
        )
    return pair


def random_box(height: int, width: int, draw: np.random.Generator) -> tuple[int, int, int, int]:
    """(top, left, height, width) of a random part of an image.

    Its area is uniform over 8 to 100 % of the image's, its aspect ratio log-uniform over 3:4 to 4:3; if no
    such part fits in ten tries, the largest centered one whose aspect ratio is allowed.
    """
    log_ratio = math.log(_RATIO[0]), math.log(_RATIO[1])
    for _ in range(_TRIES):
        area = height * width * draw.uniform(*_AREA)
        ratio = math.exp(draw.uniform(*log_ratio))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            top, left = draw.integers(height - high + 1), draw.integers(width - wide + 1)
            return int(top), int(left), high, wide
    high = min(height, max(1, round(width / _RATIO[0])))
    wide = min(width, max(1, round(height * _RATIO[1])))
    return (height - high) // 2, (width - wide) // 2, high, wide


def resized(pixels: Pixels, height: int, width: int) -> Pixels:
    """UInt8 [h, w, 3] -> [height, width, 3], bilinear with antialiasing."""
    if pixels.shape[:2] == (height, width):
        return pixels
    # [1, 3, h, w]; torch is ten times slower on a part of a larger array
    image = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
    scaled = interpolate(image, (height, width), mode="bilinear", antialias=True)
    found: Pixels = scaled[0].permute(1, 2, 0).numpy()
    return found


def _divisor(height: int, width: int, to_height: int, to_width: int) -> int:
    """The largest of 8, 4, 2, 1 at which a part has at least the pixels that are wanted of it."""
    return next((n for n in (8, 4, 2) if height // n >= to_height and width // n >= to_width), 1)


def _center(pixels: Pixels, height: int, width: int) -> Pixels:
    top = round((pixels.shape[0] - height) / 2)
    left = round((pixels.shape[1] - width) / 2)
    return pixels[top : top + height, left : left + width]
