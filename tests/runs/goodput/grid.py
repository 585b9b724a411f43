"""The slow way to account for a run: look at the middle of every cell of a time grid, and say what was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from goodput.building import Script

PARTS = (
    *("productive", "replayed", "data_wait", "checkpoint", "init"),
    *("evaluation", "idle", "down", "queue"),
)


def parts_by_grid(scripts: Sequence[Script], cell: float) -> tuple[float, dict[str, float]]:
    """Wall time and parts; exact where every time is a multiple of `cell`."""
    attempts = sorted({script.attempt for script in scripts})
    members = {a: [s for s in scripts if s.attempt == a] for a in attempts}
    begins = {a: min(s.start_s for s in members[a]) for a in attempts}
    ends = {a: max(s.start_s + s.lived_s + _last(s) for s in members[a]) for a in attempts}
    for before, after in pairwise(attempts):
        ends[before] = min(ends[before], begins[after])
    submitted = {
        a: min((s.submitted_s for s in members[a] if s.submitted_s is not None), default=None)
        for a in attempts
    }
    first = attempts[0]
    origin = begins[first]
    if submitted[first] is not None:
        origin = min(origin, submitted[first])
    marks = _replayed_spans(members, attempts)
    total = dict.fromkeys(PARTS, 0.0)
    wall = ends[attempts[-1]] - origin
    for k in range(round(wall / cell)):
        x = origin + (k + 0.5) * cell
        alive = [a for a in attempts if begins[a] < x < ends[a]]
        if alive:
            for script in members[alive[0]]:
                what = _doing(script, x, marks)
                total[what] += cell / len(members[alive[0]])
            continue
        coming = min(a for a in attempts if begins[a] > x)
        known = submitted[coming]
        if coming != first and known == submitted[coming - 1]:
            known = None
        total["queue" if known is not None and known < x else "down"] += cell
    return wall, total


def _last(script: Script) -> float:
    told = [event["t"] for event in script.events] + [script.ready or 0.0]
    return max(told) if script.last is None else script.last


def _doing(script: Script, x: float, marks: set[int]) -> str:
    opened = script.start_s + script.lived_s
    last = opened + _last(script)
    steps = [opened + e["t"] - e["seconds"] for e in script.events if e["event"] == "step"]
    ready = opened + script.ready if script.ready is not None else min(steps, default=last)
    if x < min(ready, last):
        return "init"
    if x > last:
        return "idle"
    ordered = sorted(script.events, key=lambda e: e["t"])
    inside: list[tuple[float, int, Any]] = []
    for place, event in enumerate(ordered):
        if event.get("seconds") is not None:
            begin, end = opened + event["t"] - event["seconds"], opened + event["t"]
            if begin < x < end:
                inside.append((end, place, event))
        elif event["event"] == "begin":
            later = [e["event"] for e in ordered[place + 1 :]]
            if event["what"] not in later and "step" not in later and opened + event["t"] < x:
                inside.append((last, 10**9 - place, {"event": event["what"]}))
    if not inside:
        return "idle"
    event = min(inside, key=lambda each: each[:2])[2]
    if event["event"] == "pause":
        return "idle"
    if event["event"] == "step":
        return "replayed" if id(event) in marks else "productive"
    return str(event["event"])


def _replayed_spans(members: dict[int, list[Script]], attempts: Sequence[int]) -> set[int]:
    """The step events whose number had been completed before."""
    marks: set[int] = set()
    done = -1
    for attempt in attempts:
        reached = done
        for script in members[attempt]:
            steps = [e for e in script.events if e["event"] == "step"]
            for place, event in enumerate(sorted(steps, key=lambda e: e["t"])):
                earlier = [e["step"] for e in sorted(steps, key=lambda e: e["t"])[:place]]
                while earlier and earlier[-1] == event["step"]:
                    earlier.pop()
                if event["step"] <= max([done, *earlier]):
                    marks.add(id(event))
                reached = max(reached, event["step"])
        done = reached
    return marks
