"""Ranks that execute random programs until none can move: dumps of hangs whose cause is known.

A program is the list of operations that a rank is to call; the members of a group call its operations
in the same order. A fault changes one rank: it stops before an operation, skips one or calls
another. Then a brute-force scheduler lets ranks enter operations one by one, and an operation ends when
every member is inside with the same thing; no graph is searched. What a real recorder would hold is
written as PyTorch writes it for NCCL (format 2.10), with a ring buffer of any size. Synthetic: real
dumps are in ``flight/dumps/``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

KINDS = ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast")
FRAMES = [{"name": "step", "filename": "train.py", "line": 41}]
START_NS = 1_800_000_000_000_000_000
STEP_NS = 10_000_000


@dataclass(frozen=True)
class Call:
    """One operation of a program, as one rank calls it."""

    group: int
    kind: str
    size: int


@dataclass
class Job:
    """A simulated job, and what is true about its end."""

    groups: list[tuple[int, ...]]
    programs: list[list[Call]]
    """Rank -> its calls."""
    stops_at: dict[int, int] = field(default_factory=dict)
    """Rank -> the call before which it stops for ever."""
    position: list[int] = field(default_factory=list)
    """Rank -> how many calls it has entered, at the end."""
    entries: list[list[dict[str, Any]]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether everybody got through."""
        return all(
            position == len(program) and not any(not each["retired"] for each in entries)
            for position, program, entries in zip(
                self.position, self.programs, self.entries, strict=True
            )
        )


def random_job(draw: random.Random, ranks: int, calls: int) -> Job:
    """Groups: everybody, a row, a column, and a random one; then a program for all."""
    everybody = tuple(range(ranks))
    groups = [everybody]
    for width in (2, max(2, ranks // 2)):
        groups += [everybody[first : first + width] for first in range(0, ranks - 1, width)]
    groups.append(tuple(sorted(draw.sample(everybody, draw.randint(2, ranks)))))
    groups = [each for each in dict.fromkeys(groups) if len(each) > 1]
    programs: list[list[Call]] = [[] for _ in everybody]
    for _ in range(calls):
        group = draw.randrange(len(groups))
        call = Call(group, draw.choice(KINDS), draw.randint(1, 4) * len(groups[group]))
        for rank in groups[group]:
            programs[rank].append(call)
    return Job(groups, programs)


def run(job: Job) -> None:
    """Let ranks enter their calls until nobody can: each call blocks until all members have joined it."""
    ranks = range(len(job.programs))
    job.position = [0 for _ in ranks]
    job.entries = [[] for _ in ranks]
    sequences: list[dict[int, int]] = [defaultdict(int) for _ in ranks]
    open_calls: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}
    inside: dict[int, tuple[int, int]] = {}
    now = START_NS
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            place = job.position[rank]
            stopped = job.stops_at.get(rank) == place
            if rank in inside or stopped or place == len(job.programs[rank]):
                continue
            call = job.programs[rank][place]
            sequences[rank][call.group] += 1
            key = call.group, sequences[rank][call.group]
            now += STEP_NS
            entry = _entry(job, rank, call, key[1], now)
            job.entries[rank].append(entry)
            job.position[rank] += 1
            inside[rank] = key
            open_calls.setdefault(key, {})[rank] = entry
            moved = True
            _end_if_complete(job, key, open_calls, inside, now)


def _end_if_complete(
    job: Job,
    key: tuple[int, int],
    open_calls: dict[tuple[int, int], dict[int, dict[str, Any]]],
    inside: dict[int, tuple[int, int]],
    now: int,
) -> None:
    joined = open_calls[key]
    asked = {(each["profiling_name"], str(each["input_sizes"])) for each in joined.values()}
    if set(joined) != set(job.groups[key[0]]) or len(asked) > 1:
        return
    for rank, entry in joined.items():
        entry |= {
            "state": "completed",
            "retired": True,
            "time_discovered_started_ns": now,
            "time_discovered_completed_ns": now + 1,
        }
        del inside[rank]
    del open_calls[key]


def _entry(job: Job, rank: int, call: Call, sequence: int, now: int) -> dict[str, Any]:
    members = len(job.groups[call.group])
    into = out = call.size
    if call.kind == "_all_gather_base":
        out = call.size * members
    elif call.kind == "_reduce_scatter_base":
        out = call.size // members
    return {
        "frames": FRAMES,
        "record_id": len(job.entries[rank]),
        "pg_id": rank * 100 + call.group,  # process local: never the same on two ranks
        "process_group": (str(call.group), f"group{call.group}"),
        "thread_name": "python",
        "thread_id": "1",
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": f"nccl:{call.kind}",
        "time_created_ns": now,
        "input_sizes": [[into]],
        "input_dtypes": ["Float"],
        "output_sizes": [[out]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def dump_of(job: Job, rank: int, ring: int = 2000) -> dict[str, Any]:
    """What NCCL's recorder would dump on a rank whose ring buffer holds `ring` entries."""
    return {
        "version": "2.10",
        "comm_lib_version": "2.28.9",
        "pg_config": {
            str(place): {"name": str(place), "desc": f"group{place}", "ranks": str(list(group))}
            for place, group in enumerate(job.groups)
            if rank in group
        },
        "pg_status": {},
        "entries": job.entries[rank][-ring:],
    }
