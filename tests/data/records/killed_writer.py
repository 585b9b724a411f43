"""Writes datasets in processes that die on demand: run as a script, it takes a JSON object a line.

    {"out": FOLDER, "seeds": [..], "size": BYTES, "call": K, "side": "before" or "after", "limit": BYTES}

A forked child writes the pictures of these seeds and kills itself at its K-th call that changes the disk
(0: never); it may write no file larger than the limit, if there is one. The answer is {"calls": how many
there were, "signal": that killed it, "code": of its end, "said": its error}.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from listed_source import Listed, of_pictures

from holdfast.data.records.writing import writer
from holdfast.errors import HoldfastError

CALLS = ("replace", "fsync", "unlink", "rmdir", "mkdir")
RECORD_SIZE, QUALITY_IMAGES = 3, 2


@cache
def source(seeds: tuple[int, ...], size: int) -> Listed:
    """The pictures of these seeds, all of one size."""
    return of_pictures(seeds, size)


def write(out: str | Path, seeds: list[int], size: int) -> writer.Written:
    """The dataset that children write."""
    return writer.write(
        source(tuple(seeds), size),
        out,
        record_size=RECORD_SIZE,
        quality_images=QUALITY_IMAGES,
        threads=2,
    )


def dying(call: int, side: str, note: int) -> None:
    """Count the calls that change the disk, on a descriptor, and die at one of them."""
    count = 0

    def patched(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            os.pwrite(note, str(count).encode(), 0)
            mine = count == call
            if mine and side == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return original(*arguments, **options)
            finally:  # it may fail: what shall be removed is not always there
                if mine:
                    os.kill(os.getpid(), signal.SIGKILL)

        return counted

    for name in CALLS:
        setattr(os, name, patched(getattr(os, name)))


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry one order out in a child."""
    source(tuple(order["seeds"]), order["size"])  # once for all children
    note = os.memfd_create("calls")
    said, saying = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            if "limit" in order:
                resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"],) * 2)
            dying(order.get("call", 0), order.get("side", "before"), note)
            write(order["out"], order["seeds"], order["size"])
            code = 0
        except HoldfastError as error:
            os.write(saying, str(error).encode())
        finally:
            os._exit(code)
    os.close(saying)
    with os.fdopen(said, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    calls = int(os.pread(note, 20, 0) or b"0")
    os.close(note)
    return {
        "calls": calls,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "said": text,
    }


def main() -> None:
    """Answer orders until there are no more."""
    with tempfile.TemporaryDirectory() as scratch:
        write(scratch, [0], 9000)  # modules and kernels are loaded once, not by each child
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
