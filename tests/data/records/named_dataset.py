"""A dataset with any ids and columns of many types, made straight from the layout."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import source_files
from made import image, picture

from holdfast.data.records.format import layout
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.jpeg.scans import DEFAULT_GROUPS

CLASSES = ["swan", "Käfer", "crane"]
SCHEMA = pa.schema(
    [
        pa.field("label", pa.int32(), metadata={"names": json.dumps(CLASSES)}),
        pa.field("caption", pa.string()),
        pa.field("box", pa.string(), metadata={"encoding": "json"}),
        pa.field("weight", pa.float64()),
        pa.field("blob", pa.binary()),
        pa.field("day", pa.date32()),
    ]
)


def columns(number: int) -> dict[str, object]:
    """The values of the image of a number, some of them null."""
    return {
        "label": None if number % 5 == 4 else number % 3,
        "caption": None if number == 2 else f"nº {number}",
        "box": json.dumps({"at": [number, 1.5]}),
        "weight": number / 3,
        "blob": bytes([number, 255]),
        "day": datetime.date(2024, 2, 29),
    }


def write(folder: Path, ids: Sequence[str], record_size: int = 3) -> list[list[bytes]]:
    """Write a dataset; every seventh image is an opaque PNG.

    Returns:
        [N][G] each image at each fidelity, put together from its pieces.
    """
    made = []
    for number, id_ in enumerate(ids):
        one = image(number, picture(number, width=24, height=16))
        if number % 7 == 6:
            png = source_files.PNG + bytes([number])
            one = one._replace(reason="PNG", pieces=[png, *[b""] * (len(DEFAULT_GROUPS) - 1)])
        made.append(one._replace(id=id_, columns=columns(number)))
    (folder / "records-00").mkdir(parents=True)
    paths, indexes = [], []
    for first in range(0, len(made), record_size):
        some = made[first : first + record_size]
        parts, index = layout.encode(some, SCHEMA, groups=len(DEFAULT_GROUPS), settings={})
        paths.append(f"records-00/{len(paths):06d}.pcr")
        indexes.append(index)
        (folder / paths[-1]).write_bytes(b"".join(parts))
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), *SCHEMA])
    manifest = Manifest(tuple(paths), tuple(indexes), DEFAULT_GROUPS, schema)
    (folder / NAME).write_bytes(manifest.to_bytes())
    return [
        [
            b"".join(map(bytes, one.pieces[: group + 1])) + (b"" if one.reason else b"\xff\xd9")
            for group in range(len(DEFAULT_GROUPS))
        ]
        for one in made
    ]
