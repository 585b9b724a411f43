"""Changes of a what-if: the grammar, every key of a scenario, and what lemons and nodes mean."""

from __future__ import annotations

import dataclasses
import pickle
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from holdfast.errors import InputError
from holdfast.fleet.simulation.changes import apply, keys, parse
from holdfast.fleet.simulation.scenario import Lemons, Scenario, scenario
from holdfast.fleet.simulation.scenario import parse as parse_toml


@pytest.fixture(scope="module")
def small() -> Scenario:
    return scenario("small")


@pytest.fixture(scope="module")
def named(small: Scenario) -> Scenario:
    """A fleet whose lemons are known by name, as calibration finds them."""
    lemons = Lemons(nodes={"node05": 10.0, "node09": 4.0})
    return replace(small, failures=replace(small.failures, lemons=lemons))


CASES = [
    # change, path in the TOML of the scenario, what stands there then
    ("checkpoint.write=10s", "checkpoint.write", "10s"),
    ("checkpoint.write*0.5", "checkpoint.write", "30s"),
    ("checkpoint.init+1m", "checkpoint.init", "6m"),
    ("checkpoint.init=+1m", "checkpoint.init", "6m"),
    ("checkpoint.init-60", "checkpoint.init", "4m"),
    ("write = 90", "checkpoint.write", "90s"),
    ("checkpoint.interval=1h30m", "checkpoint.interval", "90m"),
    ("preempt_after=4h", "scheduler.preempt_after", "4h"),
    ("requeue_delay*2", "scheduler.requeue_delay", "4m"),
    ("grace=0", "scheduler.grace", "0s"),
    ("jobs_per_day*1.1", "workload.jobs_per_day", 209.00000000000003),
    ("policy=fcfs", "scheduler.policy", "fcfs"),
    ("preemption=off", "scheduler.preemption", False),
    ("save_on_signal=Off", "checkpoint.save_on_signal", False),
    ("users=1_000", "workload.users", 1000),
    ("users*0.3", "workload.users", 4),
    ("short_limits=0.02", "workload.short_limits", 0.02),
    ("failure_rate*0.5", "failures.rate_per_node_day", 0.025),
    ("detection=1m", "detection", {"check_interval": "1m", "heartbeat": "1m"}),
    ("repair*0", "repair", dict.fromkeys(("fast_min", "fast_max", "slow_min", "slow_max"), "0s")),
    ("workload.hour_weights[1]=3", "workload.hour_weights.1", 3.0),
    ("workload.day_weights=[1, 2, 3, 4, 5, 6, 7]", "workload.day_weights", [1, 2, 3, 4, 5, 6, 7]),
    ("workload.sizes[3].hours*2", "workload.sizes.3.hours", 5.0),
    ("workload.sizes[0].qos.high=0.5", "workload.sizes.0.qos.high", 0.5),
    ("failures.lemons.nodes.node03=7", "failures.lemons.nodes.node03", 7.0),
    ("qos.priority+1", "qos.2.priority", 4),
    ("begin=2025-02-03T00:00:00Z", "begin", "2025-02-03T00:00:00Z"),
    ("grace=1m; init=1m; grace*2", "scheduler.grace", "2m"),
    ("nodes=+4", "cluster.nodes", 20),
    ("cluster.nodes-4", "cluster.nodes", 12),
]


@pytest.mark.parametrize(("change", "path", "expected"), CASES)
def test_a_change_is_made(small: Scenario, change: str, path: str, expected: Any) -> None:
    value: Any = tomllib.loads(apply(small, change).to_toml())
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    assert value == expected


def test_a_list_without_a_place_changes_every_item(small: Scenario) -> None:
    after = apply(small, "workload.sizes.hours*2").workload.sizes
    assert [each.hours for each in after] == [2 * each.hours for each in small.workload.sizes]
    after_weights = apply(small, "workload.hour_weights*2").workload.hour_weights
    assert after_weights == tuple(2 * each for each in small.workload.hour_weights)


