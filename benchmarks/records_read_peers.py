"""The peers of the reading benchmark: the same images written and read by their own libraries.

    PYTHON benchmarks/records_read_peers.py write KIND IMAGES OUT [--shard 64]
    PYTHON benchmarks/records_read_peers.py read KIND PLACE --images N --at-least PIXELS --workers W

Runs in an environment of its own, which `records_read.py` makes, for their pins conflict with ours. All
decode by the same function as ours, in DataLoader workers, with their defaults otherwise; `read` prints
one line of JSON with the images and the seconds from the first request to the last image.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import simplejpeg
import torch
from torch.utils.data import DataLoader

BATCH = 16


def decoded(data: bytes, at_least: int) -> np.ndarray:
    """RGB pixels, by the smallest of the scales 1, 1/2, 1/4, 1/8 whose shorter side is `at_least`."""
    height, width, *_ = simplejpeg.decode_jpeg_header(data)
    scale = next(
        (scale for scale in (8, 4, 2) if at_least and min(height, width) / scale >= at_least), 1
    )
    if scale == 1:
        return simplejpeg.decode_jpeg(data)
    return simplejpeg.decode_jpeg(
        data, min_height=-(-height // scale), min_width=-(-width // scale), min_factor=scale
    )


def write(kind: str, images: Path, out: Path, shard: int) -> None:
    """The images of a folder as the peer's data set."""
    files = sorted(images.glob("*.jpg"))
    out.mkdir(parents=True)
    if kind == "webdataset":
        import webdataset

        with webdataset.ShardWriter(str(out / "%06d.tar"), maxcount=shard, verbose=0) as tar:
            for number, file in enumerate(files):
                tar.write(
                    {"__key__": f"{number:06d}", "jpg": file.read_bytes(), "cls": number % 10}
                )
    else:
        from litdata.streaming.writer import BinaryWriter

        writer = BinaryWriter(str(out), chunk_size=shard)
        for number, file in enumerate(files):
            writer[number] = {"image": file.read_bytes(), "label": number % 10}
        writer.done()
        writer.merge()


def reader(kind: str, place: str, cache: Path) -> Any:
    """The peer's data set of (bytes of an image, label)."""
    if kind == "webdataset":
        import webdataset

        shards = place.split()
        return (
            webdataset.WebDataset(shards, shardshuffle=False, nodesplitter=None)
            .to_tuple("jpg", "cls")
            .map(lambda pair: {"image": pair[0], "label": int(pair[1])})
        )
    from litdata import StreamingDataset
    from litdata.streaming import downloader

    options = {}
    if "://" in place:
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # a store on loopback has no TLS
        url = urlsplit(place)
        endpoint = f"{url.scheme}://{url.netloc}"
        options = {"cache_dir": str(cache), "storage_options": {"endpoint_url": endpoint}}
        place = f"s3:/{url.path}"
    return StreamingDataset(place, shuffle=False, drop_last=False, **options)


def _sizes(samples: list[dict[str, Any]], at_least: int | None) -> int:
    if at_least is None:
        return sum(len(sample["image"]) for sample in samples)
    return sum(decoded(sample["image"], at_least).size for sample in samples)


def read(kind: str, place: str, at_least: int | None, workers: int) -> dict[str, float]:
    """One pass over the data set, all images decoded in the workers; with None, none of them."""
    torch.set_num_threads(1)
    import_module(kind)  # not part of what is measured
    cache = Path(tempfile.mkdtemp())
    begin, used = time.perf_counter(), _cpu()
    loader_class: Any = DataLoader
    if kind == "litdata":
        from litdata import StreamingDataLoader

        loader_class = StreamingDataLoader
    loader = loader_class(
        reader(kind, place, cache),
        batch_size=BATCH,
        num_workers=workers,
        collate_fn=partial(_collected, at_least=at_least),
    )
    images = pixels = 0
    for batch in loader:
        images += batch[0]
        pixels += batch[1]
    del loader
    seconds = time.perf_counter() - begin
    shutil.rmtree(cache)
    return {"images": images, "pixels": pixels, "seconds": seconds, "cpu_s": _cpu() - used}


def _collected(samples: list[dict[str, Any]], at_least: int | None) -> tuple[int, int]:
    return len(samples), _sizes(samples, at_least)


def _cpu() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["write", "read"])
    parser.add_argument("kind", choices=["webdataset", "litdata"])
    parser.add_argument("place")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--shard", type=int, default=64)
    parser.add_argument("--at-least", type=int, help="0: full size; left out: not decoded")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.what == "write":
        write(options.kind, Path(options.place), options.out, options.shard)
    else:
        print(json.dumps(read(options.kind, options.place, options.at_least, options.workers)))


if __name__ == "__main__":
    main()
