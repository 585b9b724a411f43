"""What this process may use of the machine: cores and memory within its control groups (v1 and v2)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.data.pipeline.stages import Resources


def resources(root: Path = Path("/")) -> Resources:
    """Cores and memory that are left to this process.

    The number of processors of the machine says nothing inside a container: the processors that the process
    may run on and the CPU quotas of its control group and of all groups above it do.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    memory = bytes_of(root / "proc/meminfo", "MemAvailable", math.inf)
    for folder in _groups(root):
        cores = min(cores, _quota(folder))
        memory = min(memory, _memory_left(folder))
    return Resources(cores=cores, memory_bytes=max(memory, 0.0))


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups, from its own up to the root of each hierarchy."""
    base = root / "sys/fs/cgroup"
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)  # version 2 names no controllers
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for mount in (controllers or "unified", *controllers.split(",")):
            # Inside a container the path may be the host's: then only the mount itself is there.
            for depth in range(len(parts), -1, -1):
                yield (base / mount).joinpath(*parts[:depth])


def _quota(folder: Path) -> float:
    """Cores that the group may use; infinite without a limit."""
    words = text_of(folder / "cpu.max").split()  # version 2: "150000 100000" or "max 100000"
    for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"):  # version 1
        words += text_of(folder / name).split()
    limited = len(words) == 2 and words[0] not in ("max", "-1")
    return int(words[0]) / int(words[1]) if limited else math.inf


def _memory_left(folder: Path) -> float:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        bound = text_of(folder / limit).strip()
        if bound.isdigit():
            return float(int(bound) - int(text_of(folder / used).strip() or 0))
    return math.inf


def bytes_of(path: Path, name: str, default: float) -> float:
    """A figure in kB of a table of the kernel, in bytes."""
    for line in text_of(path).splitlines():
        if line.startswith(f"{name}:"):
            return 1024.0 * int(line.split()[1])
    return default


def text_of(path: Path) -> str:
    """The content of a file of the kernel; empty where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""
