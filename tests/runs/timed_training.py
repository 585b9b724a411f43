"""The example's training beside a stopwatch that knows nothing of the recorder.

Run in the place of `train.py`. It wraps the functions of the example and writes, a file a process, lines of
``name start end`` in seconds of the machine's monotonic clock; `stopwatch.py` adds them up.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "training-run"
sys.path.insert(0, str(EXAMPLE))

import train  # noqa: E402

FOLDER = Path(sys.argv[1]) / "stopwatch"
FOLDER.mkdir(parents=True, exist_ok=True)
SHEET = os.open(
    FOLDER / f"{os.environ['RANK']}-{BEGAN:014.3f}.txt",
    os.O_CREAT | os.O_APPEND | os.O_WRONLY,
)
inside: list[str] = []


def note(name: str, start: float, end: float) -> None:
    os.write(SHEET, f"{name} {start:.6f} {end:.6f}\n".encode())


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*positional: Any) -> Any:
        if inside:
            return function(*positional)
        inside.append(name)
        start = time.monotonic()
        try:
            return function(*positional)
        finally:
            note(name, start, time.monotonic())
            inside.pop()

    return wrapped


def timed_batches(function: Callable[[int], Iterator[Any]]) -> Callable[[int], Iterator[Any]]:
    def wrapped(seed: int) -> Iterator[Any]:
        source = function(seed)
        read = timed("data_wait", lambda: next(source))
        while True:
            yield read()

    return wrapped


def resumed(function: Callable[..., int | None]) -> Callable[..., int | None]:
    def wrapped(*positional: Any) -> int | None:
        done = function(*positional)
        note(f"resumed:{done or 0}", time.monotonic(), time.monotonic())
        return done

    return wrapped


def tick() -> None:
    """The last line tells when the process was last alive."""
    while True:
        note("tick", BEGAN, time.monotonic())
        time.sleep(0.2)


submitted = float(sys.argv[sys.argv.index("--submitted-s") + 1]) - time.time() + time.monotonic()
note("submitted", submitted, BEGAN)
train.read_batches = timed_batches(train.read_batches)
train.save = timed("checkpoint", train.save)
train.finish = timed("checkpoint", train.finish)
train.evaluate = timed("evaluation", train.evaluate)
train.resume = resumed(train.resume)
threading.Thread(target=tick, daemon=True).start()
train.main()
note("over", BEGAN, time.monotonic())
