"""How much memory an operation may take, and the error when it would take more."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from holdfast.errors import LimitError
from holdfast.numbers import size

LASTS_SECONDS = 0.1
PLENTY = 1 << 30
"""How long an answer of so many bytes holds: the system takes 0.2 ms to say how much memory is free."""

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")

_last = [-1e9, 0.0]  # when the system was asked, and what it said


def available_bytes() -> int:
    """Bytes of memory that this process can still take, within its control group where there is one."""
    now = time.monotonic()
    if now - _last[0] > LASTS_SECONDS or _last[1] < PLENTY:
        _last[:] = now, _free_bytes()
    # The limit of addresses is asked every time: it is cheap, and the process itself changes what is left.
    addresses = left_of_addresses()
    return int(_last[1] if addresses is None else min(_last[1], addresses))


def _free_bytes() -> int:
    free = _machine_bytes()
    for limit, used in (
        (_CGROUP / "memory.max", _CGROUP / "memory.current"),
        (
            _CGROUP / "memory" / "memory.limit_in_bytes",
            _CGROUP / "memory" / "memory.usage_in_bytes",
        ),
    ):
        try:
            free = min(free, int(limit.read_text()) - int(used.read_text()))
        except (OSError, ValueError):  # no such control group, or no limit in it
            continue
    return max(free, 0)


def left_of_addresses() -> int | None:
    """Bytes that the process may still map where `ulimit -v` bounds them; else None."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        mapped = int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        mapped = 0
    return max(limit - mapped, 0)


def _machine_bytes() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse_memory(
    what: str,
    needed: int,
    allowed: int,
    reached: str,
    remedy: str = "use smaller machines (prune them), or allow more (memory_bytes; --memory)",
) -> LimitError:
    """The error for a result that does not fit."""
    return LimitError(
        f"{what} does not fit into memory",
        needed=f"more than {size(needed)} ({reached})",
        allowed=size(allowed),
        remedy=remedy,
    )


def no_memory(what: str, why: MemoryError) -> LimitError:
    """The error for arrays that the system refused."""
    return LimitError(
        f"{what} does not fit into memory",
        needed=str(why) or "more than there is",
        allowed="what the system provides",
        remedy="free memory, or use smaller machines (prune them)",
    )
