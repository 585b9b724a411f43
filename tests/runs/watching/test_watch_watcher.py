"""The watcher over real files, with a clock that passes only when it waits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from watched_events import Files, Story

from holdfast.errors import InputError
from holdfast.runs.watching.notices import Notice, RunStatus
from holdfast.runs.watching.thresholds import DEFAULTS, Thresholds
from holdfast.runs.watching.watcher import replay, watch


@pytest.fixture(autouse=True)
def patience_with_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a play does not leave a command behind on a busy machine: commands run by real time."""
    monkeypatch.setattr("holdfast.runs.watching.actions.GRACE_S", 120.0)


@dataclass
class Play:
    """Time for the watcher, in which a story is written into files; it ends the watching at `end`."""

    end: float
    story: Story | None = None
    files: Files | None = None
    time: float = 0.0
    told: list[Notice] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    on_wait: Callable[[float], None] = lambda time: None

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return 1_790_000_000.0 + self.time

    def wait(self, seconds: float) -> bool:
        self.time += seconds
        self.on_wait(self.time)
        if self.story is not None and self.files is not None:
            self.files.write(self.story, self.time)
        return self.time >= self.end

    def watch(self, folder: Path, **options: Any) -> RunStatus:
        return watch(
            folder, clock=self, on_notice=self.told.append, remark=self.remarks.append, **options
        )

    @property
    def kinds(self) -> list[str]:
        signs = {"opened": "+", "closed": "-"}
        return [signs[one.change.event] + one.change.alarm.kind for one in self.told]


def test_a_hang_is_told_while_it_lasts_and_the_watching_ends_with_the_run(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 60).alive(300).steps(61, 90).say("end", how="clean")
    play = Play(10_000, story, Files(tmp_path))
    result = play.watch(tmp_path)
    assert play.kinds == ["+hang", "-hang"]
    assert result.state == "over"
    assert (result.step, result.attempts, result.opened, result.open) == (90, 1, 1, ())
    assert play.time < story.now + 10
    assert play.remarks[0] == f"waiting for events in {tmp_path}"
    assert "the run is over" in play.remarks[-1]
    assert 120 < play.told[0].change.alarm.opened_s - 60 <= 130


def test_a_run_that_is_continued_later_is_kept(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 20).say("end", how="clean").again(after=400).steps(21, 60)
    play = Play(1000, story, Files(tmp_path))
    result = play.watch(tmp_path, keep=True)
    assert (result.attempts, result.step) == (2, 60)
    assert play.kinds == ["+silence"]


def test_wrong_clocks_of_hosts_are_no_alarm(tmp_path: Path) -> None:
    """Rank 1's wall clock is an hour late; its lines arrive as they are written."""
    story = Story().begin().steps(1, 200).say("end", how="clean")
    late = [
        (at, who if who.rank == 0 else _late(who, 3600.0), event, opened)
        for at, who, event, opened in story.events
    ]
    story.events = late
    play = Play(1000, story, Files(tmp_path))
    assert play.watch(tmp_path).state == "over"
    assert play.told == []
    # ... nor where the watching begins in the middle
    files = Files(tmp_path / "later")
    files.write(story, 100)
    play = Play(1000, story, files, time=100.0)
    assert play.watch(tmp_path / "later").state == "over"
    assert play.told == []


def _late(who: Any, seconds: float) -> Any:
    from dataclasses import replace

    return replace(who, opened_s=who.opened_s - seconds)


def test_a_history_raises_only_what_is_still_wrong(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 60).alive(300).steps(61, 90)  # a hang that is over
    story.say("step", step=91, seconds=1.0, loss=float(2))
    story.alive(200)
    files = Files(tmp_path)
    files.write(story, story.now)
    play = Play(0)
    result = play.watch(tmp_path, once=True)
    assert play.kinds == ["+hang"]
    assert result.open[0].evidence["last_step"] == 91


def test_the_age_of_a_file_is_the_age_of_its_silence(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 60)
    files = Files(tmp_path)
    files.write(story, story.now)
    play = Play(0)
    assert play.watch(tmp_path, once=True).open == ()
    (path,) = files.own.glob("rank-00001-*.jsonl")
    stamp = path.stat().st_mtime - 100
    os.utime(path, (stamp, stamp))
    (open_,) = play.watch(tmp_path, once=True).open
    assert (open_.kind, open_.ranks) == ("silence", (1,))
    looked_at = (files.own / "watch.json").stat().st_mtime
    assert 99.9 <= open_.evidence["silent_s"] <= looked_at - stamp + 0.1


