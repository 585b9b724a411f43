"""The process that opens dumps: it may be killed by one, and nothing else is lost.

    python -m holdfast.runs.flight.reading_process < REQUEST

The request, one JSON object, is ``{"files": [...]}``, or
``{"files": [...], "records": [[...], ...]}`` for the stacks of some entries of each file. For every
file, in order, stdout gets a `Reply` in msgpack, behind its length in 8 bytes.

Address space and processor time are limited, so that a file that claims terabytes or never ends takes down
at most this process. The parent gives the rest of the files to a fresh one.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from holdfast.runs.flight.compact import ForeignFileError, NoDumpError, compact, frames_of
from holdfast.runs.flight.record import ENTRY, Dump
from holdfast.runs.flight.restricted_unpickling import RefusedPickleError, load_plain

LARGEST = 256 << 20
"""Bytes; a ring of 20,000 entries with stacks has some 10 MB."""
ADDRESS_SPACE = 4 << 30
"""Bytes beyond what the process starts with, and 16 times the file."""
CPU_S = 30
"""Processor time of a file, and a second a megabyte."""


def read_document(path: Path) -> Any:
    """What a JSON file or a pickle holds, gzipped or not; the content decides, not the name.

    Raises:
        NoDumpError: if it is none of them, is damaged, or is too large.
        RefusedPickleError: see `load_plain`.
    """
    content = _content(path)
    if content.lstrip()[:1] == b"{":
        try:
            return msgspec.json.decode(content)  # a megabyte a rank: half the time of `json`
        except msgspec.DecodeError as error:
            raise NoDumpError(f"damaged or truncated JSON: {error}"[:200]) from None
        except RecursionError:
            raise NoDumpError("damaged JSON: nested too deeply") from None
    if content[:1] == b"\x80":
        return load_plain(content)
    raise ForeignFileError("it is neither JSON nor a pickle")


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise NoDumpError(f"it cannot be read: {error.strerror}") from None
    if content[:2] == b"\x1f\x8b":
        try:
            content = zlib.decompressobj(wbits=31).decompress(content, LARGEST + 1)
        except zlib.error as error:
            raise NoDumpError(f"damaged gzip: {error}") from None
    if not content:
        raise NoDumpError("it is empty")
    if len(content) > LARGEST:
        raise NoDumpError(f"it is larger than {LARGEST >> 20} MiB")
    return content


@dataclass(frozen=True)
class Reply:
    """What is said of one file."""

    dump: Dump | None = None
    refused: str = ""
    """Why there is no dump."""
    foreign: bool = False
    """The file is something else, and no damaged dump."""
    frames: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Record -> its stack, where stacks were asked for."""


def packed(reply: Reply) -> bytes:
    """An answer for the parent."""
    body = msgspec.msgpack.encode(reply, enc_hook=lambda entries: entries.tobytes())
    return len(body).to_bytes(8, "little") + body


def read_reply(source: IO[bytes]) -> Reply | None:
    """The next answer; None at the end, and where it was cut off.

    It is checked against the types: a reader that a hostile file took over can send nothing else.
    """
    size = int.from_bytes(source.read(8), "little")
    body = source.read(size)
    if not size or len(body) < size:
        return None
    return msgspec.msgpack.decode(
        body, type=Reply, dec_hook=lambda kind, content: np.frombuffer(content, ENTRY)
    )


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    files = [Path(name) for name in request["files"]]
    records = request.get("records") or [None] * len(files)
    # Dumps are trees, freed as they go; looking for cycles among them costs a third of the time.
    gc.disable()
    for path, wanted in zip(files, records, strict=True):
        _limit(path)
        _answer(path, wanted, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _answer(path: Path, wanted: list[int] | None, out: IO[bytes]) -> None:
    try:
        document = read_document(path)
        if wanted is None:
            told = Reply(compact(document, str(path)))
        else:
            told = Reply(frames=frames_of(document, wanted))
    except (NoDumpError, RefusedPickleError) as error:
        told = Reply(refused=str(error), foreign=isinstance(error, ForeignFileError))
    except MemoryError:
        told = Reply(refused="it asks for more memory than a dump needs")
    out.write(packed(told))


def _limit(path: Path) -> None:
    size = path.stat().st_size if path.exists() else 0
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + ADDRESS_SPACE + 16 * size)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + CPU_S + (size >> 20))


def _lower(what: int, soft: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(what, (soft, hard))


if __name__ == "__main__":
    main()
