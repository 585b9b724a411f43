"""Runs written by hand: processes with spans at given times, and the slow way to account for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.runs.recording.events import FORMAT_VERSION, Process, RecordedRun
from holdfast.runs.recording.rankfile import EVENTS

ORIGIN_S = 1_795_000_000.0


@dataclass
class Script:
    """One process: times are seconds since its recorder opened."""

    rank: int = 0
    attempt: int = 0
    start_s: float = 0.0
    lived_s: float = 0.0
    world_size: int = 1
    node: str = "node0"
    ready: float | None = 0.0
    resumed_from: int | None = None
    last: float | None = None
    end: str = "none"
    end_detail: str = ""
    submitted_s: float | None = None
    gpus: float = 1.0
    events: list[dict[str, Any]] = field(default_factory=list)

    def span(self, event: str, begin: float, end: float, **fields: Any) -> Script:
        """A span that was completed."""
        self.events.append({"event": event, "t": end, "seconds": end - begin, **fields})
        return self

    def steps(self, first: int, count: int, begin: float, length: float, **fields: Any) -> Script:
        """Steps back to back."""
        for place in range(count):
            at = begin + place * length
            self.span("step", at, at + length, step=first + place, **fields)
        return self

    def at(self, event: str, t: float, **fields: Any) -> Script:
        """An event without a length."""
        self.events.append({"event": event, "t": t, **fields})
        return self


def recorded(scripts: Sequence[Script], **fields: Any) -> RecordedRun:
    """The run that these processes made."""
    scripts = sorted(scripts, key=lambda each: (each.attempt, each.rank))
    processes, rows = [], []
    for index, script in enumerate(scripts):
        events = sorted(script.events, key=lambda event: event["t"])  # stable: inner spans first
        last = max([event["t"] for event in events] + [script.ready or 0.0])
        last = last if script.last is None else script.last
        rows += [{"process": index, **event} for event in events]
        processes.append(
            Process(
                file=Path(f"events/run/rank-{script.rank:05}-{index}.jsonl"),
                run_id="run",
                rank=script.rank,
                world_size=script.world_size,
                node=script.node,
                pid=100 + index,
                boot_id="boot",
                launch="",
                opened_s=ORIGIN_S + script.start_s + script.lived_s,
                monotonic_s=script.start_s + script.lived_s,
                lived_s=script.lived_s,
                submitted_s=None if script.submitted_s is None else ORIGIN_S + script.submitted_s,
                gpus=script.gpus,
                labels={},
                attempt=script.attempt,
                ready_t=script.ready,
                resumed_from=script.resumed_from,
                last_t=last,
                end=script.end,  # type: ignore[arg-type]
                end_detail=script.end_detail,
            )
        )
    columns = {
        name: [row.get(name, 0.0 if name == "inner_s" else None) for row in rows]
        for name in EVENTS.names
    }
    for name in ("seconds", "inner_s"):
        columns[name] = [None if row.get("seconds") is None else row.get(name, 0.0) for row in rows]
    return RecordedRun(
        run_id="run",
        folder=Path("events/run"),
        processes=tuple(processes),
        events=pa.table(columns, schema=EVENTS),
        start_s=tuple(script.start_s for script in scripts),
        origin_s=ORIGIN_S,
        **fields,
    )


def written(scripts: Sequence[Script], folder: Path, run_id: str = "run") -> Path:
    """The same processes as the files that recorders leave; gives the folder."""
    (folder / run_id).mkdir(parents=True)
    for index, script in enumerate(scripts):
        opened_s = ORIGIN_S + script.start_s + script.lived_s
        start = {
            "event": "start",
            "t": 0.0,
            "version": FORMAT_VERSION,
            "run_id": run_id,
            "rank": script.rank,
            "world_size": script.world_size,
            "node": script.node,
            "pid": 100 + index,
            "boot_id": "boot",
            "launch": f"launch-{script.attempt}",
            "opened_s": opened_s,
            "monotonic_s": script.start_s + script.lived_s + 50.0,
            "lived_s": script.lived_s,
            "submitted_s": None if script.submitted_s is None else ORIGIN_S + script.submitted_s,
            "gpus": script.gpus,
            "labels": {},
        }
        events = sorted(script.events, key=lambda event: event["t"])
        if script.ready is not None:
            ready = {"event": "ready", "t": script.ready, "resumed_from": script.resumed_from}
            events = [ready, *events]
        if script.last is not None:
            events.append({"event": "alive", "t": script.last})
        if script.end != "none":
            ended = {"how": script.end, "detail": script.end_detail}
            events.append({"event": "end", "t": events[-1]["t"], **ended})
        name = f"rank-{script.rank:05}-{round(1000 * opened_s)}-{100 + index}.jsonl"
        lines = [json.dumps(event, separators=(",", ":")) for event in [start, *events]]
        (folder / run_id / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
