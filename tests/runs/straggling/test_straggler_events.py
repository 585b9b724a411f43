"""Own times from a recorder's events: written by simulated trainings, read by the reader of runs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from straggling.simulated_events import Rank, times, train

from holdfast.errors import InputError
from holdfast.runs.recording.reading import read_run
from holdfast.runs.straggling.recorded import matrix_of_run
from holdfast.runs.straggling.scores import stragglers


def test_equal_steps_hide_the_slow_rank_and_own_times_show_it(tmp_path: Path) -> None:
    work, data = times(1)
    work[2] += 0.2
    train(tmp_path, work, data)
    run = read_run(tmp_path)
    steps = run.events.filter(np.asarray(run.events["event"].cast("string")) == "step")
    whole = np.asarray(steps["seconds"]).reshape(4, 60)
    assert np.median(whole, axis=1) == pytest.approx(np.median(whole), rel=0.02)  # nothing to see
    found = stragglers(tmp_path)
    assert [row["rank"] for row in found.persistent] == [2]
    assert found.matrix.own_s == pytest.approx(work + data, abs=1e-5)
    assert found.matrix.gpus.tolist() == [2, 2, 2, 2]
    per_step = (work + data).max(axis=0) - np.median(work + data, axis=0)
    assert found.costs.total == pytest.approx(per_step.sum() * 8 / 3600, rel=1e-3)


def test_without_waiting_times_no_verdict_is_given(tmp_path: Path) -> None:
    work, data = times(1)
    work[2] += 0.2
    train(tmp_path, work, np.zeros_like(data), sync=False)
    found = stragglers(tmp_path)
    told = found.to_dict()
    assert told["base"] == "unknown"
    assert {(row["persistent"], row["score"], row["cost_gpu_hours"]) for row in told["ranks"]} == {
        (None, None, None)
    }
    assert "cannot be told" in told["sentence"]


def test_without_waiting_times_slow_data_shows(tmp_path: Path) -> None:
    work, data = times(2)
    data[1] += 0.1
    train(tmp_path, work, data, sync=False)
    found = stragglers(tmp_path)
    assert found.matrix.base == "data_wait"
    assert [row["rank"] for row in found.persistent] == [1]
    assert found.persistent[0]["slowdown"] == pytest.approx(0.1 / 0.65, rel=0.1)  # of a whole step
    train(tmp_path / "sound", *times(3), sync=False)
    assert not stragglers(tmp_path / "sound").persistent


def test_a_slow_loader_is_told_from_slow_work(tmp_path: Path) -> None:
    for name, slow in (("data", 1), ("work", 0)):
        work, data = times(4)
        (data if slow else work)[3] += 0.2
        train(tmp_path / name, work, data)
        (row,) = stragglers(tmp_path / name).persistent
        assert row["rank"] == 3
        assert row["data_share"] == pytest.approx(slow, abs=0.1)


def test_what_only_rank_0_pays_makes_it_no_straggler(tmp_path: Path) -> None:
    # Rank 0 writes a checkpoint of 2 s inside every third step, and evaluates with its own loader
    # between the steps; it pauses too. The others do not.
    ranks = [Rank(tmp_path, rank) for rank in range(4)]
    generator = np.random.default_rng(5)
    for step, (index, rank) in itertools.product(range(60), enumerate(ranks)):
        work = float(generator.normal(0.5, 0.02))
        inner = 0.0
        if index == 0 and step % 3 == 0:
            rank.span("data_wait", 1.0)
            rank.span("evaluation", 1.5, inner=1.0, step=step)
            rank.span("pause", 0.5, reason="upload")
            rank.span("checkpoint", 2.0, step=step)
            inner = 2.0
        rank.span("step", work + inner + 0.1, inner=inner, step=step, sync_s=0.1)
    for rank in ranks:
        rank.close()
    found = stragglers(tmp_path)
    assert not found.persistent
    assert found.matrix.own_s.max() < 0.6


def test_data_waited_for_inside_a_step_counts_once(tmp_path: Path) -> None:
    for index in range(2):
        rank = Rank(tmp_path, index)
        for step in range(3):
            rank.span("data_wait", 0.25)
            rank.span("data_wait", 0.125)
            rank.span("step", 1.125, inner=0.125, step=step, sync_s=0.5)
        rank.close()
    found = matrix_of_run(read_run(tmp_path))
    assert found.own_s == pytest.approx(np.full((2, 3), 0.5 + 0.375))
    assert found.data_wait_s == pytest.approx(np.full((2, 3), 0.375))
    assert found.waited_s is None  # in collectives or in messages: the program does not say


def test_waiting_that_no_step_followed_is_no_other_ranks(tmp_path: Path) -> None:
    for index in range(3):
        rank = Rank(tmp_path, index)
        for step in range(3):
            rank.span("step", 1.0, step=step, sync_s=0.5)
        rank.span("data_wait", 50.0)  # then it was killed
        rank.close()
    found = matrix_of_run(read_run(tmp_path))
    assert found.own_s == pytest.approx(np.full((3, 3), 0.5))


def test_replayed_steps_are_steps_of_another_attempt(tmp_path: Path) -> None:
    work, data = times(6, steps=10)
    train(tmp_path, work, data)
    train(tmp_path, work + 0.5, data, first=6, attempt=1)
    found = matrix_of_run(read_run(tmp_path))
    assert found.steps.tolist() == [*range(1, 11), *range(6, 16)]
    assert found.attempts.tolist() == [0] * 10 + [1] * 10
    assert found.own_s[:, 10:] == pytest.approx(work + 0.5 + data, abs=1e-5)


def test_a_rank_cut_short_is_compared_while_it_lived(tmp_path: Path) -> None:
    work, data = times(7, steps=20)
    train(tmp_path, work, data)
    path = sorted((tmp_path / "r").iterdir())[1]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:30]) + lines[30][:12])
    found = stragglers(tmp_path)
    assert found.matrix.steps.size == 14
    assert found.matrix.steps_not_shared == 6


def test_steps_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    for index in range(2):
        rank = Rank(tmp_path, index)
        for step in range(5):
            waited = [0.1, 2.0, None][step] if index == 1 and step < 3 else 0.1
            told = {} if waited is None else {"sync_s": waited}
            rank.span("step", 1.0, step=step, **told)
        rank.close()
    found = matrix_of_run(read_run(tmp_path))
    assert found.steps.tolist() == [0, 3, 4]
    assert any("waited longer than they lasted" in remark for remark in found.remarks)
    assert any("say nothing about waiting" in remark for remark in found.remarks)


def test_labels_name_node_and_stage(tmp_path: Path) -> None:
    labels = {rank: {"stage": str(rank // 2)} for rank in range(4)}
    work, data = times(8)
    work[2:] += 0.1
    train(tmp_path, work, data, labels=labels)
    found = stragglers(tmp_path)
    assert found.matrix.labels[3] == {"node": "n1", "stage": "1"}
    assert found.groups is not None
    assert (found.groups.slow, found.groups.values) == ((2, 3), ("n1",))


def test_a_run_without_steps_or_with_one_rank_is_refused(tmp_path: Path) -> None:
    rank = Rank(tmp_path / "empty", 0)
    rank.close()
    with pytest.raises(InputError, match="no steps"):
        stragglers(tmp_path / "empty")
    work, data = times(1)
    train(tmp_path / "one", work[:1], data[:1])
    with pytest.raises(InputError, match="no step is shared by two ranks"):
        stragglers(tmp_path / "one")


def waiting(folder: Path, work: np.ndarray, network: np.ndarray, kind: str = "gradients") -> None:
    """A training whose recorder has measured waits: work [R, S], and what a collective takes [S]."""
    ranks = [Rank(folder, rank) for rank in range(work.shape[0])]
    for step in range(work.shape[1]):
        last = work[:, step].max() + network[step]
        for place, rank in enumerate(ranks):
            waited = float(last - work[place, step])
            rank.span("step", float(last), step=step + 1, waits={kind: waited}, sync_s=waited)
    for rank in ranks:
        rank.close()


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_slow_network_is_told_from_a_slow_rank(tmp_path: Path, ranks: int) -> None:
    generator = np.random.default_rng(ranks)
    work = generator.normal(0.1, 0.005, (ranks, 60))
    fast, slow = np.full(60, 0.01), generator.uniform(0.1, 0.12, 60)
    waiting(tmp_path / "alike", work, fast)
    assert stragglers(tmp_path / "alike").verdict == "no_slow_rank"
    waiting(tmp_path / "network", work, slow)
    found = stragglers(tmp_path / "network")
    assert (found.verdict, found.persistent, found.groups) == ("slow_network", [], None)
    assert found.network_s == pytest.approx(np.quantile(slow, 0.1), rel=1e-3)
    # A pipeline waits for its neighbours' work in messages: that is no network.
    waiting(tmp_path / "messages", work, slow, "recv")
    found = stragglers(tmp_path / "messages")
    assert (found.network_s, found.verdict) == (0, "no_slow_rank")
    # A machine that is busy now and then is no slow network.
    waiting(tmp_path / "busy", work, np.where(np.arange(60) % 4, slow, fast))
    assert stragglers(tmp_path / "busy").verdict == "no_slow_rank"
    work[1] += 0.05
    waiting(tmp_path / "rank", work, fast)
    found = stragglers(tmp_path / "rank")
    assert [row["rank"] for row in found.persistent] == [1]
    waiting(tmp_path / "both", work, slow)
    found = stragglers(tmp_path / "both")
    assert found.verdict == "slow_ranks"
    assert (found.network_share or 0) > 0.33


def test_half_of_the_ranks_slow_are_two_groups(tmp_path: Path) -> None:
    work = np.random.default_rng(5).normal(0.1, 0.005, (4, 60))
    work[[1, 3]] += 0.05
    waiting(tmp_path, work, np.full(60, 0.01))
    found = stragglers(tmp_path)
    assert found.verdict == "slow_ranks"
    assert found.groups is not None
    assert found.groups.slow == (1, 3)


def test_a_program_that_tells_hardly_any_waiting_may_wait_elsewhere(tmp_path: Path) -> None:
    """Equal steps that end together, and waits around another collective: no all-clear."""
    work, data = times(1)
    ranks = [Rank(tmp_path, rank) for rank in range(4)]
    for step in range(60):
        for rank in ranks:
            rank.span("step", 0.5, step=step + 1, sync_s=0.001)
    for rank in ranks:
        rank.close()
    found = stragglers(tmp_path)
    assert (found.verdict, found.persistent) == ("cannot_tell", [])
    assert "cannot be told" in found.headline
    train(tmp_path / "enough", work, data)
    assert stragglers(tmp_path / "enough").verdict == "no_slow_rank"
