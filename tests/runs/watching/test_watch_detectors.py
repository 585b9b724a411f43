"""Each kind of alarm: what raises it, what does not, when it is over."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from watched_events import Files, Story

from holdfast.runs import replay
from holdfast.runs.recording.lines import Event
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.thresholds import DEFAULTS, Thresholds


def test_a_run_that_trains_and_ends_raises_nothing() -> None:
    story = Story().begin().steps(1, 300).say("end", how="clean")
    assert story.kinds(until=story.now + 7200) == []


# --- Silence --------------------------------------------------------------------------------------


def test_a_killed_rank_is_silent_and_the_others_do_not_hang_beside_it() -> None:
    story = Story(ranks=3).begin().steps(1, 50)
    story.lost.add(1)
    story.alive(600)
    (silence,) = story.told()
    assert silence.alarm.kind == "silence"
    assert silence.alarm.ranks == (1,)
    assert 60 < silence.alarm.opened_s - 50 <= 66
    assert "rank 1 of 3" in silence.sentence
    assert silence.alarm.evidence["last_step"] == 50


def test_a_silence_is_over_when_the_next_attempt_begins() -> None:
    story = Story().begin().steps(1, 50)
    story.again(after=200).steps(51, 60)
    changes = story.told()
    assert [change.event for change in changes] == ["opened", "closed"]
    assert changes[0].alarm.ranks == (0, 1)
    assert changes[1].sentence.endswith("attempt 2 began")


def test_a_rank_that_ended_is_not_silent() -> None:
    story = Story(ranks=2).begin().steps(1, 20).say("end", rank=0, how="clean")
    story.lost.add(0)
    story.steps(21, 200)
    assert story.kinds() == []


def test_heartbeats_break_no_silence_of_another_attempt() -> None:
    """A process of the old attempt that still writes keeps nothing alive in the new one."""
    story = Story(ranks=2).begin().steps(1, 20)
    old = story.events[-1]
    story.again().steps(21, 30)
    for second in range(300):
        at = story.now + second
        story.events.append((at, old[1], Event("alive", at), old[3]))
    assert story.kinds() == ["+silence"]


def test_a_process_of_an_attempt_that_is_over_trains_nothing() -> None:
    story = Story(ranks=2).begin().steps(1, 20)
    _, old, _, opened = story.events[-1]
    story.again().steps(21, 30)
    lookout = Lookout()
    zombie = Event("step", 70.0, step=500, seconds=1.0)
    for at, who, event, since in [*story.events, (story.now, old, zombie, opened)]:
        lookout.take(who, event, at, since)
    assert lookout.run.completed == 30
    assert lookout.run.ettr_seconds() == (30, 0)


# --- Hang -----------------------------------------------------------------------------------------


def test_heartbeats_without_progress_are_a_hang() -> None:
    story = Story(ranks=4).begin().steps(1, 100)
    story.now += 1
    for rank in (0, 1, 3):
        story.say("step", rank=rank, step=101, seconds=1.0)
    story.alive(400)
    (hang,) = story.told()
    assert hang.alarm.kind == "hang"
    assert hang.alarm.ranks == (0, 1, 2, 3)
    assert 120 < hang.alarm.opened_s - 100 <= 127
    assert hang.alarm.evidence["ranks_behind"] == [2]
    assert hang.alarm.evidence["last_step"] == 101
    assert "rank 2 behind" in hang.sentence


def test_a_hang_that_falls_silent_does_not_come_back() -> None:
    """Slow heartbeats: three of them are longer than what counts as silence."""
    story = Story().begin().steps(1, 60).alive(300, every=30)
    assert story.kinds(until=story.now + 300) == ["+hang", "-hang", "+silence"]


def test_a_rank_that_was_killed_does_not_hang_until_it_is_silent() -> None:
    """The others notice and fail; the limits are those of a test of a few minutes."""
    story = Story(ranks=4).begin()
    story.steps(1, 400, seconds=0.1)
    story.lost = {3}
    story.alive(2)
    for rank in range(3):
        story.say(
            "end", rank=rank, how="exception", detail="RuntimeError: Connection reset by peer"
        )
    limits = DEFAULTS.changed(["hang_s=8s", "silence_s=10s"])
    (silence,) = story.told(limits, until=story.now + 60)
    assert (silence.alarm.kind, silence.alarm.ranks) == ("silence", (3,))
    assert (
        "ranks 0-2 ended with exception (RuntimeError: Connection reset by peer)"
        in silence.sentence
    )
    assert silence.alarm.evidence["ranks_failed"] == [0, 1, 2]


def test_heartbeats_that_arrive_in_bursts_make_one_hang() -> None:
    story = Story().begin().steps(1, 100)
    steps = len(story.events)
    story.alive(600)
    story.events[steps:] = [  # seen at the next multiple of 40 s
        (40.0 * math.ceil(at / 40.0), who, event, opened)
        for at, who, event, opened in story.events[steps:]
    ]
    assert story.kinds() == ["+hang"]


def test_a_slow_heart_beats_too() -> None:
    story = Story().begin().steps(1, 100).alive(600, every=15.0)
    assert story.kinds() == ["+hang"]


def test_a_hang_is_over_with_the_next_step() -> None:
    story = Story().begin().steps(1, 100).alive(300).steps(101, 160)
    assert story.kinds() == ["+hang", "-hang"]


def test_slow_steps_hang_later() -> None:
    story = Story().begin().steps(1, 30, seconds=60.0)
    before = story.now
    story.alive(1200)
    (hang,) = story.told()
    assert 600 < hang.alarm.opened_s - before <= 606


@pytest.mark.parametrize("kind", ["checkpoint", "evaluation", "pause"])
def test_a_span_that_was_begun_has_a_limit_of_its_own(kind: str) -> None:
    story = Story().begin().steps(1, 50).within(kind, 1000)
    assert story.kinds() == [], "the first of its kind"
    story.steps(51, 100).within(kind, 4000).steps(101, 110)
    assert story.kinds() == [], "four times the earlier one"
    story = Story().begin()
    for round_ in range(3):
        story.steps(50 * round_ + 1, 50 * round_ + 50).within(kind, 20)
    before = story.now
    story.say("begin", what=kind).alive(400)
    (hang,) = story.told()
    assert hang.alarm.evidence["doing"] == [kind]
    assert 300 < hang.alarm.opened_s - before <= 306


def test_the_first_initialisation_may_be_long_and_a_later_one_is_held_against_it() -> None:
    story = Story().begin(ready=False).alive(1700).steps(1, 20)
    assert story.kinds() == []
    story = Story().begin(ready=False).alive(20).steps(1, 20).again(ready=False)
    before = story.now
    story.alive(400)
    (hang,) = story.told()
    assert hang.alarm.evidence["doing"] == ["initialisation"]
    assert 300 < hang.alarm.opened_s - before <= 306


def test_an_upload_in_the_background_is_no_progress() -> None:
    story = Story().begin().steps(1, 50)
    for _ in range(30):
        story.alive(10).say("published", step=50).say(
            "evaluation", seconds=1.0, thread="evaluator", step=50
        )
    assert story.kinds() == ["+hang"]


def test_the_others_hang_when_one_rank_has_failed() -> None:
    story = (
        Story(ranks=2).begin().steps(1, 50).say("end", rank=0, how="exception", detail="KeyError")
    )
    story.lost.add(0)
    story.alive(300)
    (hang,) = story.told()
    assert hang.alarm.ranks == (1,)
    assert "rank 0 ended before" in hang.sentence


# --- Missing, down --------------------------------------------------------------------------------


def test_a_rank_that_never_appears_is_missing_until_it_does() -> None:
    story = Story(ranks=4).begin(only={0, 1, 3}, ready=False).alive(400)
    story.lost.clear()
    story.say("start", rank=2).steps(1, 20)
    opened, closed = story.told()
    assert (opened.alarm.kind, opened.alarm.ranks) == ("missing", (2,))
    assert 300 < opened.alarm.opened_s <= 306
    assert closed.event == "closed"


def test_ranks_that_do_not_record_are_not_missing() -> None:
    story = Story(ranks=8).begin(only={0}).steps(1, 900)
    assert story.kinds() == []


def test_a_failed_run_that_nobody_starts_again_is_down() -> None:
    story = Story().begin().steps(1, 50).say("end", rank=1, how="exception", detail="ValueError: x")
    story.now += 1
    story.say("end", rank=0, how="signal", detail="SIGTERM")
    (down,) = story.told(until=story.now + 1000)
    assert down.alarm.kind == "down"
    assert 300 < down.alarm.opened_s - 51 <= 306
    assert (down.alarm.ranks, down.alarm.evidence["last_step"]) == ((0, 1), 50)
    story.again(after=400).steps(51, 60)
    assert story.kinds() == ["+down", "-down"]


# --- Crash loop -----------------------------------------------------------------------------------


def crashing(times: int, new_steps: int, lived: float = 60.0) -> Story:
    story = Story().begin().steps(1, 100).say("end", how="exception")
    for attempt in range(1, times + 1):
        first = 101 + (attempt - 1) * new_steps
        story.again().alive(lived)
        story.steps(first - 20, first - 1 + new_steps).say("end", how="exception")
    return story


def test_restarts_without_progress_are_a_crash_loop() -> None:
    story = crashing(4, 0)
    opened, *rest = [change for change in story.told() if change.alarm.kind == "crash_loop"]
    assert not rest
    assert opened.alarm.attempt == 3
    assert opened.alarm.evidence["restarts"] == 3
    assert opened.alarm.evidence["highest_step_before"] == 100
    assert opened.alarm.evidence["new_steps"] == 0


def test_two_restarts_or_progress_in_between_are_none() -> None:
    assert "+crash_loop" not in crashing(2, 0).kinds()
    assert "+crash_loop" not in crashing(8, 10).kinds()


def test_restarts_far_apart_are_none() -> None:
    assert "+crash_loop" not in crashing(4, 0, lived=4000.0).kinds()


def test_a_crash_loop_is_over_with_new_steps() -> None:
    story = crashing(4, 0)
    story.again().steps(101, 140)
    assert [kind for kind in story.kinds() if "crash" in kind] == ["+crash_loop", "-crash_loop"]


def test_a_run_that_never_reaches_a_step_crash_loops() -> None:
    story = Story().begin(ready=False)
    for _ in range(3):
        story.alive(5).say("end", how="exception").again(ready=False)
    story.alive(10)
    assert story.kinds() == ["+crash_loop"]


# --- Loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_of_one_rank(loss: float) -> None:
    story = Story(ranks=3).begin().steps(1, 50, loss=2.0)
    story.now += 1
    for rank in range(3):
        story.say("step", rank=rank, step=51, seconds=1.0, loss=loss if rank == 1 else 2.0)
    story.steps(52, 90, loss=2.0)
    opened, closed = story.told()
    assert opened.alarm.kind == closed.alarm.kind == "loss_not_finite"
    assert opened.alarm.evidence["first_step"] == 51
    assert 61 <= (closed.alarm.closed_s or 0) <= 67


def test_a_loss_that_is_no_number_before_a_crash_is_told() -> None:
    story = Story().begin().steps(1, 51, loss=2.0)
    story.steps(52, 52, loss=math.nan).say("end", how="exception").again(after=1).steps(
        50, 90, loss=2.0
    )
    assert story.kinds() == ["+loss_not_finite", "-loss_not_finite"]


def test_a_loss_that_rises_for_long_is_a_spike() -> None:
    story = Story().begin().steps(1, 100, loss=2.0, grad_norm=0.5)
    story.steps(101, 103, loss=9.0, grad_norm=50.0).steps(104, 200, loss=2.0, grad_norm=0.5)
    assert story.kinds() == []
    story.steps(201, 300, loss=5.0, grad_norm=math.inf)
    assert story.kinds() == ["+loss_spike"]


# --- Pace -----------------------------------------------------------------------------------------


def test_slow_steps_are_one_alarm() -> None:
    story = Story().begin().steps(1, 200, tokens=100).steps(201, 300, seconds=2.0, tokens=100)
    story.steps(301, 400, tokens=100)
    opened, closed = story.told()
    assert opened.alarm.kind == "slow_steps"
    assert opened.alarm.evidence["step_s"] == pytest.approx(2.0)
    assert opened.alarm.evidence["usual_step_s"] == pytest.approx(1.0)
    assert abs(opened.alarm.evidence["since_step"] - 201) <= 5
    assert closed.event == "closed"


def test_slow_steps_that_last_become_the_usual_and_are_no_plunge_then() -> None:
    story = Story().begin().steps(1, 200, tokens=100).steps(201, 1000, seconds=2.0, tokens=100)
    assert story.kinds(Thresholds(settle_s=600)) == ["+slow_steps", "-slow_steps"]


def test_more_work_excuses_longer_steps() -> None:
    story = Story().begin().steps(1, 200, tokens=100).steps(201, 400, seconds=2.0, tokens=200)
    assert story.kinds() == []


@pytest.mark.parametrize("unit", ["tokens", "samples"])
def test_less_work_in_the_same_time_is_a_plunge(unit: str) -> None:
    story = Story(ranks=4).begin().steps(1, 200, **{unit: 100}).steps(201, 400, **{unit: 50})
    (opened,) = story.told()
    assert opened.alarm.kind == "throughput"
    assert opened.alarm.evidence["unit"] == unit
    assert opened.alarm.evidence["per_s"] == pytest.approx(200)
    assert opened.alarm.evidence["usual_per_s"] == pytest.approx(400)


def waiting(story: Story, first: int, last: int, wait: float) -> Story:
    for step in range(first, last + 1):
        story.now += wait
        story.say("data_wait", seconds=wait)
        story.steps(step, step)
    return story


def test_a_slow_input_is_a_plunge_and_no_slow_step() -> None:
    story = waiting(waiting(Story().begin(), 1, 200, 0.01), 201, 300, 1.0)
    (opened,) = story.told()
    assert opened.alarm.kind == "throughput"
    assert opened.alarm.evidence["unit"] == "steps"
    assert opened.alarm.evidence["data_wait_share"] == pytest.approx(0.5, abs=0.01)


def test_checkpoints_evaluations_and_pauses_change_no_pace() -> None:
    story = Story().begin()
    for step in range(1, 300):
        story.steps(step, step)
        if step > 150:
            story.within("checkpoint", 5.0)
        if step % 50 == 0:
            story.say("begin", what="evaluation", step=step).within("checkpoint", 30)
            story.now += 30
            story.say("evaluation", step=step, seconds=60.0, inner_s=30.0)
    assert story.kinds() == []


def test_a_new_attempt_begins_with_an_open_mind() -> None:
    story = Story().begin().steps(1, 200).again().steps(201, 400, seconds=3.0)
    assert story.kinds() == []


def test_a_training_that_goes_back_within_its_process_is_followed_on() -> None:
    story = Story().begin().steps(1, 200).steps(101, 120).steps(121, 190, seconds=2.0)
    assert story.kinds() == ["+slow_steps"]


def test_the_time_from_step_to_step_leaves_out_spans_once() -> None:
    """A checkpoint inside an evaluation is part of it; the wait for data counts."""
    from holdfast.runs.watching.run_state import RunState

    story = Story(ranks=1).begin().steps(1, 1)
    story.say("begin", what="evaluation").alive(10).within("checkpoint", 30).alive(20)
    story.say("evaluation", seconds=60.0, inner_s=30.0, step=1).within("pause", 7)
    story.now += 5
    story.say("data_wait", seconds=5.0).steps(2, 2, seconds=2.0)
    periods = []
    run = RunState(on_step=lambda summary, at_s: periods.append(summary.period_s))
    for at, who, event, opened in story.events:
        run.take(who, event, at, opened)
    run.settle(story.now)
    assert periods == [None, pytest.approx(7.0)]


# --- Odd input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        {"event": "step", "t": 5.0},
        {"event": "step", "t": 5.0, "step": "x", "seconds": 1},
        {"event": "step", "t": 5.0, "step": 3, "seconds": -1},
        {"event": "checkpoint", "t": 5.0},
        {"event": "step", "t": "now", "step": 1, "seconds": 1},
        {"event": ["step"], "t": 5.0},
        {"event": "telemetry", "t": 5.0},
        {"t": 5.0},
        {},
    ],
)
def test_a_line_that_says_nothing_is_set_aside(tmp_path: Path, line: dict[str, object]) -> None:
    files = Files(tmp_path)
    story = Story(ranks=1).begin()
    files.write(story)
    with files.path(story.events[0][1]).open("a") as file:
        file.write(json.dumps(line) + "\n")
    found = replay(tmp_path)
    assert (found.rejected_lines, found.opened, found.attempts) == (1, 0, 1)


def test_a_step_without_its_number_is_no_progress_of_the_steps() -> None:
    story = Story(ranks=1).begin().steps(1, 5).say("step", seconds=1.0)
    lookout = Lookout()
    for at, who, event, opened in story.events:
        lookout.take(who, event, at, opened)
    assert (lookout.run.completed, lookout.look(6.0)) == (5, [])


def test_thresholds_change_what_is_an_alarm() -> None:
    story = Story().begin().steps(1, 100).alive(60)
    assert story.kinds() == []
    assert story.kinds(DEFAULTS.changed(["hang_s=30s"])) == ["+hang"]
    assert story.kinds(Thresholds(hang_s=30, hang_factor=100)) == []


def test_the_ranks_of_a_loss_that_is_not_finite_and_of_slow_steps() -> None:
    """The first rank with it is named, though later all have it; of slow steps who works longer."""
    story = Story(ranks=4).begin().steps(1, 20, loss=1.0)
    for loss_of_2, others in ((math.nan, 1.0), (math.nan, math.nan)):
        story.now += 1
        number = 21 if others == 1.0 else 22
        for rank in range(4):
            loss = loss_of_2 if rank == 2 else others
            story.say("step", rank=rank, step=number, seconds=1.0, loss=loss)
    (opened,) = story.told()
    assert (opened.alarm.kind, opened.alarm.ranks) == ("loss_not_finite", (2,))

    story = Story(ranks=4).begin().steps(1, 300, sync_s=0.1)
    for number in range(301, 700):
        story.now += 3
        for rank in range(4):
            story.say("step", rank=rank, step=number, seconds=3.0, sync_s=0.1 if rank == 3 else 2.1)
    slow = [each.alarm for each in story.told() if each.alarm.kind == "slow_steps"]
    assert slow[0].ranks == (3,)

    story = Story(ranks=2).begin().steps(1, 300).steps(301, 700, seconds=3.0)
    slow = [each.alarm for each in story.told() if each.alarm.kind == "slow_steps"]
    assert slow[0].ranks == (0, 1)
