"""Trainings that are not run: the events that a recorder would have written, at known times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

START = {
    "event": "start", "t": 0.0, "version": 1, "run_id": "r", "world_size": 4, "boot_id": "b",
    "lived_s": 1.0, "submitted_s": None, "gpus": 2.0,
}  # fmt: skip


class Rank:
    """One process whose events are written as the recorder would, at times that are known."""

    def __init__(self, folder: Path, rank: int, attempt: int = 0, **start: Any) -> None:
        (folder / "r").mkdir(exist_ok=True, parents=True)
        opened = 1.79e9 + 1e5 * attempt
        self.path = folder / "r" / f"rank-{rank:05d}-{round(1000 * opened)}-{100 + rank}.jsonl"
        self.now = 0.0
        told = {
            **START, "rank": rank, "pid": 100 + rank, "node": f"n{rank // 2}", "opened_s": opened,
            "monotonic_s": 1e3 + 1e5 * attempt, "launch": f"job {attempt}", "labels": {}, **start,
        }  # fmt: skip
        self.lines = [told, {"event": "ready", "t": 0.0, "resumed_from": None}]

    def span(self, event: str, seconds: float, inner: float = 0.0, **fields: Any) -> None:
        """A span that takes `seconds`, of which `inner` has passed in spans already written."""
        self.now += seconds - inner
        told: dict[str, Any] = {"event": event, "t": round(self.now, 6), "seconds": seconds}
        self.lines.append({**told, **({"inner_s": inner} if inner else {}), **fields})

    def close(self) -> None:
        self.lines.append({"event": "end", "t": self.now, "how": "clean"})
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))


def train(
    folder: Path,
    work: np.ndarray,
    data: np.ndarray,
    *,
    sync: bool = True,
    labels: Mapping[int, Mapping[str, str]] | None = None,
    first: int = 1,
    attempt: int = 0,
) -> None:
    """A synchronous training: per step, wait for data, work, then wait for the slowest rank.

    Args:
        folder: of the events.
        work: [R, S] seconds.
        data: [R, S] seconds.
        sync: whether the steps say how long they waited.
        labels: of each rank.
        first: number of the first step.
        attempt: which attempt it is.
    """
    ranks = [
        Rank(folder, rank, attempt, labels=dict((labels or {}).get(rank, {})))
        for rank in range(work.shape[0])
    ]
    for step in range(work.shape[1]):
        ready = [rank.now + data[i, step] + work[i, step] for i, rank in enumerate(ranks)]
        for i, rank in enumerate(ranks):
            waited = max(ready) - ready[i] + 0.02  # and the collective itself
            rank.span("data_wait", float(data[i, step]))
            told = {"sync_s": waited} if sync else {}
            rank.span("step", float(work[i, step]) + waited, step=first + step, **told)
    for rank in ranks:
        rank.close()


def times(seed: int, ranks: int = 4, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    work = generator.normal(0.5, 0.02, (ranks, steps))
    return work, generator.uniform(0.01, 0.02, (ranks, steps))
