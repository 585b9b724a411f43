"""`holdfast runs watch` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from watched_events import Files, Story

from holdfast.cli import main
from holdfast.errors import InputError
from holdfast.runs.watching.saved_alarms import only_actor

DEADLINE_S = 120.0
"""Generous: a test that waits for it has failed."""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "watch", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run that hung for a while, and ended well."""
    story = Story().begin().steps(1, 60).alive(300).steps(61, 90).say("end", how="clean")
    Files(tmp_path).write(story)
    return tmp_path


def test_a_replay_tells_people_what_would_have_been_told(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, str(recorded), "--replay")
    assert (code, err) == (0, "")
    opened, closed, status = out.splitlines()
    assert " UTC  hang-1 opened critical: ranks 0 and 1 of 2: alive but no progress for " in opened
    assert closed.endswith("hang-1 closed: over after 3 min")
    assert status == (
        "run toy is over at step 90 after 6 min 30 s in 1 attempt; 1 alarm raised, no alarm is open"
    )


def test_a_replay_as_json(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(recorded), "--replay", "--json")
    assert code == 0
    opened, closed, status = map(json.loads, out.splitlines())
    assert list(opened) == [
        "event",
        "time",
        "run_id",
        "id",
        "kind",
        "severity",
        "attempt",
        "opened_s",
        "ranks",
        "sentence",
        "evidence",
        "closed_s",
        "acted",
    ]
    assert list(closed) == list(opened)
    assert (opened["event"], closed["event"], status["event"]) == ("opened", "closed", "status")
    assert opened["time"].endswith("+00:00")
    assert list(status) == [
        "event",
        "run_id",
        "state",
        "attempts",
        "step",
        "run_time_s",
        "alarms_opened",
        "open",
        "rejected_lines",
        "ending",
    ]


def test_thresholds_are_set(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, str(recorded), "--replay", "--set", "hang_s=10m")
    assert out.startswith("run toy is over")


def test_one_look_at_a_run_that_hangs_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Files(tmp_path).write(Story().begin().steps(1, 60).alive(300))
    code, out, err = run(capsys, str(tmp_path), "--once", "--on-alarm", "scontrol requeue 7")
    assert code == 1
    assert "hang-1 opened" in out
    assert "open: hang-1" in out
    assert "hang-1: would run: scontrol requeue 7" in err
    code, out, _ = run(capsys, str(tmp_path), "--once")
    assert code == 1
    assert out.startswith("hang-1 still open, critical: ranks 0 and 1 of 2: alive but no progress")
    code, out, _ = run(capsys, str(tmp_path), "--once", "--json", "-q")
    assert code == 1
    assert [alarm["id"] for alarm in json.loads(out)["open"]] == ["hang-1"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--act"], "--act has nothing to run"),
        (["--replay", "--once"], "a replay looks at what is over"),
        (["--replay", "--metrics", "0"], "a replay looks at what is over"),
        (["--set", "hang=3"], "unknown threshold 'hang'"),
        (["--set", "hang_s=soon"], "'soon' is not a valid value of hang_s"),
        (["--set", "hang_s"], "'' is not a valid value of hang_s"),
        (["--set", "crash_restarts=2.5"], "crash_restarts is a whole number"),
        (["--set", "score=0"], "score must be above zero"),
        (["--set", "score=nan"], "score must be above zero"),
        (["--set", "over_factor=9"], "over_factor must lie between"),
        (["--poll", "0"], "the time between two looks must be above zero"),
        (["--once", "--run", "other"], "run other"),
        (["--once", "--metrics", "here"], "invalid metrics address"),
    ],
)
def test_what_cannot_be_is_refused(
    recorded: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    code, out, err = run(capsys, str(recorded), *arguments)
    assert (code, out) == (2, "")
    assert problem in err


def test_a_replay_needs_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, str(tmp_path / "none"), "--replay")
    assert code == 2
    assert "not found" in err
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "rank-00000-1-1.jsonl").write_text("")
    code, _, err = run(capsys, str(tmp_path), "--replay")
    assert code == 2
    assert "no usable event in these files" in err


