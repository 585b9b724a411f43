"""Following a run while it is written."""

from __future__ import annotations

import errno
import heapq
import math
from pathlib import Path

import pytest
from recordings import alive, start, write

from holdfast.errors import InputError
from holdfast.runs import RunRecorder
from holdfast.runs.recording.tailing import EventTail


def test_a_run_as_it_goes(tmp_path: Path) -> None:
    tail = EventTail(tmp_path)
    with pytest.raises(InputError):
        tail.poll()
    with RunRecorder(tmp_path, "run", heartbeat_s=1e6) as recorder:
        ((process, event),) = tail.poll()
        assert (event.event, process.run_id) == ("start", "run")
        assert tail.poll() == []
        with recorder.step(1) as step:
            step.loss = math.nan
        (_, ready), (same, stepped) = tail.poll()
        assert same is process
        assert (ready.event, stepped.step) == ("ready", 1)
        assert math.isnan(stepped.loss)
    assert [event.how for _, event in tail.poll()] == ["clean"]
    with RunRecorder(tmp_path, "run"):  # a restart
        assert tail.poll()[0][1].event == "start"


def test_half_a_line_waits(tmp_path: Path) -> None:
    path = write(tmp_path / "run", start(), alive(1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    tail = EventTail(tmp_path)
    assert [event.event for _, event in tail.poll()] == ["start"]
    path.write_bytes(whole)
    assert [event.event for _, event in tail.poll()] == ["alive"]


def test_history_in_small_pieces(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / "run", start(rank, 2), alive(*range(rank, 3000, 2)))
    tail = EventTail(tmp_path)
    merged = heapq.merge(*tail.history(), key=lambda happening: happening[1].t)
    times = [(process.rank, event.t) for process, event in merged if event.event == "alive"]
    assert times == [(t % 2, t) for t in range(3000)]
    assert tail.poll() == []
    assert tail.history()[0] is not None


def test_history_is_not_given_again(tmp_path: Path) -> None:
    path = write(tmp_path / "run", start(), alive(1))
    tail = EventTail(tmp_path)
    (history,) = tail.history()
    with path.open("ab") as file:
        file.write(b'{"event":"alive","t":2}\n{"eve')
    assert [event.t for _, event in history] == [0, 1, 2]
    assert tail.poll() == []
    with path.open("ab") as file:
        file.write(b'nt":"alive","t":3}\n')
    assert [event.t for _, event in tail.poll()] == [3]


def test_files_that_cannot_be_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "run", start(), alive(1))

    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    tail = EventTail(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", stale)
        assert tail.poll() == []
        assert tail.unreadable == {path: "Stale file handle"}
    assert len(tail.poll()) == 2
    assert not tail.unreadable


def test_what_cannot_be_used(tmp_path: Path) -> None:
    path = write(tmp_path / "run", start(), alive(1))
    with path.open("ab") as file:
        file.write(b"bad\n" + b'{"event":"alive","t":2}\n')
    (tmp_path / "run" / "rank-00001-1-1.jsonl").write_bytes(b"garbage\nmore\n")
    (tmp_path / "run" / "rank-00002-1-1.jsonl").write_bytes(b"x" * 1_100_000 + b"\n")
    tail = EventTail(tmp_path)
    assert [event.event for _, event in tail.poll()] == ["start", "alive", "alive"]
    assert tail.poll() == []
    assert [(reject.file.name[:10], reject.line) for reject in tail.rejects] == [
        ("rank-00000", 3),
        ("rank-00001", 1),
        ("rank-00002", 1),
    ]
