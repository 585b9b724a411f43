"""From what workers recorded to stages with costs per batch; latency and bandwidth told apart."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.pipeline.dataloader import COLLATE
from holdfast.data.pipeline.machine import resources
from holdfast.data.pipeline.measuring import Run, rate_error
from holdfast.data.pipeline.recording import CALL, SOURCE
from holdfast.data.pipeline.stages import FloatArray, Stage, Trace, over_epochs
from holdfast.errors import InputError

GROUP, MAIN = "workers", "main"
# Stages that are not the user's functions in a worker.
SEND, RECEIVE, CONSUMER = OUTSIDE = ("send", "receive", "consumer")
# With so many batches that were only timed, those that were examined too may be left out.
STEADY = 8
# Waiting that grows by this factor with more workers is for a resource that they share.
GROWTH = 1.5
# Share of the waiting, and of its spread, that bytes must explain to be called bandwidth.
EXPLAINED = 0.5
FEWEST_CALLS, MOST_CALLS = 5, 300
# Samples of the source by which functions called in it are told apart, and what is too small to be named.
FEWEST_SAMPLES, SMALL = 10.0, 0.05
# A function that spends at most this share of all time itself only calls others.
DELEGATES = 0.1

Record = dict[str, Any]


def read_records(folder: Path, workers: int = 1) -> list[Record]:
    """Traced batches of all workers, but for the first of each, which loads libraries and opens files.

    Their ``number`` is that of the batch in the order of the loader: workers take turns.
    """
    records: list[Record] = []
    plain = np.zeros(2)
    for path in sorted(folder.glob("worker-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        private = max((line.get("private_bytes", 0) for line in lines), default=0)
        worker = int(path.name.split("-")[1])
        queued = _serving_queued(lines)
        for line in lines:
            line["private_bytes"] = private
            line["serving_queued"] = queued
            line["number"] = worker + (line["batch"] - 1) * max(1, workers)
        records += lines[1:] or lines
        plain += lines[-1]["plain"] if lines else 0
    if records:
        _take_off_clocks(records, *plain)
    return records


def _serving_queued(lines: Sequence[Record]) -> float:
    """Nanoseconds per batch that the thread which hands tensors over waited for a core."""
    if len(lines) < 2:
        return 0.0
    queued, batches = (lines[-1][key] - lines[0][key] for key in ("serving_queued", "batch"))
    return float(queued / batches)


def _take_off_clocks(records: Sequence[Record], batches: float, cpu: float) -> None:
    """Take off CPU times what reading the clocks took: traced batches took that much longer than others.

    Args:
        records: changed in place.
        batches: that were not traced.
        cpu: nanoseconds of the process in these.
    """
    per_call = records[0]["clocks"]
    timed = _timed(records)
    if batches >= STEADY:
        longer = sum(record["process_cpu"] for record in timed) - len(timed) * cpu / batches
        per_call = np.clip(longer / _sums(timed)[:, 0].sum(), 0.0, 2 * per_call)
    for record in records:
        for entry in record["stages"].values():
            # Half of it before the clocks are read, and half after: in the stage and in its caller.
            entry[1] = max(0.0, entry[1] - (entry[0] + entry[5]) * per_call / 2)
            record["process_cpu"] -= entry[0] * per_call


def account(records: Sequence[Record], run: Run, workers: int) -> list[Stage]:
    """The stages from the source to the consumer.

    Args:
        records: of all workers.
        run: what the consumer saw.
        workers: worker processes; 0: the consumer's thread does it all.

    Raises:
        InputError: `no-data`.
    """
    if run.batches == 0 or not records:
        raise InputError(
            "the loader gave too few batches to trace",
            code="no-data",
            expected="at least two batches per worker",
            remedy="trace longer, or use smaller batches",
        )
    names = list(dict.fromkeys(name for record in records for name in record["stages"]))
    # The innermost stage ends first; the source ends last of a sample, and comes first in the pipeline.
    names.sort(key=lambda name: {SOURCE: 0, COLLATE: 2}.get(name, 1))
    stages = [_stage(name, records, max(1, workers)) for name in names]
    consumer = main_stage("consumer", run, run.consumer_cpu_s, run.consumer_s - run.consumer_cpu_s)
    if not workers:
        return [*(replace(part, group=MAIN, executor="main") for part in stages), consumer]
    cpu = max(0.0, float(np.median(send_costs(records))))
    sent = replace(stages[-1], name=SEND, visits=1.0, random=False)
    send = replace(sent, cpu_s=cpu, gil_s=cpu, blocked_s=0.0, stream_bytes_s=math.inf)
    # The consumer also waits while the worker stands in the run queue: the thread that hands batches over,
    # or the one that has the lock. That is the load of the machine, and no stage's.
    queued = float(np.mean([record["serving_queued"] for record in records])) / 1e9
    wait = max(0.0, run.receive_wait_s - queued * run.batches) * (1 - queued_share(records))
    receive = main_stage(RECEIVE, run, run.receive_cpu_s, wait)
    return [*stages, send, receive, consumer]


def with_callees(stages: Sequence[Stage], records: Sequence[Record]) -> list[Stage]:
    """The stages, with the source apart from the functions that it calls, by samples of what ran.

    Args:
        stages: the source is the first.
        records: of the run.
    """
    samples: dict[tuple[str, ...], FloatArray] = defaultdict(lambda: np.zeros(3))
    for record in records:
        for path, weights in record.get("callees", {}).items():
            samples[tuple(path.split(CALL) if path else ())] += weights
    total = np.sum([*samples.values()], axis=0) if samples else np.zeros(3)
    if total[:2].sum() < FEWEST_SAMPLES:
        return [*stages]
    source, *others = stages
    # Of the CPU time, of the waiting, of the CPU time with the lock held.
    shares = {
        name: weights / np.maximum(total, 1e-9)
        for name, weights in _expanded(samples, "").items()
        if name and weights[:2].sum() > SMALL * total[:2].sum()
    }
    rest = np.clip(1 - np.sum([*shares.values()], axis=0), 0, 1) if shares else np.ones(3)
    rest[total == 0] = 1.0
    parts = {f"{SOURCE}: {name}": share for name, share in shares.items()} | {SOURCE: rest}
    return [
        *(
            replace(
                source,
                name=name,
                cpu_s=source.cpu_s * cpu,
                blocked_s=source.blocked_s * blocked,
                gil_s=min(source.cpu_s * cpu, source.gil_s * held),
            )
            for name, (cpu, blocked, held) in parts.items()
        ),
        *others,
    ]


def _expanded(samples: Mapping[tuple[str, ...], FloatArray], name: str) -> dict[str, FloatArray]:
    """Weights by function; one in which all time passes, and hardly any in itself, only calls others."""
    paths: dict[str, dict[tuple[str, ...], FloatArray]] = defaultdict(dict)
    for path, weights in samples.items():
        paths[path[0] if path else name][path[1:]] = weights
    result = {callee: np.sum([*inner.values()], axis=0) for callee, inner in paths.items()}
    every = np.sum([*result.values()], axis=0)[:2].sum()
    for callee, inner in paths.items():
        own = inner.get((), np.zeros(3))[:2].sum()
        if callee != name and result[callee][:2].sum() - own >= (1 - DELEGATES) * every:
            return _expanded(inner, callee)
    return result


def main_stage(name: str, run: Run, cpu_s: float, blocked_s: float) -> Stage:
    """A stage of the consumer's thread, from its seconds in the whole run."""
    cpu = cpu_s / run.batches
    stage = Stage(name, MAIN, "main", 1, 1.0, cpu, gil_s=cpu, sequential=True)
    return replace(stage, blocked_s=max(0.0, blocked_s) / run.batches, out_bytes=run.batch_bytes)


