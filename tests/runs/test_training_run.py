"""The worked example: a real training that is killed twice, hangs once and has a slow rank.

Everything the commands say about it is held against a stopwatch that knows nothing of the recorder
(`timed_training.py`, `stopwatch.py`) and against the faults that were planned.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import stopwatch

from holdfast.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "training-run"
KILLED = {3: 85, 0: 165}
HUNG_RANK, SLOW_RANK = 1, 2


@cache  # several checks read one answer
def holdfast(*arguments: str | Path) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "--json"])
    assert ended.value.code == 0
    return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run made now."""
    folder = tmp_path_factory.mktemp("training") / "out"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TRAIN": str(REPOSITORY / "tests" / "runs" / "timed_training.py"),
    }
    subprocess.run([EXAMPLE / "run.sh", folder], env=environment, check=True, timeout=600)
    return folder


@pytest.fixture
def recorded() -> Path:
    """The folder of the run that ships with the repository."""
    return EXAMPLE / "recorded"


def check_breakdown(folder: Path) -> None:
    told = holdfast("runs", "report", folder / "events")
    timed = stopwatch.parts(stopwatch.read(folder / "stopwatch"))
    assert told["attempts"] == 4
    assert math.isclose(sum(told["parts"].values()), told["wall_s"], rel_tol=1e-9)
    assert told["wall_s"] == pytest.approx(sum(timed.values()), rel=0.01)
    for name, seconds in told["parts"].items():
        assert seconds == pytest.approx(timed.get(name, 0.0), abs=0.02 * told["wall_s"]), name
    assert told["parts"]["idle"] > 3  # the hang
    assert told["ettr"] == pytest.approx(timed["productive"] / sum(timed.values()), abs=0.02)


def check_replays(folder: Path) -> None:
    told = holdfast("runs", "report", folder / "events")["replayed_steps"]
    # A killed rank completes the step before; the checkpoint before is of a multiple of 50.
    lost = [(step - 1) % 50 for step in (*KILLED.values(), 235)]
    assert told["count"] == sum(lost)
    assert [each["count"] for each in told["by_attempt"]] == lost


def check_hang(folder: Path) -> None:
    told = holdfast("runs", "hang", folder / "events")
    assert told["verdict"] == "missing_ranks"
    assert told["missing_ranks"] == [HUNG_RANK]
    assert told["unknown_ranks"] == []
    assert told["collective"].endswith("all_reduce")


def check_slow_rank(folder: Path) -> None:
    ranks = holdfast("runs", "stragglers", folder / "events")["ranks"]
    assert [each["rank"] for each in ranks if each["persistent"]] == [SLOW_RANK]
    assert max(ranks, key=lambda each: each["score"])["rank"] == SLOW_RANK
    assert max(ranks, key=lambda each: each["cost_gpu_hours"])["rank"] == SLOW_RANK


CHECKS = [check_breakdown, check_replays, check_hang, check_slow_rank]


@pytest.mark.full
@pytest.mark.parametrize("check", CHECKS)
def test_live(check: Any, live: Path) -> None:
    check(live)


@pytest.mark.quick(2)
@pytest.mark.parametrize("check", CHECKS)
def test_recorded(check: Any, recorded: Path) -> None:
    check(recorded)


@pytest.mark.full
def test_the_watcher_ended_the_hang_once(live: Path) -> None:
    alarms = (live / "alarms.txt").read_text()
    assert alarms.count("hang") >= 1
    assert not [line for line in alarms.splitlines() if "failed" in line]


@pytest.mark.full
def test_the_report_is_a_page(live: Path, tmp_path: Path) -> None:
    holdfast("runs", "report", live / "events", "--html", tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    for part in ("replayed", f"rank {HUNG_RANK}", f"rank {SLOW_RANK}"):
        assert part in text.lower()


def test_the_example_is_what_was_recorded(recorded: Path, tmp_path: Path) -> None:
    """A folder that moved says the same: nothing in it depends on where it lies."""
    shutil.copytree(recorded, tmp_path / "elsewhere")
    here, there = (
        holdfast("runs", "report", folder / "events")
        for folder in (recorded, tmp_path / "elsewhere")
    )
    assert here["parts"] == there["parts"]
