"""Lines of files: however bytes come, in blocks or in appends, the lines are those of a plain split."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.lines import Block, Rejects, Tail, blocks
from holdfast.opening import open_source

PIECES = st.sampled_from([b"a", b"bb", b"\n", b"\r\n", b"\r", b"\n\n", b"x" * 9, b"\xff\x00"])
TEXTS = st.lists(PIECES, max_size=40).map(b"".join)


def given_by(found: list[Block], ends: bytes) -> list[bytes]:
    """The lines of blocks, without their ends."""
    lines = re.split(ends, b"".join(block.data for block in found))
    return lines if lines[-1] else lines[:-1]


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_blocks_give_the_lines_of_a_split(
    text: bytes, size: int, longest: int, returns: bool
) -> None:
    ends = rb"\r\n|\r|\n" if returns else rb"\n"
    expected = re.split(ends, text)
    if not expected[-1]:
        expected.pop()
    found = list(blocks(io.BytesIO(text), size=size, longest=longest, returns=returns))
    assert given_by(found, ends) == [line[:longest] for line in expected]
    assert sum(block.cut for block in found) == sum(len(line) > longest for line in expected)
    assert all(len(block.data) <= 2 * (size + longest) + 2 for block in found)
    starts = [0, *(block.end for block in found)]
    assert starts[-1] == len(text)
    for place, block in enumerate(found):
        assert block.first_line == 1 + text[: starts[place]].count(b"\n")
        # Reading from there on gives the same.
        source = io.BytesIO(text[starts[place] :])
        again = list(blocks(source, offset=starts[place], longest=longest, returns=returns))
        assert given_by(again, ends) == given_by(found[place:], ends)


def test_lines_end_with_a_feed_or_a_return_and_a_feed() -> None:
    (block,) = blocks(io.BytesIO(b"a\r\nb\n\nc\rd\n"))
    assert block.lines() == [b"a", b"b", b"", b"c\rd"]
    assert (block.first_line, block.next_line, block.end) == (1, 5, 10)


def test_stop_and_partial() -> None:
    source = io.BytesIO(b"a\nb\nc")
    assert [block.data for block in blocks(source, partial=False)] == [b"a\nb\n"]
    source.seek(2)
    (block,) = blocks(source, offset=2, line=2, stop=4)
    assert (block.data, block.first_line, block.end) == (b"b\n", 2, 4)


def test_what_precedes_damage_is_given(tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % n for n in range(200_000))
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(text)[:-2000])
    found: list[Block] = []
    with open_source(path) as source, pytest.raises(InputError) as caught:
        found.extend(blocks(source))  # what came before the error is kept
    got = b"".join(block.data for block in found)
    assert caught.value.code == "unreadable"
    assert text.startswith(got)
    assert len(got) > len(text) // 2


def test_rejects_keep_the_first_and_count_all() -> None:
    rejects = Rejects(Path("log"), most=2)
    for line in (7, 3, 9):
        rejects.add(line, "no number", b"\xffab" * 100)
    assert (rejects.count, [each.line for each in rejects.rows]) == (3, [7, 3])
    assert rejects.rows[0].text.startswith("\\xffab")
    rejects.check(300, 0.01, "numbers", "fix")
    for total, share in ((299, 0.01), (3, 1.0)):
        with pytest.raises(InputError) as caught:
            rejects.check(total, share, "numbers", "fix")
        assert (caught.value.code, caught.value.place) == ("too-many-rejects", "line 3")
    Rejects(Path("log")).check(0, 0.0, "numbers", "fix")


# --- Files that grow -----------------------------------------------------------------------------


def taken(tail: Tail, most: int | None = None) -> bytes:
    return b"".join(block.data for block in tail.new(most))


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=6), st.booleans(), st.sampled_from([None, 1, 20]))
def test_appends_give_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, appends: list[bytes], anew: bool, most: int | None
) -> None:
    path = tmp_path_factory.mktemp("tail") / "log"
    tail, got, written = Tail(path), b"", b""
    for text in appends:
        with path.open("ab") as file:
            file.write(text)
        written += text
        whole = written[: written.rfind(b"\n") + 1]
        got += taken(tail, most)
        while most is not None and len(got) < len(whole):
            piece = taken(tail, most)
            assert piece
            got += piece
        assert got == whole
        assert taken(tail) == b""
        if anew:  # another process goes on
            tail = Tail(path, json.loads(json.dumps(tail.state())))
    assert tail.place is None or tail.place.line == got.count(b"\n")


def test_a_file_that_was_cut_off_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert taken(tail) == b""
    path.write_bytes(b"one\ntwo\n")
    assert taken(tail) == b"one\ntwo\n"
    path.write_bytes(b"three\n")
    assert [(block.first_line, block.data) for block in tail.new()] == [(1, b"three\n")]
    path.write_bytes(b"other than three\n")  # longer than what was read, and something else
    assert [(block.first_line, block.data) for block in tail.new()] == [(1, b"other than three\n")]


@pytest.mark.parametrize("anew", [False, True])
def test_a_rotated_file_is_read_to_its_end(tmp_path: Path, anew: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = Tail(path)
    assert taken(tail) == b"one\n"
    with path.open("ab") as file:
        file.write(b"two\n")
    path.rename(tmp_path / "log.1")
    if anew:
        tail = Tail(path, tail.state())
        assert taken(tail) == b"two\n"  # before the new file is there
        with (tmp_path / "log.1").open("ab") as file:
            file.write(b"2.5\n")
    path.write_bytes(b"one\nthree\n")
    expected = b"2.5\n" if anew else b"two\n"
    assert taken(tail) == expected + b"one\nthree\n"
    assert taken(tail) == b""


def test_a_deleted_and_remade_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    assert taken(tail) == b"one\ntwo\n"
    path.unlink()
    assert taken(tail) == b""
    path.write_bytes(b"four\nfive\nsix\n")
    assert taken(tail) == b"four\nfive\nsix\n"


def test_a_long_line_is_cut_when_it_has_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"y" * 50_000)
    tail = Tail(path, longest=10)
    assert taken(tail, most=5) == b""
    with path.open("ab") as file:
        file.write(b"\nz\n")
    assert [(block.data, block.cut) for block in tail.new()] == [(b"y" * 10 + b"\nz\n", 1)]


def test_a_file_that_did_not_change_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\nhalf")
    tail = Tail(path)
    assert taken(tail) == b"one\n"
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("opened"))
    assert taken(tail) == b""
