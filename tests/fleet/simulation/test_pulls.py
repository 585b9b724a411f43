"""A rule that pulls nodes, played: its pulls worked out again, its repairs, and failures after them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.fleet.simulation.changes import apply
from holdfast.fleet.simulation.engine import Run, run
from holdfast.fleet.simulation.records import Detected
from holdfast.fleet.simulation.scenario import scenario

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
LEMONS = (
    "failures.rate_per_node_day=0.2; lemons=0; failures.lemons.nodes={node03=20.0, node09=20.0}"
)
RULE = "pulls.failures=3; pulls.within=7d; pulls.repair=4h; pulls.horizon=14d"


def played(change: str, *, days: float = 240, seed: int = 3) -> Run:
    return run(apply(scenario("small"), f"{LEMONS}; {change}"), days=days, seed=seed)


@pytest.mark.parametrize("fixed", [0, 1])
def test_pulls_are_those_of_the_rule(fixed: int) -> None:
    history = played(f"{RULE}; pulls.fixed={fixed}")
    ended = set(history.attempts.failure.tolist())
    recent: dict[int, list[int]] = defaultdict(list)
    asked: dict[int, int] = defaultdict(int)
    expected = []
    for place, row in enumerate(history.failures):
        if row.kind == Detected.LOW or place not in ended or row.detected_ms < asked[row.node]:
            continue
        recent[row.node].append(row.detected_ms)
        if sum(each >= row.detected_ms - 7 * DAY_MS for each in recent[row.node]) >= 3:
            expected.append(place)
            asked[row.node] = row.detected_ms + 14 * DAY_MS
            recent[row.node].clear()
    assert len(expected) > 10
    assert np.flatnonzero(history.failures.pulled).tolist() == expected
    over = history.failures[history.failures.pulled & (history.failures.repaired_ms >= 0)]
    assert (over.repaired_ms - over.out_ms).min() == 4 * HOUR_MS


def test_a_fixed_node_fails_as_a_healthy_one_until_the_horizon() -> None:
    """Failures per day of the two lemons in the horizons of their pulls, beside those of sound nodes."""
    rates = {}
    for fixed in (0, 1):
        history = played(f"{RULE}; pulls.failures=1; pulls.fixed={fixed}", days=480)
        f = history.failures
        lemons = np.isin(f.node, (2, 8))
        pulls = f[f.pulled & lemons & (f.detected_ms < 460 * DAY_MS)]
        of_node, at = f.node[:, None] == pulls.node, f.time_ms[:, None]
        inside = (at > pulls.repaired_ms) & (at < pulls.detected_ms + 14 * DAY_MS)
        after = int((of_node & inside).sum())
        rates[fixed] = after / (14 * len(pulls))
        sound = (~lemons).sum() / 14 / 480
        assert len(pulls) > 40
    assert rates[1] == pytest.approx(sound, rel=0.25)
    assert rates[0] > 5 * rates[1]


def test_no_rule_changes_nothing() -> None:
    plain, never = played("name=small", days=30), played("pulls.failures=1000", days=30)
    for name in ("attempts", "failures"):
        assert getattr(plain, name).tolist() == getattr(never, name).tolist()


def test_more_failures_than_are_remembered_are_refused() -> None:
    with pytest.raises(InputError) as error:
        apply(scenario("small"), "pulls.failures=1001")
    assert (error.value.code, error.value.place) == ("invalid-value", "pulls.failures")
