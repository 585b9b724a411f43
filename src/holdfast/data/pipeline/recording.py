"""What runs inside a traced worker: self time of each stage, and who holds the interpreter lock.

A `Recorder` lives in the process that runs the stages. At every change of stage it reads three clocks: wall
time, CPU time of this thread, and the time that it waited in the run queue. What is left of the wall time
is sleep (I/O, locks, timers) if the thread gave up its core, else a pause of the whole virtual machine. A
loaded machine therefore blames no stage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import random
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROBE_S = 0.005
"""Period of the probe of the interpreter lock."""
SETTLE_S = 0.001
OVERHEAD = 0.01
"""Share of a batch that reading clocks may take; beyond it only every k-th batch is traced."""
DETAIL = 3
"""Every so many traced batches are examined for bytes and random draws."""
POSITION = 256
"""Bytes of the file that says what a worker does right now."""


class Recorder:
    """Self time of stages in this process, one JSON line per traced batch in ``worker-ID-PID.jsonl``."""

    def __init__(
        self, folder: Path, worker: int, timing: bool = True, examining: bool = True
    ) -> None:
        self.folder, self.worker, self.timing = folder, worker, timing
        self.examining = timing and examining
        self.thread = threading.get_ident()
        self.active = timing
        self.detailed = False  # the first batch is a warm-up
        self.examined = threading.Event()
        self.batch = 0
        self.traced = 0
        self.every = 1
        self.sample: Any = None
        self.stack: list[str] = []
        self._numbers: dict[str, int] = {}
        self.changes: deque[tuple[int, str]] = deque(maxlen=512)
        self._queue = _open("/proc/thread-self/schedstat")
        # A stream starts new workers with every epoch.
        records = folder / f"worker-{worker}-{os.getpid()}.jsonl"
        self._file = os.open(records, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._position = _position(folder / f"worker-{worker}.position")
        (folder / f"worker-{worker}.pid").write_text(str(os.getpid()))
        self._wall = self._cpu = self._waited = self._switches = 0
        self._stages: dict[str, list[float]] = {}
        self._details: dict[str, dict[str, Any]] = {}
        self.held: dict[str, list[int]] = {}
        self._probe: threading.Thread | None = None
        self._stop = threading.Event()
        if self.examining:
            self._probe = threading.Thread(
                target=_watch_lock, args=(self, threading.get_native_id()), daemon=True
            )
            self._probe.start()
        self.restart()

    def run(self, name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a stage, and charge its self time to it."""
        if not self.active:  # samples may take microseconds: nothing but the place is noted
            self._locate(name)
            try:
                return function(*arguments, **named)
            except StopIteration:
                raise
            except Exception as error:
                self._failed(name, error)
                raise
        if (
            self.thread != threading.get_ident()
        ):  # threads of the user's own are in their caller's time
            return function(*arguments, **named)
        outer = self.stack[-1] if self.stack else ""
        self._switch(outer, name)
        self.stack.append(name)
        self._locate(name)
        blocked = self._entry(name)[3]
        try:
            result = function(*arguments, **named)
        except StopIteration:
            raise
        except Exception as error:
            self._failed(name, error)
            raise
        finally:
            self.stack.pop()
            self._switch(name, outer)
        entry = self._entry(name)
        entry[0] += 1
        if self.detailed:
            # The last argument is the sample or its index, never the dataset, which may be a list.
            sizes = size_of(arguments[-1] if arguments else None), size_of(result)
            self._detail(name)["calls"].append(((entry[3] - blocked) / 1e9, *sizes))
            self._read_clocks()  # what the examination took is charged to nobody
        if outer:
            self._locate(outer)
        return result

    def end_batch(self, samples: int) -> None:
        """Write what the batch cost, and decide whether the next one is traced."""
        self.batch += 1
        if self.active:
            line = {
                "batch": self.batch,
                "samples": samples,
                "detailed": self.detailed,
                "stages": self._stages,
                "details": self._details,
                "held": self.held,
            }
            if self.batch == 2:
                line["private_bytes"] = _private_bytes()
            os.write(self._file, json.dumps(line).encode() + b"\n")
            self.traced += 1
            self._adapt()
        if self.timing:
            self.active = self.batch % self.every == 0
            self.detailed = self.examining and self.active and self.traced % DETAIL == 1
            if self.active:
                self.restart()
            if self.detailed:
                self.examined.set()
            else:
                self.examined.clear()

    def restart(self) -> None:
        """Start the accounts of a batch."""
        self._stages, self._details, self.held = {}, {}, {}
        self._state = _random_state() if self.detailed and self.traced <= DETAIL else ""
        self._read_clocks()

    def close(self) -> None:
        """Stop the probe and close the files."""
        self._stop.set()
        self.examined.set()
        if self._probe is not None:
            self._probe.join()
        self._position.close()
        for file in (self._queue, self._file):
            if file is not None:
                os.close(file)

    def stage_at(self, moment_ns: int) -> str:
        """The stage that ran at a moment of the recent past."""
        return next((name for at, name in reversed(self.changes) if at <= moment_ns), "")

    def wait(self) -> bool:
        """Sleep for a period of the probe; True once it should stop."""
        time.sleep(PROBE_S)  # one switch to another thread, unlike waiting for an event
        return self._stop.is_set()

    def _entry(self, name: str) -> list[float]:
        # calls, CPU ns, run queue ns, blocked ns, ns that a hypervisor took
        return self._stages.setdefault(name, [0, 0, 0, 0, 0])

    def _read_clocks(self) -> tuple[int, int, int, bool]:
        """Wall, CPU and queue time since the last reading, and whether the thread went to sleep."""
        wall, cpu, waited, switches = self._wall, self._cpu, self._waited, self._switches
        self._switches = _switches()
        self._waited = int(os.pread(self._queue, 80, 0).split()[1]) if self._queue else 0
        self._cpu = time.thread_time_ns()
        self._wall = time.perf_counter_ns()
        return (
            self._wall - wall,
            self._cpu - cpu,
            self._waited - waited,
            self._switches > switches,
        )

    def _switch(self, ended: str, begins: str) -> None:
        """The time since the last reading belongs to the stage that ended (or, unnamed, to none)."""
        wall, cpu, waited, slept = self._read_clocks()
        if ended:
            entry = self._entry(ended)
            entry[1] += cpu
            entry[2] += waited
            entry[3 if slept else 4] += max(0, wall - cpu - waited)
        if self.detailed:
            self.changes.append((self._wall, begins))
            if self._state:  # fingerprints take time: the first examined batch must do
                state = _random_state()
                if ended:
                    detail = self._detail(ended)
                    detail["random"] = bool(detail["random"]) or state != self._state
                self._state = state
            self._read_clocks()

    def _adapt(self) -> None:
        """Trace so few batches that the clocks take at most `OVERHEAD` of the time."""
        calls = sum(entry[0] for entry in self._stages.values())
        busy = sum(sum(entry[1:]) for entry in self._stages.values())
        if not self.detailed and busy > 0:
            self.every = max(1, int(np.ceil(calls * _clock_cost_ns() / (OVERHEAD * busy))))

    def _detail(self, name: str) -> dict[str, Any]:
        # calls: blocked seconds, bytes in, bytes out
        return self._details.setdefault(name, {"random": None, "calls": []})

    def begin(self, sample: Any) -> None:
        """The sample that is worked on from now."""
        self.sample = sample
        # Samples may take microseconds, and almost all indices are integers.
        text = b"%d" % sample if type(sample) is int else repr(sample).encode()[: POSITION - 2]
        self._position[1 : len(text) + 2] = text + b"\x01"

    def _locate(self, name: str) -> None:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = min(len(self._numbers) + 1, 255)
            (self.folder / f"worker-{self.worker}.stages").write_text("\n".join(self._numbers))
        self._position[0] = number

    def _failed(self, name: str, error: Exception) -> None:
        """The innermost stage that raised is remembered for the message."""
        path = self.folder / f"worker-{self.worker}.error"
        if not path.exists():
            about = {
                "stage": name,
                "sample": repr(self.sample),
                "error": f"{type(error).__name__}: {error}",
            }
            path.write_text(json.dumps(about))


