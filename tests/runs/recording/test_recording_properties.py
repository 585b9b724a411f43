"""Whatever happens to a file, at most the lines that it happened to are lost."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.runs import RunRecorder, read_run
from holdfast.runs.recording.tailing import EventTail

amounts = st.floats(0, 1e12)
losses = st.floats(allow_nan=True, allow_infinity=True)
texts = st.text(max_size=30)
shares = st.floats(0, 1)


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """What a training does, as calls of the recorder."""
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("step"), st.integers(0, 2**60), amounts, losses),
                st.tuples(st.just("data_wait")),
                st.tuples(st.just("pause"), texts),
                st.tuples(st.just("published"), st.integers(0, 2**60), st.integers(0, 2**60)),
                st.tuples(st.just("ready"), st.none() | st.integers(0, 2**60)),
            ),
            max_size=12,
        )
    )


def record(folder: Path, what: list[tuple[Any, ...]]) -> Path:
    """Let it happen; the file."""
    with RunRecorder(folder, "run", heartbeat_s=1e6) as recorder:
        recorder.ready()
        for kind, *values in what:
            if kind == "step":
                with recorder.step(values[0], tokens=values[1]) as step:
                    step.loss = values[2]
            elif kind == "data_wait":
                with recorder.data_wait():
                    pass
            elif kind == "pause":
                with recorder.pause(values[0]):
                    pass
            elif kind == "published":
                recorder.published(values[0], size_bytes=values[1])
            else:
                recorder.ready(values[0])
    (path,) = recorder.folder.glob("*.jsonl")
    return path


def same(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)


@settings(max_examples=30, deadline=None)
@given(happenings())
def test_what_is_written_is_read(what: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        record(Path(name), what)
        run = read_run(name)
    rows = [row for row in run.events.to_pylist() if row["event"] != "begin"][1:-1]
    assert [row["event"] for row in rows] == [kind for kind, *_ in what]
    for row, (kind, *values) in zip(rows, what, strict=True):
        if kind == "step":
            assert (row["step"], row["tokens"]) == (values[0], values[1])
            assert same(row["loss"], values[2])
            assert row["loss"] is not None
        elif kind == "pause":
            assert row["what"] == values[0]
        elif kind == "published":
            assert (row["step"], row["bytes"]) == tuple(values)
    assert not run.rejects
    assert not run.remarks


@settings(max_examples=50, deadline=None)
@given(happenings(), shares)
def test_cut_anywhere_one_line_is_lost(what: list[tuple[Any, ...]], share: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = record(Path(name), what)
        whole = path.read_bytes()
        kept = round(share * len(whole))
        path.write_bytes(whole[:kept])
        complete = whole[:kept].count(b"\n")
        if not complete and kept < whole.index(b"\n"):
            with pytest.raises(InputError, match="no usable file in this run"):
                read_run(name)
            return
        run = read_run(name)
    assert run.events.num_rows in (complete - 1, complete)
    assert not run.rejects


@settings(max_examples=50, deadline=None)
@given(happenings(), st.binary(max_size=60), shares)
def test_garbage_between_lines_costs_nothing_else(
    what: list[tuple[Any, ...]], garbage: bytes, share: float
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = record(Path(name), what)
        lines = path.read_bytes().splitlines(keepends=True)
        at = 1 + round(share * (len(lines) - 1))
        path.write_bytes(b"".join([*lines[:at], garbage + b"\n", *lines[at:]]))
        run = read_run(name)
        tail = EventTail(name)
        followed = tail.poll()
    assert run.events.num_rows == len(lines) - 1
    assert len(run.rejects) == sum(bool(line.strip()) for line in garbage.split(b"\n"))
    assert len(followed) == len(lines)
    assert len(tail.rejects) == len(run.rejects)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_garbage_alone_is_bad_input(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        for number, content in enumerate(contents):
            (Path(name) / f"rank-00000-{number}-1.jsonl").write_bytes(content)
        with pytest.raises(InputError):
            read_run(name)
        EventTail(name).poll()


@settings(max_examples=30, deadline=None)
@given(happenings(), st.lists(shares, max_size=6).map(sorted))
def test_followed_in_pieces_as_read_at_once(what: list[tuple[Any, ...]], ends: list[float]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = record(Path(name), what)
        whole = path.read_bytes()
        tail = EventTail(name)
        followed: list[Any] = []
        for end in [*ends, 1.0]:
            path.write_bytes(whole[: round(end * len(whole))])
            followed += tail.poll()
        run = read_run(name)
    rows = run.events.to_pylist()
    assert [event.event for _, event in followed] == ["start", *(row["event"] for row in rows)]
    assert {process.pid for process, _ in followed} == {run.processes[0].pid}
    for (_, event), row in zip(followed[1:], rows, strict=True):
        for name in ("t", "seconds", "step", "tokens"):
            assert getattr(event, name) == row[name]
        assert same(event.loss, row["loss"])
        assert not isinstance(event.loss, str)
        assert not math.isnan(event.t)
