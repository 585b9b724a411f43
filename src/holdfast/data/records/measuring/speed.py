"""How fast a dataset is read from here, at each fidelity, and what it waits for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Section, Table, Value
from holdfast.data.records.reading.records import open_records


@dataclass(frozen=True, slots=True)
class Speed:
    """One pass over a dataset, or a part of it, at one fidelity."""

    fidelity: int
    images: int
    seconds: float
    bytes: int
    requests: int
    storage_share: float
    """The share of the time, 0 to 1, for which the reader waited because bytes had not arrived."""

    @property
    def images_per_s(self) -> float:
        """Images that were delivered in a second."""
        return self.images / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Bytes that were read in a second."""
        return self.bytes / self.seconds


@dataclass(frozen=True)
class Bench(Answer):
    """What `bench` measured."""

    url: str
    decoded: bool
    at_least: int | None
    threads: int | None
    speeds: tuple[Speed, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return asdict(self) | {
            "speeds": [
                asdict(speed)
                | {"images_per_s": speed.images_per_s, "bytes_per_s": speed.bytes_per_s}
                for speed in self.speeds
            ]
        }

    def values(self) -> Sequence[Value]:
        """Speed and waiting of each fidelity."""
        return [
            value
            for one in self.speeds
            for value in (
                Value(f"images_per_s.{one.fidelity}", one.images_per_s, "1/s", better="higher"),
                Value(f"bytes_per_s.{one.fidelity}", one.bytes_per_s, "bytes/s"),
                Value(f"storage_share.{one.fidelity}", one.storage_share, better="lower"),
            )
        ]

    def sections(self) -> Sequence[Section]:
        """A row per fidelity."""
        rows = [
            {
                "fidelity": one.fidelity,
                "images_per_s": one.images_per_s,
                "mb_per_s": one.bytes_per_s / 1e6,
                "per_image": one.bytes / one.images if one.images else None,
                "requests": one.requests,
                "storage_share": one.storage_share,
            }
            for one in self.speeds
        ]
        columns = {
            "fidelity": ColumnFormat(),
            "images_per_s": ColumnFormat("images/s", digits=0),
            "mb_per_s": ColumnFormat("MB/s", digits=1),
            "per_image": ColumnFormat("per image", "bytes", 0),
            "requests": ColumnFormat(),
            "storage_share": ColumnFormat("waited for storage", "%", 0),
        }
        fastest = max(self.speeds, key=lambda one: one.images_per_s)
        sentence = f"{fastest.images_per_s:,.0f} images/s at fidelity {fastest.fidelity}."
        table = Table(pa.Table.from_pylist(rows), columns)
        return [Section("speeds", "How fast is each fidelity read?", sentence, tables=[table])]


def bench(
    url: str | os.PathLike[str],
    *,
    fidelities: Sequence[int] | None = None,
    images: int | None = None,
    decode: bool = True,
    at_least: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Bench:
    """Read a dataset as a training would, once at each fidelity, and measure.

    Args:
        url: the dataset's folder, or a URL that `open_store` takes.
        fidelities: which; all by default.
        images: how many images a pass reads; all by default. A pass stops within a window of images,
            so the reader has asked for a few records more.
        decode: whether images are decoded.
        at_least: decode at the smallest of 1/2, 1/4, 1/8 whose shorter side has so many pixels.
        threads: that decode; one for each core by default.
        seed: of the order.
        on_progress: called with the images read so far and in all.
        options: for the store.

    Raises:
        InputError: if there is no dataset, or it has no such fidelity.
        MissingExtraError: without torch.
    """
    from holdfast.data.records.loading.dataset import Dataset

    with open_records(url, **options) as records:
        groups, count = records.groups, records.manifest.images
    count = count if images is None else min(images, count)
    chosen = list(fidelities or range(1, groups + 1))
    speeds = []
    for turn, fidelity in enumerate(chosen):
        dataset = Dataset(
            url,
            fidelity=fidelity,
            decode=decode,
            at_least=at_least,
            threads=threads,
            seed=seed,
            rank=0,
            ranks=1,
            **options,
        )
        done = 0
        begin = time.perf_counter()
        for done, _ in enumerate(islice(dataset, count), 1):
            if on_progress is not None and done % 64 == 0:
                on_progress(turn * count + done, len(chosen) * count)
        seconds = time.perf_counter() - begin
        passed = dataset.traffic
        speeds.append(
            Speed(
                fidelity=fidelity,
                images=done,
                seconds=seconds,
                bytes=int(passed.bytes),
                requests=int(passed.requests),
                storage_share=passed.storage_share,
            )
        )
    return Bench(str(url), decode, at_least, threads, tuple(speeds))
