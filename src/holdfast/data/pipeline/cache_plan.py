"""Where to cache the samples of a pipeline: nearest to the root, before anything random, in the budget.

The greedy rule of Plumber (Kuchnik et al., arXiv 2111.04131, section 4.4): a cache saves all work below it,
so the one nearest to the root is worth most; one behind a random transform would return the same "random"
sample in every epoch.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from holdfast.data.pipeline.cached_samples import rechained, steps_of
from holdfast.data.pipeline.comparing import scatter
from holdfast.data.pipeline.dataloader import inner_datasets
from holdfast.data.pipeline.encoding import encode
from holdfast.data.pipeline.randomness import random_state_restored, randomness
from holdfast.data.pipeline.running import Step, call_stage
from holdfast.numbers import size

# Share of the free memory that a cache may take, by default.
SHARE = 0.5
# Samples whose sizes are measured.
_SIZED = 64
# Samples that are run twice to find random stages.
_PROBED = 8
# Samples of a dataset that are read twice before it is cached.
FEWEST_READ, MOST_READ = 16, 96
# Memory for samples that are larger than those that were read.
ROOM = 1.2


class Output(NamedTuple):
    """What a stage gives: bytes per sample of the source, and whether they are the same each time."""

    stage: str
    bytes: float
    random: bool


@dataclass(frozen=True)
class Candidate:
    """The output of a stage, as a place for a cache.

    Args:
        bytes: size of a whole epoch: bytes seen times total / seen; None if unknown.
        excluded: why there can be no cache here; empty if there can.
    """

    stage: str
    bytes: float | None
    excluded: str


@dataclass(frozen=True)
class CachePlan:
    """Where a cache goes, and why not elsewhere.

    Args:
        candidates: from the source to the root.
        stage: the stage whose output is cached; None: no cache.
    """

    candidates: tuple[Candidate, ...]
    stage: str | None
    store: Literal["memory", "disk", ""]


def plan_cache(
    outputs: Sequence[Output], total: int | None, *, memory_bytes: float, disk_bytes: float
) -> CachePlan:
    """Choose the cache nearest to the root that fits into memory, or else onto the disk.

    Args:
        outputs: of the stages, from the source on.
        total: samples of the source; None if unknown: then there is no cache.
        memory_bytes: budget in memory.
        disk_bytes: budget on disk; 0: no cache on disk.
    """
    most = max(memory_bytes, disk_bytes)
    candidates: list[Candidate] = []
    random = ""
    for part in outputs:
        random = random or (f"random: {part.stage}" if part.random else "")
        epoch = None if total is None else part.bytes * total
        if random:
            excluded = random
        elif epoch is None:
            excluded = "the length of an epoch is unknown"
        elif part.bytes <= 0:
            excluded = "its size is unknown"
        else:
            excluded = f"larger than the budget of {size(most)}" if epoch > most else ""
        candidates.append(Candidate(part.stage, epoch, excluded))
    # The last one saves the work of all before it.
    best = next((part for part in reversed(candidates) if not part.excluded), None)
    if best is None or best.bytes is None:
        return CachePlan(tuple(candidates), None, "")
    store: Literal["memory", "disk"] = "memory" if best.bytes <= memory_bytes else "disk"
    return CachePlan(tuple(candidates), best.stage, store)


def probe(steps: Sequence[Step], total: int | None, seed: int) -> list[Output]:
    """Bytes per sample of the source, and randomness, of stages, from samples spread over the source.

    Args:
        steps: from the source on, without batches.
        total: samples of the source; None: unknown.
        seed: of random stages.
    """
    if total is None:
        return [Output("source", 0.0, random=False)]
    values: dict[int, Any] = {
        place: place for place in np.linspace(0, total - 1, min(total, _SIZED)).astype(int).tolist()
    }
    sampled = max(1, len(values))
    outputs = []
    for order, step in enumerate(steps):
        reason = randomness(step.function, list(values.values())[:_PROBED], step.random)
        sizes, results = [], {}
        for place, value in values.items():
            try:
                output = call_stage(value, step, (seed, 0, order, place))
                if step.kind != "filter" or output:
                    results[place] = value if step.kind == "filter" else output
                    sizes.append(len(pickle.dumps(results[place], pickle.HIGHEST_PROTOCOL)))
            except Exception:  # a run of the pipeline names it
                continue
        values = results
        outputs.append(Output(step.name, sum(sizes) / sampled, bool(reason)))
    return outputs


def plan_sample_cache(dataset: Any, count: int, memory_bytes: float) -> dict[str, int]:
    """Settings of the cache nearest to the batches whose samples never change and fit; empty if none does.

    Samples are read twice, in opposite orders and other random states: what a sample is may depend on
    nothing but its number. Of a dataset that has epochs (``set_epoch``) nothing is cached.

    Args:
        dataset: map-style.
        count: samples to read.
        memory_bytes: budget.
    """
    if any(hasattr(part, "set_epoch") for part in inner_datasets(dataset)):
        return {}
    total, steps = len(dataset), len(steps_of(dataset))
    places = list(range(min(total, max(FEWEST_READ, min(count, MOST_READ)))))
    for kept in range(steps, 0, -1) if steps else [0]:
        part = rechained(dataset, lambda all_, kept=kept: all_[:kept])
        if randomness(part.__getitem__, []):
            continue
        try:
            with random_state_restored():
                first = [encode(part[place]) for place in places]
                scatter()
                again = [encode(part[place]) for place in reversed(places)]
        except Exception:  # of a type that is not stored, or what the dataset does needs all steps
            continue
        needed = math.ceil(ROOM * sum(map(len, first)) / max(1, len(places)) * total)
        if first == again[::-1] and needed <= memory_bytes:
            return {"cache_bytes": needed} | ({"cache_steps": kept} if kept < steps else {})
    return {}
