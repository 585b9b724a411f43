"""What is easily counted wrong, each in a run small enough to account for by hand."""

from __future__ import annotations

import pytest
from goodput.building import ORIGIN_S, Script, recorded

from holdfast.lines import Reject
from holdfast.runs.goodput.accounting import Breakdown, breakdown
from holdfast.runs.goodput.report import report


def told(*scripts: Script, **options: object) -> Breakdown:
    made = breakdown(recorded(scripts), now_s=ORIGIN_S + 10_000, **options)  # type: ignore[arg-type]
    assert sum(made.parts.values()) == pytest.approx(made.wall_s, abs=1e-9)
    for attempt in made.attempts:
        gap = attempt.parts["down"] + attempt.parts["queue"]
        alive = sum(attempt.parts.values()) - gap
        assert alive == pytest.approx(attempt.end_s - attempt.begin_s, abs=1e-9)
    return made


def spent(made: Breakdown) -> dict[str, float]:
    """The parts that are not empty."""
    return {name: pytest.approx(value) for name, value in made.parts.items() if value}


def test_single_attempt_that_ends_well() -> None:
    made = told(Script(lived_s=2, ready=1, end="clean").steps(1, 10, 1, 1.0))
    assert spent(made) == {"init": 3, "productive": 10}
    assert made.ettr == pytest.approx(10 / 13)
    assert (made.interruptions, made.running, made.work.steps) == (0, False, 10)
    assert made.attempts[0].ended == "clean"


def test_replayed_steps_are_not_productive() -> None:
    first = Script(world_size=2).steps(1, 10, 0, 1.0)
    slower = Script(rank=1, world_size=2).steps(1, 9, 0, 1.0)  # killed in step 10
    again = Script(attempt=1, start_s=10, resumed_from=4).steps(5, 10, 0, 1.0)
    other = Script(attempt=1, start_s=10, rank=1, resumed_from=4).steps(5, 10, 0, 1.0)
    made = told(first, slower, again, other)
    # Step 10 was completed by one rank: its second run is a replay on both.
    assert spent(made) == {"productive": 9.5 + 4, "replayed": 6, "idle": 0.5}
    (replays,) = made.replays
    assert (replays.attempt, replays.count) == (2, 6)
    assert (replays.first_step, replays.last_step, replays.seconds) == (5, 10, 6)
    assert made.to_dict()["replayed_steps"]["count"] == 6
    assert made.work.steps == 14


def test_rollback_to_an_older_checkpoint_replays_all_that_was_done() -> None:
    made = told(
        Script().steps(1, 6, 0, 1.0).at("published", 3, step=3).at("published", 6, step=6),
        Script(attempt=1, start_s=6, resumed_from=3).steps(4, 4, 0, 1.0),  # 4 .. 7
        Script(attempt=2, start_s=10, resumed_from=2, end="clean").steps(3, 7, 0, 1.0),  # 3 .. 9
    )
    assert spent(made) == {"productive": 6 + 1 + 2, "replayed": 3 + 5}
    assert [each.count for each in made.replays] == [3, 5]


def test_rollback_without_a_restart_is_a_replay_too() -> None:
    made = told(Script(end="clean").steps(1, 5, 0, 1.0).steps(3, 5, 5, 1.0))
    assert spent(made) == {"productive": 7, "replayed": 3}


