"""The verdict in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.numbers import duration
from holdfast.runs.flight.alignment import Alignment
from holdfast.runs.flight.evidence import Evidence
from holdfast.runs.flight.mismatches import Mismatch, family
from holdfast.runs.flight.record import SCHEDULED
from holdfast.runs.flight.stuck import Stuck
from holdfast.runs.flight.waits import Root
from holdfast.runs.flight.wording import group_name, lower, plural, ranks_are, request
from holdfast.runs.ranks import ranges

if TYPE_CHECKING:
    from holdfast.runs.flight.verdict import Judgement

WITH_ROOTS = ("broadcast", "reduce", "gather", "scatter")


def sentence(
    table: Alignment, judged: Judgement, evidence: Evidence, recorded: bool = False
) -> str:
    """What stopped the run, in words; `recorded`: how ranks ended is said beside it."""
    root, unknown = judged.root, judged.unknown
    if judged.verdict == "mismatch":
        if judged.mismatch is not None:
            return _diverged(table, judged.mismatch, root)
        return _circle(table, root, judged.missing)
    if judged.verdict == "missing_ranks" and root is not None:
        return _missing(table, root.operations[0], judged, evidence, recorded)
    if judged.verdict == "stuck_inside" and root is not None:
        return _inside(table, root.operations[0], evidence)
    if judged.verdict == "no_hang":
        text = f"Nothing hangs: every operation that {len(table.dumps):,} dumps hold is over."
        if judged.why == "older":
            text += " The dumps were not made at the same moment."
        return text
    return _unclear(table, root, unknown, judged.why)


def _name(table: Alignment, each: Stuck) -> str:
    group = group_name(table.groups[each.group], table.groups)
    name = table.operations[each.operation].name
    if each.peers is not None:
        return f"the message from rank {each.peers[0]} to rank {each.peers[1]} in group {group}"
    return f"{name} {each.sequence:,} of group {group}"


def _for(evidence: Evidence) -> str:
    seconds = evidence.operations[0]["for_s"] if evidence.operations else None
    # Dumps that do not say when they were made often hold nothing newer than the operation itself.
    return f" for at least {duration(round(seconds))}" if seconds and seconds >= 1 else ""


def _missing(
    table: Alignment, each: Stuck, judged: Judgement, evidence: Evidence, recorded: bool
) -> str:
    missing, unknown = judged.missing, judged.unknown
    name, inside = _name(table, each), sorted(each.waiting)
    waits = plural(inside, "waits", "wait")
    if not missing:
        silent = [rank for rank in unknown if rank not in evidence.older_dumps]
        text = (
            f"{ranks_are(inside)} {waits} in {name}{_for(evidence)} for {lower(ranks_are(unknown))}"
        )
        if silent == [*unknown] and recorded:
            return f"{text}, which left no dump."
        if silent == [*unknown]:
            return (
                f"{text}, which left no dump: killed, or stuck before "
                f"{plural(unknown, 'it', 'they')} could write one."
            )
        return f"{text}.{_no_evidence(unknown, evidence)}"
    if each.failed:
        held = f"{lower(ranks_are(inside))} entered and left it again with an error or a timeout"
    else:
        held = f"{lower(ranks_are(inside))} {waits} in it{_for(evidence)}"
    text = f"{ranks_are(missing)} never entered {name}; {held}."
    if each.peers is not None:
        kind = "a send to" if each.peers[0] in each.waiting else "a receive from"
        kind = kind if len(missing) == 1 else "messages exchanged with"
        group = group_name(table.groups[each.group], table.groups)
        text = (
            f"{ranks_are(inside)} {waits} in {kind} {lower(ranks_are(missing))} in group {group}"
            f"{_for(evidence)}; {plural(missing, 'that rank', 'those ranks')} never called the other side."
        )
    places = [one["where"] for one in evidence.ranks if one["role"] == "missing" and one["where"]]
    if places:
        text += f" Rank {missing[0]} is in {places[0]}."
    text += _no_evidence(unknown, evidence)
    others = len(evidence.operations) - 1
    if others > 0:
        text += f" {others:,} other {'operation waits' if others == 1 else 'operations wait'} behind it."
    return text


def _no_evidence(unknown: Sequence[int], evidence: Evidence) -> str:
    """Why ranks may be to blame or not: they left no dump, or an older one."""
    silent = [rank for rank in unknown if rank not in evidence.older_dumps]
    older = [rank for rank in unknown if rank in evidence.older_dumps]
    text = f" {ranks_are(silent)} left no dump." if silent else ""
    if older:
        before = max((evidence.older_dumps[rank] or 0.0 for rank in older), default=0.0)
        age = (
            f"from {duration(before)} before the others'"
            if before > 0
            else "older than the others'"
        )
        text += (
            f" The {plural(older, 'dump', 'dumps')} of {lower(ranks_are(older))} "
            f"{plural(older, 'is', 'are')} {age}: {plural(older, 'it does', 'they do')} not show whether "
            f"{plural(older, 'the rank', 'the ranks')} entered."
        )
    return text


def _inside(table: Alignment, each: Stuck, evidence: Evidence) -> str:
    started = each.started
    queued = [rank for rank, row in each.waiting.items() if row["state"] == SCHEDULED]
    name, inside = _name(table, each), sorted(each.waiting)
    finished = [rank for rank in each.entered if rank not in each.waiting]
    if started and queued:
        return (
            f"All members entered {name}, but on {lower(ranks_are(queued))} the device has not started it: "
            f"look at {plural(queued, 'that device', 'those devices')}; "
            f"{lower(ranks_are(started))} {plural(started, 'has', 'have')} waited{_for(evidence)}."
        )
    if each.peers is not None:
        return (
            f"{ranks_are(inside)} are both in {name} and do not get out{_for(evidence)}: the network or a "
            "device failed."
        )
    text = f"All {len(each.entered):,} members entered {name}, and {lower(ranks_are(inside))} "
    text += f"{plural(inside, 'does', 'do')} not get out{_for(evidence)}: the network or a device failed."
    if finished:
        text += f" {ranks_are(finished)} completed it."
    if family(table.operations[each.operation]) in WITH_ROOTS:
        text += " Or the ranks named different roots, which is not recorded."
    return text


def _diverged(table: Alignment, found: Mismatch, root: Root | None) -> str:
    group = group_name(table.groups[found.group], table.groups)
    parts = []
    rows = found.rows
    kinds = sorted(
        {int(each) for each in rows["operation"]},
        key=lambda each: -int((rows["operation"] == each).sum()),
    )
    for operation in kinds[:3]:
        ranks = rows["rank"][rows["operation"] == operation].tolist()
        parts.append(f"{lower(ranks_are(ranks))} called {request(table.operations[operation])}")
    more = f" and {len(kinds) - 3:,} more variants" if len(kinds) > 3 else ""
    if all(table.operations[each].peers for each in kinds):
        return f"A send and its receive in group {group} do not fit: {'; '.join(parts)}."
    text = (
        f"The program diverged at operation {found.sequence:,} of group {group}: "
        f"{'; '.join(parts)}{more}."
    )
    if root is None:
        text += " Nobody waits now, but what they computed is wrong."
    return text


def _circle(table: Alignment, root: Root | None, early: Sequence[int]) -> str:
    operations = root.operations if root else ()
    parts = [
        f"{lower(ranks_are(sorted(each.waiting)))} in {_name(table, each)}" for each in operations
    ]
    text = f"Ranks wait for each other in a circle: {'; '.join(parts)}. "
    if not early:
        return text + "They entered these in different orders, or one of them left one out."
    its, they = plural(early, "its", "theirs"), plural(early, "it", "they")
    return (
        f"{text}{ranks_are(early)} entered {its} after fewer operations than most others in it: "
        f"{they} left one out, or will call it later."
    )


def _unclear(table: Alignment, root: Root | None, unknown: Sequence[int], why: str) -> str:
    if why == "empty":
        return (
            "No operation was recorded: set TORCH_FR_BUFFER_SIZE=2000 before the run, and dump before the "
            "process group is destroyed."
        )
    if why == "absent":
        left = "it" if len(unknown) == 1 else "they"
        return (
            f"Nobody with a dump waits, but {lower(ranks_are(unknown))} left none: if {left} died, see "
            f"{plural(unknown, 'its', 'their')} log; else dump all ranks at the same moment."
        )
    each = root.operations[0] if root else None
    assert each is not None
    inside = sorted(each.waiting)
    head = f"{ranks_are(inside)} {plural(inside, 'waits', 'wait')} in {_name(table, each)}"
    if why == "world":
        return (
            f"{head}, all ranks that have a dump; the dumps do not say whether there were more. If rank "
            f"{max(table.world) + 1} exists, it is the suspect; else the network or a device."
        )
    waits = plural(unknown, "waits", "wait")
    suspects = f"{lower(ranks_are(unknown))} {waits} for nobody and may be missing"
    if not unknown:
        suspects = f"if rank {max(table.world) + 1} exists, it is the suspect"
    return (
        f"{head}, and the dumps do not say who else is in that group: {suspects}. "
        f"Dump with holdfast.runs.dump_flight_record, which records the members ({ranges(inside)} seen)."
    )
