"""Bytes of images, sound and DICOM as what they stand for."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from holdfast.data.croissant.document.model import Field
from holdfast.errors import InputError, MissingExtraError

Samples = tuple[np.ndarray[Any, np.dtype[np.float32]], int]
"""Float32 of [frames] or [frames, channels], and frames a second."""


def decoder(fields: Sequence[Field | None]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that decodes the values of one record, given in the order of `fields`."""
    changes = [None if field is None else _of_field(field) for field in fields]

    def decode(values: Sequence[Any]) -> list[Any]:
        return [
            value if change is None else change(value)
            for value, change in zip(values, changes, strict=True)
        ]

    return decode


def _of_field(field: Field) -> Callable[[Any], Any] | None:
    """How a field's values are decoded, through lists and sub-fields; None where there is nothing to do."""
    if field.sub_fields:
        inner = {sub.key: change for sub in field.sub_fields if (change := _of_field(sub))}
        if not inner:
            return None

        def whole(value: Any) -> Any:
            if value is None:
                return None
            if isinstance(value, list):
                return [whole(part) for part in value]
            return value | {key: change(value[key]) for key, change in inner.items()}

        return whole
    plain = _of_bytes(field)
    if plain is None:
        return None

    def each(value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        return [each(part) for part in value] if isinstance(value, list) else plain(value)

    return each


def _of_bytes(field: Field) -> Callable[[bytes], Any] | None:
    if "sc:AudioObject" in field.data_types:
        rate = _sampling_rate(field)
        return lambda data: audio(data, rate, field.id)
    if "sc:ImageObject" in field.data_types:
        return lambda data: image(data, field.id)
    return None


def image(data: bytes, what: str = "") -> Any:
    """An image as `PIL.Image.Image`, its pixels not yet decoded; a DICOM image as an array.

    Args:
        data: its bytes.
        what: the field, for messages.

    Raises:
        InputError: bytes that are not an image.
        MissingExtraError: Pillow, or for DICOM pydicom, is not installed.
    """
    if data[128:132] == b"DICM":
        return dicom(data, what)
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("pillow", "images") from error
    try:
        return Image.open(io.BytesIO(data))
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise _undecodable(what, "image", data, error) from error


def dicom(data: bytes, what: str = "") -> Any:
    """The pixels of a DICOM image: [rows, columns], or with frames before and samples after them.

    Raises:
        InputError: bytes that are not a DICOM image.
        MissingExtraError: pydicom is not installed.
    """
    try:
        import pydicom
    except ImportError as error:
        raise MissingExtraError("pydicom", "dicom") from error
    try:
        return pydicom.dcmread(io.BytesIO(data)).pixel_array
    except Exception as error:  # pydicom raises what its many decoders raise
        raise _undecodable(what, "DICOM image", data, error) from error


def audio(data: bytes, rate: int | None = None, what: str = "") -> Samples:
    """Audio as samples between -1 and 1, at its own rate or resampled to `rate`.

    Args:
        data: its bytes: WAV, FLAC, Ogg, MP3 ...
        rate: frames per second; None for its own.
        what: the field, for messages.

    Raises:
        InputError: bytes that are not audio.
        MissingExtraError: soundfile is not installed.
    """
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError("soundfile", "audio") from error
    try:
        samples, own = soundfile.read(io.BytesIO(data), dtype="float32")
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise _undecodable(what, "audio", data, error) from error
    if rate is None or rate == own:
        return samples, own
    from scipy.signal import resample_poly

    ratio = Fraction(rate, own)
    resampled = resample_poly(samples, ratio.numerator, ratio.denominator, axis=0)
    return resampled.astype(np.float32), rate


def _sampling_rate(field: Field) -> int | None:
    if field.source is None:
        return None
    rates = [field.source.sampling_rate, *(step.sampling_rate for step in field.source.transforms)]
    return next((rate for rate in rates if rate), None)


def _undecodable(what: str, kind: str, data: bytes, error: Exception) -> InputError:
    return InputError(
        f"a value of the field {what!r} cannot be decoded as {kind}",
        code="damaged",
        found=f"{len(data)} bytes that begin with {data[:12]!r}: {error}",
        remedy="read it without decode, or correct the field's dataType",
    )
