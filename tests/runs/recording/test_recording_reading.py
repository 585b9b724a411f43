"""Folders of events read back: whole, damaged, mixed up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from recordings import EPOCH, alive, start, write

from holdfast.errors import InputError
from holdfast.runs import RunRecorder, read_run
from holdfast.runs.recording.events import RecordedRun
from holdfast.runs.recording.rankfile import EVENTS


def steps(run: RecordedRun) -> list[int]:
    return [step for step in run.events["step"].to_pylist() if step is not None]


def test_what_the_recorder_wrote(tmp_path: Path) -> None:
    losses = [1.5, math.nan, math.inf, -math.inf]
    with RunRecorder(tmp_path, "run", labels={"rack": "r1"}, gpus=4) as recorder:
        recorder.ready(resumed_from=9)
        for number, loss in enumerate(losses, 10):
            with recorder.step(number, tokens=5) as step:
                step.loss = loss
        with recorder.pause("lunch"):
            pass
        recorder.published(13, size_bytes=2**40)
    run = read_run(tmp_path)
    (process,) = run.processes
    assert run.events.schema == EVENTS
    assert (run.run_id, run.attempts, run.start_s) == ("run", 1, (0.0,))
    assert (process.labels, process.gpus, process.resumed_from, process.end) == (
        {"rack": "r1"},
        4.0,
        9,
        "clean",
    )
    assert 0 < process.ready_t < process.last_t  # type: ignore[operator]
    rows = [row for row in run.events.to_pylist() if row["event"] != "alive"]
    assert [row["event"] for row in rows] == [
        "ready",
        *["step"] * 4,
        "begin",
        "pause",
        "published",
        "end",
    ]
    assert [row["what"] for row in rows if row["what"]] == ["pause", "lunch"]
    assert rows[-2]["bytes"] == 2**40
    assert {row["inner_s"] for row in rows} == {0.0}
    read = [row["loss"] for row in rows[1:5]]
    assert math.isnan(read[1])
    assert [read[0], *read[2:]] == [1.5, math.inf, -math.inf]
    assert not run.rejects
    assert not run.remarks


def test_both_ways_of_reading_agree(tmp_path: Path) -> None:
    """A block with anything odd in it is read line by line; the rest of its lines are the same."""
    events: list[dict[str, Any]] = [{"event": "ready", "t": 1, "resumed_from": 3}]
    for number in range(4, 50):
        events.append({"event": "data_wait", "t": number, "seconds": 0.25, "thread": None})
        events.append(
            {
                "event": "step",
                "t": number + 0.5,
                "seconds": 0.25,
                "inner_s": 0.125,
                "step": number,
                "loss": ["NaN", 2, 1.5, "-Infinity"][number % 4],
                "unheard_of": {"a": [number]},
            }
        )
        events.append({"event": "data_wait", "t": number, "seconds": 9.0, "thread": "prefetch"})
    events.append({"event": "pause", "t": 60, "seconds": 1, "reason": '"loss":"NaN" é \n'})
    path = write(tmp_path / "run", start(), events)
    at_once = read_run(tmp_path)
    path.write_bytes(path.read_bytes() + b"\xff\n")
    by_line = read_run(tmp_path)
    assert repr(at_once.events.to_pylist()) == repr(by_line.events.to_pylist())
    assert at_once.processes == by_line.processes
    assert steps(at_once) == list(range(4, 50))
    assert at_once.events.num_rows == 1 + 2 * 46 + 1
    assert not at_once.rejects
    assert len(by_line.rejects) == 1
    assert any("46 spans of other threads" in remark for remark in at_once.remarks)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\x00\x00\x00", ""),
        (b"\xff\xfe", ""),
        (b"hello", ""),
        (b"[1]", ""),
        (b"[" * 100_000, ""),
        (b'{"event":"nap","t":1}', "event: "),
        (b'{"t":1}', "event"),
        (b'{"event":["step"],"t":1}', "event: "),
        (b'{"event":"alive"}', "field t"),
        (b'{"event":"alive","t":-1}', "t: "),
        (b'{"event":"alive","t":NaN}', ""),
        (b'{"event":"alive","t":1e999}', "t: "),
        (b'{"event":"alive","t":true}', "t: "),
        (b'{"event":"alive","t":"1"}', "t: "),
        (b'{"event":"step","t":1,"step":1}', "seconds"),
        (b'{"event":"step","t":1,"seconds":1,"step":1.5}', "step: "),
        (b'{"event":"step","t":1,"seconds":1,"step":99999999999999999999}', "step: "),
        (b'{"event":"step","t":1,"seconds":1,"loss":"high"}', "loss: "),
        (b'{"event":"step","t":1,"seconds":1,"loss":1e999}', "loss: "),
        (b'{"event":"step","t":1,"seconds":1,"tokens":"NaN"}', "tokens: "),
        (b'{"event":"pause","t":1,"seconds":1,"reason":5}', "reason: "),
        (b'{"event":"pause","t":1,"seconds":1,"reason":"\\ud800"}', ""),
        (b'{"event":"alive","t":1} {"event":"alive","t":2}', ""),
        (json.dumps(start()).encode(), "second start"),
    ],
)
def test_a_line_that_cannot_be_used(tmp_path: Path, line: bytes, reason: str) -> None:
    path = write(tmp_path / "run", start(), alive(1, 2))
    head = path.read_bytes()
    path.write_bytes(head + line + b"\n" + json.dumps(alive(3)[0]).encode() + b"\n")
    run = read_run(tmp_path)
    (reject,) = run.rejects
    assert (reject.file, reject.line) == (path, 4)
    assert reason in reject.reason
    assert len(reject.text) <= 480
    assert run.events["t"].to_pylist() == [1.0, 2.0, 3.0]
    assert not run.remarks


def test_lines_beyond_one_block(tmp_path: Path) -> None:
    """Numbers of lines hold over blocks, and a line longer than a block is skipped."""
    path = write(tmp_path / "run", start(), alive(*range(1, 101)))
    good = path.read_bytes()
    path.write_bytes(good + b"x" * (9 << 20) + b"\n" + b"bad\n" + b'{"event":"alive","t":101}\n')
    run = read_run(tmp_path)
    assert run.events["t"].to_pylist() == list(range(1, 102))
    assert [reject.line for reject in run.rejects] == [102, 103]


def test_more_rejects_than_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "run", start(), alive(1))
    path.write_bytes(path.read_bytes() + b"bad\n" * 1007)
    run = read_run(tmp_path)
    assert len(run.rejects) == 1000
    assert any("7 further lines are set aside" in remark for remark in run.remarks)


def test_a_cut_last_line_is_a_remark(tmp_path: Path) -> None:
    path = write(tmp_path / "run", start(), alive(1, 2))
    path.write_bytes(path.read_bytes()[:-5])
    run = read_run(tmp_path)
    assert run.events["t"].to_pylist() == [1.0]
    assert not run.rejects
    (remark,) = run.remarks
    assert "last line is cut" in remark
    assert run.processes[0].last_t == 1.0


# --- Whole files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"event":"alive","t":1}\n', "event: "),
        (b"\x7fELF\x00\n\xff", "JSON"),
        (json.dumps(start(version=2)).encode() + b"\n", "version 2"),
        (json.dumps(start(rank=3)).encode() + b"\n", "not one of the ranks"),
        (json.dumps(start(node=None)).encode() + b"\n", "node: "),
        (json.dumps(start(labels={"a": 1})).encode() + b"\n", "labels"),
        (json.dumps(start(run_id="other")).encode() + b"\n", "it is of run other"),
        (b"x" * (1 << 21), "longer than"),
    ],
)
def test_a_file_that_is_set_aside(tmp_path: Path, content: bytes, reason: str) -> None:
    write(tmp_path / "run", start(), alive(1))
    bad = tmp_path / "run" / "rank-00000-1-1.jsonl"
    bad.write_bytes(content)
    run = read_run(tmp_path)
    (reject,) = run.rejects
    assert reject.file == bad
    assert reject.reason.startswith("the whole file is set aside: ")
    assert reason in reject.reason
    assert len(run.processes) == 1


@pytest.mark.parametrize("content", [b"", b'{"eve', b'{"event":"start","t":0.0,"vers'])
def test_a_process_that_died_at_its_first_line(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "run", start(), alive(1))
    (tmp_path / "run" / "rank-00000-1-1.jsonl").write_bytes(content)
    run = read_run(tmp_path)
    assert not run.rejects
    assert len(run.remarks) == 1
    assert "rank-00000-1-1.jsonl: " in run.remarks[0]


def test_nothing_usable(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank-00000-1-1.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match="no usable file in this run"):
        read_run(tmp_path)


# --- Which run -----------------------------------------------------------------------------------


def test_which_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, start(run_id=name), alive(1))
    with pytest.raises(InputError, match=r"(?s)several runs.*a, b"):
        read_run(tmp_path)
    assert read_run(tmp_path, "b").run_id == "b"
    assert read_run(tmp_path / "a").run_id == "a"
    assert read_run(tmp_path / "a", "a").run_id == "a"
    with pytest.raises(InputError, match=r"(?s)run c not found.*a, b"):
        read_run(tmp_path, "c")
    with pytest.raises(InputError, match="invalid run id"):
        read_run(tmp_path, "../a")
    with pytest.raises(InputError, match="no usable file in this run"):
        read_run(tmp_path / "a", "b")


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no events found"):
        read_run(tmp_path)
    with pytest.raises(InputError, match="folder of events not found"):
        read_run(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a folder of events"):
        read_run(tmp_path / "file")


def test_a_run_folder_under_another_name(tmp_path: Path) -> None:
    write(tmp_path / "copy", start(), alive(1))
    assert read_run(tmp_path / "copy").run_id == "run"
    write(tmp_path / "copy", start(run_id="else", pid=1), alive(1))
    with pytest.raises(InputError, match=r"(?s)several runs found.*else, run"):
        read_run(tmp_path / "copy")
    run = read_run(tmp_path / "copy", "run")
    assert len(run.processes) == len(run.rejects) == 1


def test_rows_follow_their_processes(tmp_path: Path) -> None:
    for rank in (2, 0, 1):
        write(
            tmp_path / "run",
            start(rank, 3, monotonic_s=100.0 - rank),
            [{"event": "step", "t": 1, "seconds": 1, "step": 10 + rank}],
        )
    run = read_run(tmp_path)
    assert [process.rank for process in run.processes] == [0, 1, 2]
    assert run.events["process"].to_pylist() == [0, 1, 2]
    assert steps(run) == [10, 11, 12]
    assert run.start_s == pytest.approx((2.0, 1.0, 0.0))
    assert run.origin_s == EPOCH + 98
