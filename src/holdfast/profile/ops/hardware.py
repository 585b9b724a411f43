"""Ceilings of machines: published ones (`hardware.json`, with sources), and those measured here.

A ceiling is the least time that work can take: matrix FLOPs at the peak of their type, vector FLOPs at the
peak of the vector units, bytes at the bandwidth of the memory. The float32 peaks are those without TF32,
which PyTorch leaves off for products by default.
"""

from __future__ import annotations

import math
import os
import platform
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from holdfast.config import read_config
from holdfast.profile.ops.targets import choice, refused, table


@dataclass(frozen=True)
class Hardware:
    """Ceilings of one machine or accelerator.

    Attributes:
        name: For titles.
        peaks: Type -> matrix FLOP/s, dense, without sparsity.
        vector_peak: FLOP/s of the vector units (float32); infinite: unknown, and no ceiling.
        bandwidth: Bytes/s of the main memory.
        levels: Working set in bytes -> bytes/s, ascending: caches, where they were measured.
    """

    peaks: Mapping[str, float]
    bandwidth: float
    memory_bytes: float
    vector_peak: float = math.inf
    name: str = ""
    source: str = ""
    levels: Sequence[tuple[int, float]] = ()

    def peak(self, dtype: str) -> float:
        """Matrix FLOP/s of a type; that of float32, or the lowest known, where the type has none."""
        known = self.peaks
        return known.get(dtype) or known.get("float32") or min(known.values())

    def bandwidth_of(self, working_set: int) -> float:
        """Bytes/s at which a working set can move: of the level measured with at most half this size."""
        if not self.levels:
            return self.bandwidth
        # Half: part of a large working set may still be in the cache of the level before.
        place = bisect_right([size for size, _ in self.levels], working_set // 2)
        return self.levels[max(0, place - 1)][1]


HALF = ("bfloat16", "float16")
# Types that may have a peak.
TYPES = (*HALF, "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8")


# Accelerators by name.
HARDWARE: Mapping[str, Hardware] = {
    name: Hardware(name=name, **ceilings) for name, ceilings in table("hardware.json").items()
}


def hardware(name: str) -> Hardware:
    """A machine by its name; ``"this"`` measures the one that this process runs on.

    Args:
        name: of `HARDWARE`, ``"this"``, or a TOML or JSON file with the fields of `Hardware`, of which
            peaks, bandwidth and memory_bytes are needed.

    Raises:
        InputError: ``unknown-name``; ``out-of-range`` or as `read_config` for a file.
    """
    if name.lower().endswith((".toml", ".json")):
        return _read(Path(name))
    if choice(name, ("this", *HARDWARE), "hardware") != "this":
        return HARDWARE[name]
    return this_machine(torch.get_num_threads())


def _read(path: Path) -> Hardware:
    given = read_config(path, Hardware, "the hardware")
    for dtype in given.peaks:
        choice(dtype, TYPES, "type", "peaks")
    rates = {name: getattr(given, name) for name in ("bandwidth", "memory_bytes", "vector_peak")}
    for name, value in {**given.peaks, **rates}.items():
        if not value > 0:
            raise refused(
                f"invalid {name}", "out-of-range", name, value, "a positive number", path=path
            )
    if not given.peaks:
        raise refused(
            "no peaks", "missing-key", "peaks", "none", "peaks.bfloat16 = 9.9e14", path=path
        )
    return replace(given, name=given.name or path.stem, source=given.source or str(path))


@cache
def this_machine(threads: int) -> Hardware:
    """Ceilings of this machine's CPU with a number of torch's threads, by the fastest samples (a second).

    Args:
        threads: those that torch uses now.
    """
    with torch.no_grad():
        single = _product_rate(torch.float32)
        # A kernel may convert to float32, so no type is slower.
        half = {name: max(single, _product_rate(getattr(torch, name))) for name in HALF}
        levels = _bandwidths()
    return Hardware(
        {"float32": single, **half},
        levels[-1][1],
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        single,  # the same units compute products
        f"this machine ({platform.machine()}, {threads} threads)",
        "measured: fastest samples of products, convolutions and scaling in place",
        levels,
    )


def fastest(call: Callable[[], Any], budget_s: float = 0.08) -> float:
    """Seconds of the fastest of several calls: other work on the machine can only add time."""
    call()  # the first allocates
    seconds, end = list[float](), time.perf_counter() + budget_s
    # At least five: a single one that other work interrupts says nothing about the machine.
    while len(seconds) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _product_rate(dtype: Any) -> float:
    """FLOP/s of the fastest of some products and convolutions, which are by another library."""
    best = 0.0
    for channels in (128, 256, 512):
        a = torch.ones(2 * channels, 2 * channels, dtype=dtype)
        image = torch.ones(1, channels, 32, 32, dtype=dtype)
        kernel = torch.ones(channels, channels, 3, 3, dtype=dtype)
        product = 2 * a.numel() * len(a) / fastest(partial(torch.mm, a, a))
        # Of a slow type one is enough. float32 only looks slow, on a busy machine.
        if product < 1e10 and dtype != torch.float32:
            return max(best, product)
        convolve = partial(torch.conv2d, image, kernel, padding=1)
        best = max(best, product, 2 * 32**2 * kernel.numel() / fastest(convolve))
    return best


def _bandwidths() -> list[tuple[int, float]]:
    """(working set, bytes/s) of scaling in place, each level at least as fast as the larger ones."""
    found: list[tuple[int, float]] = []
    for power in range(28, 12, -2):
        x = torch.ones(1 << (power - 2))
        rate = 2 * x.nbytes / fastest(partial(x.mul_, 1.0))
        found.insert(0, (1 << power, max([rate, *(each for _, each in found[:1])])))
    return found