def _watch_lock(recorder: Recorder, thread: int) -> None:
    """Sample whether the traced thread holds the interpreter lock while it computes.

    This thread sleeps, and must take the lock when it wakes. If it had to wait for it, it was switched away
    a second time: the kernel counts that, whatever the load. If not, the traced thread either computes
    without the lock (its state is R) or sleeps.
    """
    state, queue = _open(f"/proc/self/task/{thread}/stat"), _open("/proc/thread-self/schedstat")
    if state is None or queue is None:
        return
    while True:
        recorder.examined.wait()
        queued = int(os.pread(queue, 80, 0).split()[1])
        time.sleep(SETTLE_S)  # whoever waited for the lock while this thread had it gets it now
        due, switches = time.perf_counter_ns() + int(PROBE_S * 1e9), _switches()
        if recorder.wait():
            break
        waited = _switches() - switches > 1
        running = waited or os.pread(state, 200, 0).rpartition(b") ")[2][:1] == b"R"
        late = int(os.pread(queue, 80, 0).split()[1]) - queued
        # The thread looked at some moment between these two; on a busy machine they lie far apart.
        name = recorder.stage_at(due)
        if running and name and name == recorder.stage_at(due + late):
            recorder.held.setdefault(name, [0, 0])[0 if waited else 1] += 1
    os.close(state)
    os.close(queue)


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:  # another system than Linux, or a kernel without it
        return None


