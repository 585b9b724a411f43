"""The user's command: what it is told, what it cannot do, how it is ended."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from holdfast.runs.watching.actions import Actions
from holdfast.runs.watching.alarms import Alarm
from holdfast.runs.watching.watcher import SystemClock


def alarm(ranks: tuple[int, ...] = (0, 1, 2, 7), sentence: str = "it hangs") -> Alarm:
    return Alarm("hang-1", "hang", "critical", 0, 12.5, ranks, sentence, {"limit_s": 120.0})


def run(command: str, told: list[str], given: Alarm, timeout_s: float = 60.0) -> None:
    actions = Actions(command, timeout_s, SystemClock(), told.append)
    actions.start(given, "my-run", Path("/runs/my-run"))
    actions.finish()


def test_the_command_finds_the_alarm(tmp_path: Path) -> None:
    told: list[str] = []
    out = tmp_path / "out"
    run(f"env | grep ^HOLDFAST_ > {out}; cat > {out}.json", told, alarm())
    found = dict(line.split("=", 1) for line in out.read_text().splitlines())
    assert found == {
        "HOLDFAST_ALARM": "hang",
        "HOLDFAST_ALARM_ID": "hang-1",
        "HOLDFAST_SEVERITY": "critical",
        "HOLDFAST_RUN_ID": "my-run",
        "HOLDFAST_RANKS": "0-2,7",
        "HOLDFAST_SENTENCE": "it hangs",
        "HOLDFAST_FOLDER": "/runs/my-run",
    }
    given = json.loads(Path(f"{out}.json").read_text())
    assert given["run_id"] == "my-run"
    assert given["ranks"] == [0, 1, 2, 7]
    assert given["evidence"] == {"limit_s": 120.0}
    assert told == ["hang-1: the command is done"]


def test_text_of_a_training_is_not_obeyed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    nasty = alarm(sentence=f"$(touch {mark}) `touch {mark}`; touch {mark}\n\0\x1b[1m")
    told: list[str] = []
    run(f'printf %s "$HOLDFAST_SENTENCE" > {tmp_path}/out', told, nasty)
    assert not mark.exists()
    assert (tmp_path / "out").read_text().startswith("$(touch ")
    assert told == ["hang-1: the command is done"]


def test_a_long_list_of_ranks_blocks_nothing() -> None:
    told: list[str] = []
    run("exit 0", told, alarm(tuple(range(0, 40_000, 2))[:8000]))
    assert told == ["hang-1: the command is done"]


def test_a_failure_is_told() -> None:
    told: list[str] = []
    run("exit 3", told, alarm())
    run("no-such-command-at-all 2>/dev/null", told, alarm())
    assert told == [
        "hang-1: the command failed: it ended with code 3",
        "hang-1: the command failed: it ended with code 127",
    ]


def test_a_command_that_takes_too_long_is_ended_with_its_children() -> None:
    told: list[str] = []
    begun = time.monotonic()
    run("sleep 600 & sleep 600", told, alarm(), timeout_s=0.1)
    assert time.monotonic() - begun < 60
    assert told == [
        "hang-1: the command is ended after 0.1 s",
        "hang-1: the command failed: it ended by signal 15",
    ]


def test_a_command_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runs.watching.actions.GRACE_S", 0.1)
    told: list[str] = []
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); time.sleep(600)"
    actions = Actions(f"exec {sys.executable} -c '{deaf}'", 1.0, SystemClock(), told.append)
    actions.start(alarm(), "my-run", Path("/runs"))
    actions.finish()
    assert told[0] == "hang-1: the command is ended after 1 s"
    assert told[-1].startswith("hang-1: the command failed: it ended by signal")
