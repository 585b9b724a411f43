"""Trainings that fail now, on this machine: the diagnosis of what torchrun and torch write today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runs.diagnosis.diagnosing import diagnose

WAYS = {
    "exception": ("python_exception", 2),
    "killed": ("killed", 2),
    "segfault": ("segfault", 2),
    "no_space": ("no_space", 2),
    "memory_error": ("host_allocation", 2),
    "dataloader_exception": ("python_exception", 2),
    "gloo_timeout": ("gloo_timeout", None),
    "none": (None, None),
}


@pytest.mark.full
@pytest.mark.parametrize("ranked", [False, True], ids=["one_file", "file_a_rank"])
@pytest.mark.parametrize("how", WAYS)
def test_a_training_that_fails(how: str, ranked: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "3",
    ]
    if ranked:
        command += ["--log-dir", str(tmp_path / "ranks"), "--redirects", "3"]
    script = Path(__file__).parent / "failing_training.py"
    with (tmp_path / "launcher.log").open("wb") as output:
        subprocess.run(
            [*command, str(script), how],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            timeout=300,
            check=False,
        )
    cause, rank = WAYS[how]
    found = diagnose(tmp_path)
    assert found.cause == cause, found.sentence
    if rank is not None:
        assert found.first_rank == rank
