"""Tracing and tuning of real loaders: slow stages are named, data stay the same, failures are located."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from slow_stages import KINDS, POSITIONS, Compose, Samples, pipeline
from synthetic_traces import consumed, loader_trace, records
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from holdfast.data import pipeline as room
from holdfast.data.pipeline import recording, tuning
from holdfast.data.pipeline.accounting import (
    account,
    batch_costs,
    read_records,
    send_costs,
    shared_bandwidth,
)
from holdfast.data.pipeline.cached_samples import CachedSamples
from holdfast.data.pipeline.encoding import digest
from holdfast.data.pipeline.measuring import Run, WorkerDiedError, _ended_workers, measure
from holdfast.data.pipeline.model import bottleneck
from holdfast.errors import InputError
from holdfast.targets import load


class Drawing(Dataset[Any]):
    """Samples with an augmentation: drawn by index, or from the global generators."""

    def __init__(self, transform: Callable[[Any], Any], by_index: bool = True, wait: float = 0.0):
        self.transform, self.by_index, self.wait = transform, by_index, wait
        self.draws = not by_index

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        threading.Event().wait(self.wait)
        generator = torch.Generator().manual_seed(index) if self.by_index else None
        sample = {
            "x": torch.rand(8, generator=generator),
            "index": index,
            "name": f"sample {index}",
        }
        return self.transform(sample)


class Stream(IterableDataset[Any]):
    draws = False

    def __iter__(self) -> Any:
        return iter(torch.arange(1600.0).split(1))


class Divided(Stream):
    def __iter__(self) -> Any:
        worker = get_worker_info()
        return itertools.islice(
            super().__iter__(),
            worker.id if worker else 0,
            None,
            worker.num_workers if worker else 1,
        )


class Noisy(Divided):
    def __iter__(self) -> Any:
        return (sample + torch.rand(1) for sample in super().__iter__())


def same(sample: Any) -> Any:
    return sample


def drawn(sample: Any) -> Any:
    return {**sample, "noise": torch.rand(1), "choice": random.random(), "shift": np.random.rand()}  # noqa: NPY002


def hashes(loader: Any) -> list[str]:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    return [digest(batch) for batch in loader]


# --- Injected slow stages ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", POSITIONS)
def test_slow_stage_is_named(kind: str, position: str, workers: int) -> None:
    stages = account(records(kind, position), consumed(0.0), workers)
    stage, limited = bottleneck(stages, cores=2.0)
    assert (stage.name, limited) == (position, kind)
    assert stage.cpu_s + stage.blocked_s == pytest.approx(0.016, rel=0.25)
    assert stage.visits == (1 if position == "collate" else 4)


def test_slow_consumer_is_named() -> None:
    stages = account(records("cpu", "source"), consumed(0.03), workers=2)
    stage, kind = bottleneck(stages, cores=2.0)
    assert (stage.name, kind) == ("consumer", "consumer")


def test_what_reading_clocks_takes_is_not_charged(tmp_path: Path) -> None:
    """Batches of 1 ms, of which every tenth is traced and takes 2 ms: 20 calls, 50 us each."""
    stages = {"source": [20, 1_300_000, 0, 0, 0, 0], "collate": [1, 200_000, 0, 0, 0, 0]}
    lines = [
        {
            "batch": 10 * number + 1,
            "samples": 20,
            "detailed": False,
            "stages": stages,
            "process_cpu": 2_050_000,
            "plain": [9 * number, 9 * number * 1_000_000],
            "clocks": 50_000,
            "details": {},
            "held": {},
            "serving_queued": 0,
        }
        for number in range(20)
    ]
    (tmp_path / "worker-1-7.jsonl").write_text("\n".join(map(json.dumps, lines)))
    taken = read_records(tmp_path, workers=2)
    assert [record["number"] for record in taken[:2]] == [21, 41]
    assert batch_costs(taken)[:, 0] == pytest.approx(0.000975)  # 1.5 ms less 21 x 25 us
    assert send_costs(taken) == pytest.approx(0.000025)


def test_shared_bandwidth_is_seen_by_more_workers() -> None:
    alone, together = (records("latency", "source", blocked=wait) for wait in (0.016, 0.032))
    source, *_ = account(alone, consumed(0.0), workers=1)
    assert source.kind == "latency"
    shared = shared_bandwidth(source, alone, together, 2)
    assert shared.kind == "bandwidth"
    assert shared.blocked_s == pytest.approx(0.016)
    # Two workers move 40 kB in 32 ms at a time.
    assert shared.bandwidth_bytes_s == pytest.approx(2 * source.out_bytes / 0.032, rel=0.01)
    assert shared_bandwidth(source, alone, alone, 2) is source


def test_waiting_for_a_worker_in_the_run_queue_is_not_receiving() -> None:
    """The consumer waits 20 ms per batch for what a worker hands over, as the machine is loaded."""
    run = replace(consumed(0.0), receive_wait_s=20 * 0.020)

    def answer(served: float, queued: float) -> tuple[str, str]:
        lines = records("cpu", "source")
        for line in lines:
            line["serving_queued"] = served
            for times in line["stages"].values():
                times[2] = queued * times[1]
        stage, kind = bottleneck(account(lines, run, 2), cores=2.0)
        return stage.name, kind

    assert answer(served=0.0, queued=0.0) == ("receive", "latency")  # for nobody's load
    assert answer(served=0.015e9, queued=0.0) == ("source", "cpu")
    assert answer(served=0.0, queued=3.0) == ("source", "cpu")


def test_time_in_the_run_queue_of_the_thread_that_serves_is_per_batch(tmp_path: Path) -> None:
    lines = [{"batch": 10 * n, "serving_queued": 1000 * n, "plain": [0, 0]} for n in (1, 2, 3)]
    for line in lines:
        line |= {
            "stages": {"source": [1, 1, 0, 0, 0, 0]},
            "process_cpu": 1,
            "clocks": 0,
            "detailed": 0,
        }
    (tmp_path / "worker-0-7.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [record["serving_queued"] for record in read_records(tmp_path)] == [100.0, 100.0]


@pytest.fixture
def burners() -> Iterator[None]:
    """As many processes that compute as there are cores."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    yield
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.full
@pytest.mark.usefixtures("burners")
@pytest.mark.parametrize(("kind", "share"), [("cpu", 0.0), ("gil", 1.0)])
def test_share_of_the_lock_under_load(kind: str, share: float) -> None:
    for batch in (4, None):
        loader = pipeline(kind, "source", workers=2, batch_size=batch)
        traced = room.trace(loader, 8.0, calibration_s=0)
        source = traced.stage[f"source: {kind}"]
        assert source.gil_s / source.cpu_s == pytest.approx(share, abs=0.1)
        assert room.explain(traced).bottleneck == source.name


