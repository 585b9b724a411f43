"""A large Slurm log with known truth: accounting text, health events and a node inventory.

The log has the structure that the analyses look for, in the proportions that Kokolis et al.
(arXiv 2410.21680) publish for a cluster of 2,000 nodes of 8 GPUs over eleven months: most jobs use
one GPU or eight, few use thousands; requeued jobs keep their id; jobs of high priority preempt
others; nodes fail at 6.5 per 1,000 node-days, a few of them ("lemons") far more often. One job name
in 2,000 holds what real ones hold: a newline, the delimiter, or bytes that are not UTF-8.

    python benchmarks/fleet_log.py --attempts 4000000 --nodes 2000 --events 1000000 --seed 1 -o DIR

writes `sacct.psv` (as `sacct -a -D -X -P` prints it, in UTC), `health.jsonl` and
`scontrol_nodes.txt`, and prints what is true of them as JSON. The same arguments give the same
bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fleet_log_text import (
    BEGIN_S,
    CHUNK_ROWS,
    COLUMNS,
    DAYS,
    END_S,
    GPUS_PER_NODE,
    HIGH,
    SIZES,
    Columns,
    Floats,
    State,
    accounting,
    digits_of,
    health,
    inventory,
)

WEEK_S = 7 * 86_400
# Shares of the states COMPLETED to OUT_OF_MEMORY; NODE_FAIL follows from the nodes' hazards.
SHARES = [0.600, 0.240, 0.100, 0.020, 0.032, 0.006, 0.001]


@dataclass(frozen=True)
class Truth:
    """What is true of a written log."""

    attempts: int
    jobs: int
    nasty_names: int
    """Records whose name holds a newline, the delimiter or bytes that are not UTF-8."""
    states: dict[str, int]
    """Attempts by state."""
    gpu_hours: float
    """GPUs x runtime of every attempt that ended."""
    node_days: float
    """Nodes x runtime of every attempt that ended."""
    failures: int
    """Attempts that a node ended: as NODE_FAIL, or as FAILED with a critical check."""
    node_failures: dict[str, int]
    """Node -> failures that it caused; nodes without any are left out."""
    lemons: tuple[str, ...]
    """Nodes with a rate far above the others'."""
    preemptions: int
    second_order_preemptions: int
    """Those whose preemptor had itself been requeued after a node failure."""
    health_events: int


