"""`stragglers`: which ranks slow everybody down, since when, what they share, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.runs.straggling.costs import Costs, costs, recoverable_together
from holdfast.runs.straggling.delays import Delays, delays
from holdfast.runs.straggling.groups import Groups, two_groups, with_groups
from holdfast.runs.straggling.matrix import Floats, StepMatrix
from holdfast.runs.straggling.persistence import (
    Bools,
    Persistence,
    least_steps,
    persistence,
)
from holdfast.runs.straggling.sources import Source, read_matrix
from holdfast.runs.straggling.step_table import MAX_REJECT_SHARE
from holdfast.runs.straggling.transients import spells
from holdfast.runs.straggling.verdict import Stragglers

FALSE_ALARM_RATE = 0.01
LEAST_SLOWDOWN = 0.01


def stragglers(
    source: Source,
    *,
    run_id: str | None = None,
    within: str | None = None,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    least_slowdown: float = LEAST_SLOWDOWN,
    max_reject_share: float = MAX_REJECT_SHARE,
) -> Stragglers:
    """Tell which ranks slow everybody down.

    Args:
        source: a folder of recorded events, a CSV file, traces of torch.profiler (files or their
            folder), a `RecordedRun`, or a `StepMatrix`.
        run_id: which run, where a folder of events holds several.
        within: a label, such as ``"stage"``: compare ranks with those of the same value only.
        false_alarm_rate: of persistent stragglers, see `Stragglers.false_alarm_rate`.
        least_slowdown: delays below this share of the median own time do not matter.
        max_reject_share: share of unusable rows above which a CSV file is refused.

    Raises:
        InputError: if the source cannot be used, or no two ranks share a step.
    """
    matrix = read_matrix(source, run_id=run_id, max_reject_share=max_reject_share)
    if within is not None:
        matrix = compared_within(matrix, within)
    late = delays(matrix)
    least_delay_s = least_slowdown * late.usual_s
    lasting = persistence(late, alpha=false_alarm_rate, least_delay_s=least_delay_s)
    others = np.flatnonzero(~lasting.persistent)
    groups = two_groups(
        late,
        others.tolist(),
        matrix.labels,
        alpha=false_alarm_rate,
        least_delay_s=least_delay_s,
    )
    lasting = with_groups(lasting, groups)
    paid = costs(matrix, late)
    passing = spells(
        matrix, late, paid, lasting.persistent, alpha=false_alarm_rate, least_delay_s=least_delay_s
    )
    return Stragglers(
        matrix,
        late,
        _rank_table(matrix, late, lasting, groups, paid, false_alarm_rate, least_delay_s),
        passing,
        groups,
        paid,
        recoverable_together(matrix, late, _slow(lasting, groups)),
        lasting.block,
        false_alarm_rate,
        least_slowdown,
    )


def _rank_table(
    matrix: StepMatrix,
    late: Delays,
    lasting: Persistence,
    groups: Groups | None,
    paid: Costs,
    alpha: float,
    least_delay_s: float,
) -> pa.Table:
    """`Stragglers.ranks`: persistent ones first, then by what they cost; nulls for what is unknown."""
    count = matrix.ranks.size
    enough = matrix.steps.size // lasting.block >= least_steps(count, alpha)
    delay_s, late_share = _since_onset(late, lasting, groups, least_delay_s)
    undecided = np.full(count, not enough)
    if groups is not None and groups.label is None:
        undecided[[*groups.slow]] = True
    table = pa.table(
        {
            "rank": matrix.ranks,
            "node": pa.array([each.get("node", "") for each in matrix.labels], pa.string()),
            "score": late.score,
            "delay_s": delay_s,
            "slowdown": delay_s / late.usual_s if late.usual_s else np.zeros(count),
            "late_share": late_share,
            "q_value": lasting.q_value,
            "persistent": pa.array(lasting.persistent, mask=undecided),
            "since_step": pa.array(matrix.steps[lasting.since], mask=~lasting.persistent),
            "cost_gpu_hours": paid.by_rank,
            "recoverable_gpu_hours": paid.recoverable,
            "data_share": _data_share(matrix, late),
        }
    )
    order = np.lexsort((matrix.ranks, -late.score, -paid.by_rank, ~lasting.persistent))
    table = table.take(pa.array(order))
    if matrix.base != "unknown":
        return table
    told = ("rank", "node")
    nothing = {name: pa.nulls(count, table.schema.field(name).type) for name in table.column_names}
    return pa.table(
        {name: table[name] if name in told else nothing[name] for name in table.column_names}
    ).sort_by("rank")


def _slow(lasting: Persistence, groups: Groups | None) -> Bools:
    """[R] the ranks that are slow, alone or as a group."""
    slow = lasting.persistent.copy()
    if groups is not None:
        slow[[*groups.slow]] = True
    return slow


def _since_onset(
    late: Delays, lasting: Persistence, groups: Groups | None, least_delay_s: float
) -> tuple[Floats, Floats]:
    """Typical delay and share of late steps of each rank, of persistent ones since they are slow.

    A slow group is compared with the fast one: the median over all ranks may be in the slow group.
    """
    delay_s, share = late.typical_s.copy(), lasting.late_share.copy()
    in_group = () if groups is None else groups.slow
    normal = None if groups is None else np.median(late.late_by_s[[*groups.fast]], axis=0)
    for rank in {*np.flatnonzero(lasting.since).tolist(), *in_group}:
        begin = lasting.since[rank] if rank not in in_group or groups is None else groups.since
        span = late.late_by_s[rank, begin:]
        if normal is not None and rank in in_group:
            span = span - normal[begin:]
        delay_s[rank] = np.median(span)
        share[rank] = (span > np.float32(least_delay_s)).mean()
    return delay_s, share


def _data_share(matrix: StepMatrix, late: Delays) -> pa.Array:
    """[R] of a rank's typical delay, the part in which it waits for data, from 0 to 1."""
    if matrix.data_wait_s is None or matrix.base != "own":
        return pa.nulls(matrix.ranks.size, pa.float64())
    waiting = matrix.data_wait_s - np.median(matrix.data_wait_s, axis=0)
    typical = np.median(waiting, axis=1)
    late_ranks = late.typical_s > 0
    share = np.clip(typical / np.where(late_ranks, late.typical_s, 1.0), 0.0, 1.0)
    return pa.array(share.astype(np.float64), mask=~late_ranks)