@pytest.mark.full
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", POSITIONS)
def test_measured_slow_stage_is_named(kind: str, position: str, workers: int) -> None:
    answer = room.explain(room.trace(pipeline(kind, position, workers=workers), 1.5))
    # What the source calls is a stage of its own.
    name = f"source: {kind}" if position == "source" else position
    assert (answer.bottleneck, answer.kind) == (name, kind)


@pytest.mark.full
def test_measured_slow_consumer_is_named() -> None:
    loader = DataLoader(Drawing(same), batch_size=4)
    wait = threading.Event().wait
    answer = room.explain(room.trace(loader, 2.0, lambda _: wait(0.1), calibration_s=0))
    assert (answer.bottleneck, answer.kind) == ("consumer", "consumer")
    assert answer.trace.starved < 0.5


@pytest.mark.full
def test_measured_shared_bandwidth_is_seen_by_more_workers() -> None:
    lock = torch.multiprocessing.get_context("fork").Lock()

    def fetch(_: int, __: int) -> None:
        with lock:  # one at a time, whatever the number of workers
            threading.Event().wait(0.003)

    loader = DataLoader(Samples(Compose([]), fetch), batch_size=4, collate_fn=list)
    traced = room.trace(loader, 0.3, calibration_s=0.2)
    slow = max(traced.stages, key=lambda part: part.blocked_s)  # "source", or what it calls
    assert slow.kind == "bandwidth"
    answer = room.explain(traced)
    assert all(row["rate"] < 2.5 * traced.rate for row in answer.predicted)


def test_costs_are_accounted_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "OVERHEAD", math.inf)  # every batch is traced
    traced = room.trace(
        DataLoader(Drawing(Compose([same, drawn])), batch_size=8), 0.3, calibration_s=0
    )
    assert [stage.name for stage in traced.stages] == [
        "source", "transform 1: same", "transform 2: drawn", "collate", "consumer",
    ]  # fmt: skip
    assert traced.stage["source"].visits == pytest.approx(8)
    assert traced.stage["collate"].visits == pytest.approx(1)
    assert traced.stage["transform 1: same"].out_bytes >= 8 * 32
    # The draw by index touches no global generator.
    assert [stage.random for stage in traced.stages[:4]] == [False, False, True, False]


