"""What-if: differences on the same seeds, their intervals, what is recommended, and how it is said."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import counted
import numpy as np
import pytest
from invoking import invoke
from scipy import stats

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet import Assumptions
from holdfast.fleet.simulation import replicas
from holdfast.fleet.simulation.changes import apply
from holdfast.fleet.simulation.comparison import (
    WhatIf,
    _difference,
    as_it_is,
    proposals,
    whatif,
)
from holdfast.fleet.simulation.outcomes import Outcome
from holdfast.fleet.simulation.replicas import Task
from holdfast.fleet.simulation.scenario import Blast, Lemons, scenario
from holdfast.fleet.simulation.simulated_log import simulate
from holdfast.report import render
from holdfast.stats import mean_interval

SMALL = scenario("small")
FAST = "checkpoint.write=6s"
SLOW = "checkpoint.write=30m"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WhatIf]:
    """`whatif` of `small` with work that is quick instead of simulations, in this process."""

    def run(
        *changes: str, work: Callable[[Task], Outcome] = counted.drawn, **options: Any
    ) -> WhatIf:
        monkeypatch.setattr(replicas, "simulated", work)
        return whatif(SMALL, changes, processes=1, **options)

    return run


# --- The statistics ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 8, 30])
def test_the_interval_is_that_of_a_paired_t_test(n: int) -> None:
    old, new = np.random.default_rng(n).standard_normal((2, n))
    expected = stats.ttest_rel(new, old).confidence_interval()
    assert mean_interval(new - old)[1] == pytest.approx((expected.low, expected.high))


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(4_000):
        low, high = mean_interval(generator.normal(0.3, 2.0, 8))[1]
        covered += low <= 0.3 <= high
    assert abs(covered / 4_000 - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 4_000)


def test_one_value_has_no_interval() -> None:
    found = _difference("a", "m", [{"m": 1.0}], [{"m": 3.0}])
    assert found.difference == 2
    assert all(math.isnan(each) for each in found.ci95)


def test_common_random_numbers_leave_the_noise_of_the_change_alone(
    stand_in: Callable[..., WhatIf],
) -> None:
    """The seed moves both sides by 0.02, which the interval must not hold; each by 0.005 of its own."""
    found = stand_in(FAST, replicas=400).of(FAST, "ettr_large_runs")
    assert found.difference == pytest.approx((60 - 6) / 3600, abs=3 * 0.005 * math.sqrt(2 / 400))
    assert (found.ci95[1] - found.ci95[0]) / 2 == pytest.approx(
        1.966 * 0.005 * math.sqrt(2 / 400), rel=0.15
    )
    assert found.is_significant


def test_replicas_without_the_metric_on_both_sides_are_left_out(
    stand_in: Callable[..., WhatIf],
) -> None:
    def work(task: Task) -> Outcome:
        made = counted.drawn(task)
        if task.seed == 3:
            return counted.without_runs(made)
        return made

    found = stand_in(FAST, work=work, replicas=8).of(FAST, "ettr_large_runs")
    others = [
        [
            counted.drawn(Task(each, 28.0, seed)).runs["ettr"][2, 0].sum() / 50
            for seed in range(8)
            if seed != 3
        ]
        for each in (SMALL, apply(SMALL, FAST))
    ]
    assert found.baseline == pytest.approx(np.mean(others[0]))
    assert found.difference == pytest.approx(np.mean(others[1]) - np.mean(others[0]))
    expected = stats.ttest_rel(others[1], others[0]).confidence_interval()
    assert found.ci95 == pytest.approx((expected.low, expected.high))


# --- What is recommended -------------------------------------------------------------------------


def test_the_largest_gain_that_can_be_told_is_recommended(stand_in: Callable[..., WhatIf]) -> None:
    found = stand_in(SLOW, "checkpoint.write=36s", FAST, replicas=30)
    assert [each.change for each in found.ranked_by(found.main)] == [
        FAST,
        "checkpoint.write=36s",
        SLOW,
    ]
    assert found.best is not None
    assert found.best.change == FAST
    assert found.findings()[0].text == found.recommended == found.sentence(FAST)
    assert "runs on 32 GPUs or more" in found.recommended
    assert [section.id for section in found.sections()] == ["gain", "effects", "assumed"]
    rows = found.sections()[0].tables[0].data
    assert rows["label"].to_pylist() == [each.change for each in found.ranked_by(found.main)]
    shown = found.of(FAST, found.main)
    assert rows["low"][0].as_py() == pytest.approx(100 * shown.ci95[0])
    assert "<svg" in render(found.page())


def test_no_gain_is_said_to_be_none(stand_in: Callable[..., WhatIf]) -> None:
    found = stand_in(SLOW, "grace=1m", replicas=4)
    assert found.best is None
    assert found.recommended == ""
    assert found.of("grace=1m", "ettr_large_runs").difference == 0
    assert found.findings()[0].lead == "No recommendation."


def test_what_the_log_does_not_tell_is_called_assumed(stand_in: Callable[..., WhatIf]) -> None:
    found = stand_in(FAST, "lemons=off", replicas=3)
    assert not [each for each in found.findings() if each.lead == "Assumed."]
    guess = replace(found, assumed=frozenset({"checkpoint.write", "scheduler.policy"}))
    told = [each.text for each in guess.findings() if each.lead == "Assumed."]
    assert len(told) == 1
    assert "checkpoint.write" in told[0]
    assert "scheduler.policy" not in told[0]


def test_without_large_runs_goodput_decides(stand_in: Callable[..., WhatIf]) -> None:
    def work(task: Task) -> Outcome:
        made = counted.drawn(task)
        share = made.runs["ettr"][2, 0].sum() / 50
        return counted.without_runs(made, busy_gpu_ms=1e9, productive_gpu_ms=1e9 * share)

    found = stand_in(FAST, work=work, replicas=30)
    assert found.main == "goodput_share_of_busy_time"
    assert found.best is not None
    assert found.best.metric == found.main
    assert len(found.notes) == 1


def test_a_queue_that_grows_for_ever_is_told(stand_in: Callable[..., WhatIf]) -> None:
    def work(task: Task) -> Outcome:
        made = counted.drawn(task)
        return replace(made, required_gpu_ms=1.2 * made.capacity_gpu_ms)

    assert "120 % of all GPU time" in " ".join(stand_in(FAST, work=work, replicas=2).notes)
    assert stand_in(FAST, replicas=2).notes == []


def test_what_holds_before_and_after_is_no_change(stand_in: Callable[..., WhatIf]) -> None:
    found = stand_in(FAST, given=["checkpoint.write=5m"], replicas=3)
    assert found.baseline.checkpoint.write_s == 300
    assert found.scenarios[FAST] == apply(SMALL, FAST)


def test_the_json_is_the_contract(stand_in: Callable[..., WhatIf]) -> None:
    found = stand_in(FAST, SLOW, replicas=3)
    rows = found.to_dict()
    assert {tuple(row) for row in rows} == {
        ("change", "metric", "baseline", "value", "difference", "ci95")
    }
    assert [row["change"] for row in rows[:: len(rows) // 2]] == [FAST, SLOW]
    one = next(row for row in rows if row["metric"] == "ettr_large_runs")
    assert one["difference"] == pytest.approx(one["value"] - one["baseline"])
    assert one["ci95"][0] < one["difference"] < one["ci95"][1]


@pytest.mark.parametrize(
    ("source", "changes", "options", "said"),
    [
        (SMALL, [FAST], {"replicas": 1}, "two or more replicas"),
        (SMALL, [FAST], {"days": -1.0, "processes": 1}, "invalid simulated time"),
        (SMALL, [FAST], {"days": math.nan, "processes": 1}, "invalid simulated time"),
        (SMALL, ["speed=3"], {}, "unknown key"),
        (SMALL, [FAST], {"given": ["write=-1"]}, "the change 'write=-1' cannot be made"),
        ("no/such/file.toml", [FAST], {}, "the scenario cannot be read"),
        (apply(SMALL, "failure_rate=0"), [], {}, "nothing to propose"),
    ],
)
def test_what_cannot_be_simulated(
    source: Any, changes: list[str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        whatif(source, changes, **options)


# --- What is proposed ----------------------------------------------------------------------------


def test_proposals_follow_the_scenario() -> None:
    assert proposals(SMALL) == [
        "lemons=off",
        "checkpoint.interval=84m",
        "checkpoint.write*0.1",
        "lemons=off; checkpoint.write*0.1",
        "failure_rate*0.75",
        "checkpoint.init*0.5",
        "preempt_after*2",
    ]
    for change in proposals(SMALL):
        assert apply(SMALL, change) != SMALL
    named = replace(
        SMALL, failures=replace(SMALL.failures, lemons=Lemons(nodes={"node05": 9.0, "node02": 0.5}))
    )
    assert proposals(named)[0] == "replace=node05"  # the other one is better than the healthy
    pulled = apply(named, "pull=node05")
    assert "replace=node05" not in proposals(pulled)


def test_nothing_is_proposed_that_a_scenario_does_not_have() -> None:
    bare = apply(SMALL, "lemons=off; checkpoint.write=0; init=0; preemption=off")
    assert proposals(bare) == ["checkpoint.interval*0.5", "failure_rate*0.75"]
    blast = Blast("switch", "pod", 0.01, "ib_switch")
    only_blasts = replace(bare, failures=replace(bare.failures, blasts=(blast,)))
    assert proposals(apply(only_blasts, "failure_rate=0")) == ["checkpoint.interval*0.5"]


# --- Simulated -----------------------------------------------------------------------------------

DAYS = 6.0


@pytest.fixture(scope="module")
def simulated() -> WhatIf:
    """Real simulations of the small cluster."""
    return whatif(
        SMALL,
        ["name=other", "failure_rate*0", "checkpoint.init*4", "checkpoint.write*20", "lemons=off"],
        replicas=4,
        days=DAYS,
        processes=1,
    )


def test_no_change_makes_no_difference(simulated: WhatIf) -> None:
    rows = [each for each in simulated.differences if each.change == "name=other"]
    measured = [each for each in rows if not math.isnan(each.baseline)]
    assert len(measured) > 15
    for each in measured:
        assert (each.difference, each.ci95) == (0.0, (0.0, 0.0)), each.metric
        assert each.value == each.baseline


def test_without_failures_nothing_is_lost_to_them(simulated: WhatIf) -> None:
    for order in ("first", "second"):
        found = simulated.of("failure_rate*0", f"lost_{order}_order_gpu_hours_per_day")
        assert found.value == 0.0
    assert simulated.of("failure_rate*0", "lost_first_order_gpu_hours_per_day").baseline > 0
    assert simulated.of("failure_rate*0", "failed_share_of_attempts_gpus_32_up").value == 0


@pytest.mark.parametrize("change", ["checkpoint.init*4", "checkpoint.write*20"])
def test_overhead_costs_goodput(simulated: WhatIf, change: str) -> None:
    for metric in ("goodput_share_of_busy_time", "productive_share_of_large_runs"):
        found = simulated.of(change, metric)
        assert found.is_significant
        assert found.difference < 0


def test_fewer_lemons_fewer_losses(simulated: WhatIf) -> None:
    found = simulated.of("lemons=off", "lost_first_order_gpu_hours_per_day")
    assert found.difference < 0


@pytest.mark.full
def test_two_processes_give_the_same_answer(simulated: WhatIf) -> None:
    two = whatif(
        SMALL, ["checkpoint.init*4"], replicas=4, days=DAYS, processes=2
    )  # with the seeds of the others
    expected = [each for each in simulated.differences if each.change == "checkpoint.init*4"]
    assert repr(two.differences) == repr(expected)


# --- The command ---------------------------------------------------------------------------------


def test_the_command_prints_json_and_writes_the_page(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SMALL.to_toml())
    options = ["--days", "2", "--replicas", "2", "--processes", "1", "--quiet"]
    arguments = ["whatif", "--scenario", str(file), FAST, *options]
    done = invoke(*arguments, "--json", "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["change"] for row in rows} == {FAST}
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    preset = ["whatif", "--preset", "small", FAST, *options]
    again = invoke(*preset, "--json")
    assert json.loads(again.stdout) == rows
    shown = invoke(*preset)
    assert shown.exit_code == 0
    assert rows[0]["change"] == FAST
    assert shown.stdout.startswith("1. ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "no-data"),
        (["lemons=off"], "not-found"),
        (["--preset", "big", "lemons=off"], "unknown-name"),
    ],
)
def test_a_wrong_command_says_what_is_missing(arguments: list[str], code: str) -> None:
    done = invoke("whatif", *arguments)
    assert isinstance(done.exception, InputError)
    assert done.exception.code == code


def test_a_preset_is_not_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    assert as_it_is("small").scenario == SMALL


# --- From a log ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of the small cluster where writes take 5 minutes and nodes fail twice as often."""
    folder = tmp_path_factory.mktemp("whatif") / "store"
    simulate(apply(SMALL, "checkpoint.write=5m; failure_rate*2"), folder, days=40, seed=5)
    return folder


