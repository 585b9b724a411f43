"""Runs that are killed: nothing that was committed is lost, and little is sent again."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import MODEL, ChatServer, chat_server
from safety_world import problem, write_spec

from holdfast.files import Lock
from holdfast.lm import safety

COUNT, WORKERS = 200, 8
COMMAND = (sys.executable, "-c", "from holdfast.cli import main; main()", "lm", "safety")


def killed_at(server: ChatServer, command: list[str], requests: int) -> int:
    """Run a command, kill it when the server has so many requests, and give its exit code."""
    process = subprocess.Popen(
        [*COMMAND, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def fault(number: int, prompt: str) -> None:
        if number == requests:
            os.kill(process.pid, signal.SIGKILL)

    server.fault = fault
    return process.wait(60)


def responses(run: Path) -> dict[int, str]:
    if not (run / "journal.sqlite").exists():
        return {}
    connection = sqlite3.connect(run / "journal.sqlite")
    rows = dict(connection.execute("SELECT place, text FROM response"))
    connection.close()
    return rows


def kill_and_resume(folder: Path, moments: list[int]) -> None:
    """Kill a run at each of some moments (requests of its session), then let it end."""
    prompts = [{"id": str(n), "hazard": "vcr", "prompt": f"prompt {n}"} for n in range(COUNT)]
    spec, run = write_spec(folder, prompts), folder / "run"
    with chat_server() as server:
        server.reply = lambda messages: f"answer to {messages[-1]['content']}"
        name = f"openai:{server.url}#{MODEL}?concurrency={WORKERS}"
        command = ["run", str(spec), "--system", name, "-o", str(run)]
        before: dict[int, str] = {}
        for kills, moment in enumerate(moments, 1):
            server.bodies.clear()
            assert killed_at(server, command, moment) == -signal.SIGKILL
            after = responses(run)
            assert before.items() <= after.items()  # no committed row is lost
            # What was answered and is not in the journal was with a worker.
            assert sum(server.answered.values()) - len(after) <= WORKERS * kills
            command, before = ["resume", str(run)], after
        server.fault = lambda number, prompt: None
        summary = safety.resume(run)
    assert (summary.answered, summary.lost) == (COUNT, 0)
    assert responses(run) == {n: f"answer to prompt {n}" for n in range(COUNT)}
    assert before.items() <= responses(run).items()
    again = sum(server.answered.values()) - COUNT
    assert 0 <= again <= WORKERS * len(moments)


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, [91])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_is_killed_at_twenty_random_moments(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed).randint
    kill_and_resume(tmp_path, [draw(1, 38) for _ in range(5)])


def test_a_run_has_one_writer_at_a_time(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, [{"hazard": "vcr", "prompt": "a"}])
    safety.run(spec, "python:json:dumps", tmp_path / "run")
    with Lock(tmp_path / "run"), pytest.raises(Exception, match="lock") as caught:
        safety.resume(tmp_path / "run")
    assert caught.value.code == "conflict"
    again = problem(lambda: safety.run(spec, "python:json:dumps", tmp_path / "run"))
    assert again[0] == "output-exists"


def test_a_complete_run_needs_its_system_no_more(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, [{"hazard": "vcr", "prompt": "a"}])
    with chat_server() as server:
        safety.run(spec, f"openai:{server.url}#{MODEL}", tmp_path / "run")
    summary = safety.resume(tmp_path / "run")
    assert (summary.answered, summary.sent) == (1, {})


def test_a_run_that_was_killed_while_it_was_created_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    sqlite3.connect(tmp_path / "run/journal.sqlite").close()
    (tmp_path / "run/journal.sqlite").touch()
    assert problem(lambda: safety.resume(tmp_path / "run"))[0] == "no-data"
    spec = write_spec(tmp_path, [{"hazard": "vcr", "prompt": "a"}])
    assert safety.run(spec, "python:json:dumps", tmp_path / "run").answered == 1