def write_log(
    folder: Path,
    attempts: int,
    nodes: int,
    events: int,
    seed: int,
    *,
    rate_per_node_day: float = 6.5e-3,
    lemon_share: float = 0.012,
    lemon_factor: float = 15.0,
    nasty_share: float = 0.0005,
) -> Truth:
    """Write a log to `folder`.

    Args:
        folder: where `sacct.psv`, `health.jsonl` and `scontrol_nodes.txt` go; made if missing.
        attempts: rows of accounting, exactly.
        nodes: nodes of the fleet, 8 GPUs each.
        events: health events, exactly, unless the failures alone give more.
        seed: the same arguments give the same bytes.
        rate_per_node_day: failures per node-day in use of a healthy node.
        lemon_share: share of the nodes that are lemons.
        lemon_factor: how much oftener a lemon fails.
        nasty_share: share of the records whose names need care.

    Returns:
        What is true of the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = np.char.add(
        "node", np.char.zfill(np.arange(1, nodes + 1).astype(str), digits_of(nodes))
    )
    hazard = np.full(nodes, rate_per_node_day / 86_400)
    lemons = np.sort(rng.choice(nodes, max(1, round(nodes * lemon_share)), replace=False))
    hazard[lemons] *= lemon_factor

    rows = _simulate(rng, attempts, nodes, hazard)
    nasty = rng.random(attempts) < nasty_share
    with (folder / "sacct.psv").open("wb") as out:
        out.write(COLUMNS.encode() + b"\n")
        for first in range(0, attempts, CHUNK_ROWS):
            piece = {name: values[first : first + CHUNK_ROWS] for name, values in rows.items()}
            out.write(accounting(piece, nasty[first : first + CHUNK_ROWS], nodes))
    written = 0
    with (folder / "health.jsonl").open("wb") as out:
        for text, count in health(rng, rows, names, events):
            out.write(text)
            written += count
    (folder / "scontrol_nodes.txt").write_text("".join(inventory(name) for name in names))

    ended = rows["state"] < State.RUNNING
    runtime = np.where(ended, rows["end"] - rows["start"], 0)
    blamed = rows["blamed"][rows["blamed"] >= 0]
    return Truth(
        attempts=attempts,
        jobs=int(np.unique(rows["raw"]).size),
        nasty_names=int(nasty.sum()),
        states={
            kind.name: int(count)
            for kind, count in zip(
                State, np.bincount(rows["state"], minlength=len(State)), strict=True
            )
            if count
        },
        gpu_hours=float((runtime * rows["gpus"]).sum() / 3600),
        node_days=float((runtime * rows["width"]).sum() / 86_400),
        failures=int(blamed.size),
        node_failures={
            str(names[node]): int(count)
            for node, count in enumerate(np.bincount(blamed, minlength=nodes))
            if count
        },
        lemons=tuple(str(names[node]) for node in lemons),
        preemptions=int((rows["state"] == State.PREEMPTED).sum()),
        second_order_preemptions=int(rows["second_order"].sum()),
        health_events=written,
    )


def _simulate(rng: np.random.Generator, attempts: int, nodes: int, hazard: Floats) -> Columns:
    """Every attempt of the log, one array a column, in the order in which sacct prints them."""
    share = 0.9  # jobs per attempt; the requeued ones are what is missing to 1
    while True:
        rows = _executions(rng, int(attempts * share) + 1, nodes, hazard)
        surplus = rows["raw"].size - attempts
        if surplus >= 0:
            break
        share *= 1.05
    order = np.lexsort((rows["attempt"], rows["raw"]))
    raw = rows["raw"][order]
    again = np.concatenate([[False], raw[1:] == raw[:-1], [False]])
    once = np.flatnonzero(~again[:-1] & ~again[1:])  # jobs of one attempt: any of them may go
    order = np.delete(order, rng.choice(once, surplus, replace=False))
    return {k: v[order] for k, v in rows.items()}


def _executions(rng: np.random.Generator, count: int, nodes: int, hazard: Floats) -> Columns:
    """Every attempt of `count` jobs."""
    jobs = _submissions(rng, count, nodes)
    high = jobs["qos"] == HIGH
    # Jobs of high priority first: nobody preempts them, and they are who preempts the others.
    first = _execute(rng, {k: v[high] for k, v in jobs.items()}, nodes, hazard, None)
    pool = {k: v[np.argsort(first["start"], kind="stable")] for k, v in first.items()}
    rest = _execute(rng, {k: v[~high] for k, v in jobs.items()}, nodes, hazard, pool)
    return {k: np.concatenate([first[k], rest[k]]) for k in first}


def _submissions(rng: np.random.Generator, jobs: int, nodes: int) -> Columns:
    """What users submit: `jobs` jobs in order of submission, some of them tasks of one array."""
    tasks = np.where(rng.random(jobs) < 0.02, rng.geometric(1 / 12, jobs) + 1, 1)
    tasks = tasks[: int(np.searchsorted(np.cumsum(tasks), jobs)) + 1]
    group = np.repeat(np.arange(tasks.size), tasks)[:jobs]
    groups = int(group[-1]) + 1
    leader = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1])

    # Work comes by day and on weekdays: draw too many times, keep the ones of busy hours.
    spare = rng.random(groups * 3) * (DAYS * 86_400)
    day, hour = spare // 86_400, spare % 86_400 / 3600
    busy = (0.65 + 0.35 * np.sin((hour - 9) * np.pi / 12)) * np.where((day + 2) % 7 >= 5, 0.6, 1.0)
    kept = np.argpartition(rng.random(spare.size) / busy, groups)[:groups]
    submit = np.sort(spare[kept])

    sizes = np.array([gpus for gpus, _, _ in SIZES])
    weights = np.array([weight for _, weight, _ in SIZES], dtype=float)
    weights[sizes > max(GPUS_PER_NODE, nodes * GPUS_PER_NODE // 3)] = 0
    size = rng.choice(sizes.size, groups, p=weights / weights.sum())
    # Arrays are sweeps of small jobs.
    size[(tasks[:groups] > 1) & (sizes[size] > GPUS_PER_NODE)] = 0
    qos = np.where(sizes[size] >= 512, HIGH, rng.choice(3, groups, p=[0.5, 0.42, 0.08]))
    user = (rng.zipf(1.3, groups) - 1) % 400
    return {
        "raw": np.arange(1, jobs + 1) + 1_000_000,
        "array": np.where(tasks[group] > 1, leader[group] + 1 + 1_000_000, 0),
        "task": np.arange(jobs) - leader[group],
        "submit": BEGIN_S + submit[group].astype(np.int64),
        "size": size[group],
        "user": user[group],
        "name": rng.integers(0, 5000, groups)[group],
        "qos": qos[group],
    }


def _execute(
    rng: np.random.Generator, jobs: Columns, nodes: int, hazard: Floats, pool: Columns | None
) -> Columns:
    """Run every job until it ends for good; `pool`: the attempts that may preempt, by start."""
    rounds: list[Columns] = []
    current = {**jobs, "attempt": np.ones(jobs["raw"].size, np.int64)}
    current["restarted"] = np.zeros(jobs["raw"].size, bool)
    while current["raw"].size:
        done = _attempt(rng, current, nodes, hazard, pool)
        rounds.append(done)
        again = np.isin(done["state"], (State.PREEMPTED, State.REQUEUED, State.NODE_FAIL)) | (
            (done["state"] == State.FAILED) & (done["blamed"] >= 0)
        )
        current = {name: done[name][again] for name in current}
        current["submit"] = done["end"][again] + 1
        current["attempt"] = current["attempt"] + 1
        current["restarted"] = done["blamed"][again] >= 0
    return {name: np.concatenate([r[name] for r in rounds]) for name in rounds[0]}


def _attempt(
    rng: np.random.Generator, jobs: Columns, nodes: int, hazard: Floats, pool: Columns | None
) -> Columns:
    """One execution of each job: when, where, and how it ended."""
    count = jobs["raw"].size
    gpus = np.array([gpus for gpus, _, _ in SIZES])[jobs["size"]]
    hours = np.array([mean for _, _, mean in SIZES])[jobs["size"]]
    width = np.maximum(1, gpus // GPUS_PER_NODE)
    # One node of the range may be left out.
    gap = (width >= 3) & (width < nodes) & (rng.random(count) < 0.3)
    place = (rng.random(count) * (nodes - width - gap + 1)).astype(np.int64)

    eligible = jobs["submit"] + np.where(jobs["attempt"] > 1, 121, 0)
    patience = np.array([2400.0, 900.0, 240.0])[jobs["qos"]] * (1 + np.log2(width))
    start = eligible + rng.exponential(patience).astype(np.int64) + 1
    # Log-normal with sigma 1.3, so that the mean is `hours`.
    runtime = np.maximum(5, rng.lognormal(np.log(hours * 3600) - 1.3**2 / 2, 1.3)).astype(np.int64)
    runtime = np.minimum(runtime, WEEK_S - 60)

    share = np.array(SHARES)
    if pool is None:
        share[State.PREEMPTED] = 0
    state = rng.choice(share.size, count, p=share / share.sum())
    runtime = np.where(state == State.FAILED, np.maximum(3, runtime // 2), runtime)

    second_order = np.zeros(count, bool)
    if pool is not None:
        who = np.searchsorted(pool["start"], start + runtime)
        by = np.minimum(who, pool["start"].size - 1)
        notice = pool["start"][by] - 1 - start
        victim = (state == State.PREEMPTED) & (notice >= runtime) & (notice < WEEK_S - 60)
        state = np.where((state == State.PREEMPTED) & ~victim, State.COMPLETED, state)
        # The victim's nodes lie inside the preemptor's, or around them if it is the wider one.
        inside = (rng.random(count) * np.maximum(0, pool["width"][by] - width)).astype(np.int64)
        around = (rng.random(count) * np.maximum(0, width - pool["width"][by])).astype(np.int64)
        near = np.clip(pool["place"][by] + inside - around, 0, nodes - width - gap)
        place = np.where(victim, near, place)
        runtime = np.where(victim, notice, runtime)
        second_order = victim & pool["restarted"][by]

    limit = np.select([runtime < 14_000, runtime < 86_000], [14_400, 86_400], WEEK_S)
    timeout = limit + rng.integers(1, 30, count)
    runtime = np.where(state == State.TIMEOUT, timeout, runtime)

    # A node breaks: exponential time to failure at the sum of the hazards of the attempt's nodes.
    total = np.concatenate([[0.0], np.cumsum(hazard)])
    before, after = total[place], total[place + width]
    until = rng.exponential(1 / (after - before))
    broken = until < runtime
    blamed = np.searchsorted(total, before + rng.random(count) * (after - before), side="right") - 1
    blamed = np.clip(blamed, place, place + width - 1)
    skipped = np.where(gap, place + width - 1, -1)  # its successor is used instead
    blamed = np.where(blamed == skipped, place + width, blamed)
    runtime = np.where(broken, np.maximum(2, until.astype(np.int64)), runtime)
    seen = np.where(rng.random(count) < 0.5, State.NODE_FAIL, State.FAILED)
    state = np.where(broken, seen, state)
    second_order &= ~broken

    end = start + runtime
    state = np.select([start >= END_S, end >= END_S], [State.PENDING, State.RUNNING], state)
    ended = state < State.RUNNING
    return {
        **jobs,
        "gpus": gpus,
        "width": width,
        "gap": gap,
        "place": place,
        "eligible": eligible,
        "start": start,
        "end": end,
        "limit": limit,
        "state": state,
        "blamed": np.where(broken & ended, blamed, -1),
        "second_order": second_order & ended,
    }


def main() -> None:
    """Write the log that the arguments describe and print its truth as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--attempts", type=int, default=4_000_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args()
    truth = write_log(chosen.output, chosen.attempts, chosen.nodes, chosen.events, chosen.seed)
    json.dump(asdict(truth), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
