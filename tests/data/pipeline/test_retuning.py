"""Changing concurrency while a pipeline runs: bounded, and never worse than the start."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.retuning import TRIALS, Climb

CEILING = 6


def settle(
    climb: Climb, rate: Callable[[Mapping[str, int]], float], costs: dict[str, float]
) -> int:
    """Run windows until nothing changes; the number of windows."""
    for window in range(1000):
        now = rate(climb.limits)
        occupancy = {name: now * costs[name] / climb.limits[name] for name in costs}
        if not climb.observe(now, 1.0, occupancy):
            return window
    raise AssertionError("it does not settle")


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.integers(1, CEILING),
    st.integers(1, 40),
)
def test_reaches_the_best_of_the_grid(costs: list[int], start: int, cores: int) -> None:
    """Rate = min over stages of theta / cost, and of the cores: the optimum is known."""
    times = {str(i): cost / 10 for i, cost in enumerate(costs)}

    def rate(limits: Mapping[str, int]) -> float:
        stages = min(limits[name] / times[name] for name in times)
        return min(stages, cores / sum(times.values()))

    climb = Climb(dict.fromkeys(times, start), CEILING, trials=100)
    settle(climb, rate, times)
    best = max(
        rate(dict(zip(times, values, strict=True)))
        for values in itertools.product(range(1, CEILING + 1), repeat=len(times))
    )
    assert rate(climb.limits) >= rate(dict.fromkeys(times, start))
    assert rate(climb.limits) >= best / 1.05 - 1e-9


def test_steps_that_do_not_pay_are_taken_back() -> None:
    """Threads that hold the interpreter lock: more of them are slower."""
    climb = Climb({"a": 1, "b": 1}, CEILING)
    settle(climb, lambda limits: 1 / sum(limits.values()), {"a": 1.0, "b": 1.0})
    assert climb.limits == {"a": 1, "b": 1}
    assert climb.accepted == []


def test_trials_are_bounded_and_a_fed_consumer_is_left_alone() -> None:
    climb = Climb({"a": 1}, 10**9)
    settle(climb, lambda limits: float(limits["a"]), {"a": 1.0})
    assert climb.trials_left == 0
    assert len(climb.accepted) == TRIALS
    fed = Climb({"a": 1}, CEILING)
    assert not fed.observe(1.0, 0.0, {"a": 1.0})
    assert fed.limits == {"a": 1}


def test_gates_follow_while_the_pipeline_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3)

    def meet(position: int) -> int:
        if 30 <= position < 90:  # passes only if three run at a time
            together.wait(timeout=60)
        return position

    def raise_at_once(climb: Climb, *_: object) -> bool:
        climb.limits["meet"] = 3
        return True

    monkeypatch.setattr(Climb, "observe", raise_at_once)
    pipeline = Pipeline(range(120)).map(meet).live(4, window_s=0.0)
    assert list(pipeline) == list(range(120))
    assert pipeline.failures == ()
    next(iter(pipeline))
    assert {step.name: step.concurrency for step in pipeline.steps} == {"source": 1, "meet": 3}
