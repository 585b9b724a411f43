"""`runs exec` around real trainings: what it says, what it leaves alone."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("exec_training.py")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port")
HOLDFAST = (sys.executable, "-c", "from holdfast.cli import main; main()", "runs", "exec")
VERDICTS = {
    "clean": ("none", "clean", False),
    "raise": ("restart", "exception", False),
    "start": ("restart", "exception", False),
    "kill": ("restart", "killed", False),
    "freeze": ("restart", "signal", True),
    "nan": ("stop", "clean", False),
}
"""Fault -> what to do the first time, and the recorded end."""


def run(
    folder: Path, *command: str | Path, options: tuple[str, ...] = (), **environment: str
) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of a command below `runs exec`."""
    done = subprocess.run(
        [*HOLDFAST, "--json", "-o", folder, *options, "--", *map(str, command)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    text = done.stdout[done.stdout.index('{\n  "command"') :]
    return done.returncode, json.loads(text)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.full
@pytest.mark.parametrize("fault", VERDICTS)
def test_two_ranks_of_torchrun(fault: str, tmp_path: Path) -> None:
    drawn = random.Random(fault)
    victim, at = drawn.randrange(2), drawn.randint(12, 25)
    program = (PROGRAM, fault, str(victim), str(at), tmp_path / "checkpoint")
    action, ended, hung = VERDICTS[fault]
    named = fault in ("raise", "start", "kill")
    for attempt in (1, 2):
        options = ("--stop-on-hang", "--hang-after", "4s")
        command = (sys.executable, *TORCHRUN, free_port(), *program)
        code, found = run(tmp_path, *command, options=options)
        assert (code != 0) == (fault not in ("clean", "nan"))
        assert found["code"] == code
        ending = found["ending"]
        assert (ending["attempt"], ending["ended"], ending["hung"]) == (attempt, ended, hung)
        assert ending["first_rank"] == (victim if named else None)
        # The same failure twice is no accident.
        repeated = attempt == 2 and action == "restart"
        assert found["action"] == ("stop" if repeated else action)
        if fault in ("raise", "start"):
            assert "exec_training.py:" in found["sentence"]
        if fault == "freeze":
            assert f"Rank {victim} is in __getitem__" in found["sentence"]
            assert f"Rank {victim} waits for its DataLoader" in found["sentence"]
        if fault == "nan" and attempt == 1:
            assert f"rank {victim} is NaN or infinite from step {at} on" in found["advice"]
        if fault in ("raise", "kill", "freeze") and attempt == 1:
            assert found["step"] == at - 1
            steps = max(0, at - 1) // 10 * 10
            assert (f"step {steps}." in found["advice"]) == (steps > 0)


@pytest.mark.full
def test_one_process_goes_on_where_its_checkpoint_was(tmp_path: Path) -> None:
    program = (sys.executable, PROGRAM, "raise", "0", "25", tmp_path / "checkpoint")
    code, found = run(tmp_path, *program)
    assert (code, found["action"], found["step"]) == (1, "restart", 24)
    line = PROGRAM.read_text().partition("the shard has no samples")[0].count("\n") + 1
    assert found["ending"]["sentence"].endswith(f"(exec_training.py:{line}).")
    code, found = run(tmp_path, sys.executable, PROGRAM, "clean", *program[3:])
    # Adam counts its steps: those after the checkpoint are done again, and not counted from 1.
    assert (code, found["action"], found["step"]) == (0, "none", 50)


@pytest.mark.full
def test_a_hang_of_one_process_that_a_person_ends(tmp_path: Path) -> None:
    command = [*HOLDFAST, "-o", tmp_path, "--"]
    program = (sys.executable, PROGRAM, "freeze", "0", "5", tmp_path / "checkpoint")
    running = subprocess.Popen([*command, *map(str, program)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(tmp_path.glob("run/rank-*.jsonl")):
        time.sleep(0.1)
    time.sleep(8)  # longer than a silence of which a record is kept
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert "Attempt 1 hung" in told
    assert "Rank 0 waits for its DataLoader" in told