# --- The data ------------------------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize("by_index", [True, False])
def test_tracing_changes_nothing(by_index: bool) -> None:
    chain = Compose([same, drawn])
    dataset = Drawing(chain, by_index)
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    before = hashes(loader)
    torch.manual_seed(9)
    state = torch.get_rng_state()
    room.trace(loader, 0.2, calibration_s=0.1)
    assert torch.equal(torch.get_rng_state(), state)
    assert chain.transforms == [same, drawn]
    assert type(dataset) is Drawing
    assert hashes(loader) == before


def test_batches_sorted_by_length_are_traced_in_another_order() -> None:
    batches = [[number] * (1 + number) for number in range(40)]
    loader = DataLoader(list(range(40)), batch_sampler=batches)
    seen: list[int] = []
    measure(loader, 0.0, lambda batch: seen.append(len(batch)), warm_up=40)
    assert seen != sorted(seen)
    assert sorted(seen) == list(range(1, 41))
    assert [len(batch) for batch in loader] == list(range(1, 41))


def test_settings_change_no_sample() -> None:
    def loader(**settings: int) -> Any:
        generator = torch.Generator().manual_seed(3)
        dataset = Drawing(same)
        return DataLoader(dataset, batch_size=4, shuffle=True, generator=generator, **settings)

    tuned = room.apply(loader(), {"num_workers": 2, "prefetch_factor": 3})
    assert (tuned.num_workers, tuned.prefetch_factor) == (2, 3)
    assert hashes(tuned) == hashes(loader()) == hashes(loader(num_workers=1))
    assert room.apply(loader(num_workers=2), {"num_workers": 0}).prefetch_factor is None


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let traces and trials see given rates per number of workers; data are loaded in truth."""

    def install(
        rate: Callable[[int], float], slow: float = 1.0, threads: float = 0.0, cached: float = 1.0
    ) -> None:
        def run(loader: Any, seconds: float, *others: Any, **named: Any) -> Run:
            truth = measure(loader, 0.0, *others, **named)
            workers = loader.num_workers
            seen = threads * getattr(loader, "threads", 0) or rate(workers)
            seen *= cached if isinstance(loader.dataset, CachedSamples) else 1.0
            return replace(truth, moments=np.arange(11) / seen, start_s=0.0)

        def traced(workers: int) -> float:
            return rate(workers) * slow

        monkeypatch.setattr(tuning, "measure", run)
        monkeypatch.setattr(tuning, "trace", lambda loader, *_, **__: synthetic(loader, traced))

    return install


def synthetic(loader: Any, rate: Callable[[int], float]) -> room.Trace:
    trace = loader_trace(cpu=0.001, blocked=0.039, workers=max(1, loader.num_workers), cores=2.0)
    settings = {"num_workers": loader.num_workers, "prefetch_factor": 2}
    stages = tuple(
        replace(stage, random=loader.dataset.draws, worker_bytes=1e9) for stage in trace.stages
    )
    machine = room.Resources(2.0, 6.5e9)  # six workers at most
    stream = isinstance(loader.dataset, IterableDataset)
    changes = {"rate": rate(loader.num_workers), "settings": settings, "stages": stages}
    changes |= {"stream": stream, "epoch_batches": None if stream else len(loader)}
    return replace(trace, **changes, resources=machine)


def by_index() -> Any:
    generator = torch.Generator().manual_seed(3)
    return DataLoader(Drawing(same), batch_size=4, shuffle=True, generator=generator)


class Plain(Dataset[Any]):
    draws = False

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((8,), float(index))


def plain() -> Any:
    return DataLoader(Plain(), batch_size=4)


def by_worker() -> Any:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    return DataLoader(Drawing(drawn, by_index=False), batch_size=4)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_tuning_verifies_and_keeps_the_data(measured: Any, tmp_path: Path) -> None:
    measured(lambda workers: 25.0 * max(1, workers))
    answer = room.tune(by_index, output=tmp_path / "settings.toml")
    assert answer.settings["num_workers"] == 4  # of 16 batches
    assert answer.after == pytest.approx(25.0 * answer.settings["num_workers"])
    assert (answer.data, answer.rolled_back) == ("identical", False)
    assert answer.interval[0] <= answer.after <= answer.interval[1]
    assert hashes(room.apply(by_index(), tmp_path / "settings.toml")) == hashes(by_index())


def test_tuning_that_slows_is_rolled_back(measured: Any) -> None:
    measured(lambda workers: 25.0 if workers == 0 else 20.0)
    answer = room.tune(by_index)
    assert (answer.before, answer.after, answer.rolled_back) == (25.0, 25.0, True)
    assert answer.settings == {"num_workers": 0, "prefetch_factor": 2}
    assert 1 < len(answer.trials) <= 3
    assert len({str(trial.settings) for trial in answer.trials}) == len(answer.trials)


def test_a_start_traced_in_a_slow_moment_is_measured_again(measured: Any) -> None:
    measured(lambda workers: 25.0 if workers == 0 else 20.0, slow=0.4)
    answer = room.tune(by_index)
    assert (answer.before, answer.after, answer.rolled_back) == (25.0, 25.0, True)


def test_hidden_limit_leads_to_fewer_workers(measured: Any) -> None:
    measured(lambda workers: min(25.0 * max(1, workers), 50.0))
    answer = room.tune(by_index)
    assert answer.after == 50.0
    assert answer.settings["num_workers"] == 2
    assert max(trial.settings["num_workers"] for trial in answer.trials) == 4


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.full
def test_seeded_draws_are_kept_unless_any_will_do(measured: Any) -> None:
    measured(lambda workers: 25.0 * max(1, workers))
    answer = room.tune(by_worker)
    assert answer.rolled_back
    assert answer.settings["num_workers"] == 0
    assert {trial.data for trial in answer.trials} == {"different"}
    assert answer.after == answer.before
    assert room.tune(by_worker, draws="any").data == "other random draws"


@pytest.mark.full
def test_the_documented_tuning_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "examples/pipeline")
    answer = room.tune(load("loaders:articles"), seconds=8, output=tmp_path / "settings.toml")
    assert answer.after > 2 * answer.before
    assert answer.output is not None


def test_threads_are_used_where_they_are_faster(measured: Any) -> None:
    measured(lambda workers: 25.0 * max(1, workers), threads=25.0)
    answer = room.tune(by_index, cache=False)
    assert answer.settings["threads"] == 32
    assert (answer.data, answer.rolled_back, answer.compared) == ("identical", False, 16)
    assert len(answer.to_dict()["unknown"]) == 1  # of a dataset that threads share
    assert hashes(room.apply(by_index(), answer.settings)) == hashes(by_index())
    assert len(answer.trials) == 1


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.full
def test_a_cache_is_kept_where_it_gains(measured: Any, tmp_path: Path) -> None:
    measured(lambda workers: 25.0 * max(1, workers), cached=3.0)
    answer = room.tune(plain, output=tmp_path / "settings.toml")
    assert answer.after == pytest.approx(75.0 * answer.settings["num_workers"])
    assert answer.settings["cache_bytes"] > 64 * 32
    assert answer.data == "identical"
    assert [("cache_bytes" in trial.settings) for trial in answer.trials][-1]
    tuned = room.apply(plain(), tmp_path / "settings.toml")
    assert hashes(tuned) == hashes(plain())
    # no cache where none is wanted, nor where the draws are the user's
    assert "cache_bytes" not in room.tune(plain, cache=False).settings
    drawn_by_worker = room.tune(by_worker, draws="any")
    assert not any("cache_bytes" in trial.settings for trial in drawn_by_worker.trials)


@pytest.mark.full
def test_a_stream_is_tuned_by_workers_if_it_divides_itself(measured: Any) -> None:
    measured(lambda workers: 25.0 * max(1, workers))
    answer = room.tune(lambda: DataLoader(Divided(), batch_size=4))
    assert answer.settings["num_workers"] > 1
    assert (answer.data, answer.rolled_back) == ("other order", False)
    whole = room.tune(lambda: DataLoader(Stream(), batch_size=4, num_workers=1))
    assert (whole.settings["num_workers"], whole.rolled_back) == (1, True)
    assert whole.trials[0].data == "different"
    noisy = room.tune(lambda: DataLoader(Noisy(), batch_size=4))
    assert (noisy.settings["num_workers"], noisy.rolled_back) == (0, True)
    assert noisy.trials[0].data == "cannot tell"
    assert len(noisy.to_dict()["unknown"]) == 1


# --- Failures ------------------------------------------------------------------------------------


def broken(sample: Any) -> Any:
    if sample["index"] == 21:
        raise ValueError("truncated")
    return sample


def deadly(sample: Any) -> Any:
    if sample["index"] == 21 and os.getpid() != MAIN:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


MAIN = os.getpid()


@pytest.fixture
def soon_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch looks whether its workers live when nothing came for five seconds; here, for a tenth."""
    look = torch.utils.data.dataloader._MultiProcessingDataLoaderIter._try_get_data
    monkeypatch.setattr(look, "__defaults__", (0.1,))


