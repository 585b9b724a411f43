"""Read lines of log files: choice of files, lines, and bytes that are not text.

A line ends with a line feed, or with a single carriage return, as progress bars write; only line feeds
count in line numbers, so that they match an editor's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import InputError
from holdfast.lines import Block as LineBlock
from holdfast.lines import blocks as line_blocks
from holdfast.opening import open_source
from holdfast.runs.diagnosis.prefixes import BOX, Unwrapper

LINE_BYTES = 1 << 16
"""What is kept of a line; the rest is passed over and the line counted as cut."""
CHUNK_BYTES = 1 << 22
SUFFIXES = (".log", ".out", ".err", ".txt", ".gz")
"""Files of a folder that are read: those that end so, and torchrun's ``stdout`` and ``stderr``."""

_SAMPLE_BYTES = 1 << 16
_BINARY_SHARE = 0.30
_NO_TEXT = bytes(code for code in range(32) if code not in b"\t\n\v\f\r\x1b\b") + b"\x7f"
_ANSI = re.compile(
    rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])"
)


@dataclass(frozen=True)
class LogFile:
    """A file to read."""

    path: Path
    name: str
    """As shown: as the user gave it, or beneath the folder that they gave."""
    size_bytes: int
    good: bool
    """Whether it belongs to a run that went well."""


@dataclass(frozen=True)
class SetAside:
    """A file that is not read, and why."""

    file: str
    reason: str


@dataclass
class Block:
    """Some lines of a file, without their ends."""

    lines: list[bytes]
    numbers: Sequence[int]
    """The line number of each, from 0; those between two carriage returns share one."""
    feeds: int
    """Line feeds in the block."""
    cut: int = 0
    """Lines longer than `LINE_BYTES`, of which the start is here."""
    size_bytes: int = field(default=0)
    boxed: bool = False
    """Whether some line has the side of a box, as rich draws around tracebacks."""
    times: Sequence[bytes] | None = None
    """What stood before each line and says its time; None: nothing was taken off."""


def find_logs(
    paths: Sequence[str | Path], good: bool = False
) -> tuple[list[LogFile], list[SetAside]]:
    """The files behind what a user gave; folders are searched through.

    Raises:
        InputError: if a path does not exist.
    """
    files: list[LogFile] = []
    aside: list[SetAside] = []
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise InputError(
                "log not found",
                code="not-found",
                path=path,
                expected="a file, or a folder of logs",
            )
        inside = _in_folder(path) if path.is_dir() else [path]
        if not inside:
            aside.append(SetAside(str(path), "a folder without " + ", ".join(SUFFIXES) + " files"))
        for each in inside:
            log = _opened(each, good)
            if isinstance(log, SetAside):
                aside.append(log)
            else:
                files.append(log)
    once = {log.path.resolve(): log for log in reversed(files)}  # named twice, read once
    return list(reversed(once.values())), aside


def _in_folder(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and (path.suffix in SUFFIXES or path.name in ("stdout", "stderr"))
    )


def _opened(path: Path, good: bool) -> LogFile | SetAside:
    """The file, or why it is set aside: not to be opened, empty, or no text."""
    name = str(path)
    if not path.is_file():
        return SetAside(name, "not a regular file")
    try:
        with open_source(path) as source:
            start = source.read1(_SAMPLE_BYTES)
    except (InputError, OSError) as error:
        return SetAside(name, f"cannot be read: {_reason(error)}")
    if not start:
        return SetAside(name, "empty")
    if _is_binary(start):
        return SetAside(name, "binary, not text")
    return LogFile(path, name, path.stat().st_size, good)


def _reason(error: InputError | OSError) -> str:
    return str(error.found if isinstance(error, InputError) else error)


def _is_binary(start: bytes) -> bool:
    """Whether too much of a file's start is neither text in UTF-8 nor what terminals understand."""
    strange = len(start) - len(start.translate(None, _NO_TEXT))
    strange += start.decode("utf-8", "replace").count("\ufffd")
    return strange > _BINARY_SHARE * len(start)


def blocks(
    log: LogFile,
    *,
    chunk: int = CHUNK_BYTES,
    broken: Callable[[str], None] = lambda reason: None,
) -> Iterator[Block]:
    """The lines of a file, block by block, in bounded memory.

    Args:
        log: the file.
        chunk: bytes read at once; it changes nothing in the lines.
        broken: called with the reason when the file breaks off (a packed file that is not whole, a
            disk that fails); what was read until then counts.
    """
    unwrapper, before = Unwrapper(), 0
    try:
        with open_source(log.path) as source:
            for lines in line_blocks(source, size=chunk, longest=LINE_BYTES, returns=True):
                block = _block(lines, lines.end - before)
                before = lines.end
                block.lines, block.numbers, block.times = unwrapper.block(
                    block.lines, block.numbers, block.boxed
                )
                yield block
    except (InputError, OSError) as error:
        broken(f"breaks off: {_reason(error)}")


def _block(block: LineBlock, size: int) -> Block:
    data, first = block.data, block.first_line - 1
    feeds = data.count(b"\n")
    numbers: Sequence[int] = range(first, first + feeds + 1)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if b"\r" in data:
            numbers = _shared_numbers(data, first)
            data = data.replace(b"\r", b"\n")
    lines = data.split(b"\n")
    if b"\x1b" in data:  # no colour spans a line end
        lines = _ANSI.sub(b"", data).split(b"\n")
    if not lines[-1]:  # the block ended with a line end
        lines.pop()
    return Block(lines, numbers, feeds, block.cut, size, BOX in data)


def _shared_numbers(data: bytes, first: int) -> list[int]:
    """Line numbers where carriage returns split lines."""
    return [
        number
        for number, line in enumerate(data.split(b"\n"), first)
        for _ in range(line.count(b"\r") + 1)
    ]
