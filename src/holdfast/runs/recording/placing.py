"""Processes on one time line: clocks that stepped, attempts, and who wrote when another did.

Processes of one boot share a monotonic clock, so nothing that happens to the wall clock moves them against
each other. Different boots (other nodes, or the same after a reboot) are joined by the wall clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from holdfast.errors import InputError
from holdfast.numbers import duration
from holdfast.runs.recording.events import Process

CLOCK_NOISE_S = 5.0
"""What the wall clocks of two nodes may differ by."""
SAME_LAUNCH_S = 60.0
"""How much later than the end of its peers a process of the same launch may begin."""
_STEP_S = 2.0  # of a wall clock against the monotonic one: more than it is steered in a day or two
_TICK_S = 0.05  # within one boot


@dataclass(frozen=True)
class Placed:
    """The time line of a run, as in `RecordedRun`."""

    processes: tuple[Process, ...]
    """Ordered by attempt, then rank; ``file`` tells which is which."""
    start_s: tuple[float, ...]
    origin_s: float
    remarks: tuple[str, ...]


def place(processes: Sequence[Process]) -> Placed:
    """Attempts and start times of at least one process.

    The processes come back with ``attempt``, with ``opened_s`` and ``submitted_s`` on a wall clock without
    steps, and with ``lived_s`` cut where it reached into the attempt before.

    Raises:
        InputError: two recorders wrote the same rank at the same time.
    """
    remarks: list[str] = []
    steady = _without_steps(processes, remarks)
    steady = _boots_in_turn(steady, remarks)
    _refuse_two_at_once(steady)
    placed = _in_turn(_attempts(steady), remarks)
    placed.sort(key=lambda process: (process.attempt, process.rank))
    _remark_missing(placed, remarks)
    origin_s = min(map(_begin, placed))
    return Placed(
        processes=tuple(placed),
        start_s=tuple(_begin(process) - origin_s for process in placed),
        origin_s=origin_s,
        remarks=tuple(remarks),
    )


def _begin(process: Process) -> float:
    return process.opened_s - process.lived_s


def _end(process: Process) -> float:
    return process.opened_s + process.last_t


def _moved(process: Process, by_s: float) -> Process:
    if not by_s:
        return process
    submitted_s = process.submitted_s
    return replace(
        process,
        opened_s=process.opened_s + by_s,
        submitted_s=None if submitted_s is None else submitted_s + by_s,
    )


# --- Clocks --------------------------------------------------------------------------------------


def _without_steps(processes: Sequence[Process], remarks: list[str]) -> list[Process]:
    """Wall clocks made of the monotonic one, with the offset that most processes of a boot saw."""
    boots = defaultdict(list)
    for process in processes:
        if process.boot_id:
            boots[process.boot_id].append(process)
    references = {boot: _usual_offset(members) for boot, members in boots.items()}
    for boot, members in boots.items():
        off = [_offset(process) - references[boot] for process in members]
        worst = max(off, key=abs)
        if abs(worst) > _STEP_S:
            count = sum(abs(each) > _STEP_S for each in off)
            remarks.append(
                f"the wall clock of {members[0].node} stepped by {duration(abs(worst))}: "
                f"{count} of its {len(members)} processes are placed by the monotonic clock"
            )
    return [
        _moved(process, references[process.boot_id] - _offset(process))
        if process.boot_id
        else process
        for process in processes
    ]


def _offset(process: Process) -> float:
    return process.opened_s - process.monotonic_s


def _usual_offset(members: Iterable[Process]) -> float:
    ordered = sorted(members, key=lambda process: process.monotonic_s)
    seconds = Counter(round(_offset(process)) for process in ordered)
    usual, _ = seconds.most_common(1)[0]
    return median(_offset(process) for process in ordered if round(_offset(process)) == usual)


def _boots_in_turn(processes: Sequence[Process], remarks: list[str]) -> list[Process]:
    """A node is never in two boots at once: a boot that seems to begin inside another is moved."""
    spans: dict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in processes:
        if process.boot_id:
            spans[process.node, process.boot_id].append(process)
    nodes = defaultdict(list)
    for (node, boot), members in spans.items():
        nodes[node].append((min(map(_begin, members)), max(map(_end, members)), boot))
    moves: dict[tuple[str, str], float] = {}
    for node, boots in nodes.items():
        free_at = float("-inf")
        for begin, end, boot in sorted(boots):
            by_s = max(0.0, free_at - begin)
            if by_s:
                remarks.append(
                    f"the wall clock of {node} stepped backwards over a reboot: what followed is "
                    f"moved by {duration(by_s)}"
                )
            moves[node, boot] = by_s
            free_at = end + by_s
    return [_moved(each, moves.get((each.node, each.boot_id), 0.0)) for each in processes]


def _refuse_two_at_once(processes: Sequence[Process]) -> None:
    ranks = defaultdict(list)
    for process in processes:
        ranks[process.rank].append(process)
    for rank, members in ranks.items():
        members.sort(key=lambda process: process.opened_s)
        latest = members[0]
        for process in members[1:]:
            overlap_s = min(_end(latest), _end(process)) - process.opened_s
            if overlap_s > _noise_s(latest, process):
                raise InputError(
                    f"two recorders wrote rank {rank} of run {process.run_id} at the same time, for "
                    f"{duration(overlap_s)}",
                    path=process.file.parent,
                    found=f"{latest.file.name} and {process.file.name}",
                    expected="one recorder per rank and run",
                    remedy="move the file that is not of this run elsewhere; give every run its own "
                    "run id and every process its own rank",
                )
            latest = max(latest, process, key=_end)


def _noise_s(one: Process, other: Process) -> float:
    return _TICK_S if one.boot_id and one.boot_id == other.boot_id else CLOCK_NOISE_S


# --- Attempts ------------------------------------------------------------------------------------


def _attempts(processes: Sequence[Process]) -> list[list[Process]]:
    """The processes of each attempt: one launch, side by side in time, each rank once."""
    attempts: list[dict[int, Process]] = []
    for process in sorted(processes, key=lambda process: process.opened_s):
        for members in reversed(attempts):
            if process.rank not in members and _side_by_side(process, members.values()):
                members[process.rank] = process
                break
        else:
            attempts.append({process.rank: process})
    return [list(members.values()) for members in attempts]


def _side_by_side(process: Process, members: Collection[Process]) -> bool:
    if any(process.launch != member.launch for member in members):
        return False
    if process.launch:
        noise_s = SAME_LAUNCH_S
    else:
        noise_s = min(_noise_s(process, member) for member in members)
    return _begin(process) <= max(map(_end, members)) + noise_s


def _in_turn(attempts: Iterable[Sequence[Process]], remarks: list[str]) -> list[Process]:
    """Attempts one after the other: numbered, and none reaching into the one before.

    People count them from 1, so remarks do.
    """
    placed: list[Process] = []
    boots: set[str] = set()
    free_at = float("-inf")
    for number, members in enumerate(attempts, 1):
        overlap_s = free_at - min(process.opened_s for process in members)
        same_boot = any(process.boot_id in boots for process in members if process.boot_id)
        by_s = overlap_s if 0 < overlap_s <= CLOCK_NOISE_S and not same_boot else 0.0
        if by_s:
            remarks.append(
                f"attempt {number} is moved by {duration(by_s)}: the clocks of its nodes and of those "
                "before it differ"
            )
        elif overlap_s > _TICK_S:
            remarks.append(
                f"attempt {number} began {duration(overlap_s)} before the last sign of life of the "
                "attempt before it"
            )
        for process in members:
            moved = _moved(process, by_s)
            begun = max(_begin(moved), min(free_at, moved.opened_s))
            placed.append(replace(moved, attempt=number - 1, lived_s=moved.opened_s - begun))
        boots.update(process.boot_id for process in members)
        free_at = max(free_at, *(_end(process) for process in placed[-len(members) :]))
    return placed


def _remark_missing(processes: Iterable[Process], remarks: list[str]) -> None:
    attempts = defaultdict(list)
    for process in processes:
        attempts[process.attempt + 1].append(process)
    for number, members in attempts.items():
        sizes = {process.world_size for process in members}
        if len(sizes) > 1:
            remarks.append(
                f"attempt {number}: its processes disagree on the number of ranks: "
                f"{', '.join(map(str, sorted(sizes)))}"
            )
        missing = sorted(set(range(max(sizes))) - {process.rank for process in members})
        if missing:
            remarks.append(
                f"attempt {number}: {_ranges(missing)} of {max(sizes)} ranks never wrote"
            )


def _ranges(numbers: Sequence[int]) -> str:
    """``3, 5 to 9`` for 3, 5, 6, 7, 8, 9."""
    starts = [number for before, number in pairwise([-2, *numbers]) if number != before + 1]
    ends = [number for number, after in pairwise([*numbers, -2]) if after != number + 1]
    return ", ".join(
        f"{start}" if start == end else f"{start} to {end}"
        for start, end in zip(starts, ends, strict=True)
    )
