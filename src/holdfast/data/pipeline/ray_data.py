"""Ray Data: a dataset runs as tasks of a cluster, and Ray records what each operator's tasks cost.

No stage is wrapped: the dataset is run once, to its end, and Ray's own statistics are accounted per batch.
Ray runs functions that follow one another in one task where it can; these are one stage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from holdfast.data.pipeline.accounting import CONSUMER
from holdfast.data.pipeline.measuring import FEWEST, Consumer
from holdfast.data.pipeline.stages import Resources, Stage, Trace, too_few

BATCH = 256  # rows: the default of `iter_batches`


def trace_dataset(dataset: Any, consumer: Consumer | None = None) -> Trace:
    """Run a Ray dataset once and account the time of its tasks to its operators; tested with Ray 2.60.

    Args:
        dataset: a `ray.data.Dataset`; its `limit` makes the run shorter.
        consumer: called with every batch of 256 rows.

    Raises:
        InputError: `no-data` with fewer than 3 batches.
    """
    import ray

    batches, began = 0, time.thread_time()
    for batch in dataset.iter_batches(batch_size=BATCH):
        batches += 1
        if consumer is not None:
            consumer(batch)
    consumed = (time.thread_time() - began) / max(1, batches)
    if batches < FEWEST:
        raise too_few(f"{FEWEST} batches of {BATCH} rows", "trace a larger dataset")
    runs = list(_operators(dataset.get_stats_summary()))
    cores = float(ray.cluster_resources()["CPU"])
    at_once = _tasks_at_once(dataset, cores)
    stages = [
        Stage(
            name=run.operator_name,
            group=run.operator_name,
            executor="process",
            parallelism=min(
                at_once.get(name, int(cores)) for name in run.operator_name.split("->")
            ),
            elements=run.wall_time.count,
            visits=run.wall_time.count / batches,
            cpu_s=run.cpu_time.sum / batches,
            blocked_s=max(0.0, run.wall_time.sum - run.cpu_time.sum) / batches,
            out_bytes=run.output_size_bytes.sum / batches,
        )
        for run in runs
    ]
    # From the first task to the last one's end: Ray starts its workers before.
    first = min(run.earliest_start_time for run in runs)
    seconds = max(run.latest_end_time for run in runs) - first
    of_batch = [sum(part.cpu_s for part in stages), sum(part.blocked_s for part in stages)]
    return Trace(
        stages=(*stages, Stage(CONSUMER, CONSUMER, "main", 1, batches, 1.0, consumed)),
        seconds=seconds,
        batches=batches,
        rate=batches / seconds,
        rate_error=0.0,  # nothing was sampled: all of the dataset was run
        starved=max(0.0, 1.0 - consumed * batches / seconds),
        resources=Resources(cores, np.inf),
        settings={part.group: part.parallelism for part in stages},
        epoch_batches=batches,
        costs=np.array([of_batch, of_batch]),
    )


def _operators(summary: Any) -> Iterator[Any]:
    """Statistics of the operators that ran tasks, from the source on."""
    for parent in summary.parents:
        yield from _operators(parent)
    yield from (operator for operator in summary.operators_stats if operator.wall_time)


def _tasks_at_once(dataset: Any, cores: float) -> dict[str, int]:
    """Tasks or actors that an operator may run at once, by its name: as declared, or by the cores."""
    limits, operators = {}, [dataset._logical_plan.dag]
    while operators:
        operators += (operator := operators.pop()).input_dependencies
        compute = getattr(operator, "compute", None)
        size = getattr(compute, "size", None) or getattr(compute, "max_size", None)
        needs = getattr(operator, "ray_remote_args", {}).get("num_cpus") or 1
        limits[operator.name] = max(1, int(min(size or np.inf, cores / needs)))
    return limits
