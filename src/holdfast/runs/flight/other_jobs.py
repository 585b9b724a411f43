"""A dump of another job, or of an earlier attempt of this one, lies among the others: it is set aside.

Two signs, neither of which a hang can make:

- it tells another number of ranks than most;
- the same collective (same group, same number) happened at another time than on most ranks, further
  away than any timeout would let a rank wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.runs.flight.alignment import DEFAULT
from holdfast.runs.flight.record import Dump, Group

LONGEST_WAIT_S = 3600.0
"""Where timeouts are shorter; else twice the longest timeout."""


def others(dumps: Mapping[int, Dump]) -> dict[int, str]:
    """Rank -> why its dump is of another job than most."""
    found = _of_another_size(dumps)
    return found | _of_another_time({r: dump for r, dump in dumps.items() if r not in found})


def _of_another_size(dumps: Mapping[int, Dump]) -> dict[int, str]:
    sizes = {rank: _told_size(dump) for rank, dump in dumps.items()}
    counted = Counter(size for size in sizes.values() if size)
    if len(counted) < 2:
        return {}
    usual = max(counted, key=lambda size: (counted[size], size))
    return {
        rank: f"of another job: it has {size:,} ranks, most have {usual:,}"
        for rank, size in sizes.items()
        if size and size != usual
    }


def _told_size(dump: Dump) -> int:
    if dump.world_size:
        return dump.world_size
    return max(
        (len(ranks) for (_, text), ranks in dump.members.items() if text == DEFAULT), default=0
    )


def _of_another_time(dumps: Mapping[int, Dump]) -> dict[int, str]:
    groups = Counter(group for dump in dumps.values() for group in dump.groups)
    if len(dumps) < 3 or not groups:
        return {}  # of two, nobody can say which is the other
    group = max(groups, key=lambda each: (groups[each], each[1] == DEFAULT))
    entered = {rank: _entered(dump, group) for rank, dump in dumps.items() if group in dump.groups}
    base = max(entered.values(), key=len)
    away = {}  # rank -> seconds after the rank with most entries, in the same collectives
    for rank, rows in entered.items():
        _, mine, its = np.intersect1d(rows["sequence"], base["sequence"], return_indices=True)
        if len(mine):
            away[rank] = float(np.median(rows["created_ns"][mine] - base["created_ns"][its])) / 1e9
    timeouts = [int(dump.entries["timeout_ms"].max(initial=0)) for dump in dumps.values()]
    longest_s = max(LONGEST_WAIT_S, 2e-3 * float(np.median(timeouts)))
    usual = float(np.median([*away.values()])) if away else 0.0
    found = {
        rank: f"of another job or attempt: its collectives are {abs(by_s - usual) / 3600:,.1f} h "
        f"{'earlier' if by_s < usual else 'later'} than the same ones of most ranks"
        for rank, by_s in away.items()
        if abs(by_s - usual) > longest_s
    }
    # Without a majority it is unknown which dumps belong to the other job.
    return found if 2 * len(found) < len(away) else {}


def _entered(dump: Dump, group: Group) -> NDArray[np.void]:
    rows = dump.entries
    kept = (rows["group"] == dump.groups.index(group)) & ~rows["p2p"] & (rows["created_ns"] > 0)
    entered: NDArray[np.void] = rows[kept][["sequence", "created_ns"]]
    return entered
