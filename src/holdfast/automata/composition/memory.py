"""How much memory a composition may take, and the refusal when it would take more."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from holdfast.errors import LimitError

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")


def available_bytes() -> int:
    """Bytes of memory that this process can still take, within its control group where there is one."""
    free = _machine_bytes()
    addresses = left_of_addresses()
    if addresses is not None:
        free = min(free, addresses)
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


def refuse_memory(needed: int, allowed: int, reached: str) -> LimitError:
    """The error for a composition that does not fit."""
    return LimitError(
        "the composition does not fit into memory",
        needed=f"more than {readable(needed)} ({reached})",
        allowed=readable(allowed),
        remedy="raise memory_bytes, compose lazily or with a beam, or compose smaller machines",
    )


def no_memory(why: MemoryError) -> LimitError:
    """The error for arrays that the system did not give."""
    return LimitError(
        "the composition does not fit into memory",
        needed=str(why) or "more than there is",
        allowed="what the system gives",
        remedy="free memory, pass max_states, compose lazily or with a beam, or compose smaller machines",
    )


def readable(count: int) -> str:
    """Bytes for people: 1.5 GB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
