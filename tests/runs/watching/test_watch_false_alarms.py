"""How often the watcher cries wolf over healthy trainings, and how late it sees a fault."""

from __future__ import annotations

from statistics import median

import pytest

from runs_watch import FAULT_AT_S, FAULTS, HEALTHY, SPEEDS, alarms, cost, delays

MOST_PER_1000_HOURS = 5
"""That docs/runs-watch.md promises."""


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", HEALTHY)
def test_six_healthy_hours_raise_nothing(name: str) -> None:
    assert (
        alarms(HEALTHY[name].but(hours=6, ranks=2 if HEALTHY[name].step_s > 2 else 1, seed=7)) == []
    )


@pytest.mark.full
def test_a_thousand_healthy_hours_raise_few() -> None:
    assert sum(training.hours for training in HEALTHY.values()) == 1000
    found = [alarm for training in HEALTHY.values() for alarm in alarms(training.but(seed=11))]
    assert len(found) <= MOST_PER_1000_HOURS, [alarm.sentence for alarm in found]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("fault", "most_s"),
    [
        ("steps take twice as long", 225),
        ("the input halves the throughput", 225),
        ("a hang", 135),
        ("a death", 75),
    ],
)
def test_a_fault_is_seen_soon(fault: str, most_s: float) -> None:
    (_, change) = FAULTS[fault]
    training = SPEEDS["10 s"].but(checkpoint_every=0, evaluation_every=0, hours=4)
    late = delays(training.but(**dict.fromkeys(change, FAULT_AT_S)), fault, 3)
    assert all(value is not None and 0 < value <= most_s for value in late), late


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("speed", SPEEDS)
def test_every_fault_is_seen(fault: str, speed: str) -> None:
    late = delays(SPEEDS[speed], fault, 10)
    assert None not in late
    bounds = {"1 s": 130, "10 s": 200, "10 s, noisy (sigma 0.3)": 400, "60 s": 1200}
    assert median(value for value in late if value is not None) <= bounds[speed]


def test_a_thousand_ranks_are_followed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """That it keeps up is measured by benchmarks/runs_watch.py; here, that it judges them all."""
    _, _, events = cost(1024, 5, tmp_path_factory.mktemp("many"))
    assert events == 1024 * (1 + 2 * 5)
