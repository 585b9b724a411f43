"""The images of one record on their way: transcoded by threads, or taken from the record in place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import xxhash

from holdfast.data.records.format.layout import Image
from holdfast.data.records.measuring.comparing import measure
from holdfast.data.records.sources import Example
from holdfast.data.records.writing import transcoding
from holdfast.data.records.writing.generations import Stored
from holdfast.data.records.writing.planning import Plan, Rejected
from holdfast.data.records.writing.settings import Settings
from holdfast.errors import LimitError

CHUNK_IMAGES, CHUNK_BYTES = 16, 1 << 20
"""Maximum images and bytes of a thread's task: batching small images amortizes its overhead."""
_DIGITS = 6  # of MS-SSIM: the last bits of a sum must not change a file


class Done(NamedTuple):
    """What has come of an image."""

    image: Image | Rejected
    msssim: Sequence[float] | None = None
    """[G] if it was measured."""


def chunks(
    images: Sequence[Example | Rejected], measured: Sequence[bool]
) -> Iterator[list[tuple[Example | Rejected, bool]]]:
    """The images of a record, as many together as make a task."""
    chunk: list[tuple[Example | Rejected, bool]] = []
    size = 0
    for one, is_measured in zip(images, measured, strict=True):
        chunk.append((one, is_measured))
        size += len(one.data) if isinstance(one, Example) else 0
        if len(chunk) == CHUNK_IMAGES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def transcode(chunk: list[tuple[Example | Rejected, bool]], settings: Settings) -> list[Done]:
    """What a thread does: transcode images, and measure those of the sample."""
    done = []
    for one, is_measured in chunk:
        image = one if isinstance(one, Rejected) else _image(one, settings)
        msssim = None
        if is_measured and isinstance(image, Image) and image.reason is None:
            found = measure([[bytes(piece) for piece in image.pieces]])
            msssim = found.msssim if found.images else None
        done.append(Done(image, msssim))
    return done


def _image(example: Example, settings: Settings) -> Image | Rejected:
    try:
        return transcoding.image(example, settings)
    except LimitError as error:
        return Rejected(example.id, f"{error.problem}: {error.needed}")


def reused(
    stored: Stored, images: Sequence[Example | Rejected], plan: Plan
) -> list[Image | Rejected] | None:
    """The images of a record that is in place, if they are the source's; None if one is not.

    What could not be transcoded is tried again: what was missing may be installed by now.
    """
    if stored.contents.settings != plan.texts:
        return None
    unchanged: list[Image | Rejected] = []
    row = 0
    for one in images:
        if isinstance(one, Rejected):
            unchanged.append(one)
            continue
        is_there = row < stored.index.images and stored.contents.ids[row] == one.id
        if is_there and not stored.contents.opaque[row]:
            image = stored.image(row, one)
            if image.source_sum != xxhash.xxh3_64_intdigest(one.data):
                return None
            unchanged.append(image)
        else:
            again = _image(one, plan.settings)
            is_still = isinstance(again, Image) and again.reason is not None
            if is_there != is_still:
                return None
            unchanged.append(again)
        row += is_there
    return unchanged if row == stored.index.images else None


def means(scores: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], int]:
    """([G] the mean of each group, how many were measured)."""
    means = (math.fsum(group) / len(scores) for group in zip(*scores, strict=True))
    return tuple(round(mean, _DIGITS) for mean in means), len(scores)
