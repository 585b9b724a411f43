"""Ceilings of machines: published ones, and those measured here.

A ceiling is the least time that work can take: matrix FLOPs at the peak of their type, vector FLOPs at the peak
of the vector units, bytes at the bandwidth of the memory.
"""

from __future__ import annotations

import os
import platform
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import InputError


@dataclass(frozen=True)
class Hardware:
    """Ceilings of one machine or accelerator."""

    name: str
    peaks: Mapping[str, float]
    """Type -> matrix FLOP/s, dense, without sparsity."""
    vector_peak: float
    """FLOP/s of the vector units (float32)."""
    bandwidth: float
    """Bytes/s of the main memory."""
    memory_bytes: int
    source: str
    levels: Sequence[tuple[int, float]] = field(default=())
    """Working set in bytes -> bytes/s, ascending: caches, where they were measured."""

    def peak(self, dtype: str) -> float:
        """Matrix FLOP/s of a type; that of float32 where the type has none."""
        return self.peaks.get(dtype, self.peaks["float32"])

    def bandwidth_of(self, working_set: int) -> float:
        """Bytes/s at which a working set can move: of the level measured with at most this size."""
        if not self.levels:
            return self.bandwidth
        place = bisect_right([size for size, _ in self.levels], working_set)
        return self.levels[max(0, place - 1)][1]

    def bound_s(self, flops: int, vector_flops: int, moved: int, dtype: str) -> float:
        """Least seconds of an operator: the largest of its three ceilings."""
        return max(
            flops / self.peak(dtype),
            vector_flops / self.vector_peak,
            moved / self.bandwidth_of(moved) if moved else 0.0,
        )


def _gpu(
    name: str,
    half: float,
    single: float,
    bandwidth: float,
    gigabytes: int,
    source: str,
    **others: float,
) -> Hardware:
    """An accelerator; peaks in TFLOP/s, bandwidth in GB/s."""
    peaks = {"bfloat16": half, "float16": half, "float32": single, **others}
    return Hardware(
        name,
        {dtype: 1e12 * peak for dtype, peak in peaks.items()},
        1e12 * single,
        1e9 * bandwidth,
        gigabytes * 10**9,
        source,
    )


HARDWARE: Mapping[str, Hardware] = {
    each.name: each
    for each in (
        _gpu(
            "a100-sxm-80gb", 312, 19.5, 2039, 80, "NVIDIA A100 datasheet, 2021", float64=19.5, int8=624
        ),
        _gpu(
            "h100-sxm", 989.4, 66.9, 3350, 80, "NVIDIA H100 datasheet, 2023", float64=66.9, float8=1978.9
        ),
        _gpu(
            "h100-pcie", 756, 51.2, 2000, 80, "NVIDIA H100 datasheet, 2023", float64=51.2, float8=1513
        ),
        _gpu(
            "h200-sxm", 989.4, 66.9, 4800, 141, "NVIDIA H200 datasheet, 2023", float64=66.9, float8=1978.9
        ),
        _gpu("l4", 121, 30.3, 300, 24, "NVIDIA L4 datasheet, 2023", float8=242.5),
        _gpu(
            "mi300x", 1307.4, 163.4, 5300, 192, "AMD Instinct MI300X data sheet, 2023", float8=2614.9
        ),
    )
}
"""Accelerators by name. float32 is the rate without TF32, which PyTorch leaves off for products by default."""


def hardware(name: str) -> Hardware:
    """A machine by its name; ``"this"`` measures the one that this process runs on.

    Raises:
        InputError: ``unknown-name``.
    """
    if name == "this":
        return this_machine()
    if name not in HARDWARE:
        raise InputError(
            "unknown hardware",
            code="unknown-name",
            place="--hw",
            found=name,
            expected=f"this, {', '.join(HARDWARE)}",
        )
    return HARDWARE[name]


_measured: dict[int, Hardware] = {}


def this_machine() -> Hardware:
    """Ceilings of this machine's CPU with torch's threads: the fastest samples of products, sums and copies.

    About two seconds; measured once per process and number of threads.
    """
    import torch

    threads = torch.get_num_threads()
    if threads not in _measured:
        with torch.no_grad():
            peaks = {
                name: _product_rate(getattr(torch, name))
                for name in ("float32", "bfloat16", "float16")
            }
            levels = _bandwidths()
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        _measured[threads] = Hardware(
            f"this machine ({platform.machine()}, {threads} threads)",
            peaks,
            peaks["float32"],  # the same units compute products
            levels[-1][1],
            pages,
            "measured: fastest samples of matrix products and of scaling in place",
            levels,
        )
    return _measured[threads]


def _fastest(call: Callable[[], Any], budget_s: float = 0.08) -> float:
    """Seconds of the fastest of several calls: other work on the machine can only add time."""
    call()
    best, end = float("inf"), time.perf_counter() + budget_s
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _product_rate(dtype: Any) -> float:
    """FLOP/s of the fastest of three square products; a type without fast products is measured by the first."""
    import torch

    best = 0.0
    for side in (256, 512, 1024):
        a, b = (torch.ones(side, side, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        rate = 2 * side**3 / _fastest(lambda: torch.mm(a, b, out=out))  # noqa: B023
        if rate < best / 2:
            break
        best = max(best, rate)
        if best < 1e10:
            break
    return best


def _bandwidths() -> list[tuple[int, float]]:
    """(working set, bytes/s) of scaling in place, each level at least as fast as the larger ones."""
    import torch

    found = []
    for power in range(14, 29, 2):
        x = torch.ones(1 << (power - 2))
        found.append((1 << power, 2 * x.nbytes / _fastest(lambda x=x: x.mul_(1.0))))
    for place in range(len(found) - 2, -1, -1):
        size, rate = found[place]
        found[place] = (size, max(rate, found[place + 1][1]))
    return found
