"""Ceilings of machines: published ones (`hardware.json`, with sources), and those measured here.

A ceiling is the least time that work can take: matrix FLOPs at the peak of their type, vector FLOPs at the
peak of the vector units, bytes at the bandwidth of the memory. The float32 peaks are those without TF32,
which PyTorch leaves off for products by default.
"""

from __future__ import annotations

import json
import os
import platform
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.profile.ops.targets import choice


@dataclass(frozen=True)
class Hardware:
    """Ceilings of one machine or accelerator.

    Attributes:
        peaks: Type -> matrix FLOP/s, dense, without sparsity.
        vector_peak: FLOP/s of the vector units (float32).
        bandwidth: Bytes/s of the main memory.
        levels: Working set in bytes -> bytes/s, ascending: caches, where they were measured.
    """

    name: str
    peaks: Mapping[str, float]
    vector_peak: float
    bandwidth: float
    memory_bytes: float
    source: str
    levels: Sequence[tuple[int, float]] = ()

    def peak(self, dtype: str) -> float:
        """Matrix FLOP/s of a type; that of float32 where the type has none."""
        return self.peaks.get(dtype, self.peaks["float32"])

    def bandwidth_of(self, working_set: int) -> float:
        """Bytes/s at which a working set can move: of the level measured with at most half this size."""
        if not self.levels:
            return self.bandwidth
        # Half: part of a large working set may still be in the cache of the level before.
        place = bisect_right([size for size, _ in self.levels], working_set // 2)
        return self.levels[max(0, place - 1)][1]


# Accelerators by name.
HARDWARE: Mapping[str, Hardware] = {
    name: Hardware(name=name, **ceilings)
    for name, ceilings in json.loads(
        Path(__file__).with_name("hardware.json").read_text(encoding="utf-8")
    ).items()
}


def hardware(name: str) -> Hardware:
    """A machine by its name; ``"this"`` measures the one that this process runs on.

    Raises:
        InputError: ``unknown-name``.
    """
    if choice(name, ("this", *HARDWARE), "hardware") != "this":
        return HARDWARE[name]
    import torch

    return this_machine(torch.get_num_threads())


@cache
def this_machine(threads: int) -> Hardware:
    """Ceilings of this machine's CPU with a number of torch's threads, by the fastest samples (a second).

    Args:
        threads: those that torch uses now.
    """
    import torch

    with torch.no_grad():
        names = ("float32", "bfloat16", "float16")
        peaks = {name: _product_rate(getattr(torch, name)) for name in names}
        levels = _bandwidths()
    return Hardware(
        f"this machine ({platform.machine()}, {threads} threads)",
        peaks,
        peaks["float32"],  # the same units compute products
        levels[-1][1],
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "measured: fastest samples of matrix products and of scaling in place",
        levels,
    )


def _fastest(call: Callable[[], Any], budget_s: float = 0.08) -> float:
    """Seconds of the fastest of several calls: other work on the machine can only add time."""
    call()
    seconds, end = list[float](), time.perf_counter() + budget_s
    # At least five: a single one that other work interrupts says nothing about the machine.
    while len(seconds) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _product_rate(dtype: Any) -> float:
    """FLOP/s of the fastest of three square products; of a slow type only the first is measured."""
    import torch

    best = 0.0
    for side in (256, 512, 1024):
        a, b = (torch.ones(side, side, dtype=dtype) for _ in range(2))
        best = max(best, 2 * side**3 / _fastest(lambda: torch.mm(a, b)))  # noqa: B023
        # float32 is never slow: on a busy machine it only looks so, and a low ceiling is a wrong bound.
        if best < 1e10 and dtype != torch.float32:
            break
    return best


def _bandwidths() -> list[tuple[int, float]]:
    """(working set, bytes/s) of scaling in place, each level at least as fast as the larger ones."""
    import torch

    found: list[tuple[int, float]] = []
    for power in range(28, 12, -2):
        x = torch.ones(1 << (power - 2))
        rate = 2 * x.nbytes / _fastest(lambda x=x: x.mul_(1.0))
        found.insert(0, (1 << power, max([rate, *(each for _, each in found[:1])])))
    return found
