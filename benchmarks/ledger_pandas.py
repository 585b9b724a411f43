"""The parts of all machine time in pandas, as a careful user would write them: the peer of `ledger`.

It reads from a store's Parquet files only the columns that it needs, takes the states PREEMPTED for all
preemptions, draws nothing, gives no intervals, no changes and no records. Prints its answers as JSON.

    python benchmarks/ledger_pandas.py STORE
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from fleet_pandas import CHECKPOINT_S, attribute, second_order

COLUMNS = {
    "job_id_raw": "job",
    "attempt": "attempt",
    "state": "state",
    "qos": "qos",
    "priority": "priority",
    "eligible_s": "eligible",
    "start_s": "start",
    "end_s": "end",
    "runtime_s": "runtime",
    "gpus": "gpus",
    "nodes": "nodes",
}
THEIRS = ("CANCELLED", "FAILED", "OUT_OF_MEMORY")


def main() -> None:
    """Answer everything and say how long it took."""
    begin = time.perf_counter()
    found = parts(Path(sys.argv[1]))
    json.dump({**found, "seconds": time.perf_counter() - begin}, sys.stdout)


def parts(store: Path) -> dict[str, float]:
    """GPU-hours by part."""
    attempts = pd.read_parquet(store / "attempts", columns=list(COLUMNS)).rename(columns=COLUMNS)
    attempts = attempts.sort_values(["job", "attempt"], ignore_index=True)
    for name in ("state", "qos"):
        attempts[name] = attempts[name].astype("category")
    attempts["runtime"] = attempts.runtime.fillna(0.0)
    events = pd.read_parquet(
        store / "health", columns=["time_s", "node", "check", "severity", "result"]
    )
    events = events[events.result == "fail"].rename(columns={"time_s": "time"})
    placed = attempts[["nodes"]].explode("nodes").dropna()
    placed["nodes"] = placed.nodes.astype("category")
    attempts = attempts.drop(columns="nodes")
    low, high = float(attempts.start.min()), float((attempts.start + attempts.runtime).max())
    return machines(store, attempts, placed, low, high) | use(attempts, placed, events)


def use(attempts: pd.DataFrame, placed: pd.DataFrame, events: pd.DataFrame) -> dict[str, float]:
    """What the allocated hours were for, of attempts without records."""
    causes = attribute(attempts, events, placed)
    high = causes.index[causes.severity == "HIGH"]
    attempts["infrastructure"] = (attempts.state == "NODE_FAIL") | (
        (attempts.state == "FAILED") & attempts.index.isin(high)
    )
    left, gpus = attempts.runtime.copy(), attempts.gpus / 3600
    half = left.clip(upper=CHECKPOINT_S / 2)
    first = half.where(attempts.infrastructure, 0.0)
    chosen = attempts.index.isin(second_order(attempts, placed)) & ~attempts.infrastructure
    second = half.where(chosen, 0.0)
    left -= first + second
    done = attempts[(attempts.state == "COMPLETED") & (attempts.gpus > 0)]
    init_s = min(300.0, float(done.runtime.quantile(0.05)))
    init = np.minimum(left, init_s)
    left -= init
    cut = attempts.state.isin(["PREEMPTED", "REQUEUED"]) & ~attempts.infrastructure & ~chosen
    replayed = np.minimum(left, half.where(cut, 0.0))
    left -= replayed
    theirs = attempts.state.isin(THEIRS) & ~attempts.infrastructure
    return {
        "allocated": float((attempts.runtime * gpus).sum()),
        "lost_first_order": float((first * gpus).sum()),
        "lost_second_order": float((second * gpus).sum()),
        "initialization": float((init * gpus).sum()),
        "replayed": float((replayed * gpus).sum()),
        "users": float((left * gpus)[theirs].sum()),
        "unrecorded": float((left * gpus)[~theirs].sum()),
    }


def machines(
    store: Path, attempts: pd.DataFrame, placed: pd.DataFrame, low: float, high: float
) -> dict[str, float]:
    """Capacity, out of service, idle, and idle while jobs waited that would have fitted."""
    nodes = pd.read_parquet(store / "nodes", columns=["node", "gpus"]).set_index("node").gpus
    outages = pd.read_parquet(store / "node_outages", columns=["node", "start_s", "end_s"])
    ran = placed.join(attempts[["start", "runtime", "gpus"]])
    ran["share"] = ran.gpus / placed.groupby(level=0).size()
    end = outages.end_s.fillna(high)
    whole = pd.DataFrame({"node": nodes.index})
    changes = pd.concat(
        [
            pd.DataFrame({"node": ran.nodes, "time": ran.start, "used": ran.share}),
            pd.DataFrame({"node": ran.nodes, "time": ran.start + ran.runtime, "used": -ran.share}),
            pd.DataFrame({"node": outages.node, "time": outages.start_s, "down": 1}),
            pd.DataFrame({"node": outages.node, "time": end, "down": -1}),
            whole.assign(time=low),
            whole.assign(time=high),
        ]
    ).fillna({"used": 0.0, "down": 0})
    changes["node"] = changes.node.astype(pd.CategoricalDtype(nodes.index))
    changes["time"] = changes.time.clip(low, high)
    changes = changes.sort_values(["node", "time"], kind="stable", ignore_index=True)
    by_node = changes.groupby("node", observed=True)
    size = changes.node.map(nodes).astype(float)
    span = (by_node.time.shift(-1) - changes.time).fillna(0.0)
    free = size - by_node.used.cumsum()
    free = free.clip(lower=0)
    down = by_node.down.cumsum() > 0
    out = float((free * span)[down].sum())
    idle = free.where(~down & (span > 0), 0.0)
    change = idle - idle.groupby(changes.node, observed=True).shift(1).fillna(0.0)
    level = change.groupby(changes.time).sum().cumsum().clip(lower=0)

    waits = attempts[(attempts.gpus > 0) & attempts.eligible.notna()]
    until = waits.start.fillna(high).clip(upper=high)
    sizes = pd.concat(
        [
            pd.DataFrame({"time": waits.eligible.clip(lower=low), "gpus": waits.gpus, "jobs": 1}),
            pd.DataFrame({"time": until, "gpus": waits.gpus, "jobs": -1}),
        ]
    )[np.tile((until > waits.eligible.clip(lower=low)).to_numpy(), 2)]
    times = np.union1d(level.index, sizes.time)
    level = level.reindex(times).ffill().to_numpy()
    fitting = np.zeros(times.size)
    for gpus, mine in sizes.groupby("gpus"):
        waiting = mine.groupby("time").jobs.sum().reindex(times, fill_value=0).cumsum()
        fitting += np.where(gpus <= level, gpus * waiting, 0.0)
    spans = np.diff(times)
    used = float((attempts.gpus * attempts.runtime).sum())
    located = float((ran.share * ran.runtime).sum())
    spare = float(np.dot(level[:-1], spans)) - (used - located)
    could = min(float(np.dot(np.minimum(level, fitting)[:-1], spans)), spare)
    return {
        "capacity": (out + spare + used) / 3600,
        "out_of_service": out / 3600,
        "idle": (spare - could) / 3600,
        "idle_while_waiting": could / 3600,
    }


if __name__ == "__main__":
    main()
