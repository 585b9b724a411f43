"""What runs inside a traced worker: self time of each stage, and who holds the interpreter lock.

A `Recorder` lives in the process that runs the stages. At every change of stage it reads three clocks: wall
time, CPU time of this thread, and the time that it waited in the run queue. What is left of the wall time
is sleep (I/O, locks, timers) if the thread gave up its core, else a pause of the whole virtual machine. A
loaded machine therefore blames no stage.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import resource
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from inspect import CO_GENERATOR
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import numpy as np

from holdfast.data.pipeline.machine import bytes_of
from holdfast.data.pipeline.randomness import random_states
from holdfast.identity import is_library

# Seconds between two probes of the interpreter lock, and of a probe, from and to: at random, as samples may
# come at a steady pace.
PAUSE_S, PROBE_S = (0.0005, 0.003), (0.0003, 0.001)
# After this time a thread that waits for the lock may ask for it: a probe must not wait for another phase.
REQUEST_S = 1e-4
# Share of the time that clocks and examinations may take: beyond it only every k-th batch is traced.
OVERHEAD = 0.02
# Calls of a stage by which the cost of reading clocks is measured.
CALLS = 200
# Calls of a stage in a batch whose inputs and outputs are measured.
EXAMINED = 16
# Every so many traced batches are examined for bytes and random draws,
DETAIL = 3
# until there were so many; then one in so many.
DENSE = 200
SOURCE, CALL = "source", " > "
# Bytes of the file that says what a worker does right now: the stage, then the sample.
STAGE_BYTES, SAMPLE_BYTES = 64, 128


class Recorder:
    """Self time of stages in this process, one JSON line per traced batch in ``worker-ID-PID.jsonl``."""

    def __init__(self, folder: Path, worker: int, timing: bool = True) -> None:
        self.folder, self.worker, self.timing = folder, worker, timing
        self.thread, self.native = threading.get_ident(), threading.get_native_id()
        self.active = timing
        self.detailed = False  # the first batch is a warm-up
        self.examined = threading.Event()
        self.batch = 0
        self.traced = 0
        self.every = 1
        self.stack: list[str] = []
        self._names: dict[str, bytes] = {}
        self.changes: deque[tuple[int, str]] = deque(maxlen=512)
        self._queue = open_queue()
        # A stream starts new workers with every epoch.
        records = folder / f"worker-{worker}-{os.getpid()}.jsonl"
        self._file = os.open(records, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._position = records.with_suffix(".position")
        self._position.write_bytes(bytes(STAGE_BYTES + SAMPLE_BYTES))
        with self._position.open("r+b") as file:
            self._place = mmap.mmap(file.fileno(), 0)
        self._wall = self._cpu = self._waited = self._switches = 0
        self._process_cpu = time.process_time_ns()
        self._plain = [0, 0]  # batches that were not traced, and CPU ns of the process in them
        self._clocks = 0.0
        self._clock_ns = self._slept_ns = self._cpu_ns = 0.0
        self._probe: threading.Thread | None = None
        self.stop = threading.Event()
        if timing:
            self._probe = threading.Thread(target=_watch_lock, args=(self,), daemon=True)
            self._probe.start()
            self._clocks = self._cost_of_clocks()
        self.restart()

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The stage, whose self time is charged to it in batches that are traced."""
        self._names[name] = here = _padded(name, STAGE_BYTES)
        place = self._place
        thread, current = self.thread, threading.get_ident

        def stage(*arguments: Any, **named: Any) -> Any:
            # Samples may take microseconds: mostly nothing but the place is noted. Threads of the
            # user's own are in their caller's time.
            place[:STAGE_BYTES] = here
            try:
                if self.active and thread == current():
                    return self._timed(name, function, arguments, named)
                return function(*arguments, **named)
            except StopIteration:
                raise
            except Exception as error:
                self._failed(name, error)
                raise

        return stage

    def _timed(
        self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], named: Any
    ) -> Any:
        outer = self.stack[-1] if self.stack else ""
        self._switch(outer, name)
        self.stack.append(name)
        blocked = self._stages[name][3]
        try:
            result = function(*arguments, **named)
        finally:
            self.stack.pop()
            self._switch(name, outer)
        entry = self._stages[name]
        entry[0] += 1
        if outer:
            self._stages[outer][5] += 1
            self._place[:STAGE_BYTES] = self._names[outer]
        if self.detailed and len(calls := self._details[name]["calls"]) < EXAMINED:
            # The last argument is the sample or its index, never the dataset, which may be a list.
            sizes = size_of(arguments[-1] if arguments else None), size_of(result)
            calls.append(((entry[3] - blocked) / 1e9, *sizes))
            self._clock_ns += self._read_clocks()[1]  # an examination is charged to nobody
        return result

    def end_batch(self, samples: int) -> None:
        """Write what the batch cost, and decide whether the next one is traced."""
        self.batch += 1
        began, self._process_cpu = self._process_cpu, time.process_time_ns()
        cpu = self._process_cpu - began
        self._cpu_ns += cpu
        if not self.active:
            self._plain[0] += 1
            self._plain[1] += cpu
        else:
            line: dict[str, Any] = {
                "batch": self.batch,
                "samples": samples,
                "detailed": self.detailed,
                "stages": self._stages,
                "process_cpu": cpu,
                "plain": self._plain,
                "clocks": self._clocks,
                "details": self._details,
                "held": self.held,
                "serving_queued": _serving_queued_ns(),
                "callees": self.callees,
            }
            if self.batch == 2:
                # Memory that this process shares with no other.
                rollup = Path("/proc/self/smaps_rollup")
                line["private_bytes"] = bytes_of(rollup, "Private_Dirty", 0.0)
            os.write(self._file, json.dumps(line).encode() + b"\n")
            self.traced += 1
            self._adapt()
        if self.timing:
            self.active = self.batch % self.every == 0
            period = DETAIL if self.traced < DENSE else DENSE
            self.detailed = self.active and self.traced % period == 1
            if self.active:
                self.restart()
            if self.detailed:
                self.examined.set()
            else:
                self.examined.clear()

    def restart(self) -> None:
        """Start the accounts of a batch."""
        # Calls, CPU ns, run queue ns, blocked ns, ns that a hypervisor took, calls of other stages.
        self._stages: dict[str, list[float]] = defaultdict(lambda: [0] * 6)
        # Calls: blocked seconds, bytes in, bytes out.
        self._details: dict[str, Any] = defaultdict(lambda: {"random": None, "calls": []})
        # Samples of the interpreter lock, by their weight: held, free.
        self.held: dict[str, list[float]] = defaultdict(lambda: [0, 0])
        # Samples inside of the source, by the functions called there: computing, asleep, lock held.
        self.callees: dict[str, list[float]] = defaultdict(lambda: [0.0] * 3)
        self._state = random_states() if self.detailed and self.traced <= DETAIL else ""
        self._read_clocks()

    def close(self) -> None:
        """Stop the probe and close the files."""
        self.stop.set()
        self.examined.set()
        if self._probe is not None:
            self._probe.join()
        self._place.close()
        for file in (self._queue, self._file):
            if file is not None:
                os.close(file)

    def stage_at(self, moment_ns: int) -> str:
        """The stage that ran at a moment of the recent past."""
        return next((name for at, name in reversed(self.changes) if at <= moment_ns), "")

    def _read_clocks(self) -> tuple[int, int, int, bool]:
        """Wall, CPU and queue time since the last reading, and whether the thread went to sleep."""
        wall, cpu, waited, switches = self._wall, self._cpu, self._waited, self._switches
        self._switches = _switches()
        self._waited = queued_ns(self._queue)
        self._cpu = time.thread_time_ns()
        self._wall = time.perf_counter_ns()
        slept = self._switches > switches
        return self._wall - wall, self._cpu - cpu, self._waited - waited, slept

    def _switch(self, ended: str, begins: str) -> None:
        """The time since the last reading belongs to the stage that ended (or, unnamed, to none)."""
        wall, cpu, waited, slept = self._read_clocks()
        if ended:
            entry = self._stages[ended]
            entry[1] += cpu
            entry[2] += waited
            entry[3 if slept else 4] += max(0, wall - cpu - waited)
        if self.detailed:
            self.changes.append((self._wall, begins))
            if self._state:  # fingerprints take time: the first examined batch must do
                state = random_states()
                if ended:
                    detail = self._details[ended]
                    detail["random"] = bool(detail["random"]) or state != self._state
                self._state = state
                self._read_clocks()

    def _adapt(self) -> None:
        """Trace so few batches that it takes at most `OVERHEAD` of the time."""
        entries = self._stages.values()
        self._clock_ns += sum(entry[0] for entry in entries) * self._clocks
        self._slept_ns += sum(entry[3] for entry in entries)
        # Few long batches may take most of the time, and be seen first where they are not traced.
        per_batch = self._slept_ns / self.traced + self._cpu_ns / self.batch
        share = self._clock_ns / self.traced / max(per_batch, 1.0)
        self.every = max(1, math.ceil(share / OVERHEAD))

    def _cost_of_clocks(self) -> float:
        """CPU nanoseconds that reading the clocks adds to a call, about half of them to its caller."""
        call = self.wrap("", lambda: None)
        self.restart()
        moments = [(call(), time.thread_time_ns())[1] for _ in range(CALLS)]
        return float(np.median(np.diff(moments)))

    def begin(self, sample: Any) -> None:
        """The sample that is worked on from now."""
        self._place[STAGE_BYTES:] = _padded(repr(sample), SAMPLE_BYTES)

    def _failed(self, name: str, error: Exception) -> None:
        """The innermost stage that raised is remembered for the message."""
        path = self.folder / f"worker-{self.worker}.error"
        if not path.exists():
            reason = f"{type(error).__name__}: {error}"
            sample = read_position(self._position)[1]
            path.write_text(json.dumps({"stage": name, "sample": sample, "error": reason}))


