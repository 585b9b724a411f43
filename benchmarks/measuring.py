"""Running a command as a benchmark does: fresh process, fixed cores, wall time and peak memory."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CORES = 2


class CommandFailed(RuntimeError):
    """A measured command did not succeed."""


@dataclass(frozen=True)
class Run:
    """One measured run."""

    seconds: float
    """Wall time, from the start of the process to its end."""
    peak_mb: float
    """Largest resident memory of the process and all its children together (shared pages count in each)."""
    output: str
    cpu_seconds: float | None = None
    """User and system time of the process and of the children that it waited for, where measured."""


def run(command: Sequence[str | Path], cores: int = CORES) -> Run:
    """Run a command in a fresh process on `cores` cores.

    Raises:
        CommandFailed: if it does not exit with 0; the message ends with what it wrote.
    """
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    begin, cpu = time.perf_counter(), _cpu_of_children()
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    peak, done = [0.0], threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, done, peak))
    watcher.start()
    output, errors = process.communicate()
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    if process.returncode:
        raise CommandFailed(f"{' '.join(map(str, command))}: {(errors or output)[-2000:]}")
    return Run(seconds, peak[0], output, _cpu_of_children() - cpu)


def _cpu_of_children() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(pid: int, done: threading.Event, peak: list[float]) -> None:
    # Resident pages as the kernel counts them anyway: proportional shares (PSS) would walk every
    # page table of the measured process, which takes a third of a core and holds up its page faults.
    while not done.wait(0.05):
        peak[0] = max(peak[0], sum(_resident_mb(member) for member in _family(pid)))


def _family(pid: int) -> list[int]:
    """The process and its descendants."""
    members, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        members.append(current)
        with contextlib.suppress(OSError):  # it ended between the listing and the reading
            for path in Path(f"/proc/{current}/task").glob("*/children"):
                waiting += map(int, path.read_text().split())
    return members


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:  # it ended
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def summary(runs: Sequence[Run]) -> dict[str, float | int]:
    """Medians, range and peak memory of runs, ready for the results file."""
    seconds = [one.seconds for one in runs]
    cpu = [one.cpu_seconds for one in runs if one.cpu_seconds is not None]
    return {
        "runs": len(runs),
        "median_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "peak_mb": round(max(one.peak_mb for one in runs)),
        **({"cpu_s": round(statistics.median(cpu), 3)} if cpu else {}),
    }


def compared(
    what: str, ours_s: float, peer: str, peer_s: float, target: float | None = None
) -> dict[str, str | float | None]:
    """A comparison, ready for the results file; a ratio above 1 means that ours is faster."""
    return {
        "what": what,
        "ratio": round(peer_s / ours_s, 2),
        "target": target,
        "ours_s": round(ours_s, 4),
        "peer": peer,
        "peer_s": round(peer_s, 4),
    }


def limited(
    what: str, value: float, unit: str, limit: float | None = None
) -> dict[str, str | float | None]:
    """A measured value and what it may be at most, if anything; ready for the results file."""
    return {"what": what, "value": round(value, 3), "unit": unit, "limit": limit}


def machine() -> dict[str, str | int | float]:
    """What the benchmark runs on, and how busy it was before; to be asked before measuring."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores_used": min(CORES, len(os.sched_getaffinity(0))),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def warm(path: Path) -> None:
    """Read a file once, so that every contender finds it in the page cache."""
    with path.open("rb") as source:
        while source.read(1 << 24):
            pass