@pytest.fixture(scope="module")
def lemon(store: Path) -> str:
    return str(json.loads((store / "truth.json").read_text())["lemons"][0])


@pytest.fixture(scope="module")
def from_a_log(store: Path, lemon: str) -> WhatIf:
    return whatif(
        store,
        [f"replace={lemon}; checkpoint.write=30s"],
        given=["checkpoint.write=5m", "grace=10m"],
        replicas=4,
        processes=1,
    )


def test_what_is_given_decides_how_the_log_is_read(store: Path, from_a_log: WhatIf) -> None:
    log = fleet.open(store, assumptions=Assumptions(write_s=300))
    report = json.loads(json.dumps(fleet.report(log).to_dict()["ettr"]["measured"]))
    assert from_a_log.baseline.checkpoint.save_on_signal is report["assumptions"]["save_on_signal"]
    assert from_a_log.baseline.checkpoint.init_s == report["assumptions"]["init_s"]


def test_from_a_log_to_a_sentence(store: Path, lemon: str, from_a_log: WhatIf) -> None:
    found = from_a_log
    assert found.source == f"store {store}"
    assert found.days == pytest.approx(40, abs=0.5)
    assert lemon in found.baseline.failures.lemons.nodes
    assert found.best is not None
    assert found.best.change == f"replace={lemon}; checkpoint.write=30s"
    assert "checkpoint.interval" in found.assumed
    assert not {"checkpoint.write", "scheduler.grace"} & found.assumed
    with pytest.raises(InputError, match="node77"):
        whatif(found.baseline, ["replace=node77"])


def test_what_is_said_of_checkpoints_decides_what_was_work(store: Path, from_a_log: WhatIf) -> None:
    """Writes of 5 minutes an hour take 1/13 of the time: jobs need that much less work."""
    hours = [
        sum(size.share * size.hours * size.gpus for size in found.workload.sizes)
        for found in (as_it_is(store).scenario, from_a_log.baseline)
    ]
    assert 0.90 < hours[1] / hours[0] < 0.97
