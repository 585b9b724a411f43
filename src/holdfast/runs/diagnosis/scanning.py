"""All files in one pass, on several processes: what each file holds, independent of how it was cut."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from holdfast.progress import track
from holdfast.runs.diagnosis.events import Finds
from holdfast.runs.diagnosis.reading import CHUNK_BYTES, PART_BYTES, LogFile, Part, parts_of
from holdfast.runs.diagnosis.rules import RuleSet
from holdfast.runs.diagnosis.shapes import MOST_SHAPES, PartScan, Shape, scan_part

ALONE_BYTES = 48 << 20
"""Less than this is read faster by one process than others are started."""


@dataclass
class FileScan:
    """What one file holds."""

    log: LogFile
    finds: Finds = field(default_factory=Finds)
    feeds: int = 0
    """Line feeds: the number of lines as an editor counts."""
    lines: int = 0
    bytes_read: int = 0
    cut: int = 0
    unshaped: int = 0
    broken: str = ""

    def extend(self, scan: PartScan) -> None:
        """Append the file's next part."""
        self.finds.extend(scan.finds, self.feeds)
        self.feeds += scan.feeds
        self.lines += scan.lines
        self.bytes_read += scan.bytes_read
        self.cut += scan.cut
        self.unshaped += scan.unshaped
        self.broken = self.broken or scan.broken


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
    part_bytes: int = PART_BYTES,
    chunk: int = CHUNK_BYTES,
) -> Scan:
    """Pass over all files once.

    Args:
        rules: what to look for.
        logs: the files, in the order in which they are numbered.
        processes: side by side; None: as many as this machine has processors, one for little input.
        part_bytes: how much of a file one process takes at a time. Like the two others it changes
            nothing in the result.
        chunk: bytes read at once.
    """
    parts = [part for index, log in enumerate(logs) for part in parts_of(index, log, part_bytes)]
    total = sum(log.size_bytes for log in logs)
    count = processes or (len(os.sched_getaffinity(0)) if total > ALONE_BYTES else 1)
    scan = Scan([FileScan(log) for log in logs], {})
    with track("reading", total) as bar:
        for done in _scanned(rules, logs, parts, min(count, len(parts)), chunk):
            file = scan.files[done.part.file]
            _merge(scan.shapes, done, file.feeds)
            file.extend(done)
            bar.advance(done.bytes_read)
    return scan


def _scanned(
    rules: RuleSet, logs: Sequence[LogFile], parts: Sequence[Part], processes: int, chunk: int
) -> Iterator[PartScan]:
    """The parts' results in the order of the parts."""
    if processes <= 1:
        for part in parts:
            yield scan_part(rules, logs[part.file], part, chunk)
        return
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_start, initargs=(rules, list(logs), chunk)
    ) as pool:
        yield from _in_order(pool, parts, ahead=2 * processes)


def _in_order(pool: ProcessPoolExecutor, parts: Sequence[Part], ahead: int) -> Iterator[PartScan]:
    """Few results wait at a time, so that memory stays flat."""
    waiting = [pool.submit(_work, part) for part in parts[:ahead]]
    for following in range(ahead, len(parts) + len(waiting)):
        result = waiting.pop(0).result()
        if following < len(parts):
            waiting.append(pool.submit(_work, parts[following]))
        yield result


_job: tuple[RuleSet, list[LogFile], int] | None = None


def _start(rules: RuleSet, logs: list[LogFile], chunk: int) -> None:
    global _job
    _job = (rules, logs, chunk)


def _work(part: Part) -> PartScan:
    assert _job is not None
    rules, logs, chunk = _job
    return scan_part(rules, logs[part.file], part, chunk)


def _merge(shapes: dict[bytes, Shape], done: PartScan, lines_before: int) -> None:
    for key, shape in done.shapes.items():
        if (seen := shapes.get(key)) is not None:
            seen.count += shape.count
            seen.known |= shape.known
            seen.files |= shape.files
        elif len(shapes) < MOST_SHAPES:
            shapes[key] = replace(shape, first=lines_before + shape.first)
        else:
            done.unshaped += shape.count