def _watch_lock(recorder: Recorder) -> None:
    """Sample whether the traced thread holds the interpreter lock while it computes.

    This thread sleeps, and must take the lock when it wakes. If it had to wait for it, it was switched away
    a second time: the kernel counts that. On a loaded machine the traced thread may stand in the run queue
    with the lock, for longer than without it: a probe counts by the cube of the share of its time, but
    for that which this thread stood in the queue itself, in which the traced thread computed.
    """
    queue, clock = open_queue(), time.pthread_getcpuclockid(recorder.thread)
    state = _open(f"/proc/self/task/{recorder.native}/stat")
    if queue is None or state is None:
        return
    random, interval = Random(0), sys.getswitchinterval()
    while True:
        if not recorder.examined.is_set():
            sys.setswitchinterval(interval)
        recorder.examined.wait()
        sys.setswitchinterval(REQUEST_S)
        time.sleep(random.uniform(*PAUSE_S))
        if recorder.stop.is_set():
            break
        pause = random.uniform(*PROBE_S)
        cpu, queued, switches = time.clock_gettime_ns(clock), queued_ns(queue), _switches()
        start = time.perf_counter_ns()
        time.sleep(pause)
        waited, late = _switches() - switches > 1, queued_ns(queue) - queued
        wall = time.perf_counter_ns() - start - late - waited * REQUEST_S * 1e9
        weight = min(1.0, (time.clock_gettime_ns(clock) - cpu) / max(1.0, wall)) ** 3
        # The thread looked at some moment between these two; on a busy machine they lie far apart.
        due = start + int(pause * 1e9)
        name = recorder.stage_at(due)
        if name and name == recorder.stage_at(due + late):
            recorder.held[name][0 if waited else 1] += weight
            path = called(sys._current_frames().get(recorder.thread)) if name == SOURCE else None
            if path is not None:
                asleep = os.pread(state, 200, 0).rpartition(b") ")[2][:1] == b"S"
                sample = recorder.callees[CALL.join(path)]
                for column, share in enumerate((weight, asleep and not waited, waited * weight)):
                    sample[column] += share
    sys.setswitchinterval(interval)
    os.close(queue)
    os.close(state)