# --- As a process ---------------------------------------------------------------------------------

RECORDING = """
import sys, threading
from holdfast.runs.recording.recorder import RunRecorder

folder, hangs_at = sys.argv[1], int(sys.argv[2])
halt = threading.Event()
with RunRecorder(folder, "live", rank=0, world_size=1, heartbeat_s=0.1) as recorder:
    recorder.ready()
    for number in range(1, 1_000_000):
        with recorder.step(number, tokens=10) as step:
            halt.wait(0.01)
            step.loss = 1.0
        if number == hangs_at:
            halt.wait()
"""


@contextmanager
def process(*arguments: str, output: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    with (output or Path(os.devnull)).open("w") as told:
        started = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=told,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def watching(folder: Path, *more: str) -> list[str]:
    quick = [
        "--poll",
        "0.1s",
        "--set",
        "hang_s=1",
        "--set",
        "hang_factor=3",
        "--set",
        "silence_s=2",
    ]
    start = "from holdfast.cli import main; main()"
    return ["-c", start, "runs", "watch", str(folder), "--json", *quick, *more]


def events(output: Path) -> list[dict[str, Any]]:
    """The whole lines that are there by now."""
    return [json.loads(line) for line in output.read_text().split("\n")[:-1]]


def at_the_hang(output: Path) -> list[dict[str, Any]]:
    """Alarms that open and close when the last step is done; a busy machine may bring others before."""
    return [
        event
        for event in events(output)
        if event["event"] in ("opened", "closed") and event["evidence"].get("last_step") == 50
    ]


def test_a_real_recorder_that_hangs_and_is_killed(tmp_path: Path) -> None:
    folder, log, output = tmp_path / "runs", tmp_path / "log", tmp_path / "told"
    command = f'echo "$HOLDFAST_ALARM $HOLDFAST_RANKS" >> {log}'
    with (
        process(*watching(folder, "--on-alarm", command, "--act"), output=output) as watcher,
        process("-c", RECORDING, str(folder), "50") as training,
    ):
        until(lambda: "hang" in [event["kind"] for event in at_the_hang(output)], "a hang")
        until(lambda: log.exists() and "hang 0\n" in log.read_text(), "acted on")
        training.send_signal(signal.SIGKILL)
        until(lambda: "silence" in [event["kind"] for event in at_the_hang(output)], "a silence")
        until(lambda: "silence 0\n" in log.read_text(), "acted on")
        watcher.send_signal(signal.SIGTERM)
        _, err = watcher.communicate(timeout=DEADLINE_S)
    told = at_the_hang(output)
    (hang, *_) = [event for event in told if event["kind"] == "hang"]
    (hang_over, *_) = [event for event in told if event["event"] == "closed"]
    (silence, *_) = [event for event in told if event["kind"] == "silence"]
    assert hang["event"] == silence["event"] == "opened"
    assert hang_over["id"] == hang["id"]
    assert hang_over["sentence"].endswith("its ranks are silent now")
    status = events(output)[-1]
    assert status["event"] == "status"
    assert [alarm["acted"] for alarm in status["open"]] == [True]
    assert watcher.returncode == 0, err


def test_of_two_actors_one_is_refused_and_other_errors_pass(tmp_path: Path) -> None:
    with only_actor(tmp_path / "watch.json"), pytest.raises(InputError) as raised:  # noqa: SIM117
        with only_actor(tmp_path / "watch.json"):
            pass
    assert raised.value.code == "conflict"
    with pytest.raises(BlockingIOError), only_actor(tmp_path / "watch.json"):
        raise BlockingIOError


def test_ctrl_c_ends_the_watching(tmp_path: Path) -> None:
    with process(*watching(tmp_path / "none")) as watcher:
        assert watcher.stderr is not None
        assert watcher.stderr.readline().startswith("waiting for events in ")
        watcher.send_signal(signal.SIGINT)
        _, err = watcher.communicate(timeout=DEADLINE_S)
    assert watcher.returncode == 130
    assert "Traceback" not in err
