"""Events of trainings that were never run: noise, checkpoints, stalls, and faults at a known time.

    python benchmarks/simulated_training.py examples/watch

writes the run that docs/runs-watch.md replays.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

from holdfast.runs.recording import lines
from holdfast.runs.recording.events import FORMAT_VERSION, Process
from holdfast.runs.watching.replaying import Known

START_S = 1_790_000_000.0
Event = tuple[float, Process, dict[str, Any]]
"""(seconds since the attempt began, who writes it, the line without its ``t``)."""


def process(
    rank: int = 0, world_size: int = 1, attempt: int = 0, opened_s: float = START_S
) -> Process:
    """A process as its first line tells of it."""
    return Process(
        file=Path(f"/nowhere/rank-{rank:05d}-{attempt}.jsonl"),
        run_id="simulated",
        rank=rank,
        world_size=world_size,
        node=f"node{rank // 8:03d}",
        pid=1000 + rank,
        boot_id="",
        launch=f"launch-{attempt}",
        opened_s=opened_s,
        monotonic_s=0.0,
        lived_s=0.0,
        submitted_s=None,
        gpus=1.0,
        labels={},
    )


@dataclass(frozen=True)
class Training:
    """A synchronous training, and what happens to it. Times in seconds."""

    hours: float = 1.0
    ranks: int = 1
    step_s: float = 1.0
    sigma: float = 0.05
    """Of the logarithm of a step's time."""
    persistence: float = 0.0
    """Correlation of that noise from step to step (busy networks come in episodes)."""
    heavy_tail: float = 0.0
    """Share of steps that take longer by a Pareto multiple (exponent 1.5, at most 20 times)."""
    checkpoint_every: int = 500
    checkpoint_s: float = 60.0
    evaluation_every: int = 2000
    evaluation_s: float = 300.0
    gc_every: int = 300
    gc_s: float = 5.0
    stalls_per_hour: float = 1.0
    """Data stalls: a few steps in a row that wait for their batch."""
    stall_steps: int = 4
    stall_s: float = 8.0
    drift_per_day: float = 0.1
    """Steps grow by this share in a day."""
    tokens: float | None = 4096.0
    slow_from_s: float = math.inf
    """From then on steps take `slow_factor` times as long."""
    slow_factor: float = 2.0
    starve_from_s: float = math.inf
    """From then on the input takes as long as the step: the throughput is halved."""
    hang_at_s: float = math.inf
    """From then on only heartbeats."""
    die_at_s: float = math.inf
    """From then on nothing."""
    seed: int = 0
    attempt: int = 0
    begin_s: float = 0.0
    """Run time at which the attempt begins; all times above count from then."""
    resumed_from: int = 0

    def events(self) -> Iterator[Known]:
        """All events, in order of time."""
        opened_s = START_S + self.begin_s
        processes = [
            process(rank, self.ranks, self.attempt, opened_s) for rank in range(self.ranks)
        ]
        for now, who, event in self._events(processes, np.random.default_rng(self.seed)):
            yield self.begin_s + now, who, lines.Event(**event, t=now), self.begin_s

    def but(self, **changes: Any) -> Training:
        """The same with something changed."""
        return replace(self, **changes)

    def _events(self, processes: list[Process], draw: np.random.Generator) -> Iterator[Event]:
        yield from _all(processes, 0.0, {"event": "start"})
        now, step, noise, stalled = 30.0, self.resumed_from, 0.0, 0
        yield from _all(processes, now, {"event": "ready", "resumed_from": step or None})
        end = min(self.hours * 3600, self.hang_at_s, self.die_at_s)
        spread = self.sigma * math.sqrt(1 - self.persistence**2)
        while now < end:
            step += 1
            noise = self.persistence * noise + spread * draw.standard_normal()
            length = self._length(math.exp(noise), now, step, draw)
            if stalled == 0 and draw.random() < self.stalls_per_hour * length / 3600:
                stalled = self.stall_steps
            wait = 0.01 * self.step_s
            if stalled:
                stalled -= 1
                wait = self.stall_s * draw.exponential()
            if now >= self.starve_from_s:
                wait += length
            yield from _alive(processes, now, now + wait)
            now += wait
            yield from _all(processes, now, {"event": "data_wait", "seconds": wait})
            yield from _alive(processes, now, now + length)
            now += length
            loss = 2.0 + 8.0 * math.exp(-step / 2000) + 0.05 * draw.standard_normal()
            line = {"event": "step", "step": step, "seconds": length, "loss": loss}
            yield from _all(processes, now, line | ({"tokens": self.tokens} if self.tokens else {}))
            for kind, every, usual in (
                ("checkpoint", self.checkpoint_every, self.checkpoint_s),
                ("evaluation", self.evaluation_every, self.evaluation_s),
            ):
                if every and step % every == 0:
                    took = usual * math.exp(0.4 * draw.standard_normal())
                    yield from _all(processes, now, {"event": "begin", "what": kind, "step": step})
                    yield from _alive(processes, now, now + took)
                    now += took
                    yield from _all(processes, now, {"event": kind, "step": step, "seconds": took})
        if self.hang_at_s <= now:
            yield from _alive(processes, now, self.hours * 3600)
        elif self.die_at_s > now:
            yield from _all(processes, now, {"event": "end", "how": "clean"})

    def _length(self, noise: float, now: float, step: int, draw: np.random.Generator) -> float:
        """Of a step."""
        length = self.step_s * noise * (1 + self.drift_per_day * now / 86_400)
        if self.heavy_tail and draw.random() < self.heavy_tail:
            length *= 1 + min(20.0, draw.pareto(1.5))
        if now >= self.slow_from_s:
            length *= self.slow_factor
        if self.gc_every and step % self.gc_every == 0:
            length += self.gc_s
        return length


