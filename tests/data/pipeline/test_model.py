"""The program against closed forms and brute force; predictions against deterministic pipelines."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from synthetic_traces import loader_trace, stage

from holdfast.data.pipeline.explanation import explain
from holdfast.data.pipeline.model import bottleneck, groups, rate_with, solve
from holdfast.data.pipeline.prediction import (
    plan,
    plan_threads,
    predict,
    relative_error,
)
from holdfast.data.pipeline.stages import Resources, Sharing
from holdfast.errors import InputError

# --- The program ---------------------------------------------------------------------------------


def test_cores_are_shared_in_proportion_to_cost() -> None:
    best = solve([stage("a", 0.010), stage("b", 0.030)], Resources(4.0, 1e9))
    # 40 ms of CPU on 4 cores; theta rounds up, never to 0
    assert best.rate == pytest.approx(100.0, rel=1e-3)
    assert best.parallelism == {"a": 1, "b": 3}


def test_latency_needs_workers_without_cores() -> None:
    best = solve([stage("get", 0.0001, 0.050), stage("work", 0.001)], Resources(1.0, 1e9))
    assert best.rate == pytest.approx(1 / 0.0011, rel=1e-3)
    assert best.parallelism["get"] == math.ceil(best.rate * 0.0501 * (1 - 1e-4))


def test_lock_bounds_threads_and_moves_a_stage_to_processes() -> None:
    stages = [stage("python", 0.010, gil_s=0.010, out_bytes=1e5), stage("decode", 0.010)]
    resources = Resources(8.0, 1e12)
    assert solve(stages, resources).rate == pytest.approx(100.0, rel=1e-3)
    free = solve(stages, resources, executors={"python": ("thread", "process")})
    assert free.executors == {"python": "process", "decode": "thread"}
    assert free.rate == pytest.approx(8 / (0.020 + 1e5 / 1.5e9), rel=1e-2)


def test_bandwidth_and_memory_bound_the_rate() -> None:
    read = stage("read", 0.001, 0.01, out_bytes=1e6, bandwidth_bytes_s=5e7)
    assert solve([read], Resources(8.0, 1e9)).rate == pytest.approx(50.0, rel=1e-3)
    assert solve([read], Resources(8.0, 1e9)).parallelism == {"read": 1}
    heavy = stage("heavy", 0.01, executor="process", worker_bytes=1e9)
    assert solve([heavy], Resources(8.0, 3.5e9)).parallelism == {"heavy": 3}
    with pytest.raises(InputError) as error:
        solve([heavy], Resources(8.0, 5e8))
    assert error.value.code == "out-of-range"


def test_sequential_stages_have_one_worker() -> None:
    best = solve([stage("stream", 0.01, sequential=True), stage("b", 0.001)], Resources(8.0, 1e9))
    assert best.parallelism["stream"] == 1
    assert best.rate == pytest.approx(100.0, rel=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_program_finds_what_brute_force_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    stages = []
    for name in "abc":
        cpu = float(random.uniform(0.001, 0.02))
        stages.append(
            stage(
                name,
                cpu,
                float(random.choice([0.0, 0.03])),
                gil_s=cpu * float(random.uniform(0, 1)),
                out_bytes=float(random.choice([1e4, 5e6])),
                worker_bytes=1e8,
                bandwidth_bytes_s=float(random.choice([math.inf, 4e8])),
            )
        )
    resources = Resources(float(random.choice([1.5, 4.0])), float(random.choice([2e8, 1e10])))
    options = ("thread", "process")
    best = solve(stages, resources, executors=dict.fromkeys("abc", options), most_workers=5)

    def rate(workers: tuple[int, ...], places: tuple[str, ...]) -> float:
        used = sum(w * 1e8 for w, place in zip(workers, places, strict=True) if place == "process")
        rate = rate_with(
            groups(stages),
            resources,
            dict(zip("abc", workers, strict=True)),
            dict(zip("abc", places, strict=True)),  # type: ignore[arg-type]
        )
        return rate if used <= resources.memory_bytes else 0.0

    exhaustive = max(
        rate(workers, places)
        for workers in itertools.product(range(1, 6), repeat=3)
        for places in itertools.product(options, repeat=3)
    )
    assert best.rate == pytest.approx(exhaustive, rel=3e-4)


# --- The bottleneck ------------------------------------------------------------------------------


def test_bottleneck_is_the_stage_with_the_lowest_limit() -> None:
    shared = {"group": "workers", "executor": "process", "parallelism": 4}
    main = {"group": "main", "executor": "main"}
    stages = [
        stage("source", 0.002, 0.030, **shared),
        stage("work", 0.020, **shared),
        stage("consumer", 0.0, 0.005, **main),
    ]
    assert bottleneck(stages)[0].name == "source"
    assert bottleneck(stages)[1] == "latency"
    # 4 workers on one core compute no faster than one
    assert bottleneck(stages, cores=1.0)[0].name == "work"
    for locked, name, kind in [(0.019, "work", "gil"), (0.0, "receive", "latency")]:
        waiting = stage("receive", 0.001, 0.03, **main)
        work = stage("work", 0.02, gil_s=locked, **shared)
        assert bottleneck([work, waiting])[0].name == name
        assert bottleneck([work, waiting])[1] == kind
    slow = [*stages[:2], stage("consumer", 0.0, 0.1, **main)]
    assert bottleneck(slow)[1] == "consumer"


# --- The loader ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("cpu", "blocked"), [(0.01, 0.0), (0.002, 0.03), (0.01, 0.01)])
def test_equal_batches_run_at_the_bound(workers: int, cpu: float, blocked: float) -> None:
    rate, (low, high) = predict(loader_trace(cpu, blocked), {"num_workers": workers})
    bound = min(workers / (cpu + blocked), 4 / cpu)
    assert rate <= bound * 1.02
    assert rate >= bound * (0.85 if workers * cpu / (cpu + blocked) > 3 else 0.97)
    assert low <= rate <= high


def test_consumer_and_unequal_batches_lower_the_rate() -> None:
    assert predict(loader_trace(consumer=0.02), {"num_workers": 8})[0] == pytest.approx(
        50, rel=0.03
    )
    even, uneven = (
        predict(loader_trace(0.001, 0.03, spread=share), {"num_workers": 4})[0] for share in (0, 1)
    )
    assert uneven < 0.95 * even
    # more batches in flight even them out
    more = predict(loader_trace(0.001, 0.03, spread=1), {"num_workers": 4, "prefetch_factor": 8})
    assert more[0] > 1.03 * uneven


def test_handing_over_is_charged_to_the_worker_and_to_the_consumer() -> None:
    """One thread takes all batches: its waiting bounds the rate, whatever the number of workers."""
    base = loader_trace(cpu=0.001, workers=1, cores=16.0)
    points = (Sharing(1, 1.0, 0.002, 0.0004, 0.0006), Sharing(4, 2.0, 0.002, 0.0004, 0.0016))
    trace = replace(base, sharing=points, rate=1 / 0.003)
    # 1 ms and 2 ms to send; then 0.4 + 0.6 ms to receive while the next one is computed
    assert predict(trace, {"prefetch_factor": 4})[0] == pytest.approx(1 / 0.003, rel=0.01)
    assert predict(trace, {"num_workers": 8})[0] == pytest.approx(1 / 0.002, rel=0.01)
    # Between the points: slowed by a third.
    two = predict(trace, {"num_workers": 2})[0]
    assert two == pytest.approx(2 / (0.001 * (1 + 1 / 3) + 0.002), rel=0.01)
    few_cores = replace(trace, resources=Resources(2.0, 1e12))
    assert predict(few_cores, {"num_workers": 8})[0] == pytest.approx(2 / 0.0044, rel=0.01)


def test_threads_send_nothing_and_share_the_lock() -> None:
    points = (Sharing(1, 1.0, 0.002, 0.001, 0.001), Sharing(4, 1.0, 0.002, 0.001, 0.001))
    trace = replace(loader_trace(cpu=0.01, cores=4.0), sharing=points, rate=1 / 0.012)
    assert predict(trace, {"num_workers": 0, "prefetch_factor": 2, "threads": 4})[
        0
    ] == pytest.approx(400, rel=0.02)
    assert predict(trace, {"num_workers": 4})[0] < 350  # 2 ms to send
    source, *others = trace.stages
    locked = replace(trace, stages=(replace(source, gil_s=0.004), *others))
    assert predict(locked, {"num_workers": 0, "prefetch_factor": 2, "threads": 4})[
        0
    ] == pytest.approx(250, rel=0.02)
    assert plan_threads(locked)["threads"] == 4
    assert plan_threads(loader_trace(0.0001, 0.05))["threads"] == 32


def test_a_cache_leaves_the_stages_behind_it() -> None:
    """10 ms of source, of two steps and of collate each; of the first step come 15 MB."""
    parts = [
        stage(name, 0.01, group="main", executor="main", out_bytes=15e6)
        for name in ("source", "transform 1: decode", "transform 2: crop", "collate", "consumer")
    ]
    trace = replace(
        loader_trace(cpu=0.04),
        stages=tuple(parts),
        settings={"num_workers": 0, "prefetch_factor": 2},
        rate=20.0,
    )
    assert predict(trace, {"cache_bytes": 1, "cache_steps": 1})[0] == pytest.approx(20.0, rel=0.01)
    assert predict(trace, {"cache_bytes": 1, "cache_steps": 2})[0] == pytest.approx(25.0, rel=0.01)
    assert predict(trace, {"cache_bytes": 1})[0] == pytest.approx(1 / 0.03, rel=0.01)


def test_whole_epochs_have_no_sampling_error() -> None:
    trace = replace(loader_trace(spread=1.0, batches=100), rate_error=0.2)
    errors = [relative_error(replace(trace, epoch_batches=n)) for n in (None, 200, 101, 100, 30)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.3
    assert errors[1] == pytest.approx(errors[0] * math.sqrt(0.5))
    assert errors[-1] == errors[-2] < 0.05


def test_plan_takes_no_more_workers_than_gain() -> None:
    two_cores = loader_trace(cpu=0.01, cores=2.0)
    best = plan(two_cores)
    assert best["num_workers"] == 2
    assert predict(two_cores, best)[0] == pytest.approx(200, rel=0.05)
    waiting = loader_trace(cpu=0.0005, blocked=0.05, cores=2.0)
    assert predict(waiting, plan(waiting))[0] > 20 * waiting.rate
    assert plan(loader_trace(consumer=0.02))["num_workers"] == 1
    short = replace(loader_trace(cpu=0.0005, blocked=0.05), epoch_batches=20)
    assert plan(short)["num_workers"] == 5
    tiny = replace(short, epoch_batches=3)
    assert plan(tiny)["num_workers"] == 0


@pytest.mark.parametrize("batches", [1, 2, 3, 7, 20, 1000, 100_000, None])
def test_predictions_are_of_whole_epochs(batches: int | None) -> None:
    """Each starts its workers anew: 80 ms each, beside the 4.5 ms of its first batch."""
    points = [Sharing(n, 1.0, 0.0, 0.0, 0.0, 0.08 * n + 0.0045) for n in (1, 2, 4)]
    serial = {"num_workers": 0, "prefetch_factor": 2}
    trace = replace(
        loader_trace(cpu=0.0005, blocked=0.004, cores=2.0),
        settings=serial,
        sharing=tuple(points),
        epoch_batches=batches,
    )
    found = explain(trace)
    counts = [re.search(r"num_workers (\d+)", row["change"]) for row in found.predicted]
    assert all(int(count[1]) <= (batches or math.inf) / 4 for count in counts if count)
    for workers in (1, 2, 4, 8):
        seconds = 0.08 * workers + 0.0045 + ((batches or 1e9) - 1) * 0.0045 / workers
        rate = predict(trace, {"num_workers": workers})[0]
        assert rate == pytest.approx((batches or 1e9) / seconds, rel=0.03)
    # Half a second of loading is what a few workers take to start.
    assert (plan(trace)["num_workers"] == 0) == (batches is not None and batches < 50)
    # and where they run already, none are better
    busy = replace(trace, settings={**serial, "num_workers": 4}, rate=(batches or 1e9) / seconds)
    assert (plan(busy)["num_workers"] == 0) == (batches is not None and batches < 50)


def test_short_traces_have_wide_intervals() -> None:
    assert relative_error(loader_trace(batches=1)) == math.inf
    few, many = (loader_trace(spread=1.0, batches=count) for count in (4, 400))
    assert relative_error(few) > 5 * relative_error(many)
    low, high = predict(few, {"num_workers": 2})[1]
    assert high > 2 * low


# --- What is said --------------------------------------------------------------------------------


@pytest.mark.parametrize("slower", [1.0, 0.1])
def test_gains_are_relative_to_the_measured_rate(slower: float) -> None:
    """A loaded machine is slow under any setting: what is predicted is a factor."""
    idle = loader_trace(cpu=0.01, workers=2)
    loaded = replace(idle, rate=slower * idle.rate, queued=1 - slower)
    for settings in ({"num_workers": 4}, {"num_workers": 1}, {"prefetch_factor": 4}):
        rate, (low, high) = predict(loaded, settings)
        assert rate == pytest.approx(slower * predict(idle, settings)[0])
        # and known the less, the more of the load is in it
        assert (high - low) / rate >= (1 + 1.9 * (1 - slower)) * 0.58
    best = explain(loaded)
    assert max(row["rate"] for row in best.predicted) < 2.05 * loaded.rate
    # nothing is predicted to gain from the neighbours' leaving
    full = replace(loader_trace(cpu=0.01, workers=4), rate=40.0, queued=0.9)
    assert plan(full) == full.settings


def test_explain_names_the_stage_or_the_consumer() -> None:
    answer = explain(loader_trace(0.001, 0.03, workers=2))
    assert (answer.bottleneck, answer.kind, answer.candidates) == ("source", "latency", ())
    assert answer.to_dict()["unknown"] == []
    answer = explain(loader_trace(0.001, workers=2, consumer=0.02))
    assert (answer.bottleneck, answer.kind) == ("consumer", "consumer")


def test_explain_says_that_it_cannot_tell() -> None:
    none = explain(loader_trace(batches=1)).to_dict()
    assert (none["bottleneck"], none["kind"]) == (None, None)
    assert all(row["interval"] == [0.0, None] for row in none["predicted"])
    assert set(none["candidates"]) == {"source", "collate"}
    assert len(none["unknown"]) == 1
    # One batch is enough where a stage takes thirty times as long as any other.
    clear = explain(loader_trace(0.001, 0.03, batches=1))
    assert clear.bottleneck == "source"
    # 10 ms in a worker, and 10.1 ms in the consumer
    tie = explain(loader_trace(0.0001, 0.01, consumer=0.0102, spread=0.5, batches=40))
    assert (tie.bottleneck, tie.kind) == (None, None)
    assert set(tie.candidates) == {"source", "consumer"}
    # The same costs, of epochs that were measured whole.
    sure = explain(replace(loader_trace(0.0001, 0.01, consumer=0.0112), epoch_batches=100))
    assert sure.bottleneck == "consumer"


def test_what_is_doubtful_is_in_the_json() -> None:
    trace = loader_trace(0.001, 0.03, workers=2)
    for doubtful in (replace(trace, queued=0.5), replace(trace, stream=True)):
        answer = explain(doubtful)
        assert answer.bottleneck == "source"
        (doubt,) = answer.to_dict()["unknown"]
        assert doubt["text"] == answer.document()["unknown"][0]["text"]
        assert doubt["doubt"] == (doubtful.queued > 0)  # above the headline
    assert explain(replace(trace, queued=0.5)).to_dict()["queued"] == 0.5
