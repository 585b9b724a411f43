"""`stragglers`: which ranks slow everybody down, since when, what they share, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.runs.straggling.costs import Costs, costs, recoverable_together
from holdfast.runs.straggling.delays import Delays, delays
from holdfast.runs.straggling.groups import Groups, least_blocks, two_groups, with_groups
from holdfast.runs.straggling.matrix import Floats, StepMatrix
from holdfast.runs.straggling.peers import compared_within
from holdfast.runs.straggling.persistence import (
    Bools,
    Persistence,
    least_steps,
    persistence,
)
from holdfast.runs.straggling.sharing import Shared, shared
from holdfast.runs.straggling.sources import Source, read_matrix
from holdfast.runs.straggling.step_table import MAX_REJECT_SHARE
from holdfast.runs.straggling.transients import Spells, spells

FALSE_ALARM_RATE = 0.01
LEAST_SLOWDOWN = 0.01
SHARED_FDR = 0.05


@dataclass(frozen=True)
class Stragglers:
    """What `stragglers` found. Without known own times (`base` "unknown") all verdicts are null."""

    matrix: StepMatrix
    """The own times."""
    delays: Delays
    ranks: pa.Table
    """One row per rank, the slowest first. rank; node; score (robust standard deviations by which it is
    late in its typical step); delay_s (its typical delay over the step's median); slowdown (delay_s
    over the median own time); late_share (of the steps); q_value; persistent (null: too few steps to
    tell); since_step (persistent ranks; delay_s, slowdown and late_share count from there);
    cost_gpu_hours ((max - median) x GPUs of the steps in which it was the slowest);
    recoverable_gpu_hours (saved if it were never slower than the next slowest); data_share (of its
    typical delay, what is waiting for data; null: not told apart)."""
    spells: Spells
    """Ranks that were slow for a while only."""
    shared: tuple[Shared, ...]
    """What the slow ranks have in common."""
    groups: Groups | None
    """Two groups into which the ranks fall that are not slow by themselves."""
    costs: Costs
    recoverable_gpu_hours: float
    """Saved if no persistently slow rank were slower than the slowest other one."""
    block: int
    """Steps that were taken together in the test, because neighbours are not independent."""
    false_alarm_rate: float
    """At most this share of runs of equal ranks with independent noise get a persistent straggler."""
    least_slowdown: float
    """A rank that is late by less than this share of a step is not a straggler."""

    @property
    def known(self) -> bool:
        """Whether anything can be said about who is slow."""
        return self.matrix.base != "unknown"

    @property
    def least_steps(self) -> int:
        """With fewer steps, no rank can be called persistently slow."""
        return self.block * least_steps(self.matrix.ranks.size, self.false_alarm_rate)

    @property
    def least_steps_of_groups(self) -> int:
        """With fewer steps, no two groups of ranks can be told apart."""
        return self.block * least_blocks(self.false_alarm_rate)

    @property
    def persistent(self) -> list[dict[str, Any]]:
        """The rows of `ranks` that are persistently slow."""
        return [row for row in self.ranks.to_pylist() if row["persistent"]]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs stragglers``."""
        from holdfast.runs.straggling.wording import sentence

        matrix = self.matrix
        return {
            "sentence": sentence(self),
            "base": matrix.base,
            "within": matrix.peers or None,
            "ranks": self.ranks.to_pylist(),
            "transient": [vars(spell) for spell in self.spells.found] if self.known else None,
            "shared": [vars(each) for each in self.shared] if self.known else None,
            "groups": _groups_dict(self),
            "total_cost_gpu_hours": self.costs.total if self.known else None,
            "worked_gpu_hours": self.costs.worked if matrix.base == "own" else None,
            "recoverable_gpu_hours": self.recoverable_gpu_hours if self.known else None,
            "usual_s": self.delays.usual_s if self.known else None,
            "steps_used": int(matrix.steps.size),
            "steps_per_block": self.block,
            "least_steps": self.least_steps,
            "steps_not_shared": matrix.steps_not_shared,
            "ranks_set_aside": list(matrix.ranks_set_aside),
            "rows_rejected": matrix.rejected,
            "false_alarm_rate": self.false_alarm_rate,
            "least_slowdown": self.least_slowdown,
            "least_spell_steps": self.spells.least_length,
            "remarks": list(matrix.remarks),
        }


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
        shared(matrix, lasting.persistent, alpha=SHARED_FDR),
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


def _groups_dict(found: Stragglers) -> dict[str, Any] | None:
    groups = found.groups
    if groups is None or not found.known:
        return None
    ranks, steps = found.matrix.ranks, found.matrix.steps
    return {
        "slow_ranks": ranks[[*groups.slow]].tolist(),
        "fast_ranks": ranks[[*groups.fast]].tolist(),
        "label": groups.label,
        "values": list(groups.values),
        "delay_s": groups.delay_s,
        "slowdown": groups.delay_s / found.delays.usual_s if found.delays.usual_s else 0.0,
        "since_step": int(steps[groups.since]),
        "p_value": groups.p_value,
    }
