"""The rate of a pipeline under other settings, and the settings with the highest rate.

A stage graph runs at the bound of the program in `model`. A `DataLoader` runs all stages in the same
workers and hands batches out in order, with so many in flight, so that it also loses time where batches
differ: the batches of the trace are drawn again and go through that protocol.

The settings of a graph are workers by the name of the group (for a `Pipeline`, of the stage); a stage that
changes its executor has a second one, ``"NAME executor"``: 1 for processes, 0 for threads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import numpy as np

from holdfast.data.pipeline.accounting import OUTSIDE, RECEIVE, SEND
from holdfast.data.pipeline.dataloader import COLLATE
from holdfast.data.pipeline.model import PICKLE_BYTES_S, groups, rate_with, solve
from holdfast.data.pipeline.running import EXECUTOR, executor_of
from holdfast.data.pipeline.stages import Executor, FloatArray, Sharing, Stage, Trace, over_epochs

# Relative standard error of the model where settings change, on a quiet machine: 0.13 in the benchmark.
MODEL_ERROR = 0.15
# Two runs of the same batches differ by so much on a quiet machine, as a share of their rate (95 %).
NOISE = 0.03
# Worker processes, unless there are many cores: each takes a tenth of a second to start.
MOST_PROCESSES = 32
# Batches of an epoch that a worker must have.
FEWEST_BATCHES = 4
# Batches that are drawn again, and a few more per worker,
DRAWN = 160
# so many times, each time in another order.
ROUNDS = 4
# A larger setting must gain this share.
WORTH = 0.01
PREFETCH = (2, 4)
THREADS = (1, 2, 4, 8, 16, 32)
# The number of a step of a Compose.
STEP = re.compile(r"\w+ (\d+): ")
# Half width of the interval, as a share of the rate, beyond which nothing is tuned.
HIGHEST_ERROR = 0.3


def is_graph(trace: Trace) -> bool:
    """Whether it is the trace of a graph rather than of a `DataLoader`."""
    return "num_workers" not in trace.settings


def predict(
    trace: Trace, settings: Mapping[str, int], stages: Sequence[Stage] | None = None
) -> tuple[float, tuple[float, float]]:
    """Batches per second under these settings, and the 95 % interval.

    Args:
        trace: of the pipeline under its present settings.
        settings: those that change, such as ``num_workers``.
        stages: with other costs, for what-if; by default those traced.
    """
    settings = {**trace.settings, **settings}
    rate, model = trace.rate, 0.0
    if stages is not None or settings != dict(trace.settings):
        # In proportion to what was measured: on a loaded machine no setting has the cores to itself.
        present = rate_of(trace, trace.settings, trace.stages)
        rate *= rate_of(trace, settings, stages or cached_stages(trace, settings)) / present
        model = 1.96 * math.hypot(MODEL_ERROR, trace.queued)
    half = math.hypot(relative_error(trace), model)
    return rate, (max(0.0, rate * (1 - half)), rate * (1 + half))


def relative_error(trace: Trace) -> float:
    """Half width of the 95 % interval of what was traced, as a share; infinite with one batch."""
    from scipy.special import stdtrit

    seconds = trace.costs.sum(axis=1)
    if len(seconds) < 2 or seconds.mean() <= 0:
        return math.inf
    student = float(stdtrit(len(seconds) - 1, 0.975))
    of_costs = student * float(seconds.std(ddof=1) / seconds.mean()) / math.sqrt(len(seconds))
    # The rate comes from ten blocks of batches, or from half as many as there are batches.
    blocks = max(1, min(9, trace.batches // 2 - 1))
    of_rate = float(stdtrit(blocks, 0.975)) * trace.rate_error
    # The part of an epoch that was not seen is what chance decides.
    unseen = math.sqrt(max(0.0, 1 - trace.batches / (trace.epoch_batches or math.inf)))
    return max(max(of_costs, of_rate) * unseen, 0.0 if unseen == 1 else NOISE)


def plan(trace: Trace, executors: Mapping[str, Sequence[Executor]] | None = None) -> dict[str, int]:
    """The settings with the highest predicted rate, with as few workers as reach it.

    Args:
        trace: of the pipeline under its present settings.
        executors: what a stage of a graph may run on; by default where it runs.
    """
    if is_graph(trace):
        return _plan_graph(trace, executors)
    # The present ones are one of the choices, so that nothing changes where nothing gains.
    still = {"threads": 0} if "threads" in trace.settings else {}
    choices = [dict(trace.settings)] + [
        {**still, "num_workers": workers, "prefetch_factor": prefetch}
        for workers in _numbers_of_workers(trace)
        for prefetch in PREFETCH
    ]
    return _fewest(trace, sorted(choices, key=lambda settings: tuple(settings.values())))


def plan_threads(trace: Trace) -> dict[str, int]:
    """The settings of threads in place of workers, with as few as reach the highest predicted rate."""
    serial = {"num_workers": 0, "prefetch_factor": 2}
    return _fewest(trace, [{**serial, "threads": count} for count in THREADS])


def _fewest(trace: Trace, choices: Sequence[dict[str, int]]) -> dict[str, int]:
    """The first of these settings that nearly reach the highest rate of all."""
    rates = [rate_of(trace, settings, trace.stages) for settings in choices]
    enough = max(rates) * (1 - WORTH)
    return next(choice for choice, rate in zip(choices, rates, strict=True) if rate >= enough)


def _plan_graph(trace: Trace, executors: Mapping[str, Sequence[Executor]] | None) -> dict[str, int]:
    """The solution of the program as settings of the graph."""
    best = solve(trace.stages, trace.resources, executors=executors)
    settings = {name: best.parallelism.get(name, count) for name, count in trace.settings.items()}
    for part in groups(trace.stages):
        if part.name in settings and best.executors[part.name] != part.executor:
            settings[part.name + EXECUTOR] = int(best.executors[part.name] == "process")
    return settings


def cached_stages(trace: Trace, settings: Mapping[str, int]) -> Sequence[Stage]:
    """The stages, of which those before a cache cost only to copy what they gave."""
    if "cache_bytes" not in settings:
        return trace.stages
    steps = settings.get("cache_steps")
    before = [
        part.name
        for part in trace.stages
        if part.name not in (*OUTSIDE, COLLATE)
        and (steps is None or ((place := STEP.match(part.name)) and int(place[1]) <= steps))
    ]
    stages = []
    for part in trace.stages:
        if part.name in before:
            copied = part.out_bytes / PICKLE_BYTES_S if part.name == before[-1] else 0.0
            costs = {"cpu_s": copied, "gil_s": copied, "blocked_s": 0.0}
            part = replace(part, **costs, bandwidth_bytes_s=math.inf)
        stages.append(part)
    return stages


def rate_of(trace: Trace, settings: Mapping[str, int], stages: Sequence[Stage]) -> float:
    """Batches per second by the model.

    Args:
        trace: with the costs of batches, and the resources.
        settings: all of them.
        stages: whose costs, in the mean, the batches are scaled to.
    """
    parts = groups(stages)
    if is_graph(trace):
        parallelism = {part.name: settings.get(part.name, part.parallelism) for part in parts}
        executors = {part.name: executor_of(part.name, part.executor, settings) for part in parts}
        return rate_with(parts, trace.resources, parallelism, executors)
    workers, prefetch = settings["num_workers"], settings["prefetch_factor"]
    costs = trace.costs * [_change(trace, stages, name) for name in ("cpu_s", "blocked_s")]
    cpu, blocked = costs.mean(axis=0)
    consumer = stages[-1]
    shared = min(part.bandwidth_rate for part in parts)
    if threads := settings.get("threads", 0):
        workers, prefetch, locked = (
            threads,
            2,
            sum(part.gil_s for part in stages if part.name not in (SEND, RECEIVE)),
        )
        shared = min(shared, 1.0 / max(locked, 1e-9))
    if not workers:
        return float(min(1.0 / max(cpu + blocked + consumer.service_s, 1e-9), shared))
    now = _sharing(trace, workers)
    if threads:
        # Threads hand nothing over, and start at once.
        now = Sharing(workers, now.slowdown, 0.0, 0.0, 0.0)
    slow = now.slowdown / _sharing(trace, trace.settings["num_workers"]).slowdown
    send = now.send_s * _change(trace, stages, "cpu_s", SEND)
    receive = now.receive_s * _change(trace, stages, "cpu_s", RECEIVE)
    main = consumer.service_s + receive + now.wait_s * _change(trace, stages, "blocked_s", RECEIVE)
    cores = trace.resources.cores / max(cpu * slow + send + receive + consumer.cpu_s, 1e-9)
    # Batches from short to long as often as they come, in some order; a few long ones may be most of it.
    size = DRAWN + 10 * workers * prefetch
    ordered = np.sort(costs @ [slow, 1.0])
    drawn = ordered[((np.arange(size) + 0.5) * len(costs) / size).astype(int)]
    drawn *= ordered.mean() / max(float(drawn.mean()), 1e-12)
    random = np.random.default_rng(0)
    services = np.concatenate([random.permutation(drawn) for _ in range(ROUNDS)]) + send
    rate = float(min(in_order(services, workers, prefetch, main), cores, shared))
    return over_epochs(rate, now.start_s, trace.epoch_batches)


def _sharing(trace: Trace, workers: float) -> Sharing:
    """What so many workers cost one another, between those of the calibration."""
    points = [astuple(point) for point in trace.sharing or [Sharing(1.0, 1.0, 0.0, 0.0, 0.0)]]
    columns = np.array(points).T
    known = Sharing(*(float(np.interp(workers, columns[0], column)) for column in columns))
    # One worker starts after another.
    return replace(known, start_s=known.start_s * workers / known.workers)


def _change(trace: Trace, stages: Sequence[Stage], cost: str, name: str = "") -> float:
    """How the costs of stages differ from those traced: of one, or of all that are the user's."""

    def total(parts: Sequence[Stage]) -> float:
        chosen = [p for p in parts if (p.name == name if name else p.name not in OUTSIDE)]
        return sum(getattr(part, cost) for part in chosen)

    before = total(trace.stages)
    return total(stages) / before if before > 0 else 1.0


