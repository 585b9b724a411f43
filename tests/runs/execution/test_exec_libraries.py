"""`runs exec` around trainings whose loops are those of transformers and Lightning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs import read_run

PROGRAM = Path(__file__).with_name("library_training.py")
HOLDFAST = (sys.executable, "-c", "from holdfast.cli import main; main()", "runs", "exec")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def train(folder: Path, *arguments: str | Path) -> None:
    """One attempt of the same run below `runs exec`."""
    launched = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"}
    kept = {name: value for name, value in os.environ.items() if name not in launched}
    command = [sys.executable, PROGRAM, *arguments]
    done = subprocess.run(
        [*HOLDFAST, "-o", folder / "recorded", "--", *map(str, command)],
        env=kept | OFFLINE,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_a_library_that_trains_and_its_resumption(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    train(tmp_path, library, tmp_path)
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-3*")
    train(tmp_path, library, tmp_path, checkpoint)
    run = read_run(tmp_path / "recorded")
    assert [process.end for process in run.processes] == ["clean", "clean"]

    def numbers(event: str, attempt: int) -> list[Any]:
        rows = run.events.to_pylist()
        found = (each for each in rows if (each["event"], each["process"]) == (event, attempt))
        return [each["step"] for each in found]

    assert [numbers("step", attempt) for attempt in (0, 1)] == [[1, 2, 3, 4, 5, 6], [4, 5, 6]]
    # A checkpoint is several files where the optimizer and the weights are saved apart.
    assert [set(numbers("checkpoint", attempt)) for attempt in (0, 1)] == [{3, 6}, {6}]
    assert len(numbers("data_wait", 0)) >= 12  # two batches a step