def _all(processes: list[Process], at: float, event: dict[str, Any]) -> Iterator[Event]:
    """The same event of every rank."""
    for one in processes:
        yield at, one, event


def _alive(processes: list[Process], begin: float, end: float) -> Iterator[Event]:
    """A sign of life every ten seconds (the recorder writes one a second)."""
    at = begin + 10.0
    while at < end:
        yield from _all(processes, at, {"event": "alive"})
        at += 10.0


_TEN_SECOND_STEPS = Training(
    ranks=2, step_s=10, sigma=0.1, checkpoint_every=60, evaluation_every=100, evaluation_s=200
)
EXAMPLE = (
    _TEN_SECOND_STEPS.but(hours=0.95, hang_at_s=2700, seed=1),
    _TEN_SECOND_STEPS.but(
        hours=1.3, slow_from_s=3600, seed=2, attempt=1, begin_s=3540, resumed_from=180
    ),
)
"""Two attempts: the first hangs and is killed after a while, in the second the steps become slow."""
_TOLD = (
    *("run_id", "rank", "world_size", "node", "pid", "boot_id", "launch", "opened_s"),
    *("monotonic_s", "lived_s", "submitted_s", "gpus", "labels"),
)


def start_line(who: Process) -> dict[str, Any]:
    """The first line of a process's file."""
    told = {name: getattr(who, name) for name in _TOLD}
    return {"event": "start", "t": 0.0, "version": FORMAT_VERSION, **told}


def line(who: Process, event: lines.Event) -> dict[str, Any]:
    """An event as its process writes it."""
    if event.event == "start":
        return start_line(who)
    told = {name: value for name, value in asdict(event).items() if value is not None}
    odd = [name for name in ("loss", "grad_norm") if not math.isfinite(told.get(name, 0.0))]
    return told | {name: lines.not_finite_as_text(told[name]) for name in odd}


def write(trainings: Iterable[Training], folder: Path) -> None:
    """The files that recorders would have written."""
    own = folder / "simulated"
    own.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[str]] = {}
    for training in trainings:
        for _, who, event, _ in training.events():
            rounded = {
                key: round(value, 2) if isinstance(value, float) else value
                for key, value in line(who, event).items()
            }
            name = f"rank-{who.rank:05d}-{int(who.opened_s * 1000)}-{who.pid}.jsonl"
            files.setdefault(name, []).append(json.dumps(rounded, separators=(",", ":")))
    for name, texts in files.items():
        (own / name).write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(EXAMPLE, Path(sys.argv[1]))
