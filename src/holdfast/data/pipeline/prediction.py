"""The rate of a `DataLoader` under other settings: its own protocol, played with traced costs.

The program in `model` knows means. A loader also loses time where batches differ: it hands them out in
order, to workers in turn, with so many in flight. So the batches of the trace are drawn again and played
through that protocol, on cores that are shared equally.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from holdfast.data.pipeline.accounting import GROUP
from holdfast.data.pipeline.graph_model import graph_plan, graph_rate, is_graph, plan_settings
from holdfast.data.pipeline.model import groups, solve
from holdfast.data.pipeline.stages import FloatArray, Plan, Stage, Trace

MODEL_ERROR = 0.15
"""Relative standard error of the model itself, where settings change: as benchmarks/pipeline_tune.py
measured it on two processors that share a core, which give less together than a trace of one tells."""
LOADED_ERROR = 0.2
"""The same where other processes compete for the cores: they will not be the same."""
MOST_PROCESSES = 32
"""Worker processes, unless there are many cores: each takes a tenth of a second to start."""
FEWEST_BATCHES = 4
"""Batches of an epoch that a worker must have."""
PLAYED = 160
"""Batches that are played, and a few more per worker."""
WORTH = 0.01
"""A larger setting must gain this share."""
PREFETCH = (2, 4, 8)
HIGHEST_ERROR = 0.3
"""Half width of the interval, as a share of the rate, beyond which nothing is tuned."""


def predict(
    trace: Trace, settings: Mapping[str, int], stages: Sequence[Stage] | None = None
) -> tuple[float, tuple[float, float]]:
    """Batches per second under these settings, and the 95 % interval.

    Args:
        trace: of the loader under its present settings.
        settings: ``num_workers`` and ``prefetch_factor``; what is left out stays.
        stages: with other costs, for what-if; by default those traced.
    """
    settings = {**trace.settings, **settings}
    unchanged = settings == dict(trace.settings) and stages is None
    if unchanged:
        rate = trace.rate
    else:
        rate = play(trace, settings, stages or trace.stages)
        if settings == dict(
            trace.settings
        ):  # only costs change: in proportion to what was measured
            rate *= trace.rate / play(trace, settings, trace.stages)
    sampling = relative_error(trace)
    model = MODEL_ERROR if trace.others < 0.5 else LOADED_ERROR
    half = math.hypot(sampling, 0.0 if unchanged else 1.96 * model)
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
    of_rate = float(stdtrit(blocks, 0.975)) * trace.rate_error / trace.rate
    return max(of_costs, of_rate)


def plan(trace: Trace) -> Plan:
    """The settings with the highest predicted rate, with as few workers as reach it.

    Args:
        trace: of the loader under its present settings.
    """
    if is_graph(trace):
        best = graph_plan(trace)
        rate, interval = predict(trace, plan_settings(trace, best))
        return replace(best, rate=rate, interval=interval)
    stages = worker_stages(trace)
    most = _most_workers(trace, stages)
    best = solve(
        stages,
        trace.resources,
        most_workers=most,
        prefetch=PREFETCH[0],
        batch_bytes=trace.batch_bytes,
    )
    near = best.parallelism.get(GROUP, 1)
    rates: dict[tuple[int, int], float] = {}
    for workers in {near - 1, near, near + 1, near + 2} & set(range(1, most + 1)):
        for prefetch in PREFETCH[:2]:
            settings = {"num_workers": workers, "prefetch_factor": prefetch}
            rates[workers, prefetch] = play(trace, settings, trace.stages)
    rates[trace.settings["num_workers"], trace.settings["prefetch_factor"]] = trace.rate
    top = max(rates.values())
    workers, prefetch = min(key for key, rate in rates.items() if rate >= top * (1 - WORTH))
    rate, interval = predict(trace, {"num_workers": workers, "prefetch_factor": prefetch})
    return replace(
        best,
        rate=rate,
        interval=interval,
        parallelism={**best.parallelism, GROUP: workers},
        prefetch=prefetch,
    )


def worker_stages(trace: Trace) -> list[Stage]:
    """The stages as they would run in worker processes, also where none were used."""
    stages = []
    for stage in trace.stages:
        if stage.name not in ("receive", "consumer"):
            stage = replace(stage, group=GROUP, executor="process")
        stages.append(stage)
    if trace.settings["num_workers"]:
        return stages
    send = replace(stages[-2], name="send", cpu_s=trace.send_s, gil_s=trace.send_s, blocked_s=0.0)
    receive = replace(stages[-1], name="receive", cpu_s=trace.receive_s, blocked_s=0.0)
    return [*stages[:-1], send, receive, stages[-1]]


def play(trace: Trace, settings: Mapping[str, int], stages: Sequence[Stage]) -> float:
    """Batches per second of a loader that is simulated from the costs of a trace.

    Args:
        trace: with the costs of its batches.
        settings: ``num_workers`` and ``prefetch_factor``.
        stages: whose costs, in the mean, the batches are scaled to.
    """
    if is_graph(trace):
        return graph_rate(trace, settings, stages)
    workers, prefetch = settings["num_workers"], settings["prefetch_factor"]
    cores = trace.resources.cores
    consumer = next((part for part in stages if part.name == "consumer"), None)
    consumer_cpu, consumer_wait = (consumer.cpu_s, consumer.blocked_s) if consumer else (0.0, 0.0)
    costs = _scaled(trace, stages)
    shared = min((part.bandwidth_rate for part in groups(stages)), default=math.inf)
    if not workers:
        share = min(1.0, cores / (1.0 + trace.others))
        alone = (costs[:, 0].mean() - trace.send_s) / share + costs[:, 1].mean()
        return float(min(1.0 / max(alone + consumer_cpu + consumer_wait, 1e-9), shared))
    used = min(trace.rate * costs[:, 0].mean(), cores) if trace.settings["num_workers"] else 1.0
    costs = costs * [1.0 / _dilation(trace.dilation, used, cores), 1.0]
    rows = np.random.default_rng(0).integers(len(costs), size=PLAYED + 10 * workers * prefetch)
    main = (consumer_wait, consumer_cpu + trace.receive_s)
    rate = _played(costs[rows], main, workers, prefetch, cores, trace.dilation, trace.others)
    return min(rate, shared)


def _scaled(trace: Trace, stages: Sequence[Stage]) -> FloatArray:
    """The costs of batches, changed in the proportion in which the stages' costs were changed."""
    if stages is trace.stages:
        return trace.costs

    def total(parts: Sequence[Stage], name: str) -> float:
        return sum(getattr(p, name) for p in parts if p.name not in ("receive", "consumer"))

    factors = [
        total(stages, name) / before if (before := total(trace.stages, name)) > 0 else 1.0
        for name in ("cpu_s", "blocked_s")
    ]
    return trace.costs * factors


