"""The records of runs, laid over the attempts of a log that they belong to.

A record belongs to the attempt with its Slurm job id and restart count. The time of an attempt that its
record does not cover is a start (before its first process, and between two launches), an end (after all
have ended), lost (after the last sign of life, where the infrastructure ended it) or else hung; GPUs that
the record does not count are unrecorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.compare import saved_answer
from holdfast.errors import InputError
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.log import HOUR_S, FleetLog
from holdfast.fleet.schema import Row
from holdfast.ledger.parts import (
    CHECKPOINT,
    DATA,
    EVALUATION,
    FIRST,
    INIT,
    PRODUCTIVE,
    RANKS,
    REPLAYED,
    UNRECORDED,
    USED,
    width,
)
from holdfast.numbers import duration
from holdfast.runs.goodput.ledger import PARTS, Ledger, keep_books
from holdfast.runs.recording.events import Process
from holdfast.runs.recording.reading import RANK_FILES, read_run

OF_RECORD = {
    "productive": PRODUCTIVE,
    "replayed": REPLAYED,
    "data_wait": DATA,
    "checkpoint": CHECKPOINT,
    "init": INIT,
    "evaluation": EVALUATION,
    "idle": RANKS,
}
"""Part of a run's books -> part of the ledger."""
PROFILE = "profile.json"
"""In a run's folder: what ``holdfast profile ops MODEL --training --save`` wrote of one rank's step."""
CLOCKS_S = 60.0
"""By how much a record may begin before its attempt, or outlast it: no process does, by one clock."""


@dataclass(frozen=True)
class Recorded:
    """One launch of a run, as its record has it."""

    run: str
    folder: str
    job: str
    restarts: int | None
    begin_s: float
    """Seconds since 1970, as `end_s`."""
    end_s: float
    ended: bool
    """All its processes ended by themselves: what follows is the job's own end."""
    gpus: float
    nodes: frozenset[str]
    """Their first labels, in lower case."""
    parts: dict[str, np.ndarray]
    """Part of the ledger -> seconds of all ranks' mean in each of equal parts of the record's time."""
    flops_share: float | None
    """Share of a step that its matrix products take at least; None: no profile tells it."""
    edges_s: np.ndarray
    """[bins + 1] Where these parts begin and end, seconds since 1970."""


@dataclass(frozen=True)
class Records:
    """What records say of the attempts of a log."""

    use: pa.Table
    """key (of the attempt), and the hours of each part of `USED`."""
    by_run: dict[str, dict[str, float]]
    """Folder of a run -> its hours by part, of the attempts in the window."""
    model_flops: float | None
    """Hours of `PRODUCTIVE` that the model's matrix products take at least; None: no profile tells it."""
    profiled: float
    """Hours of `PRODUCTIVE` of the runs with a profile."""
    doubts: list[str]


def records(log: FleetLog, folders: Sequence[str | Path]) -> Records:
    """Read the runs in some folders, and enter them under the attempts of a log.

    Args:
        log: the open log.
        folders: of recorders, or around them.

    Raises:
        InputError: ``no-data`` for a folder without a record.
    """
    launches, doubts = [], []
    for folder in folders:
        homes = sorted({each.parent for each in Path(folder).rglob(RANK_FILES)})
        if not homes:
            raise InputError(
                "no record of a run",
                code="no-data",
                path=folder,
                expected=f"{RANK_FILES}, in it or below it",
                remedy="record runs with `holdfast runs exec`, or `RunRecorder`",
            )
        for home in homes:
            launches += _launches(home, doubts)
    attempts = _attempts(log, sorted({each.job for each in launches}))
    taken: dict[int, list[Recorded]] = {}
    for each in sorted(launches, key=lambda launch: (launch.begin_s, launch.run)):
        if each.end_s <= log.begin_s:
            continue
        attempt = _attempt_of(each, attempts, doubts)
        if attempt is not None:
            mine = taken.setdefault(attempt["key"], [])
            if mine and mine[-1].end_s > each.begin_s + 1:
                doubts.append(f"{each.run} and {mine[-1].run} record one attempt of job {each.job}")
                continue
            mine.append(each)
    by_key = {row["key"]: row for rows in attempts.values() for row in rows}
    by_run: dict[str, dict[str, float]] = {}
    rows = [{"key": key, **_hours(by_key[key], mine, by_run)} for key, mine in taken.items()]
    types = {"key": pa.int64(), **dict.fromkeys(USED, pa.float64())}
    use = pa.Table.from_pylist(rows, pa.schema(types))
    shares = {each.folder: each.flops_share for mine in taken.values() for each in mine}
    steps = [(by_run[run][PRODUCTIVE], share) for run, share in shares.items() if share is not None]
    flops = sum(hours * share for hours, share in steps) if steps else None
    return Records(use, by_run, flops, sum(hours for hours, _ in steps), doubts)