def test_an_alarm_is_acted_on_once_over_restarts_of_the_watcher(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 60).alive(900)
    files, log = Files(tmp_path / "runs"), tmp_path / "log"
    act = {"command": f'echo "$HOLDFAST_ALARM_ID" >> {log}', "act": True, "poll_s": 5.0}
    Play(300, story, files).watch(tmp_path / "runs", **act)
    assert log.read_text() == "hang-1\n"
    saved = json.loads((files.own / "watch.json").read_text())
    assert [alarm["acted"] for alarm in saved["open"]] == [True]
    again = Play(400, story, files, time=300.0)
    result = again.watch(tmp_path / "runs", **act)
    assert again.told == []
    assert [alarm.id for alarm in result.open] == ["hang-1"]
    assert log.read_text() == "hang-1\n"
    # over, and a second one
    story.steps(61, 80).alive(400)
    last = Play(story.now, story, files, time=400.0)
    last.watch(tmp_path / "runs", **act)
    assert [told.change.alarm.id for told in last.told] == ["hang-1", "hang-2"]
    assert log.read_text() == "hang-1\nhang-2\n"


def test_what_was_only_observed_is_acted_on_when_acting_begins(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 60).alive(900)
    files, log = Files(tmp_path / "runs"), tmp_path / "log"
    command = f"echo ran >> {log}"
    observing = Play(300, story, files)
    observing.watch(tmp_path / "runs", command=command)
    assert observing.remarks[-1] == f"hang-1: would run: {command}"
    assert not log.exists()
    acting = Play(320, story, files, time=300.0)
    acting.watch(tmp_path / "runs", command=command, act=True)
    assert log.read_text() == "ran\n"


def test_two_watchers_do_not_act_on_one_run(tmp_path: Path) -> None:
    from holdfast.runs.watching.saved_alarms import only_actor

    story = Story().begin().steps(1, 5)
    files = Files(tmp_path)
    files.write(story)
    with (
        only_actor(files.own / "watch.json"),
        pytest.raises(InputError, match="another watcher acts"),
    ):
        Play(0).watch(tmp_path, once=True, command="true", act=True)
    Play(0).watch(tmp_path, once=True, command="true", act=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "[]",
        '{"version": 9}',
        '{"version": 1, "run_id": "other", "open": [], "counts": {}}',
        '{"version": 1, "run_id": "toy", "open": [{"kind": "flood"}], "counts": {}}',
        '{"version": 1, "run_id": "toy", "open": [], "counts": {"hang": "x"}}',
        "\udcff",
    ],
)
def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    files = Files(tmp_path)
    files.write(Story().begin().steps(1, 5))
    state = tmp_path / "state.json"
    state.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = state.read_bytes()
    with pytest.raises(InputError, match="does not hold the alarms of this run"):
        Play(0).watch(tmp_path, once=True, state=state)
    assert state.read_bytes() == before


def test_a_state_file_of_ones_own_leaves_the_run_alone(tmp_path: Path) -> None:
    files = Files(tmp_path / "runs")
    files.write(Story().begin().steps(1, 5))
    Play(0).watch(tmp_path / "runs", once=True, state=tmp_path / "state.json")
    assert (tmp_path / "state.json").exists()
    assert not (files.own / "watch.json").exists()
    with pytest.raises(InputError, match="cannot be written"):
        Play(0).watch(tmp_path / "runs", once=True, state=tmp_path / "no" / "state.json")