WRONG = [
    # change, code, what stands in the places that programs and people look at
    ("", "empty-input", ""),
    (";;", "empty-input", ""),
    ("faster", "invalid-syntax", "KEY=VALUE"),
    ("=3", "invalid-syntax", "KEY=VALUE"),
    ("failur_rate*0.5", "unknown-key", "failure_rate"),
    ("checkpoint.wirte=3s", "unknown-key", "checkpoint.write"),
    ("checkpoint=3s", "unknown-key", "checkpoint.interval or checkpoint.write"),
    ("interval=3m", "unknown-key", "scheduler.interval or checkpoint.interval"),
    ("checkpoint[1].write=3m", "invalid-syntax", "checkpoint[1].write"),
    ("workload.sizes[99].hours=3", "conflict", "[0] to [4]"),
    ("write=soon", "invalid-value", "a duration such as"),
    ("failure_rate=many", "invalid-value", "a finite number"),
    ("failure_rate*inf", "invalid-value", "a finite number"),
    ("failure_rate-25%", "invalid-value", "a finite number"),
    ("preemption=3", "invalid-value", "on or off"),
    ("policy+fcfs", "invalid-value", "policy=VALUE"),
    ("workload.day_weights=[1, 'a']", "invalid-value", "workload.day_weights[1]"),
    ("workload.day_weights=[1]", "invalid-value", "7 numbers"),
    ("policy=magic", "unknown-name", "easy"),
    ("init-10m", "invalid-value", "a number >= 0.0"),
    ("init=-1", "invalid-value", "a duration such as"),
    ("failure_rate=-0.1", "invalid-value", "a number >= 0.0"),
    ("nodes=2", "invalid-value", "GPUs of the nodes in service"),
    ("lemons=maybe", "invalid-value", "lemons=off"),
    ("replace=node99", "invalid-value", "node99"),
    ("replace=", "invalid-value", "host list"),
    ("replace=node01", "conflict", "lemons=off"),
]


@pytest.mark.parametrize(("change", "code", "fact"), WRONG)
def test_what_cannot_be_made_says_why(small: Scenario, change: str, code: str, fact: str) -> None:
    with pytest.raises(InputError) as caught:
        apply(small, change)
    error = caught.value
    assert error.code == code
    assert fact in f"{error.place} {error.found} {error.expected} {error.remedy}"


def test_a_wrong_key_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        parse("lemon=off")
    assert caught.value.expected == "lemons"
    assert "--print-scenario" in str(caught.value.remedy)
    assert len(str(caught.value)) < 300


def test_every_number_of_a_scenario_can_be_scaled(small: Scenario) -> None:
    """`KEY*1` of each key that holds numbers changes nothing; of the others, it is refused."""
    refused = []
    for key in keys():
        try:
            assert apply(small, f"{key}*1") == small, key
        except InputError:
            refused.append(key)
    words = ["lemons", "replace", "pull"]
    texts = [
        "name",
        "cluster.names",
        "cluster.without",
        "qos.name",
        "workload.ends.state",
    ]
    texts += ["begin", "scheduler.policy", "scheduler.preemption"]
    texts += ["failures.components.name", "failures.components.check", "checkpoint.mode"]
    assert sorted(refused) == sorted([*words, *texts, "checkpoint.save_on_signal"])


@pytest.mark.examples(8)
@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.sampled_from(["checkpoint.write", "checkpoint.interval", "scheduler.grace"]).flatmap(
            lambda key: st.tuples(st.just(key), st.sampled_from("=*+"), st.integers(1, 10_000))
        ),
        min_size=1,
        max_size=4,
    )
)
def test_edits_are_made_in_turn_and_survive_toml(edits: list[tuple[str, str, int]]) -> None:
    """Against arithmetic on a dictionary; the result reads back from its own TOML."""
    before = scenario("small")
    values = {
        "checkpoint.write": before.checkpoint.write_s,
        "checkpoint.interval": before.checkpoint.interval_s,
        "scheduler.grace": before.scheduler.grace_s,
    }
    for key, operator, number in edits:
        old = values[key]
        values[key] = {"=": number, "*": old * number, "+": old + number}[operator]
    after = apply(
        before, "; ".join(f"{key} {operator} {number}" for key, operator, number in edits)
    )
    assert after.checkpoint.write_s == values["checkpoint.write"]
    assert after.checkpoint.interval_s == values["checkpoint.interval"]
    assert after.scheduler.grace_s == values["scheduler.grace"]
    assert parse_toml(after.to_toml()) == after
    untouched = {"failures", "cluster", "qos", "workload", "repair", "detection"}
    for each in dataclasses.fields(Scenario):
        if each.name in untouched:
            assert getattr(after, each.name) == getattr(before, each.name)


