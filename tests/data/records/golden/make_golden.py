"""Made the files beside it, with WebDataset's own writer.

    pip install webdataset==1.0.2 pillow
    python make_golden.py

Run it again only to add to it: JPEG encoders of other versions write other bytes. What it was given
stands in truth.json, as text that none of them has seen.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent


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


if __name__ == "__main__":
    truth()
    webdataset()