def _launches(home: Path, doubts: list[str]) -> Iterator[Recorded]:
    """The launches of a run that name their job."""
    try:
        run = read_run(home)
    except InputError as error:  # one of many runs; what it says of options is no option here
        doubts.append(f"{home} is left out: {error.problem} ({error.found or 'unreadable'})")
        return
    books = keep_books(run)
    origin = run.origin_s - books.window.shift_s
    doubts += [f"{run.run_id}: {remark}" for remark in run.doubts]
    flops_share = _flops_share(home / PROFILE, books, doubts)
    for place, each in enumerate(books.window.attempts):
        process = run.processes[each.processes[0]]
        job = _job_of(process)
        if job is None:
            doubts.append(
                f"{run.run_id} names no Slurm job: to which attempt it belongs is unknown"
            )
            return
        edges = origin + books.bin_s * np.arange(books.binned.shape[2] + 1)
        yield Recorded(
            run.run_id,
            str(home),
            *job,
            origin + each.begin_s,
            origin + each.end_s,
            all(run.processes[member].end in ("clean", "exception") for member in each.processes),
            sum(run.processes[member].gpus for member in each.processes),
            _short(run.processes[member].node for member in each.processes),
            {part: books.binned[place, PARTS.index(name)] for name, part in OF_RECORD.items()},
            flops_share,
            edges,
        )


def _flops_share(file: Path, books: Ledger, doubts: list[str]) -> float | None:
    """The least time of a step's matrix products on the profile's hardware over the mean time of a step."""
    if not file.exists():
        return None
    steps = books.steps()
    own_s = books.own_s[steps][~books.replayed[steps]]
    try:
        profile = saved_answer(file)["data"]
        backward = any(row["phase"] == "backward" for row in profile["by_phase"])
        least_s = sum(row["bound_s"] for row in profile["roofline"]["by_class"] if row["flops"])
    except (InputError, LookupError, TypeError):  # somebody else's file
        backward, least_s = False, 0.0
    if backward and own_s.size and least_s <= own_s.mean():
        return float(least_s / own_s.mean())
    doubts.append(
        f"{file} is no profile of a step of {books.run.run_id}, with its backward pass (--training) and"
        " no longer than a step: it is not used"
    )
    return None


def _job_of(process: Process) -> tuple[str, int | None] | None:
    """The Slurm job and restart count of a process; None where it was not told."""
    if job := process.labels.get("slurm_job"):
        told = process.labels.get("slurm_restarts", "")
        return job, int(told) if told.isdecimal() else None
    kind, *rest = process.launch.split("-")
    if kind == "slurm" and len(rest) == 3:
        return rest[0], int(rest[2]) if rest[2].isdecimal() else None
    return None


