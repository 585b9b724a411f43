"""The recorder's benchmark on a small scale: it runs, and says what the page needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import render
import runs_recorder


@pytest.mark.full
def test_small(tmp_path: Path) -> None:
    sizes = {
        "repeats": 1,
        "steps": 300,
        "work-steps": 3,
        "killed-after": 40,
        "ranks": 2,
        "steps-per-rank": 50,
        "work": tmp_path,
        "result": tmp_path / "result.json",
    }
    runs_recorder.main(
        [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    )
    result = json.loads((tmp_path / "result.json").read_text())
    assert {row["peer"] for row in result["comparisons"]} == {"logging"}
    lost = [row for row in result["limits"] if row["what"] == "steps lost to kill -9, holdfast"]
    assert [row["value"] for row in lost] == [0]
    assert "reading 200 events" in [row["what"] for row in result["limits"]]
    assert "Recorder of a training" in render._section(result)
