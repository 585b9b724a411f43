"""Event files as tests want them, written by hand: what the format says, not what the recorder does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BOOT = "7a78c283-a60e-4fe2-961b-6257134ca43f"
EPOCH = 1_790_000_000.0


def start(rank: int = 0, world_size: int = 1, **fields: Any) -> dict[str, Any]:
    """A start event; wall clock and monotonic clock differ by `EPOCH` unless said."""
    event = {
        "event": "start",
        "t": 0.0,
        "version": 1,
        "run_id": "run",
        "rank": rank,
        "world_size": world_size,
        "node": "n1",
        "pid": 4242,
        "boot_id": BOOT,
        "launch": "",
        "monotonic_s": 100.0,
        "lived_s": 0.0,
        "submitted_s": None,
        "gpus": 1.0,
        "labels": {},
    } | fields
    event.setdefault("opened_s", EPOCH + event["monotonic_s"])
    return event


def alive(*times: float) -> list[dict[str, Any]]:
    """Signs of life."""
    return [{"event": "alive", "t": t} for t in times]


def write(
    folder: Path, first: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = (), name: str = ""
) -> Path:
    """A file of the run `folder`, named as the recorder would."""
    folder.mkdir(parents=True, exist_ok=True)
    opened_ms = int(first["opened_s"] * 1000)
    path = folder / (name or f"rank-{first['rank']:05d}-{opened_ms}-{first['pid']}.jsonl")
    lines = [json.dumps(event, separators=(",", ":")) for event in (first, *events)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