def mean_rate(healthy: float, factors: Sequence[float], made: Scenario) -> float:
    """Of nodes in service: weighted by the share of time that repairs leave each of them."""
    parts, repair = made.failures.components, made.repair
    ending = sum(part.share * (1 - part.low) for part in parts) / sum(part.share for part in parts)
    slow = sum(part.share * part.permanent for part in parts) / sum(part.share for part in parts)
    fast_days = (repair.fast_min_s + repair.fast_max_s) / 2 / 86_400
    slow_days = (repair.slow_min_s + repair.slow_max_s) / 2 / 86_400
    outage_days = (1 - slow) * fast_days + slow * slow_days
    rates = [healthy * factor for factor in factors]
    up = [1 / (1 + rate / ending * outage_days) for rate in rates]
    return sum(r * u for r, u in zip(rates, up, strict=True)) / sum(up)


def rate_of_each_node(made: Scenario) -> dict[str, float]:
    """Lemons' and healthy nodes' rates: those whose mean is the scenario's, by bisection."""
    factors = {name: made.failures.lemons.nodes.get(name, 1.0) for name in made.node_names}
    healthy = brentq(
        lambda rate: mean_rate(rate, [*factors.values()], made) - made.failures.rate_per_node_day,
        1e-9,
        2 * made.failures.rate_per_node_day,
        xtol=1e-16,
    )
    return {name: healthy * factor for name, factor in factors.items()}


@pytest.mark.parametrize(
    ("change", "healthy_now"),
    [
        ("lemons=off", {"node05", "node09"}),
        ("replace=node05", {"node05"}),
        ("replace=node[05,09]", {"node05", "node09"}),
        ("pull=node05", set()),
        ("nodes+3", set()),
        ("pull=node02; nodes=12", set()),
        ("repair*3", set()),
        ("failures.components.high*0.5", set()),
        ("checkpoint.write=3m", set()),
    ],
)
def test_nodes_that_stay_keep_their_rates(
    named: Scenario, change: str, healthy_now: set[str]
) -> None:
    before, after = rate_of_each_node(named), rate_of_each_node(apply(named, change))
    healthy = min(before.values())
    for name, rate in after.items():
        expected = healthy if name in healthy_now else before.get(name, healthy)
        assert rate == pytest.approx(expected, rel=1e-9), name


def test_lemons_that_the_seed_chooses_count_in_the_mean(small: Scenario) -> None:
    off = apply(small, "lemons=off")
    assert off.failures.lemons.count == 0
    healthy = off.failures.rate_per_node_day  # one of 16 fails 12 times as often
    assert mean_rate(healthy, [1.0] * 15 + [12.0], small) == pytest.approx(0.05, rel=1e-9)
    three = apply(small, "lemons=3").failures
    assert three.lemons.count == 3
    expected = mean_rate(healthy, [1.0] * 13 + [12.0] * 3, small)
    assert three.rate_per_node_day == pytest.approx(expected, rel=1e-9)


def test_new_nodes_come_after_the_old_ones(named: Scenario) -> None:
    after = apply(apply(named, "nodes+2"), "nodes+1")
    assert after.node_names[:16] == named.node_names
    assert len(set(after.node_names)) == after.cluster.nodes == 19


def test_pulled_nodes_are_out_of_service_and_the_others_stay(named: Scenario) -> None:
    after = apply(named, "pull=node09; pull=node[02,05]")
    assert after.cluster.without == ("node02", "node05", "node09")
    assert after == replace(named, cluster=after.cluster)
    assert apply(named, "cluster.without=node02, node05, node09") == after
    with pytest.raises(InputError) as caught:  # the largest jobs no longer fit
        apply(named, "pull=node[01-09]")
    assert (caught.value.place, caught.value.found) == ("workload.sizes[4].gpus", "64")


def test_changes_cross_to_other_processes() -> None:
    edits = parse("lemons=off; checkpoint.write=30s")
    assert pickle.loads(pickle.dumps(edits)) == edits
