"""The model: CPU, the interpreter lock, waiting, bandwidth and memory as constraints of one program.

    maximize X (batches per second), over theta (workers per group) and p (1: processes, 0: threads)

    X sum_{i in g} (C_i + L_i) <= theta_g                      each worker runs its stages one after another
    X sum_i C_i + sum_g p_g (pickling)  <= cores                all computing
    X sum_{i in threads} G_i <= 1                               one interpreter lock per process
    X bytes_i <= bandwidth_i                                    bandwidth that the workers of a stage share
    sum_{g in processes} theta_g memory_g <= memory
    theta_g >= 1 whole, theta_g <= 1 if sequential

with C, L, G the CPU, sleeping and lock seconds per batch. The first row is Plumber's X <= R theta (section
4.3) with latency added; products of X with a choice p are exact as linear rows, because p is 0 or 1 and X
is bounded. Of all solutions at the best X, one with the fewest workers is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.data.pipeline.stages import Executor, FloatArray, Kind, Plan, Resources, Stage
from holdfast.errors import InputError

# Bytes per second and core at which samples go from one process to another.
PICKLE_BYTES_S = 1.5e9
# Workers of a group, whatever the memory.
MOST_WORKERS = 64
# Share of the rate that may be given up for fewer workers; well above the tolerance of the solver.
SLACK = 1e-4


def groups(stages: Sequence[Stage]) -> list[Stage]:
    """Stages that run one after another in the same worker, as one; in the order in which they occur."""
    names = dict.fromkeys(stage.group for stage in stages)
    return [_joined([stage for stage in stages if stage.group == name]) for name in names]


def rate_with(
    parts: Sequence[Stage],
    resources: Resources,
    parallelism: Mapping[str, int],
    executors: Mapping[str, Executor],
) -> float:
    """Batches per second with these workers: the least that a constraint alone allows.

    Args:
        parts: the groups.
        resources: of the machine.
        parallelism: theta per group.
        executors: executor per group.
    """
    limits = [_rate(parallelism[part.name], part.service_s) for part in parts]
    pickled = sum(part.out_bytes for part in parts if executors[part.name] == "process")
    computing = sum(part.cpu_s for part in parts)
    if any(executors[part.name] != part.executor for part in parts):
        computing += pickled / PICKLE_BYTES_S
    locked = sum(part.gil_s for part in parts if executors[part.name] != "process")
    limits += [_rate(resources.cores, computing), _rate(1.0, locked)]
    return min(limits + [part.bandwidth_rate for part in parts])


def solve(
    stages: Sequence[Stage],
    resources: Resources,
    *,
    executors: Mapping[str, Sequence[Executor]] | None = None,
    most_workers: int = MOST_WORKERS,
) -> Plan:
    """The workers and executors of the highest rate, as few as reach it (HiGHS).

    Args:
        stages: with their costs per batch.
        resources: what the machine has.
        executors: what each group may run on; by default where it runs now.
        most_workers: of one group.

    Raises:
        InputError: stages that do not fit into the memory with one worker each.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    parts = groups(stages)
    count = len(parts)
    allowed = [tuple((executors or {}).get(part.name, (part.executor,))) for part in parts]
    single = [p.sequential or "main" in options for p, options in zip(parts, allowed, strict=True)]
    high = np.where(single, 1.0, most_workers)
    cpu, lock, service, sent, memory = np.array(
        [(p.cpu_s, p.gil_s, p.service_s, p.out_bytes, p.worker_bytes) for p in parts]
    ).T
    pickling = sent / PICKLE_BYTES_S
    pickling[[options == (p.executor,) for p, options in zip(parts, allowed, strict=True)]] = 0.0
    memory /= max(resources.memory_bytes, 1.0)
    # No rate can exceed that of all workers on all cores: the bound that makes u = X p exact. X is counted
    # in units of it, so that all numbers are near one.
    limits = [*map(_rate, high, service), *(part.bandwidth_rate for part in parts)]
    top = min(1e9, _rate(resources.cores, sum(cpu)), *limits)
    one, none = np.eye(count), np.zeros((count, count))
    ones, zeros = np.ones((count, 1)), np.zeros(count)
    # Columns: X, theta [count], p [count], u = X p [count],
    # and w = theta p [count], workers that are processes.
    rows: list[list[Any]] = [
        [top * service[:, None], -one, none, none, none],
        [0 * ones, none, -one, one, none],  # u <= p
        [-ones, none, none, one, none],  # u <= X
        [ones, none, one, -one, none],  # u >= X + p - 1
        [0 * ones, one, np.diag(high), none, -one],  # w >= theta - high (1 - p)
        [top * sum(cpu), zeros, zeros, top * pickling, zeros],
        [top * sum(lock), zeros, zeros, -top * lock, zeros],
        [0.0, zeros, zeros, zeros, memory],
    ]
    matrix = np.block(rows)
    right = np.concatenate([np.zeros(3 * count), np.ones(count), high, [resources.cores, 1, 1]])
    always = [options == ("process",) for options in allowed]
    ever = ["process" in options for options in allowed]
    low = np.concatenate([[0], np.ones(count), always, zeros, zeros])
    upper = np.concatenate([[1], high, ever, np.ones(count), high])
    integrality = np.concatenate([[0], np.ones(2 * count), np.zeros(2 * count)])

    def run(cost: FloatArray, low: FloatArray) -> FloatArray:
        answer = milp(
            cost,
            constraints=LinearConstraint(matrix, -np.inf, right),
            bounds=Bounds(low, upper),
            integrality=integrality,
            options={"mip_rel_gap": 0.0},
        )
        if answer.x is None:
            raise InputError(
                "one worker of each group does not fit into the memory",
                code="out-of-range",
                place="memory",
                found=f"{resources.memory_bytes / 2**20:.0f} MiB free",
                remedy="use smaller batches, or allow more memory",
            )
        return np.asarray(answer.x)

    best = run(-np.eye(1 + 4 * count)[0], low)
    # The same rate with the fewest workers, and processes only where they are needed.
    floor = low.copy()
    floor[0] = best[0] * (1 - SLACK)
    fewest = np.concatenate([[0], np.ones(count), np.full(count, 1e-3), zeros, zeros])
    theta, process = run(fewest, floor)[1 : 1 + 2 * count].reshape(2, count)
    workers = {part.name: round(number) for part, number in zip(parts, theta, strict=True)}
    places: dict[str, Executor] = {}
    for part, options, chosen in zip(parts, allowed, process, strict=True):
        local: Executor = "main" if "main" in options else "thread"
        places[part.name] = "process" if chosen > 0.5 else local
    return Plan(rate_with(parts, resources, workers, places), workers, places)