def compared_within(matrix: StepMatrix, label: str) -> StepMatrix:
    """The matrix as if all values of a label had equal work.

    Stages of a pipeline differ by how the model is cut. From each own time the step's median over the
    ranks with the same value is taken and the median over all ranks added, so that delays, scores and
    costs are against peers.

    Raises:
        InputError: if ranks lack the label, or none has a peer.
    """
    lacking = [
        int(r) for r, each in zip(matrix.ranks, matrix.labels, strict=True) if label not in each
    ]
    if lacking:
        known = sorted({name for each in matrix.labels for name in each})
        raise InputError(
            f"rank {lacking[0]} has no label {label}",
            code="missing-key",
            path=matrix.source,
            expected=", ".join(known) or "labels: none are known",
        )
    values = np.array([each[label] for each in matrix.labels])
    own = matrix.own_s.astype(np.float32, copy=True)
    whole = np.median(own, axis=0)
    alone = 0
    for value in np.unique(values):
        members = np.flatnonzero(values == value)
        alone += members.size == 1
        own[members] += whole - np.median(own[members], axis=0)
    if alone == np.unique(values).size:
        raise InputError(
            f"no two ranks have the same {label}",
            code="no-match",
            path=matrix.source,
            remedy="compare all ranks, without --within",
        )
    remarks = list(matrix.remarks)
    if alone:
        remarks.append(f"ranks that are the only one of their {label} are not judged: {alone:,}")
    return replace(matrix, own_s=own, peers=label, remarks=tuple(remarks))
