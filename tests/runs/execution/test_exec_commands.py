"""What `runs exec` passes through, and what it judges from recordings alone."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from goodput.building import ORIGIN_S, Script, written

from holdfast.command import run as called
from holdfast.errors import InputError
from holdfast.runs.cli import app
from holdfast.runs.execution import injected
from holdfast.runs.execution.launching import SITE, execute
from holdfast.runs.execution.verdict import Executed, Past, judged

CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:21514"
OWN = "ValueError: the shard 17 has no samples (train.py:12)"


def end(tmp_path: Path, *scripts: Script, code: int = 1, past: tuple[Past, ...] = ()) -> Executed:
    """The verdict on a command that recorded these processes."""
    run = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    own = written(scripts, run) / "run"
    return judged(own, ("train",), code, ORIGIN_S, past)


def failed(rank: int = 0, node: str = "n0", **fields: object) -> Script:
    """A process of two that ended badly after 20 steps."""
    given: Mapping[str, object] = {"end": "exception", "end_detail": CLOSED, "last": 21.0, **fields}
    made = Script(rank=rank, world_size=2, node=node, **given)  # type: ignore[arg-type]
    return made.steps(1, 20, 0, 1.0)


def test_the_first_failure_restarts_and_its_repetition_stops(tmp_path: Path) -> None:
    raised = failed(1, "n1", end_detail=OWN).span("checkpoint", 20, 20.5, step=20)
    first = end(tmp_path, failed(), raised)
    assert (first.action, first.code, first.past.step) == ("restart", 1, 20)
    assert "step 20" in first.advice
    # Numbers change from time to time, such as that of a shard.
    raised.end_detail = OWN.replace("17", "3")
    again = end(tmp_path, failed(), raised, past=(first.past,))
    assert (again.action, again.past.failure) == ("stop", first.past.failure)
    assert "Attempt 1 failed in the same way" in again.sentence
    other = end(tmp_path, failed(), failed(1, end_detail="OSError: no space"), past=(first.past,))
    assert other.action == "restart"


def test_a_node_that_fails_twice_is_left_out(tmp_path: Path) -> None:
    killed = end(tmp_path, failed(), failed(1, "n1", end="none", last=20.0))
    assert (killed.action, killed.past.node) == ("restart", "n1")
    again = end(tmp_path, failed(), failed(1, "n1", end="none", last=20.0), past=(killed.past,))
    assert (again.action, "n1" in again.advice) == ("restart", True)
    moved = end(tmp_path, failed(), failed(1, "n2", end="none", last=20.0), past=(killed.past,))
    assert moved.action == "stop"


def test_an_error_of_the_program_stops_at_once(tmp_path: Path) -> None:
    wrong = end(tmp_path, failed(end_detail="ModuleNotFoundError: No module named 'x' (a.py:1)"))
    assert wrong.action == "stop"


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    clean = Script(end="clean").steps(1, 5, 0, 1.0)
    assert end(tmp_path, clean, code=0).action == "none"
    told = end(tmp_path, clean, code=3)
    assert (told.action, told.past.failure) == ("cannot tell", "exit code 3")
    # What an earlier command recorded is not the end of this one.
    old = judged(tmp_path / "0" / "run", ("train",), 3, ORIGIN_S + 3600, ())
    assert (old.ended, old.action) == (None, "cannot tell")


def test_a_loss_that_is_no_number_stops_a_run_that_ended_well(tmp_path: Path) -> None:
    lost = Script(rank=1, world_size=2, end="clean").steps(1, 5, 0, 1.0, loss="NaN")
    found = end(tmp_path, Script(world_size=2, end="clean").steps(1, 5, 0, 1.0), lost, code=0)
    assert (found.action, "rank 1 " in found.advice) == ("stop", True)


def test_exit_codes_signals_and_arguments_pass_through(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "import sys; print(sys.argv[1:]); sys.exit(7)"
    line = ["exec", "-o", str(tmp_path), "--", sys.executable, "-c", program, "--json", "-", "--"]
    assert called(app, line) == 7
    out, told = capfd.readouterr()
    assert out == "['--json', '-', '--']\n"
    assert "CANNOT TELL" in told
    shell = "trap 'exit 9' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"
    found = execute(["bash", "-c", shell], tmp_path)
    assert (found.code, found.signals) == (9, ("SIGUSR1",))
    assert execute(["bash", "-c", "kill -9 $$"], tmp_path).code == 128 + signal.SIGKILL
    past = [json.loads(each) for each in (tmp_path / "run/verdicts.jsonl").read_text().splitlines()]
    assert [each["exit_code"] for each in past] == [7, 9, 137]


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        execute([str(tmp_path / "nothing")], tmp_path)
    assert refused.value.code == "not-found"
    with pytest.raises(InputError):
        called(app, ["exec", "--"])


def test_the_environment_is_the_users_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('the own one runs')")
    monkeypatch.setenv("PYTHONPATH", str(own))
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "17")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    names = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "PYTHONPATH")
    here = f"{injected.__name__!r} in sys.modules"
    program = f"import os, sys; print([os.environ[name] for name in {names}], {here})"
    found = execute([sys.executable, "-c", program], tmp_path / "runs")
    said = f"the own one runs\n['17', '2000', '{SITE}{os.pathsep}{own}'] True\n"
    assert capfd.readouterr().out == said
    assert found.past.job == {"slurm_job": "4711"}


def test_who_is_a_launcher() -> None:
    launching = injected.is_launcher
    assert launching(["python", "/venv/bin/torchrun", "train.py"])
    assert launching(["python", "-m", "torch.distributed.run", "train.py"])
    assert not launching(["python", "-u", "train.py", "-m", "torch.distributed.run"])
    assert not launching(["python", "-c", "pass"])


def test_no_wait_is_for_ever(tmp_path: Path) -> None:
    """A command whose children hold its streams open ends with it."""
    begun = time.monotonic()
    execute(["bash", "-c", "sleep 30 & exit 0"], tmp_path)
    assert time.monotonic() - begun < 25