def ranked(stages: Sequence[Stage], cores: float) -> list[tuple[float, float, Stage]]:
    """Limits of the group of each stage and of its own, and the stage; the lowest first.

    Stages of a group share its workers: the group is limited by their sum, and that by its largest part.
    """
    limits = {
        part.name: min(
            _rate(part.parallelism, part.service_s), _rate(cores, part.cpu_s), part.bandwidth_rate
        )
        for part in groups(stages)
    }
    rows = [(limits[part.group], limit_of(part, cores), part) for part in stages]
    return sorted(rows, key=lambda row: row[:2])


def bottleneck(stages: Sequence[Stage], cores: float = math.inf) -> tuple[Stage, Kind]:
    """The stage that limits the rate now, and what limits it: argmin R theta in the slowest group.

    Args:
        stages: with their costs per batch; one called ``"consumer"`` is what takes the batches.
        cores: of the machine: more workers than cores compute no faster.
    """
    stage = ranked(stages, cores)[0][2]
    if stage.name == "receive":
        # Workers hand their batches over in a thread: it waits for the stage that holds their lock.
        holder = max(stages, key=lambda part: part.gil_s)
        if holder.kind == "gil" and 2 * holder.gil_s > stage.blocked_s:
            stage = holder
    return stage, "consumer" if stage.name == "consumer" else stage.kind


def runner_up(stages: Sequence[Stage], stage: Stage, cores: float = math.inf) -> tuple[str, float]:
    """The stage that would limit instead of the bottleneck, and by what factor its limit is higher.

    Args:
        stages: with their costs per batch.
        stage: the bottleneck.
        cores: of the machine.
    """
    (of_group, own, first), *others = ranked(stages, cores)
    if first.group != stage.group:  # it is named for the lock that it holds
        return "", math.inf
    factors = [
        (limit / own if part.group == stage.group else group_limit / of_group, part.name)
        for group_limit, limit, part in others
    ]
    factor, name = min(factors, key=lambda pair: pair[0], default=(math.inf, ""))
    return name, factor


def limit_of(stage: Stage, cores: float) -> float:
    """Batches per second if this stage alone were to limit, on so many cores."""
    return min(stage.rate_limit, _rate(cores, stage.cpu_s))


def _joined(stages: Sequence[Stage]) -> Stage:
    out = stages[-1].out_bytes
    narrowest = min(_rate(stage.bandwidth_bytes_s, stage.out_bytes) for stage in stages)
    return replace(
        stages[0],
        name=stages[0].group,
        cpu_s=sum(stage.cpu_s for stage in stages),
        gil_s=sum(stage.gil_s for stage in stages),
        blocked_s=sum(stage.blocked_s for stage in stages),
        out_bytes=out,
        bandwidth_bytes_s=narrowest * out if narrowest < math.inf else math.inf,
        worker_bytes=max(stage.worker_bytes for stage in stages),
        sequential=any(stage.sequential for stage in stages),
    )


def _rate(amount: float, per_batch: float) -> float:
    return amount / per_batch if per_batch > 0 else math.inf
