"""`holdfast why` on damaged, binary, empty and huge files of every kind: an answer or an error, soon."""

from __future__ import annotations

import gzip
import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.opening import open_source
from holdfast.why import why

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MB = 1 << 20
CPU_S = 20.0
"""Of one file, on any machine."""


class TooSlowError(BaseException):
    """No `except Exception` holds it up."""


@contextmanager
def limited() -> Iterator[None]:
    """Processor time of the block is bounded."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def check(name: str, content: bytes) -> None:
    """Ask what a file is, alone and in a folder."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        for place in (path, Path(folder)):
            with limited():
                try:
                    found = why(place)
                except HoldfastError:
                    continue
            assert [gap for gap in found.gaps if gap.code == "failed"] == []
            assert all(row["headline"] for row in found.to_dict()["found"]) or found.gaps, (
                "no headline, and no reason"
            )


# --- Files of no kind, and of a kind but for their first bytes ------------------------------------


class Hostile:
    """A pickle of it runs a command when it is read."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}; : pg_config entries",)


HEADER = b"JobID|State|Submit|Start|End|NodeList\n"
BYTES = Random(1).randbytes
NASTY = {
    "one-line.csv": lambda: b"1," * (5 * MB),
    "one-line.json": lambda: b'{"a": "' + b"x" * (10 * MB) + b'"}',
    "one-line.log": lambda: b"x" * (10 * MB),
    "one-line.psv": lambda: HEADER + b"1|" * (5 * MB),
    "one-traceback.log": lambda: b"Traceback (most recent call last)\n" + b"(" * (10 * MB),
    "steps.csv": lambda: b"rank,step,seconds\n" + b"1," * MB,
    "field.csv": lambda: b'a,b\n"' + b"x" * 300_000 + b"\n1,2\n",
    "deep.json": lambda: b"[" * 100_000,
    "deep-traces.json": lambda: b'{"traceEvents":' * 50_000,
    "deep-dump.json": lambda: b'{"pg_config": {}, "entries": ' + b"[" * 100_000,
    "deep-croissant.json": lambda: b'{"@context": {}, "recordSet": ' + b"[" * 100_000,
    "deep-jobs.json": lambda: b'{"meta": {}, "jobs": ' + b"[" * 100_000,
    "deep.jsonl": lambda: (b'{"a":' * 20_000 + b"\n") * 3,
    "rank-0-1.jsonl": lambda: b'{"a":' * 20_000,
    "integer.json": lambda: b'[{"a": ' + b"9" * MB + b"}]",
    "answer.json": lambda: b'{"schema": "holdfast-answer/1"',
    "cr.csv": lambda: b"a,b\r1,2\r3,4\r",
    "lone-cr": lambda: b'timestamp,"a\rb",\rc\n\r1,2\r\r\n',
    "nul.csv": lambda: b"a,b\n\0,\0\n",
    "nuls": lambda: b"\0" * MB,
    "random": lambda: BYTES(4_000),
    "random-10-mb": lambda: BYTES(10 * MB),
    "utf-16": lambda: b"\xff\xfe" + BYTES(MB),
    "utf-8.csv": lambda: b"a,b\n\xff\xfe,2\n3,\xc0\xaf\n",
    "magic.parquet": lambda: b"PAR1" + BYTES(MB) + b"PAR1",
    "four.parquet": lambda: b"PAR1",
    "magic.arrow": lambda: b"ARROW1\0\0" + BYTES(9_999),
    "magic.zip": lambda: b"PK\x03\x04" + BYTES(999),
    "magic.png": lambda: b"\x89PNG\r\n\x1a\n" + b"\xff" * 99,
    "machine": lambda: b"\xd6\xfd\xb2\x7e" + BYTES(5_000),
    "machine-2": lambda: b"\xd6\xfd\xb2\x7e" + b"\xff" * 5_000,
    "records": lambda: b"\x89PCR" + BYTES(5_000),
    "n-grams": lambda: b"\\data\\\n" + BYTES(999),
    "bomb.gz": lambda: gzip.compress(HEADER + b"\0" * (100 * MB), 1),
    "long-lists.psv": lambda: HEADER + b"1|FAILED|1|2|3|gpu[%s]-ib\n" % b",".join([b"001"] * 9),
}


@pytest.mark.parametrize("name", NASTY)
def test_files_of_no_kind(name: str) -> None:
    check(name, NASTY[name]())


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    content = pickle.dumps({"pg_config": {}, "entries": Hostile(str(mark))})
    for name in ("rank_0", "dump.pickle"):
        check(name, content)
    assert not mark.exists()


# --- Damaged files of every kind -------------------------------------------------------------------


@cache
def whole() -> list[tuple[str, bytes]]:
    """Name and content of one small file of each folder and ending."""
    one: dict[tuple[str, str], Path] = {}
    for path in sorted(EXAMPLES.rglob("*")):
        if path.is_file() and path.stat().st_size < 60_000 and path.suffix not in (".md", ".py"):
            one.setdefault((path.relative_to(EXAMPLES).parts[0], path.suffix), path)
    paths = [*one.values(), EXAMPLES.parent / "tests" / "data" / "records" / "tiny.pcr"]
    found = [(path.name, path.read_bytes()) for path in paths]
    unpacked = [(n.removesuffix(".gz"), gzip.decompress(c)) for n, c in found if n.endswith(".gz")]
    return found + unpacked


def damaged(content: bytes, kind: str, place: float, random: Random) -> bytes:
    at = int(place * len(content))
    before, after = content[:at], content[at:]
    made = {
        "cut": before,
        "beheaded": after,
        "hole": before + after[random.randrange(1, 200) :],
        "byte": before + random.randbytes(1) + after[1:],
        "bytes": before + random.randbytes(99) + after,
        "nuls": before + b"\0" * 99 + after,
        "returns": content.replace(b"\n", b"\r"),
        "deep": before + b"[" * 20_000 + after,
        "repeated": before + before[-200:] * 50 + after,
        "cut-gz": gzip.compress(content)[: at + 12],
    }
    return made[kind]


KINDS = (
    "cut",
    "beheaded",
    "hole",
    "byte",
    "bytes",
    "nuls",
    "returns",
    "deep",
    "repeated",
    "cut-gz",
)


@pytest.mark.examples(40)
@settings(max_examples=1_000)
@given(st.data())
def test_damaged_files_of_every_kind(data: st.DataObject) -> None:
    files = whole()
    name, content = files[data.draw(st.integers(0, len(files) - 1))]
    random = Random(data.draw(st.integers(0, 1 << 32)))
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(KINDS))
        content = damaged(content, kind, data.draw(st.floats(0, 1)), random)
    check(name, content)


@given(st.text(), st.sampled_from(["utf-16-le", "utf-16-be"]))
def test_text_in_utf_16_is_read_piece_by_piece(text: str, codec: str) -> None:
    text = text.encode("utf-16-le", "replace").decode("utf-16-le")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(f"\ufeff{text}".encode(codec))
        with open_source(path) as source:
            assert source.read() == text.encode()
