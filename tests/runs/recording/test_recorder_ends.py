"""How a recorded process can end: killed, told to end, stuck, forked, forgotten. Real processes."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs import RunRecorder, read_run

LOOP = """
import os, sys
from holdfast.runs import RunRecorder
with RunRecorder(sys.argv[1], "run") as recorder:
    number = 0
    while True:
        number += 1
        with recorder.data_wait():
            pass
        with recorder.step(number, tokens=10) as step:
            step.loss = 1 / number
        os.write(1, b"%d\\n" % number)
"""

# A mutex locked twice by its holder: a wait in C that no signal's handler gets out of.
STUCK = """
import ctypes
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
os.write(1, b"stuck\\n")
libc.pthread_mutex_lock(mutex)
"""


def program(code: str, folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def run_to_end(body: str, folder: Path, signal_at: str | None = None) -> tuple[int, str]:
    """Exit status and stderr of a program; SIGTERM once it has printed a line."""
    code = f"import atexit, os, signal, sys\nfrom holdfast.runs import RunRecorder\n{body}"
    with program(code, folder) as process:
        assert process.stdout is not None
        if signal_at is not None:
            assert process.stdout.readline().decode().strip() == signal_at
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    return process.returncode, errors.decode()


def events(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("run/*.jsonl")
    written = [json.loads(line) for line in path.read_text().splitlines()]
    return [event for event in written if event["event"] != "alive"]


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_loses_at_most_the_step_in_progress(tmp_path: Path, seed: int) -> None:
    steps = random.Random(seed).randrange(1, 3000)
    with program(LOOP, tmp_path) as process:
        assert process.stdout is not None
        for _ in range(steps):
            process.stdout.readline()
        process.kill()
        seen = [int(line) for line in process.stdout.read().splitlines() if line]
    last_seen = max([steps, *seen])
    run = read_run(tmp_path)
    recorded = [step for step in run.events["step"].to_pylist() if step is not None]
    assert recorded == list(range(1, len(recorded) + 1))
    assert last_seen <= len(recorded) <= last_seen + 1
    assert run.processes[0].end == "none"
    assert not run.rejects


def test_every_restart_is_an_attempt(tmp_path: Path) -> None:
    for _ in range(3):
        with program(LOOP, tmp_path) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.kill()
    run = read_run(tmp_path)
    assert [process.attempt for process in run.processes] == [0, 1, 2]
    ends = [
        start + process.lived_s + process.last_t
        for start, process in zip(run.start_s, run.processes, strict=True)
    ]
    assert run.start_s[0] == 0
    assert all(end <= start + 1e-6 for end, start in zip(ends, run.start_s[1:], strict=False))


def test_told_to_end(tmp_path: Path) -> None:
    body = """
recorder = RunRecorder(sys.argv[1], "run")
os.write(1, b"running\\n")
while True:
    signal.pause()
"""
    status, _ = run_to_end(body, tmp_path, signal_at="running")
    assert status == -signal.SIGTERM
    assert [(event["event"], event.get("how")) for event in events(tmp_path)] == [
        ("start", None),
        ("end", "signal"),
    ]


def test_told_to_end_while_stuck_in_c(tmp_path: Path) -> None:
    body = f'recorder = RunRecorder(sys.argv[1], "run", heartbeat_s=1000)\n{STUCK}'
    status, _ = run_to_end(body, tmp_path, signal_at="stuck")
    assert status == -signal.SIGTERM
    assert events(tmp_path)[-1]["how"] == "signal"


def test_the_handler_of_the_program_is_called(tmp_path: Path) -> None:
    body = """
def leave(number, frame):
    with recorder.checkpoint(1):
        pass
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
with RunRecorder(sys.argv[1], "run") as recorder:
    os.write(1, b"running\\n")
    while True:
        signal.pause()
"""
    status, _ = run_to_end(body, tmp_path, signal_at="running")
    assert status == 7
    assert [event["event"] for event in events(tmp_path)] == ["start", "end", "begin", "checkpoint"]
    assert read_run(tmp_path).processes[0].end == "signal"


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with RunRecorder(sys.argv[1], "run") as recorder:
    os.kill(os.getpid(), signal.SIGTERM)
    recorder.ready()
"""
    assert run_to_end(body, tmp_path) == (0, "")
    assert [event["event"] for event in events(tmp_path)] == ["start", "ready", "end"]


def test_a_handler_set_later_decides(tmp_path: Path) -> None:
    body = """
with RunRecorder(sys.argv[1], "run") as recorder:
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.kill(os.getpid(), signal.SIGTERM)
    recorder._pulse.join(timeout=0)
    recorder.ready()
"""
    assert run_to_end(body, tmp_path) == (0, "")
    assert "ready" in [event["event"] for event in events(tmp_path)]


def test_asyncio_still_hears_its_signals(tmp_path: Path) -> None:
    body = """
import asyncio, threading
async def main():
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
    with RunRecorder(sys.argv[1], "run"):
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        await heard.wait()
    heard.clear()
    os.kill(os.getpid(), signal.SIGUSR1)
    await heard.wait()
asyncio.run(main())
"""
    assert run_to_end(body, tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("last", "status", "how"),
    [("", 0, "clean"), ("raise RuntimeError('x')", 1, "exception"), ("sys.exit(0)", 0, "clean")],
)
def test_a_forgotten_close(tmp_path: Path, last: str, status: int, how: str) -> None:
    body = f"recorder = RunRecorder(sys.argv[1], 'run')\nrecorder.ready()\n{last}\n"
    assert run_to_end(body, tmp_path)[0] == status
    assert events(tmp_path)[-1]["how"] == how


def test_a_forked_child_records_nothing_and_holds_nothing(tmp_path: Path) -> None:
    """Even one that outlives a killed parent, as the workers of a data loader may."""
    body = """
recorder = RunRecorder(sys.argv[1], "run")
child = os.fork()
if not child:
    recorder.ready()
    with recorder.step(1):
        pass
    recorder.close()
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
signal.pause()
"""
    code = f"import os, signal, sys\nfrom holdfast.runs import RunRecorder\n{body}"
    with program(code, tmp_path) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            assert [event["event"] for event in events(tmp_path)] == ["start"]
            RunRecorder(tmp_path, "run").close()
        finally:
            os.kill(child, signal.SIGTERM)


def test_a_child_told_to_end_does_not_end_its_parent(tmp_path: Path) -> None:
    body = """
with RunRecorder(sys.argv[1], "run") as recorder:
    child = os.fork()
    if not child:
        while True:
            signal.pause()
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    recorder.ready()
"""
    assert run_to_end(body, tmp_path) == (0, "")
    assert [event["event"] for event in events(tmp_path)] == ["start", "ready", "end"]


def test_handlers_and_descriptors_are_given_back(tmp_path: Path) -> None:
    gc.collect()
    before = signal.getsignal(signal.SIGTERM), set(Path("/proc/self/fd").iterdir())
    RunRecorder(tmp_path, "run").close()
    assert signal.getsignal(signal.SIGTERM) == before[0]
    # What other tests left open may be closed meanwhile.
    assert set(Path("/proc/self/fd").iterdir()) <= before[1]
    assert signal.set_wakeup_fd(-1) == -1
