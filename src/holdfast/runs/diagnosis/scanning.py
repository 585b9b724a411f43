"""All files, each in one pass, side by side: what they hold, in the order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.fanout import fan_out
from holdfast.progress import track
from holdfast.runs.diagnosis.reading import CHUNK_BYTES, LogFile
from holdfast.runs.diagnosis.rules import RuleSet
from holdfast.runs.diagnosis.shapes import MOST_SHAPES, FileScan, Shape, scan_file

ALONE_BYTES = 48 << 20
"""Less than this is read faster by one process than others are started."""


@dataclass
class Scan:
    """What all files hold."""

    files: list[FileScan]
    shapes: dict[bytes, Shape]


def scan_all(
    rules: RuleSet,
    logs: Sequence[LogFile],
    *,
    processes: int | None = None,
    chunk: int = CHUNK_BYTES,
) -> Scan:
    """Pass over all files once.

    Args:
        rules: what to look for.
        logs: the files, in the order in which they are numbered.
        processes: files read side by side; None: as many as this machine has processors, one for
            little input. It changes nothing in the result.
        chunk: bytes read at once; likewise.
    """
    total = sum(log.size_bytes for log in logs)
    if processes is None and total <= ALONE_BYTES:
        processes = 1
    scan = Scan([], {})
    done: dict[int, FileScan] = {}
    work = partial(scan_file, rules, chunk)
    with track("reading", total) as bar:
        for place, file in fan_out(list(enumerate(logs)), work, processes=processes):
            done[place] = file
            bar.advance(file.bytes_read)
            while (following := done.pop(len(scan.files), None)) is not None:
                _merge(scan.shapes, following)
                scan.files.append(following)
    return scan


def _merge(shapes: dict[bytes, Shape], file: FileScan) -> None:
    for key, shape in file.shapes.items():
        if (seen := shapes.get(key)) is not None:
            seen.count += shape.count
            seen.known |= shape.known
            seen.files |= shape.files
        elif len(shapes) < MOST_SHAPES:
            shapes[key] = shape
        else:
            file.unshaped += shape.count
    file.shapes = {}
