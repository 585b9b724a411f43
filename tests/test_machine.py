"""No test depends on what the machine has installed or on where it runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


@pytest.mark.parametrize("program", ["sacct", "scontrol", "sinfo", "nvidia-smi", "kubectl"])
def test_programs_of_a_cluster_fail(program: str) -> None:
    assert subprocess.run([program], capture_output=True, check=False).returncode == 97


def test_variables_of_a_job_are_gone() -> None:
    assert not [name for name in os.environ if name.startswith("SLURM_") or name == "RANK"]


def test_no_test_falls_back_on_the_machine() -> None:
    path = re.compile(r"""["']PATH["']\s*[,:\]]\s*=?\s*f?["'](?:/usr|/bin|/opt)""")
    found = [each.name for each in TESTS.rglob("*.py") if path.search(each.read_text())]
    assert found == []
