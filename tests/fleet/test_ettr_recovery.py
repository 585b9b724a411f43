"""Recovery without rollback: the closed forms against an event loop of their assumptions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invoking import invoke

from holdfast.errors import InputError
from holdfast.fleet import ettr, mttf
from holdfast.fleet.ettr_forms import EttrParameters, ettr_of, exact_ettr, exact_finite_ettr
from holdfast.fleet.ettr_monte_carlo import monte_carlo_ettr
from holdfast.fleet.ettr_solve import solve

MINUTE = 60.0
HOUR = 60 * MINUTE


class Clock:
    """Wall time of a job whose failures come at a constant rate while it has its nodes."""

    def __init__(self, failures_per_s: float, seed: int) -> None:
        self.random = Random(seed)
        self.rate = failures_per_s
        self.now = self.ran = 0.0
        self.gap = self.random.expovariate(self.rate)

    def run(self, seconds: float) -> bool:
        """Run for a time; False: a failure came first, and `ran` says when."""
        self.ran = min(seconds, self.gap)
        self.now += self.ran
        if self.gap > seconds:
            self.gap -= seconds
            return True
        self.gap = self.random.expovariate(self.rate)
        return False


def played(p: EttrParameters, clock: Clock, needed: float) -> float:
    """Wall time until a job has checkpoints of so much productive time, event by event."""
    assert p.recovery_s is not None
    saved, begin = 0.0, clock.now
    while saved < needed:
        clock.now += p.queue_s
        if not clock.run(p.init_s):
            continue
        lost, into = False, 0.0  # seconds into the present interval with its write
        while saved < needed and not lost:
            interval = min(p.checkpoint_interval_s, needed - saved)
            whole = interval * (1 + p.overhead) + p.write_s
            if clock.run(whole - into):
                saved, into = saved + interval, 0.0
                continue
            into += clock.ran
            lost = clock.random.random() < p.state_lost
            while not lost and not clock.run(p.recovery_s):
                lost = clock.random.random() < p.state_lost
    return clock.now - begin


def peers(
    nodes: float,
    rate: float,
    dt: float,
    init: float,
    write: float,
    queue: float,
    recovery: float,
    overhead: float,
    lost: float,
    productive: float | None = None,
) -> EttrParameters:
    """Times in minutes."""
    times = [each * MINUTE for each in (dt, init, write, queue)]
    whole = None if productive is None else productive * MINUTE
    return EttrParameters(nodes, rate, *times, whole, recovery * MINUTE, overhead, lost)


SETTINGS = [
    peers(2000, 6.5e-3, 60, 5, 0, 0, 3, 0.02, 0.0),
    peers(2000, 6.5e-3, 60, 5, 2, 10, 3, 0.02, 0.1),
    peers(12_500, 6.5e-3, 30, 5, 1, 0, 10, 0.05, 0.05),
    peers(512, 0.05, 20, 15, 5, 30, 8, 0.0, 0.5),
    peers(64, 0.5, 240, 10, 10, 5, 25, 0.1, 0.3),
    peers(128, 0.2, 10, 20, 1, 2, 0, 0.3, 0.9),
]


@pytest.mark.parametrize("p", SETTINGS)
@pytest.mark.parametrize("productive_h", [None, 20.5])
def test_the_forms_are_what_events_give(p: EttrParameters, productive_h: float | None) -> None:
    runs, productive = 200, 100 * HOUR if productive_h is None else productive_h * HOUR
    walls = []
    for seed in range(runs):
        clock = Clock(p.failures_per_s, seed)
        if productive_h is None:
            played(p, clock, productive / 10)
        walls.append(played(p, clock, productive))
    mean = sum(walls) / runs
    error = math.sqrt(sum((each - mean) ** 2 for each in walls) / (runs - 1) / runs)
    whole = EttrParameters(**{**vars_of(p), "productive_s": productive})
    assert abs(productive / exact_finite_ettr(whole) - mean) < 4 * error
    assert error / mean < 0.06
    if productive_h is None and exact_ettr(p) > 0.1:  # a long run: its first start hardly counts
        assert exact_ettr(p) == pytest.approx(exact_finite_ettr(whole), rel=0.01)


def vars_of(p: EttrParameters) -> dict[str, float | None]:
    return {name: getattr(p, name) for name in p.__dataclass_fields__}


def test_no_loss_of_state_by_hand() -> None:
    p = peers(2000, 6.5e-3, 60, 5, 1, 10, 3, 0.02, 0.0)
    a_day = 13.0
    expected = 60 / (60 * 1.02 + 1) * math.exp(-a_day * 3 / 1440)
    assert exact_ettr(p) == pytest.approx(expected, rel=1e-12)
    assert ettr(2000, 6.5e-3, 3600.0, recovery_s=180.0).optimal_interval_s is None


TIMES = st.floats(0, 5e4)


@given(
    st.floats(1, 1e4),
    st.floats(1e-5, 0.5),
    st.floats(60, 1e5),
    st.floats(0, 1e4),
    st.floats(0, 1e3),
    TIMES,
    TIMES,
    st.none() | st.floats(1e3, 1e7),
)
def test_all_failures_that_lose_the_state_are_those_without_copies(
    nodes: float,
    rate: float,
    dt: float,
    init: float,
    write: float,
    queue: float,
    recovery: float,
    productive: float | None,
) -> None:
    plain = EttrParameters(nodes, rate, dt, init, write, queue, productive)
    copies = EttrParameters(nodes, rate, dt, init, write, queue, productive, recovery, 0.0, 1.0)
    assert ettr_of(copies) == pytest.approx(ettr_of(plain), rel=1e-9, abs=1e-200)


@given(
    st.floats(1, 1e5),
    st.floats(1e-5, 0.5),
    st.floats(60, 1e5),
    TIMES,
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(["recovery_s", "overhead", "state_lost", "queue_s", "nodes"]),
)
def test_more_of_anything_is_never_better(
    nodes: float, rate: float, dt: float, r: float, o: float, p: float, name: str
) -> None:
    setting = {
        "nodes": nodes,
        "rate_per_node_day": rate,
        "checkpoint_interval_s": dt,
        "write_s": 30.0,
        "queue_s": 60.0,
        "recovery_s": r,
        "overhead": o,
        "state_lost": p,
    }
    value = exact_ettr(EttrParameters(**setting))
    assert 0 <= value <= 1
    more = {**setting, name: setting[name] * 1.1}
    if more["state_lost"] > 1:
        return
    # A recovery that takes longer than a new start with its lost work may be worse than none.
    if name != "state_lost" or r <= setting["queue_s"] + 300.0:
        assert exact_ettr(EttrParameters(**more)) <= value * (1 + 1e-12)


@pytest.mark.parametrize("name", ["recovery", "rate", "nodes", "checkpoint"])
def test_what_a_claim_needs(name: str) -> None:
    job = {"nodes": 2000.0, "rate_per_node_day": 6.5e-3, "checkpoint_interval_s": 3600.0}
    rest = {"write_s": 60.0, "overhead": 0.01, "state_lost": 0.02}
    found = solve(name, 0.92, **job, **rest, recovery_s=120.0)  # type: ignore[arg-type]
    assert found.high is not None
    ends = [found.high, found.low] if name == "checkpoint" else [found.high]
    for end in ends:
        setting = {**job, **rest, "recovery_s": 120.0, found.solved_for: end}
        if name == "nodes":  # a whole number: the next one is too many
            assert exact_ettr(EttrParameters(**setting)) >= 0.92
            setting["nodes"] += 1
            assert exact_ettr(EttrParameters(**setting)) < 0.92
        else:
            assert exact_ettr(EttrParameters(**setting)) == pytest.approx(0.92, rel=1e-6)


def test_the_rate_of_a_store_gives_an_interval(testbed_store: Path) -> None:
    model = mttf(testbed_store).model
    line = ["ettr", testbed_store, "--nodes", "64", "--checkpoint", "1h", "--recovery", "30s"]
    found = json.loads(invoke(*line, "--overhead", "0.02", "--json").stdout)
    at = [
        ettr(64, each / 1000, 3600.0, recovery_s=30.0, overhead=0.02).exact
        for each in (model.rate_per_1000_node_days_, *model.ci95_)
    ]
    assert (found["exact"], found["ci95"]) == (at[0], [at[2], at[1]])
    assert found["assumptions"]["recovery_minutes"] == 0.5


@pytest.mark.parametrize(
    "wrong", [{"recovery_s": -1.0}, {"overhead": math.nan}, {"state_lost": 1.5}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError) as caught:
        ettr(10, 1e-3, 3600.0, **{"recovery_s": 60.0, **wrong})
    assert caught.value.code in ("invalid-value", "out-of-range")


def test_no_simulation_of_another_model() -> None:
    with pytest.raises(InputError) as caught:
        monte_carlo_ettr(SETTINGS[0])
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize("share", ["--overhead", "--state-lost"])
def test_what_copies_cost_is_refused_without_copies(share: str) -> None:
    job = ["--nodes", "2000", "--rate", "6.5e-3", "--checkpoint", "60m", share, "0.1"]
    error = invoke("ettr", *job).exception
    assert error is not None
    assert error.code == "missing-key"