def new_trace(run: Run, records: Sequence[Record], stages: Sequence[Stage], **more: Any) -> Trace:
    """What a run of a pipeline showed; `more` are fields of `Trace`."""
    return Trace(
        stages=tuple(stages),
        seconds=run.seconds,
        batches=run.batches,
        rate=over_epochs(run.rate, run.start_s, more.get("epoch_batches")),
        rate_error=rate_error(run.moments),
        starved=min(1.0, run.waited_s / run.seconds),
        resources=resources(),
        batch_bytes=run.batch_bytes,
        costs=batch_costs(records),
        queued=queued_share(records),
        **more,
    )


def batch_costs(records: Sequence[Record]) -> FloatArray:
    """CPU and blocked seconds of the stages for each traced batch, shape [batches, 2]."""
    return _sums(_timed(records))[:, [1, 3]] / 1e9


def send_costs(records: Sequence[Record]) -> FloatArray:
    """CPU seconds of each traced batch in a worker outside of its stages: pickling, queues."""
    timed = _timed(records, sampled=True)  # examining takes CPU time too
    process = np.array([record["process_cpu"] for record in timed])
    return (process - _sums(timed)[:, 1]) / 1e9


def cpu_ratio(records: Sequence[Record], others: Sequence[Record]) -> float:
    """CPU seconds of batches over those of others, from the same batches where there are some.

    Medians: a few long batches may be in one of the two; 1 if there are too few to compare.
    """
    first, second = (
        dict(zip([record["number"] for record in part], _sums(part)[:, 1], strict=True))
        for part in (records, others)
    )
    common = [first[number] / max(second[number], 1) for number in first.keys() & second.keys()]
    if len(common) >= STEADY // 2:
        return float(np.median(common))
    if min(len(first), len(second)) < STEADY:
        return 1.0
    return float(np.median([*first.values()]) / max(1, np.median([*second.values()])))


def queued_share(records: Sequence[Record]) -> float:
    """Share of their computing time that stages waited for a core that others used."""
    _, cpu, queued, _, stolen, _ = _sums(_timed(records)).sum(axis=0)
    return float((queued + stolen) / max(1.0, queued + stolen + cpu))