@pytest.mark.parametrize("workers", [0, 1])
def test_error_names_stage_and_sample(workers: int) -> None:
    loader = DataLoader(Drawing(Compose([same, broken])), batch_size=4, num_workers=workers)
    with pytest.raises(InputError) as error:
        room.trace(loader, 60)
    assert error.value.code == "stage-failed"
    assert error.value.place == "stage 'transform 2: broken', sample 21"
    assert "truncated" in str(error.value.found)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.usefixtures("soon_missed")
@pytest.mark.quick(1)
@pytest.mark.parametrize("workers", [3, 2, 1])
def test_dead_worker_names_stage_and_sample(workers: int) -> None:
    """Batch 5 is that of worker 1 of 2, and of worker 2 of 3."""
    loader = DataLoader(Drawing(Compose([same, deadly])), batch_size=4, num_workers=workers)
    with pytest.raises(WorkerDiedError) as error:
        room.trace(loader, 60)
    assert error.value.code == "worker-died"
    assert error.value.worker == 5 % workers
    assert (error.value.stage, error.value.sample) == ("transform 2: deadly", "21")


class Deadly(IterableDataset[Any]):
    """Worker 0 ends at once, as its share is empty; worker 1 dies at its second sample."""

    def __iter__(self) -> Any:
        worker = get_worker_info()
        for number in range(3 * worker.id if worker else 3):
            if number == 1:
                os._exit(0)
            yield torch.tensor(float(number))