def _position(path: Path) -> mmap.mmap:
    path.write_bytes(bytes(POSITION))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), POSITION)


def read_position(path: Path) -> tuple[str, str]:
    """Stage and sample of a worker that cannot say it any more."""
    content, names = path.read_bytes(), path.with_suffix(".stages")
    stages = names.read_text().split("\n") if names.exists() else []
    stage = stages[content[0] - 1] if 0 < content[0] <= len(stages) else "none"
    return stage, content[1:].partition(b"\x01")[0].decode(errors="replace")


def _private_bytes() -> int:
    """Memory that this process shares with no other."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                return 1024 * int(line.split()[1])
    return 0


def _random_state() -> str:
    """Fingerprint of the global random generators: it changes where a stage draws from them."""
    torch = sys.modules.get("torch")
    digest = hashlib.blake2b(hash(random.getstate()).to_bytes(8, "big", signed=True), digest_size=8)
    state: Any = np.random.get_state()  # noqa: NPY002  # what users' transforms draw from
    digest.update(state[1].tobytes() + repr(state[2:]).encode())
    if torch is not None:
        digest.update(torch.get_rng_state().numpy().tobytes())
    return digest.hexdigest()


def size_of(thing: Any, depth: int = 3) -> int:
    """Bytes of the arrays, tensors, images and texts in a sample."""
    if isinstance(thing, (bytes, bytearray, memoryview, str)):
        return len(thing)
    size = getattr(thing, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (list, tuple)) and thing and depth:
        some = thing[:64]
        return sum(size_of(part, depth - 1) for part in some) * len(thing) // len(some)
    extent, bands = getattr(thing, "size", None), getattr(thing, "getbands", None)
    if bands is not None and isinstance(extent, tuple):  # an image of Pillow
        return int(extent[0] * extent[1] * len(bands()))
    return 8


_COST: list[float] = []


def _clock_cost_ns() -> float:
    """What the two readings of the clocks around a stage take."""
    if not _COST:
        file = _open("/proc/thread-self/schedstat")
        start = time.perf_counter_ns()
        for _ in range(100):
            if file is not None:
                os.pread(file, 80, 0).split()
            time.thread_time_ns()
            _switches()
        _COST.append(2.5 * (time.perf_counter_ns() - start) / 100)
        if file is not None:
            os.close(file)
    return _COST[0]