def test_several_runs_and_none_chosen(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Files(tmp_path, name).write(Story().begin().steps(1, 5).say("end", how="clean"))
    with pytest.raises(InputError, match="several runs") as caught:
        Play(1000).watch(tmp_path)
    assert caught.value.found == "a, b"
    assert Play(1000).watch(tmp_path, run_id="b").run_id == "b"
    with pytest.raises(InputError):
        Play(1000).watch(tmp_path, run_id="../a")


def test_a_run_is_waited_for_unless_it_is_looked_at_once(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    play = Play(20)
    assert play.watch(missing, run_id="x").state == "waiting"
    assert play.remarks == [f"waiting for events of run x in {missing}"]
    with pytest.raises(InputError, match="folder of events not found"):
        Play(20).watch(missing, once=True)


def test_half_lines_wait_and_bad_ones_are_told(tmp_path: Path) -> None:
    story = Story(ranks=1).begin().steps(1, 20)
    files = Files(tmp_path)
    files.write(story)
    path = files.path(story.events[0][1])
    with path.open("a") as file:
        file.write('garbage\n{"event": "step", "t": 21.0, "step": 21, "sec')

    def finish(time: float) -> None:
        if time == 10.0:
            with path.open("a") as file:
                file.write('onds": 1.0}\n{"event": "end", "t": 22.0, "how": "clean"}\n')

    play = Play(100, on_wait=finish)
    result = play.watch(tmp_path)
    assert (result.state, result.step, result.rejected_lines) == ("over", 21, 1)
    assert any("set aside" in line and "line 23" in line for line in play.remarks)


def test_a_folder_that_vanishes_for_a_while_is_no_silence(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 400).say("end", how="clean")
    files, away = Files(tmp_path / "runs"), tmp_path / "away"
    play = Play(1000, story, files)

    def unmount(time: float) -> None:
        if time == 100:
            files.own.rename(away)
            play.story = None
        if time == 300:
            away.rename(files.own)
        if time == 305:  # one look later, something new is in it
            play.story = story

    play.on_wait = unmount
    assert play.watch(tmp_path / "runs").state == "over"
    assert play.told == []
    assert any("looking again" in line for line in play.remarks)


def test_a_file_that_cannot_be_read_for_a_while_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story().begin().steps(1, 300).say("end", how="clean")
    play = Play(1000, story, Files(tmp_path))
    really_open = Path.open

    def denied(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if mode == "rb" and path.name.startswith("rank-00001") and 100 <= play.time < 250:
            raise PermissionError(13, "Permission denied")
        return really_open(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", denied)
    assert play.watch(tmp_path).state == "over"
    assert play.told == []
    assert sum("cannot be read: Permission denied" in line for line in play.remarks) == 1


def test_a_watcher_that_was_stopped_itself_blames_nobody(tmp_path: Path) -> None:
    """It sleeps for ten minutes, during which the run went on."""
    story = Story().begin().steps(1, 1000).say("end", how="clean")
    play = Play(5000, story, Files(tmp_path))

    def sleep(time: float) -> None:
        if time == 100:
            play.time += 600

    play.on_wait = sleep
    assert play.watch(tmp_path).state == "over"
    assert play.told == []


def test_a_replay_tells_the_same_as_watching(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 60).alive(300).steps(61, 200).steps(201, 300, seconds=2.0)
    story.steps(301, 400).say("end", how="exception").again().steps(395, 500)
    story.say("end", how="clean")
    play = Play(10_000, story, Files(tmp_path))
    watched = play.watch(tmp_path)
    told: list[Notice] = []
    replayed = replay(tmp_path, on_notice=told.append)
    assert replayed.opened == watched.opened == 2
    for ours, theirs in zip(told, play.told, strict=True):
        assert ours.change.event == theirs.change.event
        assert ours.change.alarm.id == theirs.change.alarm.id
        assert ours.change.alarm.opened_s == pytest.approx(theirs.change.alarm.opened_s, abs=11)
    assert told[0].line().startswith("2026-")
    assert (
        " UTC  hang-1 opened critical: ranks 0 and 1 of 2: alive but no progress" in told[0].line()
    )


def test_a_step_of_the_wall_clock_moves_nothing_on_one_machine() -> None:
    from dataclasses import replace

    from holdfast.runs.watching.run_clock import RunClock
    from simulated_training import process

    first = replace(process(), boot_id="b", monotonic_s=500.0, lived_s=2.0)
    clock = RunClock()
    assert clock.opened_at(first) == 2.0
    later = replace(first, monotonic_s=600.0, opened_s=first.opened_s - 3600)
    assert clock.opened_at(later) == 102.0
    elsewhere = replace(first, boot_id="c", opened_s=first.opened_s + 30)
    assert clock.opened_at(elsewhere) == 32.0
    nobody = replace(first, boot_id="", opened_s=first.opened_s + 40)
    assert clock.opened_at(nobody) == 42.0


def test_what_a_training_wrote_cannot_command_a_terminal(tmp_path: Path) -> None:
    story = Story().begin().steps(1, 20).say("end", how="exception", detail="\x1b[2J\nfake line")
    files = Files(tmp_path)
    files.write(story)
    told: list[Notice] = []
    replay(tmp_path, limits=Thresholds(down_s=1e-9), on_notice=told.append)
    play = Play(400)
    play.watch(tmp_path, limits=DEFAULTS)
    (down,) = play.told
    assert down.change.alarm.kind == "down"
    assert "\x1b" not in down.line()
    assert "\n" not in down.line()
    assert "?[2J?fake line" in down.line()
