"""The detectors: each looks at what the run is doing now, and says what is wrong while it is wrong.

They know nothing of clocks, files or alarms: a run's state and the present run time go in, a `Finding` or
nothing comes out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING

from holdfast.numbers import duration, number
from holdfast.runs.ranks import named
from holdfast.runs.watching.alarms import Finding
from holdfast.runs.watching.run_state import Rank, RunState
from holdfast.runs.watching.thresholds import Thresholds

if TYPE_CHECKING:
    from holdfast.runs.goodput.attempts import AttemptAccount

LEAST_FRESH_S = 3.0
LONGEST_DETAIL = 100  # characters of how a rank ended


def silence(run: RunState, limits: Thresholds, now_s: float) -> Finding | None:
    """Ranks that have not ended and from which nothing comes, not even that they live."""
    silent = [rank for rank in run.living if now_s - rank.seen_at > limits.silence_s]
    if not silent:
        return None
    ranks = _ids(silent)
    gone = f"; {named(_ids(run.failed))} ended with {_ending(run)}" if run.failed else ""
    longest = max(now_s - rank.seen_at for rank in silent)
    last = max((rank.step for rank in silent if rank.step is not None), default=None)
    doing = "" if len(groups := _by_doing(silent)) > 1 else f" in {next(iter(groups))}"
    return Finding(
        "critical",
        ranks,
        f"{named(ranks)} of {run.world_size}: no sign of life for {duration(longest)}"
        f"{_after(last)}{doing}: the process is dead or the machine frozen "
        f"({_names(silent)}){gone}",
        {
            "silent_s": round(longest, 1),
            "limit_s": limits.silence_s,
            "last_step": last,
            "nodes": sorted({rank.process.node for rank in silent}),
            "ranks_failed": list(_ids(run.failed)),
        },
    )


class Hang:
    """Ranks that are alive but make no progress."""

    def __init__(self, usual_s: Callable[[], float | None]) -> None:
        self._usual_s = usual_s
        self._holds = False

    def look(self, run: RunState, limits: Thresholds, now_s: float) -> Finding | None:
        """A finding if a rank makes no progress for longer than the limit of its current activity.

        A hang opens only while all ranks send heartbeats: the others may be waiting for a rank that died.
        There is no finding while a rank has not appeared yet.
        """
        finding = self._find(run, limits, now_s)
        self._holds = finding is not None
        return finding

    def _find(self, run: RunState, limits: Thresholds, now_s: float) -> Finding | None:
        heard = [
            rank
            for rank in run.living
            # Once begun, a hang does not end because heartbeats arrive in bursts, as over NFS.
            if now_s - rank.seen_at
            <= (limits.silence_s if self._holds else min(_fresh_s(rank), limits.silence_s))
        ]
        assembling = run.first_at is None and len(run.ranks) < run.world_size
        if not heard or len(heard) < len(run.living) or assembling:
            return None
        limit_of = {doing: self.limit_s(run, limits, doing) for doing in _by_doing(heard)}
        over = [rank for rank in heard if now_s - rank.progress_at > limit_of[rank.doing]]
        if not over:
            return None
        stuck = [rank for rank in heard if now_s - rank.progress_at > limit_of[rank.doing] / 2]
        return _hang_of(stuck, run, limit_of, self._usual_s(), now_s)

    def limit_s(self, run: RunState, limits: Thresholds, doing: str) -> float:
        """How long a rank may stand still in what it is doing."""
        usual = self._usual_s()
        if doing == "training" and usual is not None:
            return max(limits.hang_s, limits.hang_factor * usual)
        earlier = run.spans.get(doing)
        if earlier is None:
            return limits.first_s
        return max(limits.span_s, limits.span_factor * earlier.median())


def _fresh_s(rank: Rank) -> float:
    """A rank heard within as many seconds is alive: three of its heartbeats."""
    return max(LEAST_FRESH_S, 3 * rank.beat_s)


def _hang_of(
    stuck: list[Rank],
    run: RunState,
    limit_of: dict[str, float],
    usual_s: float | None,
    now_s: float,
) -> Finding:
    ranks = _ids(stuck)
    since = max(now_s - rank.progress_at for rank in stuck)
    groups = _by_doing(stuck)
    where = " and ".join(
        f"{named(_ids(members))} in {doing}" if len(groups) > 1 else f"in {doing}"
        for doing, members in groups.items()
    )
    steps = {rank.process.rank: rank.step for rank in stuck}
    done = [step for step in steps.values() if step is not None]
    behind = [rank for rank, step in steps.items() if done and (step is None or step < max(done))]
    tail = f"; {named(behind)} behind the others" if behind else ""
    ended = _ids([rank for rank in run.ranks.values() if rank.ended])
    if ended:
        tail += f"; {named(ended)} ended before"
    usual = "" if usual_s is None else f", usually {duration(usual_s)} between steps"
    limit = min(limit_of[doing] for doing in groups)
    return Finding(
        "critical",
        ranks,
        f"{named(ranks)} of {run.world_size}: alive but no progress for {duration(since)} {where}"
        f"{_after(max(done, default=None))} (limit {duration(limit)}{usual}){tail}",
        {
            "stalled_s": round(since, 1),
            "limit_s": round(limit, 3),
            "usual_s": None if usual_s is None else round(usual_s, 6),
            "doing": sorted(groups),
            "last_step": max(done, default=None),
            "ranks_behind": behind,
            "ranks_ended": list(ended),
        },
    )


def missing(run: RunState, limits: Thresholds, now_s: float) -> Finding | None:
    """Ranks that never appeared, while the training has not begun.

    Once a step was completed the training runs without them: then they only do not record.
    """
    absent = [rank for rank in range(run.world_size) if rank not in run.ranks]
    waited = now_s - run.attempt_at
    if not absent or run.first_at is not None or not run.living or waited <= limits.assemble_s:
        return None
    return Finding(
        "critical",
        tuple(absent),
        f"{named(absent)} of {run.world_size} never appeared in attempt {run.attempt + 1}: the "
        f"others have waited for {duration(waited)}",
        {"waited_s": round(waited, 1), "limit_s": limits.assemble_s, "absent": len(absent)},
    )


def down(
    run: RunState,
    limits: Thresholds,
    now_s: float,
    account: Callable[[int], AttemptAccount | None],
) -> Finding | None:
    """The run ended in failure, and nothing started it again; `account` tells how an attempt ended."""
    if run.living or not run.failed:
        return None
    since = now_s - run.heard_at
    if since <= limits.down_s:
        return None
    ended = account(run.attempt)
    how = "" if ended is None else f". {ended.sentence}"
    return Finding(
        "critical",
        _ids(run.failed),
        f"down for {duration(since)}, and no attempt follows{_after(run.completed)}{how}",
        {
            "down_s": round(since, 1),
            "limit_s": limits.down_s,
            "ending": None if ended is None else ended.end(),
            "last_step": run.completed,
        },
    )


class CrashLoop:
    """A run that is started again and again and gets nowhere."""

    def __init__(self) -> None:
        self._restarts: deque[float] = deque()
        self._mark = 0

    def restarted(self, run: RunState, limits: Thresholds, at_s: float) -> None:
        """A new attempt has begun; the first one is not a restart."""
        if run.attempt == 0:
            return
        self._forget(run, limits)
        if not self._restarts:
            self._mark = run.completed or 0
        self._restarts.append(at_s)

    def look(self, run: RunState, limits: Thresholds, now_s: float) -> Finding | None:
        """A finding once the last restarts brought no new steps, until some come."""
        self._forget(run, limits)
        if len(self._restarts) < limits.crash_restarts:
            return None
        within = self._restarts[-1] - self._restarts[-limits.crash_restarts]
        if within > limits.crash_window_s:
            return None
        gained = (run.completed or 0) - self._mark
        count = len(self._restarts)
        return Finding(
            "critical",
            (),
            f"{count} restarts within {duration(self._restarts[-1] - self._restarts[0])} brought "
            f"{gained} new steps beyond step {self._mark:,}",
            {
                "restarts": count,
                "limit": limits.crash_restarts,
                "new_steps": gained,
                "highest_step_before": self._mark,
            },
        )

    def _forget(self, run: RunState, limits: Thresholds) -> None:
        if self._restarts and (run.completed or 0) - self._mark >= limits.crash_new_steps:
            self._restarts.clear()


class NotFinite:
    """A loss that is not finite."""

    def __init__(self) -> None:
        self._since: int | None = None
        self._latest: int | None = None
        self._loss = ""
        self._ranks: tuple[int, ...] = ()
        self._finite = 0
        self._told = True

    def begin(self) -> None:
        """A new attempt begins; a loss that was not reported yet is kept for the next look."""
        if self._told:
            self._since = None

    def take(self, step: int, loss: float | None, ranks: tuple[int, ...] = ()) -> None:
        """The loss of one step, and the ranks whose own is not finite."""
        if loss is None:
            return
        if math.isfinite(loss):
            self._finite += 1
            return
        if self._since is None:
            self._since, self._loss, self._told = step, str(loss), False
            self._ranks = ranks
        self._latest, self._finite = step, 0

    def look(self, run: RunState, limits: Thresholds, now_s: float) -> Finding | None:
        """A finding from the first such loss until enough finite ones followed."""
        if self._since is None:
            return None
        if self._told and self._finite >= limits.finite_steps:
            self._since = None
            return None
        self._told = True
        return Finding(
            "critical",
            # The first ones: averaging over the ranks carries it to all others.
            self._ranks,
            f"the loss is {self._loss} since step {self._since:,}"
            + (f", first on {named(self._ranks)} of {run.world_size}" if self._ranks else ""),
            {"first_step": self._since, "last_step": self._latest, "loss": self._loss},
        )


def _first_failed(run: RunState) -> Rank:
    return min(run.failed, key=lambda rank: rank.opened_at + rank.t)


def _ending(run: RunState) -> str:
    """How the first rank that failed ended."""
    first = _first_failed(run)
    detail = first.end_detail
    if len(detail) > LONGEST_DETAIL:
        detail = f"{detail[:LONGEST_DETAIL]}…"
    return f"{first.ended}{f' ({detail})' if detail else ''}"


def _ids(ranks: list[Rank]) -> tuple[int, ...]:
    return tuple(sorted(rank.process.rank for rank in ranks))


def _by_doing(ranks: list[Rank]) -> dict[str, list[Rank]]:
    ordered = sorted(ranks, key=lambda rank: rank.doing)
    return {doing: list(members) for doing, members in groupby(ordered, lambda rank: rank.doing)}


def _after(step: int | None) -> str:
    return "" if step is None else f" after step {number(step)}"


def _names(ranks: list[Rank]) -> str:
    nodes = sorted({rank.process.node for rank in ranks})
    shown = ", ".join(nodes[:4])
    return f"on {shown}{f' and {len(nodes) - 4} more' if len(nodes) > 4 else ''}"