def _dilation(full: float, active: float, cores: float) -> float:
    """How much longer CPU work takes with so many cores at work: 1 for one, `full` for all."""
    if cores <= 1:
        return 1.0
    return 1.0 + (full - 1.0) * min(max(active - 1.0, 0.0) / (cores - 1.0), 1.0)


def _played(
    costs: FloatArray,
    consumer: tuple[float, float],
    workers: int,
    prefetch: int,
    cores: float,
    dilation: float,
    others: float,
) -> float:
    """Play the protocol; batches per second without the first of each worker.

    Batch k goes to worker k mod W once batch k - W prefetch was taken; the consumer takes them in order.
    All who compute share the cores equally.
    """
    total = len(costs)
    queues: list[deque[int]] = [deque() for _ in range(workers)]
    idle = set(range(workers))
    done = [False] * total
    asleep: list[tuple[float, int]] = []  # (end, who); the consumer is number `workers`
    computing: dict[int, float] = {}  # who -> CPU seconds left
    cpu_after: dict[int, float] = {}
    current: dict[int, int] = {}
    now, taken, handed, free = 0.0, 0, 0, True
    first = min(workers * prefetch, total // 4)
    started_at = 0.0
    stagger = float(costs.sum(axis=1).mean()) / workers

    def begin(who: int, wait: float, cpu: float) -> None:
        cpu_after[who] = cpu
        heapq.heappush(asleep, (now + wait, who))

    while taken < total:
        while handed < min(total, taken + workers * prefetch):
            queues[handed % workers].append(handed)
            handed += 1
        for who in [who for who in idle if queues[who]]:
            idle.discard(who)
            current[who] = queues[who].popleft()
            cpu, wait = costs[current[who]]
            # Workers that began at once would sleep and compute in step for ever; real ones do not.
            late = stagger * who if current[who] < workers else 0.0
            begin(who, float(wait) + late, float(cpu))
        if free and done[taken]:
            free = False
            taken += 1
            if taken == first:
                started_at = now
            begin(workers, *consumer)
            continue
        active = len(computing)
        speed = min(1.0, cores / (active + others)) if active else 0.0
        speed /= _dilation(dilation, active, cores)
        ends = now + min(computing.values()) / speed if active else math.inf
        moment = min(ends, asleep[0][0] if asleep else math.inf)
        for who in computing:
            computing[who] -= (moment - now) * speed
        now = moment
        while asleep and asleep[0][0] <= now:
            _, who = heapq.heappop(asleep)
            computing[who] = cpu_after[who]
        for who in [who for who, left in computing.items() if left <= 1e-12]:
            del computing[who]
            if who == workers:
                free = True
            else:
                done[current[who]] = True
                idle.add(who)
    return (total - first) / (now - started_at) if now > started_at else math.inf


def _most_workers(trace: Trace, stages: Sequence[Stage]) -> int:
    """Workers that fit into the memory, and that start in seconds."""
    needed = max(part.worker_bytes for part in stages) + PREFETCH[-1] * trace.batch_bytes
    most = max(MOST_PROCESSES, 4 * trace.resources.cores)
    if (
        trace.epoch_batches is not None
    ):  # workers that load a batch or two cost more than they bring
        most = min(most, trace.epoch_batches // FEWEST_BATCHES)
    return max(1, int(min(trace.resources.memory_bytes / max(needed, 1.0), most)))
