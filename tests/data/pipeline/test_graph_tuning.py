"""Stage graphs under the model: closed forms, and settings that mean what they say."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.data import pipeline as room
from holdfast.data.pipeline import tuning
from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.prediction import plan, rate_of
from holdfast.data.pipeline.stages import Resources, Stage, Trace
from holdfast.errors import HoldfastError


def traced(**changes: Any) -> Trace:
    """A source that waits 0.4 s per batch, and a stage that computes 0.1 s, 0.05 s of it under the lock."""
    stages = (
        Stage("get", "get", "thread", 1, 8.0, 0.0, blocked_s=0.4),
        Stage("decode", "decode", "thread", 1, 8.0, 0.1, gil_s=0.05),
        Stage("consumer", "main", "main", 1, 1.0, 0.001, gil_s=0.001, sequential=True),
    )
    settings = {"get": 1, "decode": 1}
    options = {"resources": Resources(cores=4.0, memory_bytes=1e9), "settings": settings, **changes}
    return Trace(stages, 10.0, 25, 2.5, 0.01, 1.0, costs=np.full((25, 2), 0.2), **options)


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 2.5),  # 1 / 0.4
        ({"get": 3}, 7.5),
        ({"get": 8}, 10.0),  # 1 / 0.1
        ({"get": 40, "decode": 8}, 1 / 0.051),  # the lock
        ({"get": 40, "decode": 8, "decode executor": 1}, 4 / 0.101),  # the cores
    ],
)
def test_rate_of_settings(settings: dict[str, int], rate: float) -> None:
    trace = traced()
    assert rate_of(trace, settings, trace.stages) == pytest.approx(rate, rel=1e-6)


def test_plan_uses_the_fewest_workers_and_leaves_the_lock() -> None:
    trace = traced()
    threads = plan(trace)
    assert threads == {"get": 8, "decode": 2}  # 19.6 batches per second, by the lock
    free = plan(trace, {"decode": ("thread", "process")})
    assert free == {"get": 16, "decode": 4, "decode executor": 1}
    explained = room.explain(trace)
    assert (explained.bottleneck, explained.kind) == ("get", "latency")
    assert explained.predicted[0]["change"] == "get 8, decode 2"
    assert explained.predicted[0]["rate"] == pytest.approx(1 / 0.051)


def test_settings_are_applied_and_read_from_a_file(tmp_path: Path) -> None:
    graph = Pipeline(range(9)).map(abs, threads=2).map(np.sqrt, name="square root")
    path = tmp_path / "settings.toml"
    path.write_text('source = 2\nabs = 3\n"square root" = 4\n"square root executor" = 1\n')
    tuned = room.apply(graph, path)
    assert [(s.name, s.concurrency, s.executor) for s in tuned.steps] == [
        ("source", 2, "thread"),
        ("abs", 3, "thread"),
        ("square root", 4, "process"),
    ]
    assert list(tuned) == list(graph)


def test_tuning_verifies_and_never_returns_what_is_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "require_precise", lambda _: None)
    graph = Pipeline(range(64)).map(lambda x: x + 1, name="plus one").batch(4, np.array)
    path = tmp_path / "settings.toml"
    tuned = room.tune(lambda: graph, seconds=0.5, output=path)
    assert tuned.after >= tuned.before
    assert tuned.rolled_back == (
        bool(tuned.trials) and tuned.settings == {"source": 1, "plus one": 1, "batch": 1}
    )
    assert graph.epoch == 0
    assert [batch.tolist() for batch in room.apply(graph, path)] == [
        list(range(i + 1, i + 5)) for i in range(0, 64, 4)
    ]


def test_workers_do_not_run_the_script_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(HoldfastError, match="__main__"):
        list(Pipeline(range(3)))
