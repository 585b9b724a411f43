"""The steps of the reading benchmark that are holdfast's: each prints one line of JSON.

python benchmarks/records_read_steps.py read PLACE --fidelity G --at-least PIXELS --threads N
python benchmarks/records_read_steps.py write IMAGES OUT --quality-images N
python benchmarks/records_read_steps.py transform IMAGES
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any


def read(place: str, fidelity: str, at_least: int | None, threads: int) -> dict[str, Any]:
    """One pass over the dataset, all images decoded; with `at_least` None, none of them."""
    import torch

    from holdfast.data import records

    torch.set_num_threads(1)
    dataset_class = records.Dataset  # imported here: not part of what is measured
    begin, used = time.perf_counter(), _cpu()
    dataset = dataset_class(
        place,
        fidelity="full" if fidelity == "full" else int(fidelity),
        shuffle=False,
        decode=at_least is not None,
        at_least=at_least or None,
        threads=threads,
        transform=_size,
    )
    images = pixels = 0
    for count in dataset:
        images += 1
        pixels += count
    seconds = time.perf_counter() - begin
    traffic = dataset.traffic
    return {
        "images": images,
        "pixels": pixels,
        "seconds": seconds,
        "cpu_s": _cpu() - used,
        "planned_bytes": traffic.bytes,
    }


def _size(item: dict[str, Any]) -> int:
    image = item["image"]
    return len(image) if isinstance(image, bytes) else int(image.numel())


def write(images: Path, out: Path, quality_images: int) -> dict[str, Any]:
    """The dataset written on one core."""
    from holdfast.data import records

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    write_dataset = records.write
    begin = time.perf_counter()
    written = write_dataset(images, out, quality_images=quality_images, threads=1)
    return written.to_dict() | {"seconds": time.perf_counter() - begin}


def transform(images: Path) -> dict[str, Any]:
    """Every image through tjTransform, on one core, and nothing else."""
    from holdfast.data.records.jpeg.parsing import parse
    from holdfast.data.records.jpeg.turbojpeg import transcode

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sources = [file.read_bytes() for file in sorted(images.glob("*.jpg"))]
    known = [parse(source) for source in sources]  # the library does without it
    begin = time.perf_counter()
    size = sum(
        len(transcode(source, parsed=each)) for source, each in zip(sources, known, strict=True)
    )
    return {"seconds": time.perf_counter() - begin, "images": len(sources), "bytes": size}


def _cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["read", "write", "transform"])
    parser.add_argument("place")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--fidelity", default="full")
    parser.add_argument("--at-least", type=int, help="0: full size; left out: not decoded")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quality-images", type=int, default=0)
    options = parser.parse_args()
    if options.what == "read":
        told = read(options.place, options.fidelity, options.at_least, options.threads)
    elif options.what == "write":
        told = write(Path(options.place), options.out, options.quality_images)
    else:
        told = transform(Path(options.place))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
