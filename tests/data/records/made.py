"""Small datasets made straight from the layout, for tests of what reads them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash
from PIL import Image as Pillow

from holdfast.data.records.format import layout
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.jpeg.parsing import parse
from holdfast.data.records.jpeg.scans import DEFAULT_GROUPS, pieces
from holdfast.data.records.jpeg.turbojpeg import transcode

LABELLED = pa.schema([pa.field("label", pa.int32(), metadata={"names": '["even", "odd"]'})])


def picture(seed: int, width: int = 48, height: int = 40, mode: str = "RGB") -> bytes:
    """A baseline JPEG: smooth shapes and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    planes = [
        128
        + 80 * np.sin(x / rng.uniform(3, 20) + y / rng.uniform(3, 20))
        + rng.normal(0, 8, x.shape)
        for _ in range(len(mode))
    ]
    pixels = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels.squeeze()).save(file, "JPEG", quality=85)
    return file.getvalue()


def image(number: int, source: bytes, groups: Sequence[int] = DEFAULT_GROUPS) -> layout.Image:
    """One image as a writer hands it to a record."""
    data = transcode(source)
    head = parse(data)
    return layout.Image(
        id=f"{number:04d}.jpg",
        pieces=pieces(data, head, groups),
        width=head.width,
        height=head.height,
        orientation=1,
        reason=None,
        source_size=len(source),
        stripped_size=len(source),
        source_sum=xxhash.xxh3_64_intdigest(source),
        columns={"label": number % 2},
    )


def dataset(
    folder: Path, images: int = 10, record_size: int = 4, groups: Sequence[int] = DEFAULT_GROUPS
) -> list[bytes]:
    """Write a dataset of small pictures; returns the images at full fidelity, in order."""
    made = [image(number, picture(number), groups) for number in range(images)]
    (folder / "records-00").mkdir(parents=True)
    paths, indexes = [], []
    for first in range(0, images, record_size):
        parts, index = layout.encode(
            made[first : first + record_size],
            LABELLED,
            groups=len(groups),
            settings={"scans_end": ",".join(map(str, groups))},
        )
        paths.append(f"records-00/{len(paths):06d}.pcr")
        indexes.append(index)
        (folder / paths[-1]).write_bytes(b"".join(parts))
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), *LABELLED])
    manifest = Manifest(tuple(paths), tuple(indexes), tuple(groups), schema)
    (folder / NAME).write_bytes(manifest.to_bytes())
    return [b"".join(one.pieces) + b"\xff\xd9" for one in made]