@pytest.mark.usefixtures("soon_missed")
@pytest.mark.full
def test_dead_worker_of_a_stream_is_named() -> None:
    with pytest.raises(WorkerDiedError) as error:
        measure(DataLoader(Deadly(), batch_size=1, num_workers=2), 60.0)
    assert (error.value.worker, error.value.stage, error.value.sample) == (1, "source", "1")


def test_of_ended_workers_those_that_were_killed_come_first() -> None:
    workers = [
        SimpleNamespace(pid=10 + n, exitcode=code) for n, code in enumerate([0, 0, None, -9])
    ]
    elements = SimpleNamespace(_workers=workers)
    assert _ended_workers(elements, ConnectionResetError()) == [13, 10, 11]
    error = RuntimeError("DataLoader worker (pid(s) 11, 13) exited unexpectedly")
    assert _ended_workers(elements, error) == [13, 11, 10]
    assert _ended_workers(iter([]), RuntimeError()) == []


@pytest.mark.full
def test_short_trace_is_not_tuned_by() -> None:
    loader = DataLoader(
        Samples(Compose([]), lambda _, __: threading.Event().wait(0.03)),
        batch_size=4,
        collate_fn=list,
    )
    with pytest.raises(InputError) as error:
        room.tune(lambda: loader, seconds=0.3)
    assert error.value.code == "trace-too-short"


@pytest.mark.parametrize(
    ("settings", "code"),
    [({"workers": 2}, "unknown-key"), ({"num_workers": -1}, "out-of-range")],
)
def test_wrong_settings_are_refused(settings: dict[str, int], code: str) -> None:
    with pytest.raises(InputError) as error:
        room.apply(DataLoader(Drawing(same)), settings)
    assert error.value.code == code


def test_only_loaders_are_traced() -> None:
    with pytest.raises(InputError) as error:
        room.trace([1, 2, 3])
    assert error.value.code == "unsupported"


def slow_start(worker: int) -> None:
    time.sleep(0.2)


@pytest.mark.parametrize("persistent", [False, True])
def test_rates_are_of_whole_epochs_with_the_start_of_workers(persistent: bool) -> None:
    """A worker that takes 0.2 s to start lets no epoch of 3 batches be faster than that."""
    settings = {"num_workers": 1, "persistent_workers": persistent, "worker_init_fn": slow_start}
    loader = DataLoader(list(range(12)), batch_size=4, **settings)
    traced = room.trace(loader, 0.3, calibration_s=0)
    assert (traced.rate < 3 / 0.2) != persistent
    assert (traced.sharing[0].start_s > 0.2) != persistent


def test_loader_over_a_list_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "OVERHEAD", math.inf)  # every batch is traced

    class Numbers(list[float]):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)

    room.trace(DataLoader(Numbers(range(64)), batch_size=4), 0.1, calibration_s=0)
    traced = room.trace(
        DataLoader([float(n) for n in range(64)], batch_size=4), 0.1, calibration_s=0.05
    )
    assert traced.stage["source"].visits == pytest.approx(4)