def test_a_step_told_in_parts_is_no_replay() -> None:
    script = Script(end="clean")
    for place in range(6):
        script.span("step", place, place + 1, step=place // 2)
    assert spent(told(script)) == {"productive": 6}


def test_steps_of_another_world_size_are_the_same_steps() -> None:
    wide = [Script(rank=r, world_size=4, node=f"n{r}").steps(1, 8, 0, 1.0) for r in range(4)]
    narrow = [
        Script(rank=r, attempt=1, start_s=8, world_size=2, node=f"n{r}", end="clean").steps(
            7, 4, 0, 2.0
        )
        for r in range(2)
    ]
    made = told(*wide, *narrow)
    assert spent(made) == {"productive": 8 + 4, "replayed": 4}
    assert [(each.ranks, each.world_size, each.gpus) for each in made.attempts] == [
        (4, 4, 4.0),
        (2, 2, 2.0),
    ]
    assert made.gpu_hours["productive"] == pytest.approx((8 * 4 + 4 * 2) / 3600)
    assert made.to_dict()["nodes"] == pytest.approx((4 * 8 + 2 * 8) / 16)


def test_kill_in_a_checkpoint() -> None:
    made = told(
        Script(last=9).steps(1, 5, 0, 1.0).at("begin", 5, what="checkpoint").at("alive", 9),
        Script(attempt=1, start_s=10, end="clean").steps(1, 1, 0, 1.0),
    )
    assert spent(made) == {"productive": 5, "checkpoint": 4, "down": 1, "replayed": 1}
    assert made.checkpoints.count == 0
    assert not made.attempts[0].hung


def test_kill_in_an_evaluation_with_a_wait_for_data_inside() -> None:
    script = Script().steps(1, 2, 0, 1.0).at("begin", 2, what="evaluation")
    script.span("data_wait", 3, 3.5).at("alive", 6)
    assert spent(told(script)) == {"productive": 2, "data_wait": 0.5, "evaluation": 3.5}


def test_a_checkpoint_whose_end_was_lost_takes_no_later_step() -> None:
    script = Script(end="clean").steps(1, 2, 0, 1.0).at("begin", 2, what="checkpoint")
    assert spent(told(script.steps(3, 2, 4, 1.0))) == {"productive": 4, "idle": 2}


def test_hang() -> None:
    ranks = [Script(rank=r, world_size=2).steps(1, 5, 0, 1.0).at("alive", 40) for r in range(2)]
    made = told(*ranks, Script(attempt=1, start_s=50, end="clean").steps(6, 1, 0, 1.0))
    assert spent(made) == {"productive": 6, "idle": 35, "down": 10}
    assert (made.attempts[0].hung, made.attempts[0].stalled_s) == (True, 35)
    assert not made.attempts[1].hung


def test_hang_that_a_timeout_ends_with_an_exception() -> None:
    script = Script(end="exception").steps(1, 5, 0, 1.0)
    script.span("pause", 5, 35, what="step 6 failed: RuntimeError: timeout")
    (attempt,) = told(script).attempts
    assert (attempt.hung, attempt.stalled_s, attempt.ended) == (True, 30, "exception")
    script = Script(end="exception").steps(1, 5, 0, 1.0).at("begin", 5, what="pause")
    script.span("pause", 5, 35, what="waiting for a license")
    (attempt,) = told(script).attempts
    assert (attempt.hung, attempt.stalled_s) == (False, 0)


def test_a_rank_that_ends_early_is_idle() -> None:
    made = told(
        Script(rank=0, world_size=2, end="signal").steps(1, 10, 0, 1.0),
        Script(rank=1, world_size=2).steps(1, 4, 0, 1.0),
    )
    assert spent(made) == {"productive": 7, "idle": 3}
    assert (made.attempts[0].ended, made.attempts[0].first_rank_gone) == ("killed", 1)


def test_a_rank_that_starts_late_initialises() -> None:
    made = told(
        Script(rank=0, world_size=2, ready=0).steps(1, 10, 0, 1.0),
        Script(rank=1, world_size=2, start_s=4, ready=2).steps(7, 4, 2, 1.0),
    )
    assert spent(made) == {"productive": 7, "init": 3}


def test_one_missing_rank() -> None:
    made = told(Script(rank=0, world_size=2, end="clean").steps(1, 4, 0, 1.0))
    assert spent(made) == {"productive": 4}
    assert made.attempts[0].missing_ranks == (1,)


def test_attempt_without_any_step() -> None:
    made = told(
        Script(ready=None, last=5).at("alive", 5),
        Script(attempt=1, start_s=8, ready=1).steps(1, 3, 1, 1.0),
    )
    assert spent(made) == {"init": 6, "down": 3, "productive": 3}
    assert made.attempts[0].first_step is None


def test_run_without_any_step() -> None:
    made = told(Script(ready=None, last=5).at("alive", 5))
    assert spent(made) == {"init": 5}
    assert (made.ettr, made.work.step_s_median) == (0.0, None)


def test_run_of_no_length() -> None:
    made = told(Script(ready=None))
    assert (made.wall_s, made.ettr) == (0.0, 0.0)


def test_run_that_still_goes_on() -> None:
    run = recorded([Script().steps(1, 10, 0, 1.0)])
    alive = breakdown(run, now_s=ORIGIN_S + 15)
    assert (alive.running, alive.attempts[0].ended, alive.interruptions) == (True, "running", 0)
    silent = breakdown(run, now_s=ORIGIN_S + 10 + 61)
    assert (silent.running, silent.attempts[0].ended, silent.interruptions) == (False, "killed", 1)


def test_wait_for_data_inside_a_step_and_beside_it() -> None:
    script = Script(end="clean").span("data_wait", 0, 1)
    script.span("data_wait", 2, 2.5).span("checkpoint", 3, 3.5).span("step", 1, 4, step=1)
    made = told(script)
    assert spent(made) == {"data_wait": 1.5, "checkpoint": 0.5, "productive": 2}
    assert made.work.step_s_median == pytest.approx(2)


def test_pause_is_idle_but_what_is_inside_counts() -> None:
    script = Script(end="clean").span("data_wait", 2, 3).span("pause", 0, 5, what="profiling")
    assert spent(told(script.steps(1, 1, 5, 1.0))) == {
        "data_wait": 1,
        "idle": 4,
        "productive": 1,
    }


def test_queue_and_down() -> None:
    made = told(
        Script(submitted_s=-7).steps(1, 3, 0, 1.0),
        Script(attempt=1, start_s=10, submitted_s=6, resumed_from=3).steps(4, 3, 0, 1.0),
        Script(attempt=2, start_s=20, submitted_s=6, end="clean").steps(7, 3, 0, 1.0),
    )
    # The third attempt repeats the second's submission: a restart in the same job.
    assert spent(made) == {"queue": 7 + 4, "down": 3 + 7, "productive": 9}
    assert made.wall_s == pytest.approx(30)
    assert made.began_s == pytest.approx(ORIGIN_S - 7)
    assert made.attempts[0].begin_s == pytest.approx(7)


def test_submission_of_a_job_that_waited_in_line_behind_the_one_before() -> None:
    made = told(
        Script(submitted_s=-2).steps(1, 3, 0, 1.0),
        Script(attempt=1, start_s=5, submitted_s=-1, end="clean").steps(4, 1, 0, 1.0),
    )
    assert spent(made) == {"queue": 2 + 2, "productive": 4}


def test_attempts_that_overlap_count_once() -> None:
    made = told(
        Script().steps(1, 10, 0, 1.0),
        Script(attempt=1, start_s=6, end="clean").steps(7, 4, 0, 1.0),
    )
    assert made.wall_s == pytest.approx(10)
    assert spent(made) == {"productive": 6, "replayed": 4}


def test_spans_that_overlap_count_once_and_are_told() -> None:
    script = Script(end="clean").steps(1, 10, 0, 1.0).span("evaluation", 2, 12)
    made = told(script)
    assert spent(made) == {"productive": 10, "evaluation": 2}
    assert any("overlap" in remark for remark in made.remarks)


def test_step_of_the_wall_clock_moves_nothing() -> None:
    """The reader gives the monotonic start; the wall clock of a process plays no part."""
    from dataclasses import replace

    run = recorded([Script(rank=r, world_size=2).steps(1, 5, 0, 1.0) for r in range(2)])
    stepped = replace(run.processes[1], opened_s=run.processes[1].opened_s - 3600)
    moved = replace(run, processes=(run.processes[0], stepped))
    assert breakdown(moved, now_s=0.0).parts == breakdown(run, now_s=0.0).parts


def test_numbers_that_begin_again_after_a_restart_are_told() -> None:
    made = told(
        Script().steps(1, 5, 0, 1.0),
        Script(attempt=1, start_s=5, resumed_from=4, end="clean").steps(1, 5, 0, 1.0),
    )
    assert any("resumed from step 4, but its first step is 1" in each for each in made.remarks)


def test_steps_without_a_number_are_productive_and_told() -> None:
    script = Script(end="clean").span("step", 0, 1).span("step", 1, 2)
    made = told(script)
    assert spent(made) == {"productive": 2}
    assert any("2 steps have no number" in remark for remark in made.remarks)


def test_rejects_are_counted_and_shown() -> None:
    run = recorded([Script().steps(1, 5, 0, 1.0)])
    from dataclasses import replace

    bad = tuple(Reject(run.processes[0].file, line, "no JSON", "{") for line in range(150))
    shown = breakdown(replace(run, rejects=bad), now_s=0.0).to_dict()["rejects"]
    assert (shown["count"], len(shown["lines"])) == (150, 100)
    assert shown["lines"][3] == {
        "file": str(run.processes[0].file),
        "line": 3,
        "reason": "no JSON",
    }


def test_tokens_once_a_wall_second_and_all_a_step_second() -> None:
    made = told(
        *(Script(rank=r, world_size=2, ready=2).steps(1, 4, 2, 1.0, tokens=10) for r in range(2)),
        *(
            Script(rank=r, world_size=2, attempt=1, start_s=8, end="clean").steps(
                3, 4, 0, 1.0, tokens=10
            )
            for r in range(2)
        ),
    )
    assert made.wall_s == pytest.approx(12)
    assert made.work.tokens == 2 * 6 * 10
    assert made.work.tokens_per_s_goodput == pytest.approx(120 / 12)
    assert made.work.tokens_per_s_raw == pytest.approx(160 / 8)
    assert made.work.samples is None


def test_accelerators_weigh_hours_not_parts() -> None:
    script = Script(gpus=8, end="clean").steps(1, 10, 0, 360.0)
    made = told(script)
    assert spent(made) == {"productive": 3600}
    assert made.gpu_hours["productive"] == pytest.approx(8)


def test_json_has_the_keys_of_the_contract() -> None:
    shown = told(Script(end="clean").steps(1, 4, 0, 1.0)).to_dict()
    assert list(shown)[:6] == ["run_id", "attempts", "wall_s", "parts", "ettr", "checkpoint"]
    assert list(shown["parts"]) == [
        *("productive", "replayed", "data_wait", "checkpoint", "init"),
        *("evaluation", "idle", "down", "queue"),
    ]


# --- Ranks that fall silent, and ends that are not known yet ----------------------------------------


def with_heartbeats(rank: int, until: float, every: float = 1.0) -> Script:
    """Ten steps of a second, then nothing but signs of life."""
    script = Script(rank=rank, world_size=3).steps(1, 10, 0, 1)
    beats = int((until - 10) / every)
    for beat in range(1, beats + 1):
        script.at("alive", 10 + beat * every)
    return script


@pytest.mark.parametrize(
    ("frozen_at", "every", "gone"), [(40, 1.0, 1), (57, 1.0, None), (40, 10.0, None), (20, 10.0, 1)]
)
def test_a_rank_that_freezes_in_a_hang_is_named(
    frozen_at: float, every: float, gone: int | None
) -> None:
    ranks = [with_heartbeats(rank, frozen_at if rank == 1 else 60, every) for rank in range(3)]
    (attempt,) = breakdown(recorded(ranks)).attempts
    assert (attempt.hung, attempt.first_rank_gone) == (True, gone)
    # All fall silent one after another: the first was not early.
    ranks = [with_heartbeats(rank, 57 + rank, every) for rank in range(3)]
    assert breakdown(recorded(ranks)).attempts[0].first_rank_gone is None


@pytest.mark.parametrize(("last", "interruptions"), [(11, 0), (50, 1)])
def test_a_last_attempt_without_an_end_is_not_said_to_have_ended_well(
    last: float, interruptions: int
) -> None:
    """20 s ago it was alive: it goes on, hangs, or was killed; a hang is an interruption."""
    before = Script(end="clean").steps(1, 10, 0, 1)
    after = Script(attempt=1, start_s=20).steps(11, 10, 0, 1).at("alive", last)
    answer = report(recorded([before, after]), now_s=ORIGIN_S + 20 + last + 20)
    made = answer.breakdown
    assert made.running
    assert made.silent_s == pytest.approx(20)
    assert made.interruptions == interruptions
    assert made.attempts[1].hung == bool(interruptions)
    said = [each for each in answer.findings() if each.section_id == "attempts"]
    assert all(("20 s ago" in each.text) == (not interruptions) for each in said)
