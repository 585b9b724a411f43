"""Processes on one time line: clocks that stepped, attempts, and who wrote when another did.

Processes of one boot share a monotonic clock, so nothing that happens to the wall clock moves them against
each other. Different boots (other nodes, or the same after a reboot) are joined by the ends of the steps
that they share (`clocks`), and only where they share none by the wall clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from holdfast.errors import InputError
from holdfast.numbers import duration
from holdfast.runs.ranks import ranges
from holdfast.runs.recording.clocks import BootClocks, Ends, with_launches
from holdfast.runs.recording.events import Process

CLOCK_NOISE_S = 5.0
"""What the wall clocks of two nodes may differ by where nothing else tells."""
REMARKABLE_S = 1.0
"""A clock that is further ahead or behind is remarked on."""
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
    clocks_s: Mapping[str, float]
    remarks: tuple[str, ...]
    doubts: tuple[str, ...]


def place(processes: Sequence[Process], ends: Ends) -> Placed:
    """Attempts and start times of at least one process, by when their steps ended.

    The processes come back with ``attempt``, with ``opened_s`` and ``submitted_s`` on a wall clock without
    steps, and with ``lived_s`` cut where it reached into the attempt before.

    Raises:
        InputError: two recorders wrote the same rank at the same time.
    """
    remarks: list[str] = []
    steady = _without_steps(with_launches(processes, ends), remarks)
    clocks = BootClocks(steady, ends)
    # Not the submission: it is the queue's time, alike on all nodes.
    steady = [
        replace(each, opened_s=each.opened_s - clocks.ahead_s.get(each.boot_id, 0.0))
        for each in steady
    ]
    offsets = _offsets(steady, clocks, remarks)
    steady = _boots_in_turn(steady, clocks, remarks)
    _refuse_two_at_once(steady, clocks)
    placed = _in_turn(_attempts(steady, clocks), clocks, remarks)
    placed.sort(key=lambda process: (process.attempt, process.rank))
    _remark_missing(placed, remarks)
    origin_s = min(map(_begin, placed))
    return Placed(
        processes=tuple(placed),
        start_s=tuple(_begin(process) - origin_s for process in placed),
        origin_s=origin_s,
        clocks_s=offsets,
        remarks=tuple(remarks),
        doubts=tuple(_one_in_two(placed)),
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


def _offsets(
    processes: Sequence[Process], clocks: BootClocks, remarks: list[str]
) -> dict[str, float]:
    """Node -> how far its clock is ahead, where that is remarkable."""
    offsets: dict[str, float] = {}
    for process in processes:
        by_s = clocks.ahead_s.get(process.boot_id, 0.0)
        if abs(by_s) > REMARKABLE_S and process.node not in offsets:
            offsets[process.node] = by_s
            remarks.append(
                f"the clock of {process.node} is {duration(abs(by_s))} "
                f"{'ahead of' if by_s > 0 else 'behind'} the other nodes': its events are placed by the "
                "steps that it shares with them"
            )
    return offsets


def _boots_in_turn(
    processes: Sequence[Process], clocks: BootClocks, remarks: list[str]
) -> list[Process]:
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
            if by_s and boot not in clocks.ahead_s:
                remarks.append(
                    f"the wall clock of {node} stepped backwards over a reboot: what followed is "
                    f"moved by {duration(by_s)}"
                )
                moves[node, boot] = by_s
                end += by_s
            free_at = max(free_at, end)
    return [_moved(each, moves.get((each.node, each.boot_id), 0.0)) for each in processes]


def _refuse_two_at_once(processes: Sequence[Process], clocks: BootClocks) -> None:
    ranks = defaultdict(list)
    for process in processes:
        ranks[process.rank].append(process)
    for rank, members in ranks.items():
        members.sort(key=lambda process: process.opened_s)
        latest = members[0]
        for process in members[1:]:
            overlap_s = min(_end(latest), _end(process)) - process.opened_s
            # Two launches on nodes whose clocks nothing compares: one came after the other.
            after = process.launch != latest.launch and not _comparable([process], [latest], clocks)
            if not after and overlap_s > _noise_s(latest, process):
                raise InputError(
                    f"two recorders wrote rank {rank} of run {process.run_id} at the same time, for "
                    f"{duration(overlap_s)}",
                    code="conflict",
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


def _comparable(one: Iterable[Process], others: Collection[Process], clocks: BootClocks) -> bool:
    """Whether a clock places some processes against others for certain."""
    return any(
        clocks.comparable(mine.boot_id, its.boot_id)
        for mine in one
        for its in others
        if its.boot_id
    )


def _attempts(processes: Sequence[Process], clocks: BootClocks) -> list[list[Process]]:
    """The processes of each attempt: one launch, side by side in time, each rank once."""
    attempts: list[dict[int, Process]] = []
    for process in sorted(processes, key=lambda process: process.opened_s):
        for members in reversed(attempts):
            if process.rank not in members and _side_by_side(process, members.values(), clocks):
                members[process.rank] = process
                break
        else:
            attempts.append({process.rank: process})
    found = [list(members.values()) for members in attempts]
    for (
        _
    ) in found:  # restarts come in the order of their numbers, whatever the clocks of others say
        for place, (one, after) in enumerate(pairwise(found)):
            (name, count), (next_name, next_count) = _restart(one), _restart(after)
            wrong = name == next_name and count > next_count
            if wrong and not _comparable(one, after, clocks):
                found[place : place + 2] = [after, one]
    return found


def _restart(members: Sequence[Process]) -> tuple[str, int]:
    """What was launched, and how often it had been restarted; equal for others than the same launch."""
    name, _, count = members[0].launch.rpartition("-")
    return (name, int(count)) if count.isdecimal() else ("", 0)


def _side_by_side(process: Process, members: Collection[Process], clocks: BootClocks) -> bool:
    if any(process.launch != member.launch for member in members):
        return False
    if process.launch:
        if not _comparable([process], members, clocks):
            return True
        noise_s = SAME_LAUNCH_S
    else:
        noise_s = min(_noise_s(process, member) for member in members)
    return _begin(process) <= max(map(_end, members)) + noise_s


def _in_turn(
    attempts: Iterable[Sequence[Process]], clocks: BootClocks, remarks: list[str]
) -> list[Process]:
    """Attempts one after the other: numbered, and none reaching into the one before.

    People count them from 1, so remarks do.
    """
    placed: list[Process] = []
    free_at = float("-inf")
    for number, members in enumerate(attempts, 1):
        overlap_s = free_at - min(process.opened_s for process in members)
        by_s = 0.0
        if overlap_s > 0 and not _comparable(members, placed, clocks):
            # More than noise may be true, unless a rank would run twice.
            ends = {process.rank: _end(process) for process in placed}
            twice = any(ends.get(each.rank, free_at) > each.opened_s for each in members)
            by_s = overlap_s if twice or overlap_s <= CLOCK_NOISE_S else 0.0
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
            remarks.append(f"attempt {number}: {ranges(missing)} of {max(sizes)} ranks never wrote")


def _one_in_two(processes: Iterable[Process]) -> Iterator[str]:
    """Attempts that are perhaps one, of nodes whose clocks differ."""
    attempts = defaultdict(list)
    for process in processes:
        attempts[process.attempt + 1].append(process)
    for (number, one), (_, after) in pairwise(sorted(attempts.items())):
        ranks, others = {each.rank for each in one}, {each.rank for each in after}
        together = len(ranks | others) == max(each.world_size for each in (*one, *after))
        if together and not ranks & others and not any(each.launch for each in (*one, *after)):
            yield (
                f"attempts {number} and {number + 1} are of different ranks of one run, and neither a "
                "launcher nor shared steps say which processes were started together: if the clocks of "
                "their nodes differ, they are one attempt, and all times are wrong"
            )
