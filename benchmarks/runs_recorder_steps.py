"""One contender records a training loop; `runs_recorder.py` runs this in fresh processes.

    python benchmarks/runs_recorder_steps.py CONTENDER FOLDER STEPS BODY

BODY is what a step does: ``nothing``, ``work`` (50 ms that throw the recorder's data out of the caches)
or ``until-killed`` (1 ms, told on stdout, for ever). The last line of stdout has the seconds that a step
of the loop takes beyond its body. Runs in the environment of the contender.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

TOKENS = 8192
STEP_S = 0.05

Body = Callable[[int], None]
Loop = Callable[[Iterator[int], Body], None]


@contextmanager
def holdfast(folder: Path) -> Iterator[Loop]:
    """`RunRecorder`: the wait and the step, with tokens and loss."""
    from holdfast.runs import RunRecorder

    with RunRecorder(folder, "run", rank=0, world_size=1) as recorder:

        def loop(numbers: Iterator[int], body: Body) -> None:
            for number in numbers:
                with recorder.data_wait():
                    pass
                with recorder.step(number, tokens=TOKENS) as step:
                    body(number)
                    step.loss = 2.5 + 1 / number

        yield loop


@contextmanager
def python_logging(folder: Path) -> Iterator[Loop]:
    """Python's logging: the same two events as lines of JSON, each flushed."""
    logger = logging.getLogger("run")
    handler = logging.FileHandler(folder / "run.jsonl")
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    opened = time.monotonic()

    def loop(numbers: Iterator[int], body: Body) -> None:
        for number in numbers:
            begun = time.monotonic()
            now = time.monotonic()
            logger.info(
                json.dumps({"event": "data_wait", "t": now - opened, "seconds": now - begun})
            )
            begun = time.monotonic()
            body(number)
            now = time.monotonic()
            event = {"event": "step", "t": now - opened, "seconds": now - begun, "step": number}
            logger.info(json.dumps({**event, "tokens": TOKENS, "loss": 2.5 + 1 / number}))

    yield loop


@contextmanager
def tensorboard(folder: Path) -> Iterator[Loop]:
    """tensorboardX: wait, length, tokens and loss of a step as four scalars, which it buffers."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder)) as writer:

        def loop(numbers: Iterator[int], body: Body) -> None:
            for number in numbers:
                begun = time.monotonic()
                writer.add_scalar("data_wait_s", time.monotonic() - begun, number)
                begun = time.monotonic()
                body(number)
                writer.add_scalar("step_s", time.monotonic() - begun, number)
                writer.add_scalar("tokens", TOKENS, number)
                writer.add_scalar("loss", 2.5 + 1 / number, number)

        yield loop


@contextmanager
def goodput(folder: Path) -> Iterator[Loop]:
    """ml-goodput-measurement: wait begins, wait ends, step begins; it knows no tokens and no loss.

    Entries end in a queue in memory: without its Cloud Logging, which has none of this machine's time.
    """
    from ml_goodput_measurement.src.goodput import GoodputRecorder

    entries: queue.SimpleQueue[Any] = queue.SimpleQueue()

    class InMemory:
        write_cloud_logging_entry = staticmethod(entries.put)

    recorder = GoodputRecorder("run", "run", logging_enabled=True, cloud_logger=InMemory())

    def loop(numbers: Iterator[int], body: Body) -> None:
        for number in numbers:
            recorder.record_data_loading_start_time()
            recorder.record_data_loading_end_time()
            recorder.record_step_start_time(number)
            body(number)

    yield loop


CONTENDERS = {
    "holdfast": holdfast,
    "logging": python_logging,
    "tensorboardX": tensorboard,
    "ml-goodput-measurement": goodput,
}


def main(contender: str, folder: str, steps: str, body: str) -> None:
    """Run one loop."""
    with CONTENDERS[contender](Path(folder)) as loop:
        if body == "nothing":
            begun = time.perf_counter()
            loop(iter(range(1, int(steps) + 1)), lambda number: None)
            seconds = (time.perf_counter() - begun) / int(steps)
        elif body == "work":
            seconds = beyond_work(loop, int(steps))
        else:
            loop(iter(range(1, sys.maxsize)), told_step)
    print(json.dumps({"seconds": seconds}))


def beyond_work(loop: Loop, steps: int) -> float:
    """Median over steps of what one takes beyond 50 ms of work on 64 MB of memory."""
    memory = bytearray(1 << 26)
    marks: list[tuple[float, float]] = []

    def work(number: int) -> None:
        begun = time.perf_counter()
        while time.perf_counter() - begun < STEP_S:
            memory[:] = bytes(len(memory))
        marks.append((begun, time.perf_counter()))

    loop(iter(range(1, steps + 1)), work)
    return statistics.median(later[0] - earlier[1] for earlier, later in pairwise(marks))


def told_step(number: int) -> None:
    """A step of a millisecond; its number on stdout, when the one before is recorded."""
    os.write(1, b"%d\n" % (number - 1))
    time.sleep(0.001)


if __name__ == "__main__":
    main(*sys.argv[1:])