def called(frame: FrameType | None) -> list[str] | None:
    """The user's functions that run inside of a stage, from the outermost to the innermost.

    Without any, the function of a library that the stage called; None: this is not inside of a stage.

    Args:
        frame: the innermost.
    """
    frames: list[FrameType] = []
    while frame is not None and frame.f_code is not Recorder._timed.__code__:
        frames.insert(0, frame)
        frame = frame.f_back
    if frame is None:
        return None
    # Generators hand on what others read; indexing is what the stage is.
    inside = [
        part
        for part in frames[1:]
        if not part.f_code.co_flags & CO_GENERATOR or part is frames[-1]
        if not part.f_code.co_qualname.endswith("__getitem__")
        if not part.f_globals.get("__name__", "").startswith(__package__)
    ]
    users = [part for part in inside if not is_library(part.f_globals.get("__name__"))]
    names = [part.f_code.co_qualname for part in users or inside[:1]]
    return [name.rpartition("<locals>.")[2].strip("<>") for name in names]


def _serving_queued_ns() -> int:
    """Nanoseconds that the thread which hands tensors to the consumer has waited for a core."""
    for thread in threading.enumerate():
        if "_serve" in thread.name:  # of multiprocessing.resource_sharer
            return _queued_of(f"/proc/self/task/{thread.native_id}/schedstat")
    return 0


def _queued_of(path: str) -> int:
    queue = _open(path)
    try:
        return queued_ns(queue)
    finally:
        if queue is not None:
            os.close(queue)


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def open_queue() -> int | None:
    """What the kernel counts of this thread; None where it does not."""
    return _open("/proc/thread-self/schedstat")


def queued_ns(queue: int | None) -> int:
    """Nanoseconds that the thread has waited for a core."""
    return int(os.pread(queue, 80, 0).split()[1]) if queue is not None else 0


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:  # another system than Linux, or a kernel without it
        return None


def read_position(path: Path) -> tuple[str, str]:
    """Stage and sample of a worker that cannot say it any more."""
    content = path.read_bytes()
    parts = content[:STAGE_BYTES], content[STAGE_BYTES:]
    stage, sample = (part.rstrip(b"\0").decode(errors="replace") for part in parts)
    return stage or "none", sample


def _padded(text: str, size: int) -> bytes:
    return text.encode(errors="replace")[:size].ljust(size, b"\0")


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
