"""Bytes of one image -> pixels: whole or DCT-scaled, upright, and strict about damage.

JPEG goes through libjpeg-turbo (simplejpeg), which releases the GIL: threads decode at once. What
it does not decode to RGB (CMYK, unusual sampling, PNG and others) goes through Pillow.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

import numpy as np
import simplejpeg

from holdfast.errors import LimitError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from PIL.Image import Image

    Pixels = npt.NDArray[np.uint8]
    """[H, W, C], C-contiguous."""

DECODER = f"simplejpeg {simplejpeg.__version__}"
"""What decodes. Whole images agree between versions of libjpeg-turbo; prefixes of scans differ, as
its smoothing of missing coefficients does, so figures of fidelity hold for one decoder."""

MAX_PIXELS = 2**28
MAX_SCANS = 500
_FACTORS = (8, 4, 2)
_IN_TURBO = frozenset({"YCbCr", "RGB", "Gray"})


class DecodeError(ValueError):
    """Bytes that do not decode to an image.

    Args:
        reason: what is wrong with them, in the decoder's words.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def decode(
    data: bytes | bytearray | memoryview,
    *,
    at_least: int | None = None,
    divisor: Callable[[int, int], int] | None = None,
    orientation: int = 1,
    colour: Literal["rgb", "grey"] = "rgb",
    strict: bool = True,
) -> Pixels:
    """The pixels of an image.

    Args:
        data: a JPEG, whole or cut after a scan and ended with FFD9; or any file Pillow reads.
        at_least: decode at 1/2, 1/4 or 1/8 of both sides (rounded up): the smallest whose shorter
            side has this many pixels, whole if none has. In a JPEG the scaling is part of the
            inverse DCT: it saves most of the time and costs no later resize.
        divisor: (height, width) of the upright image -> 1, 2, 4 or 8, in the place of `at_least`.
        orientation: the EXIF orientation 1..8 in which the image is stored; what comes back is
            upright.
        colour: ``"rgb"`` gives three channels (grey images are repeated, transparency is dropped);
            ``"grey"`` one, the luma.
        strict: treat what libjpeg warns of (data that end early, bits left over) as damage.

    Returns:
        UInt8 [H, W, 3], or [H, W, 1] if grey.

    Raises:
        DecodeError: if the data are damaged, or no image.
        LimitError: if the image has more than 2^28 pixels or 500 scans.
        MissingExtraError: if only Pillow can decode the data, and it is not installed.
    """
    if not 1 <= orientation <= 8:
        raise ValueError(f"an EXIF orientation is 1 to 8, not {orientation}")
    data = bytes(data)

    def factor_of(height: int, width: int) -> int:
        if divisor is None:
            return scale(height, width, at_least)
        return divisor(width, height) if orientation >= 5 else divisor(height, width)

    header = _turbo_header(data)
    if header is None:
        pixels = _by_pillow(data, factor_of, colour)
    else:
        _check_scans(data)
        height, width = header
        factor = factor_of(height, width)
        try:
            # These bounds admit exactly one of the factors 1, 1/2, 1/4, 1/8; bounds alone could
            # select one between (such as 5/8), whose inverse DCT is slower than the next larger.
            pixels = simplejpeg.decode_jpeg(
                data,
                colorspace="RGB" if colour == "rgb" else "GRAY",
                min_height=-(-height // factor),
                min_width=-(-width // factor),
                min_factor=factor,
                strict=strict,
            )
        except ValueError as error:
            raise DecodeError(str(error)) from None
    return upright(pixels, orientation)


def scale(height: int, width: int, at_least: int | None) -> int:
    """The largest divisor of 8, 4, 2, 1 that leaves the shorter side `at_least` pixels."""
    if at_least is not None:
        for factor in _FACTORS:
            if -(-min(height, width) // factor) >= at_least:
                return factor
    return 1


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """The image as it is to be seen.

    Args:
        pixels: [H, W, C], as stored.
        orientation: of EXIF, 1 to 8: which corner of the scene the first pixel is.

    Returns:
        [H, W, C], or [W, H, C] for the orientations 5 to 8; C-contiguous.
    """
    if orientation == 1:
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _turbo_header(data: bytes) -> tuple[int, int] | None:
    """Height and width if libjpeg-turbo decodes the image to RGB, else None."""
    if data[:2] != b"\xff\xd8":
        return None
    try:
        height, width, colourspace, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except (ValueError, KeyError):  # the latter for a sampling it has no name for
        return None
    check_pixels(height, width)
    return (height, width) if colourspace in _IN_TURBO else None


def check_pixels(height: int, width: int) -> None:
    """Refuse an image that is larger than any real one; raises LimitError."""
    if height * width > MAX_PIXELS:
        raise LimitError(
            f"an image of {width} x {height} pixels",
            needed=f"{height * width:,} pixels",
            allowed=f"{MAX_PIXELS:,} pixels",
            remedy="leave the image out, or make it smaller first",
        )


def _check_scans(data: bytes) -> None:
    # FFDA cannot stand inside of entropy-coded data; metadata may hold a few by chance.
    scans = data.count(b"\xff\xda")
    if scans > MAX_SCANS:
        raise LimitError(
            "an image whose scans would take very long to decode",
            needed=f"{scans:,} scans",
            allowed=f"{MAX_SCANS:,} scans",
            remedy="leave the image out: no encoder writes so many",
        )


def _by_pillow(
    data: bytes, factor_of: Callable[[int, int], int], colour: Literal["rgb", "grey"]
) -> Pixels:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError("PIL", "images") from None
    if data[:2] == b"\xff\xd8":
        _check_scans(data)
    try:
        with Image.open(io.BytesIO(data)) as image:
            check_pixels(image.height, image.width)
            image.load()
            factor = factor_of(image.height, image.width)
            made = _eight_bits(image).convert("RGB" if colour == "rgb" else "L")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise LimitError(
            "an image with very many pixels",
            needed=str(error),
            allowed=f"{Image.MAX_IMAGE_PIXELS:,} pixels",
            remedy="leave the image out, or make it smaller first",
        ) from None
    except UnidentifiedImageError:
        raise DecodeError("the bytes are not a readable image") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError) as error:
        raise DecodeError(str(error)) from None
    pixels = np.array(made.reduce(factor) if factor > 1 else made)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _eight_bits(image: Image) -> Image:
    """16-bit grey as 8-bit: Pillow itself would clip it to 255."""
    from PIL import Image

    if image.mode == "F":
        raise DecodeError("the pixels are floating-point numbers without a known range")
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