def in_order(services: FloatArray, workers: int, prefetch: int, main_s: float) -> float:
    """Batches per second by the protocol of a `DataLoader`.

    Batch k goes to worker k mod W once batch k - W prefetch was received; batches are received in order.

    Args:
        services: seconds of each batch in its worker, shape [batches]; the first round is a warm-up.
        workers: W.
        prefetch: batches in flight per worker.
        main_s: seconds from receiving a batch to asking for the next.
    """
    done, received = [0.0] * workers, [0.0] * (workers * prefetch)
    free = started = 0.0
    warm_up = len(services) // ROUNDS
    for number, service in enumerate(services):
        worker, slot = number % workers, number % len(received)
        done[worker] = max(done[worker], received[slot]) + service
        received[slot] = max(done[worker], free)
        free = received[slot] + main_s
        if number + 1 == warm_up:
            started = free
    return (len(services) - warm_up) / max(free - started, 1e-9)


def _numbers_of_workers(trace: Trace) -> list[int]:
    """Numbers of workers to choose from, in steps of an eighth or less: none, or as many as start soon."""
    needed = trace.stages[0].worker_bytes + PREFETCH[-1] * trace.batch_bytes
    most = max(MOST_PROCESSES, 4 * trace.resources.cores)
    most = min(most, trace.resources.memory_bytes / max(needed, 1.0))
    counts = range(int(min(most, busy_workers(trace))) + 1)
    return [count for count in counts if count % (1 << max(0, count.bit_length() - 4)) == 0]


def busy_workers(trace: Trace) -> float:
    """As many as an epoch has batches for: those that load a batch or two cost more than they gain."""
    return (trace.epoch_batches or math.inf) / FEWEST_BATCHES
