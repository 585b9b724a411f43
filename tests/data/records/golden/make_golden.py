"""Made the files beside it, with the writers of the formats' own libraries.

    pip install webdataset==1.0.2 mosaicml-streaming==0.13.0 tfrecord==1.14.6 pillow
    python make_golden.py

Run it again only to add to it: JPEG encoders of other versions write other bytes. What each library was
given stands in truth.json, as text that none of them has seen.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import shutil
from decimal import Decimal
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
CODECS = ("zstd", "gz", "br", "bz2", "snappy")


def picture(number: int) -> bytes:
    """A tiny grey image; the last one is a PNG."""
    pixels = np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG" if number == 4 else "JPEG", quality=20)
    return file.getvalue()


ROWS = [
    {
        "key": f"{number:03d}",
        "image": picture(number),
        "label": [3, 0, 2, 0, 1][number],
        "caption": ["a swan", "zwei Käfer", "", "三", 'a "quoted" crane'][number],
        "weight": [0.5, 1.0, -2.25, 1e-3, 3.0][number],
        "box": [number, 2, {"deep": [1.5, None]}],
    }
    for number in range(5)
]


def truth() -> None:
    rows = [row | {"image": base64.b64encode(row["image"]).decode()} for row in ROWS]
    (HERE / "truth.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


def webdataset() -> None:
    import webdataset as wds

    (HERE / "webdataset").mkdir(exist_ok=True)
    with wds.ShardWriter(
        str(HERE / "webdataset" / "shard-%03d.tar"), maxcount=3, verbose=0, mtime=0
    ) as sink:
        for row in ROWS:
            meta = {name: row[name] for name in ("weight", "box")}
            suffix = "png" if row["key"] == "004" else "jpg"
            sink.write(
                {
                    "__key__": row["key"],
                    suffix: row["image"],
                    "cls": row["label"],
                    "txt": row["caption"],
                    "json": meta,
                }
            )


def mds() -> None:
    from streaming import MDSWriter

    columns = {
        "image": "bytes",
        "id": "str",
        "label": "int",
        "caption": "str",
        "weight": "float64",
        "box": "json",
        "small": "uint8",
        "half": "float16",
        "single": "float32",
        "wide": "uint64",
        "digits": "str_int",
        "ratio": "str_float",
        "price": "str_decimal",
        "array": "ndarray:uint8:2,2",
        "blob": "bytes",
    }
    for codec in (None, *CODECS):
        out = HERE / "mds" / (codec or "plain")
        shutil.rmtree(out, ignore_errors=True)
        with MDSWriter(
            columns=columns,
            out=str(out),
            compression=codec,
            hashes=["sha1", "xxh3_64"],
            size_limit=2400,
        ) as sink:
            for number, row in enumerate(ROWS):
                sink.write(
                    {
                        "id": row["key"],
                        **{
                            name: row[name]
                            for name in ("image", "label", "caption", "weight", "box")
                        },
                        "small": 200 + number,
                        "half": 0.1,
                        "single": 0.1,
                        "wide": 2**64 - 1 - number,
                        "digits": -(10**15) - number,
                        "ratio": 0.1,
                        "price": Decimal("12345678901234567890.10"),
                        "array": np.full((2, 2), number, np.uint8),
                        "blob": bytes([number, 255]),
                    }
                )


def tfrecord() -> None:
    from tfrecord.writer import TFRecordWriter

    (HERE / "tfrecord").mkdir(exist_ok=True)
    sink = TFRecordWriter(str(HERE / "tfrecord" / "train-00000-of-00001.tfrecord"))
    for number, row in enumerate(ROWS):
        sink.write(
            {
                "image/encoded": (row["image"], "byte"),
                "image/class/label": (row["label"], "int"),
                "caption": (row["caption"].encode(), "byte"),
                "weight": (row["weight"], "float"),
                "numbers": (list(range(-number, 1)), "int"),
                "points": ([0.5] * number, "float"),
                "blob": (bytes([number, 255]), "byte"),
                "large": (-(2**63) + number, "int"),
            }
        )
    sink.close()


if __name__ == "__main__":
    truth()
    for make, library in ((webdataset, "webdataset"), (mds, "streaming"), (tfrecord, "tfrecord")):
        if importlib.util.find_spec(library):
            make()
        else:
            print(f"{library} is not installed: its files stay as they are")