def _attempts(log: FleetLog, jobs: Sequence[str]) -> dict[str, list[Row]]:
    """Job number -> its attempts in the window, in time."""
    numbers = [int(job) for job in jobs if job.isdecimal()]
    attempts: dict[str, list[Row]] = {}
    if numbers:
        for row in log.rows(
            f"""SELECT key, job_id_raw, coalesce(restarts, attempt - 1) AS restarts, nodes,
                {width(log)} AS wide, stop_s - exposed_s AS begin_s,
                start_s, stop_s, end_s IS NULL AS runs_still,
                key IN (SELECT key FROM {infrastructure_failures(log)}) AS failed
            FROM {log.executions}
            WHERE job_id_raw IN ({", ".join(map(str, numbers))}) AND exposed_s > 0 ORDER BY stop_s"""
        ):
            attempts.setdefault(str(row["job_id_raw"]), []).append(row)
    return attempts


def _attempt_of(launch: Recorded, attempts: dict[str, list[Row]], doubts: list[str]) -> Row | None:
    """The attempt of a launch: of its job, with its restart count where both tell one, and its time."""
    every = attempts.get(launch.job, [])
    # A log without duplicates has the last of several attempts as its first.
    mine = [row for row in every if row["restarts"] == launch.restarts] or every
    if mine and not any(launch.nodes & _short(row["nodes"] or launch.nodes) for row in mine):
        nodes = ", ".join(sorted(launch.nodes)[:3])
        doubts.append(
            f"{launch.run} ran on {nodes}, its job {launch.job} of the log elsewhere: not counted"
        )
        return None
    if not mine:
        doubts.append(
            f"{launch.run}: the log has no such attempt of job {launch.job} in its window"
        )
        return None

    def shared(row: Row) -> float:
        return min(launch.end_s, row["stop_s"]) - max(launch.begin_s, row["start_s"])

    best = max(mine, key=shared)
    late = launch.end_s - best["stop_s"]
    if best["start_s"] - launch.begin_s > CLOCKS_S or (late > CLOCKS_S and not best["runs_still"]):
        away = duration(abs(launch.begin_s - best["start_s"]))
        doubts.append(
            f"{launch.run} began {away} from the start of its attempt of job {launch.job}: it is not"
            " counted (do the clocks differ?)"
        )
        return None
    return best


def _hours(
    attempt: Row, launches: Sequence[Recorded], by_run: dict[str, dict[str, float]]
) -> dict[str, float]:
    """The hours of an attempt in the window by part, which are all that it had, and those of its runs."""
    begin, end, wide = attempt["begin_s"], attempt["stop_s"], attempt["wide"]
    total, at = dict.fromkeys(USED, 0.0), float(begin)
    for number, launch in enumerate(launches, 1):
        low, high = max(launch.begin_s, at), max(min(launch.end_s, end), at)
        gpus, mine = min(launch.gpus, wide), dict.fromkeys(USED, 0.0)
        inside = (launch.edges_s[:-1] >= low) | (launch.begin_s >= begin)
        own = {part: float(each[inside].sum()) for part, each in launch.parts.items()}
        for part, seconds in own.items():
            mine[part] = gpus * seconds * (high - low) / (sum(own.values()) or 1.0)
        narrower = wide * (high - low) - sum(mine.values())
        mine[UNRECORDED] += narrower
        mine[INIT] += wide * (low - at)
        at = high
        if number == len(launches):
            # What the infrastructure ended was lost from the last sign of life on.
            rest = INIT if launch.ended else FIRST if attempt["failed"] else RANKS
            if attempt["runs_still"]:  # the record may have been copied before the log was
                rest = UNRECORDED
            mine[rest] += wide * (end - at)
        run = by_run.setdefault(launch.folder, dict.fromkeys(USED, 0.0))
        for part, seconds in mine.items():
            total[part] += seconds / HOUR_S
            run[part] += seconds / HOUR_S
    return total


def _short(nodes: Iterable[str]) -> frozenset[str]:
    return frozenset(node.rpartition(":")[2].partition(".")[0].lower() for node in nodes)
