"""Adds up what `timed_training.py` wrote: the parts of a run's wall time, by plain loops."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

Sheet = list[tuple[str, float, float]]


def read(folder: Path) -> dict[int, dict[int, Sheet]]:
    """attempt -> rank -> lines (name, start, end); a line that a kill cut in half is left out."""
    sheets: dict[int, dict[int, Sheet]] = defaultdict(dict)
    attempts: dict[int, int] = defaultdict(int)
    for path in sorted(folder.glob("*.txt")):  # by rank, then time
        rank = int(path.name.partition("-")[0])
        lines = path.read_text().split("\n")[:-1]
        sheets[attempts[rank]][rank] = [
            (name, float(start), float(end)) for name, start, end in map(str.split, lines)
        ]
        attempts[rank] += 1
    return dict(sheets)


def parts(sheets: dict[int, dict[int, Sheet]]) -> dict[str, float]:
    """Seconds of each part, the mean over ranks."""
    total: dict[str, float] = defaultdict(float)
    completed = 0
    alive_until: float | None = None
    for attempt in sorted(sheets):
        ranks = sheets[attempt]
        submitted = min(sheet[0][1] for sheet in ranks.values())
        start = min(sheet[0][2] for sheet in ranks.values())
        total["down"] += 0.0 if alive_until is None else submitted - alive_until
        total["queue"] += start - submitted
        alive_until = max(sheet[-1][2] for sheet in ranks.values())
        reached = completed
        for sheet in ranks.values():
            told: dict[str, float] = defaultdict(float)
            step = 0
            free_since: float | None = None  # the end of the wait for data that a step follows
            for name, begin, end in sheet:
                if name.startswith("resumed:"):
                    step = int(name.partition(":")[2])
                    told["init"] = begin - start
                if name not in ("data_wait", "checkpoint", "evaluation", "over"):
                    continue
                if free_since is not None:
                    step += 1
                    part = "replayed" if step <= completed else "productive"
                    told[part] += (begin if name != "over" else free_since) - free_since
                    reached = max(reached, step)
                free_since = end if name == "data_wait" else None
                if name != "over":
                    told[name] += end - begin
            told["idle"] = alive_until - start - sum(told.values())
            for name, seconds in told.items():
                total[name] += seconds / len(ranks)
        completed = reached
    return dict(total)
