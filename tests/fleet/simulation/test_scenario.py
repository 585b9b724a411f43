"""Scenarios: TOML there and back, and every impossible key named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.fleet.simulation.scenario import PRESETS, Blast, Lemons, Scenario, parse, scenario


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_toml(name: str) -> None:
    made = scenario(name)
    assert made.name == name
    assert parse(made.to_toml()) == made


positive = st.floats(1e-3, 1e6)


@pytest.mark.examples(10)
@settings(max_examples=30)
@given(
    rate=positive,
    grace=st.floats(0, 1e6),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    factor=positive,
    hours=st.tuples(*[st.floats(0.01, 10)] * 24),
)
def test_any_scenario_survives_toml(
    rate: float, grace: float, text: str, factor: float, hours: tuple[float, ...]
) -> None:
    small = scenario("small")
    made = dataclasses.replace(
        small,
        name=text,
        workload=dataclasses.replace(small.workload, hour_weights=hours),
        scheduler=dataclasses.replace(small.scheduler, grace_s=grace),
        failures=dataclasses.replace(
            small.failures,
            rate_per_node_day=rate,
            lemons=Lemons(nodes={"node03": factor}),
            blasts=(Blast(text, "rack", rate, text),),
        ),
    )
    assert parse(made.to_toml()) == made


def edited(old: str, new: str) -> str:
    text = scenario("small").to_toml()
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("nodes = 16", "nodes = 4", "workload.sizes[4].gpus"),
        ("nodes = 16", "nodes = 0", "cluster.nodes"),
        ("nodes = 16", "nodes = 16.5", "cluster.nodes"),
        ("nodes = 16", "knots = 16", "cluster.knots"),
        ("rate_per_node_day = 0.05", "rate_per_node_day = -1.0", "failures.rate_per_node_day"),
        ("rate_per_node_day = 0.05", "rate_per_node_day = nan", "failures.rate_per_node_day"),
        ('policy = "easy"', 'policy = "lottery"', "scheduler.policy"),
        ('grace = "10m"', 'grace = "soon"', "scheduler.grace"),
        ('grace = "10m"', "grace = true", "scheduler.grace"),
        ("gpus = 32", "gpus = 12", "workload.sizes[3].gpus"),
        ('"low" = 0.6', '"lowest" = 0.6', "workload.sizes[0].qos"),
        ('"low" = 0.6', '"low" = true', "workload.sizes[0].qos.low"),
        ("jobs_per_day = 190.0", "jobs_per_day = 0.0", "workload.jobs_per_day"),
        ("count = 1", "count = 99", "failures.lemons.count"),
        ('state = "FAILED"', 'state = "BORED"', "workload.ends[0].state"),
        ('begin = "2024-01-01T00:00:00Z"', 'begin = "yesterday"', "begin"),
        ('interval = "1h"', 'interval = "0s"', "checkpoint.interval"),
        ('fast_min = "1h"', 'fast_min = "9h"', "repair.fast_min"),
        ("without = []", 'without = ["nobody"]', "cluster.without"),
        ("high = 0.9", "high = 0.95", "failures.components[0].low"),
    ],
)
def test_impossible_keys_are_named(old: str, new: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(edited(old, new))
    with pytest.raises(InputError) as caught:
        scenario(file)
    assert (caught.value.path, caught.value.place) == (str(file), place)


def test_unknown_and_missing_keys_have_codes() -> None:
    with pytest.raises(InputError) as caught:
        parse(edited("grace =", "graec ="))
    found = caught.value
    assert (found.code, found.place) == ("unknown-key", "scheduler.graec")
    assert found.remedy is not None
    assert "grace?" in found.remedy
    with pytest.raises(InputError) as caught:
        parse(edited("nodes = 16\n", ""))
    assert (caught.value.code, caught.value.place) == ("missing-key", "cluster.nodes")


def test_an_empty_size_mix_is_refused() -> None:
    small = scenario("small")
    with pytest.raises(InputError, match=r"workload\.sizes"):
        dataclasses.replace(small, workload=dataclasses.replace(small.workload, sizes=()))


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        (None, "not-found", "rsc1, rsc2, small"),
        ("nodes = = 3", "invalid-syntax", ""),
        ("", "missing-key", "name"),
    ],
)
def test_files_that_are_no_scenario_say_so(
    text: str | None, code: str, fact: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError) as caught:
        scenario(file)
    error = caught.value
    assert (error.code, error.path) == (code, str(file))
    assert fact in f"{error.place} {error.remedy}"


def test_names_of_nodes() -> None:
    small = scenario("small")
    assert small.node_names[0] == "node01"
    named = dataclasses.replace(small.cluster, names="gpu[001-016]")
    made: Scenario = dataclasses.replace(small, cluster=named)
    assert made.node_names[15] == "gpu016"
    with pytest.raises(InputError, match=r"cluster\.names"):
        dataclasses.replace(small, cluster=dataclasses.replace(small.cluster, names="gpu[1-3]"))