def shared_bandwidth(
    stage: Stage, alone: Sequence[Record], together: Sequence[Record], count: int
) -> Stage:
    """The stage with the bandwidth that its workers share, if waiting grows with their number.

    X(theta) = min(theta / L, B / bytes): latency L from one worker, bandwidth B from several.

    Args:
        stage: as traced.
        alone: of one worker that runs the stages.
        together: of several that run at once.
        count: how many.
    """
    if stage.name in OUTSIDE:
        return stage
    # Medians: a batch during which the whole machine stood still says nothing.
    one, many = (
        float(np.median(_cost(stage.name, part, 3))) if part else 0.0 for part in (alone, together)
    )
    if many < stage.cpu_s or many < GROWTH * max(one, 1e-3) or stage.out_bytes <= 0:
        return stage
    seconds = many + float(np.median(_cost(stage.name, together, 1)))
    return replace(stage, bandwidth_bytes_s=count * stage.out_bytes / seconds, blocked_s=one)


def _stage(name: str, records: Sequence[Record], workers: int) -> Stage:
    timed = _timed(records)
    cpu, blocked = float(_cost(name, timed, 1).mean()), float(_cost(name, timed, 3).mean())
    batches = len(timed)
    details = [part for record in records if (part := record["details"].get(name))]
    calls = np.array([call for part in details for call in part["calls"]], dtype=np.float64)
    calls = calls.reshape(-1, 3)  # blocked seconds, bytes in, bytes out
    runs = sum(record["stages"].get(name, [0])[0] for record in timed)
    # The source returns once per sample, also where one call reads a whole batch.
    visits = sum(record["samples"] for record in timed) if name == SOURCE else runs
    per_batch = runs / batches
    random = [part["random"] for part in details if part["random"] is not None]
    locked, free = np.sum([record["held"].get(name, (0, 0)) for record in records], axis=0).tolist()
    out_bytes = calls[:, 2].mean() if len(calls) else 0.0
    return Stage(
        name=name,
        group=GROUP,
        executor="process",
        parallelism=workers,
        visits=visits / batches,
        cpu_s=cpu,
        # Of n samples in which the stage computed; without any, half.
        gil_s=cpu * (locked + 0.5) / (locked + free + 1),
        blocked_s=blocked,
        out_bytes=float(out_bytes * per_batch),
        stream_bytes_s=stream_bandwidth(calls),
        random=any(random) if random else None,
        worker_bytes=float(max(record["private_bytes"] for record in records)),
    )


def stream_bandwidth(calls: FloatArray) -> float:
    """Bytes per second of one worker if waiting grows with the bytes, else infinite.

    Waiting = latency + bytes / bandwidth, with the median of the slopes between pairs of calls (Theil 1950,
    Sen 1968), which single long calls do not move. Sizes that hardly differ cannot tell the two apart.

    Args:
        calls: blocked seconds, bytes in, bytes out; shape [calls, 3].
    """
    best, bandwidth = EXPLAINED, math.inf
    calls = calls[:MOST_CALLS]
    blocked = calls[:, 0]
    spread = _spread(blocked)
    for size in calls[:, 1:].T:
        steps = np.subtract.outer(size, size)
        pairs = np.abs(steps) > 0.05 * size.mean() if len(calls) >= FEWEST_CALLS else steps > np.inf
        if not pairs.any() or spread == 0:
            continue
        slope = float(np.median(np.subtract.outer(blocked, blocked)[pairs] / steps[pairs]))
        unexplained = _spread(blocked - slope * size) / spread
        share = slope * np.median(size) / np.median(blocked) if slope > 0 else 0.0
        if unexplained < best and share > EXPLAINED:
            best, bandwidth = unexplained, 1 / slope
    return bandwidth


def _spread(values: FloatArray) -> float:
    """Median absolute deviation."""
    return float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def _timed(records: Sequence[Record], sampled: bool | None = None) -> Sequence[Record]:
    """Records whose costs count: without those that were examined, where samples are short.

    Long batches count all: one of them may take as long as the others of an epoch together.

    Args:
        records: of all workers.
        sampled: whether samples are short; None: if only some of the batches were traced.
    """
    if sampled is None:
        sampled = any(record["plain"][0] for record in records)
    only = [record for record in records if not (sampled and record["detailed"])]
    return only if len(only) >= STEADY else records


def _sums(records: Sequence[Record]) -> FloatArray:
    """What the recorder counts, over all stages, shape [batches, 6]."""
    rows = [np.sum(list(record["stages"].values()), axis=0) for record in records]
    return np.array(rows, dtype=np.float64).reshape(-1, 6)


def _cost(name: str, records: Sequence[Record], column: int) -> FloatArray:
    """Seconds of a stage in each batch."""
    entries = [record["stages"].get(name, (0,) * 6)[column] for record in records]
    return np.array(entries, dtype=np.float64) / 1e9
