"""Ranks that fall into two groups, one slower: a bad node of two, half of the ranks, most of them.

Where a third of the ranks or more are slow, the median over the ranks is no longer that of normal ranks,
and no single rank is an outlier. So ranks are also compared as groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.runs.straggling.delays import (
    FAR,
    MAD_TO_SIGMA,
    MEAN_TO_SIGMA,
    Delays,
    independent,
)
from holdfast.runs.straggling.matrix import Floats
from holdfast.runs.straggling.persistence import (
    LEAST_RECENT_STEPS,
    RECENT_SHARE,
    Bools,
    Persistence,
    onset,
)

MOST_TESTS = 16
"""Splits that are tested per window, for a bound on the false alarms."""


@dataclass(frozen=True)
class Groups:
    """Two groups of ranks of which one is slower."""

    slow: tuple[int, ...]
    """Indices of ranks."""
    fast: tuple[int, ...]
    label: str | None
    """The label whose values split them; None: no label does, so which group is normal is not known."""
    values: tuple[str, ...]
    """Values of the slow group."""
    delay_s: float
    """Median of the slow group less that of the fast one, in the typical step."""
    since: int
    """Index of the step since which it is so; 0: all the time."""
    p_value: float
    """One-sided sign test over steps, times the number of splits and windows tested."""


@dataclass(frozen=True)
class _Split:
    slow: Bools
    """[R]"""
    label: str | None = None
    values: tuple[str, ...] = ()


def two_groups(
    delays: Delays,
    ranks: Sequence[int],
    labels: Sequence[Mapping[str, str]],
    *,
    alpha: float,
    least_delay_s: float,
) -> Groups | None:
    """The two groups into which some ranks fall, if they do.

    Tried are the whole run, its last quarter and its last sixteenth, in blocks of steps that are
    independent. A split is chosen in every second block (at the widest gap between the typical delays of
    ranks, or of the values of a label) and tested in the others: the sum of ranks of the slow group is
    above its middle as often as below if all ranks are alike, whatever the noise looks like. Beside
    that, the groups must be far apart compared with the differences inside them, and by more than
    `least_delay_s` in most steps; two values of a label are compared as two ranks are, without the former.

    Args:
        delays: delays of all ranks in all steps.
        ranks: indices of those to be compared: without the ones that are slow by themselves.
        labels: of all ranks.
        alpha: the share of runs of equal ranks in which groups may be found.
        least_delay_s: what does not matter.
    """
    if len(ranks) < 3:
        return None
    mine = np.array(ranks)
    steps = delays.late_by_s.shape[1]
    lengths = [round(steps * RECENT_SHARE**power) for power in range(3)]
    begins = [steps - each for each in lengths if each == steps or each >= LEAST_RECENT_STEPS]
    best: tuple[tuple[bool, bool, float], _Split, float] | None = None
    for begin in begins:
        # A run that changes is not stationary as a whole, but its end is: blocks are found for each.
        blocks, _ = independent(replace(delays, late_by_s=delays.late_by_s[:, begin:]))
        window = blocks.late_by_s[mine].astype(np.float64)
        splits = [*_splits(window[:, ::2], [labels[rank] for rank in ranks], delays.noise_s)]
        alone = next((split for split in splits if split.label is None), None)
        for split in splits[:MOST_TESTS]:
            p_value = len(begins) * min(len(splits), MOST_TESTS) * _p_value(window[:, 1::2], split)
            apart = _apart(window, split.slow)
            if p_value > alpha or np.mean(apart > least_delay_s) <= 0.5:
                continue
            # A label explains the groups unless the ranks by themselves fall apart elsewhere.
            agrees = alone is None or np.array_equal(split.slow, alone.slow)
            rating = (agrees, split.label is not None, float(np.median(apart)))
            if best is None or rating > best[0]:
                best = rating, split, p_value
    if best is None:
        return None
    _, split, p_value = best
    apart = _apart(delays.late_by_s[mine].astype(np.float64), split.slow)
    since = onset(apart.astype(np.float32))
    return Groups(
        tuple(mine[split.slow].tolist()),
        tuple(mine[~split.slow].tolist()),
        split.label,
        split.values,
        float(np.median(apart[since:])),
        since,
        min(1.0, p_value),
    )


def with_groups(lasting: Persistence, groups: Groups | None) -> Persistence:
    """The verdicts on ranks; a slow group that a label identifies counts as persistently slow."""
    if groups is None or groups.label is None:
        return lasting
    slow = [*groups.slow]
    persistent, since = lasting.persistent.copy(), lasting.since.copy()
    q_value = lasting.q_value.copy()
    persistent[slow], since[slow], q_value[slow] = True, groups.since, groups.p_value
    return replace(lasting, persistent=persistent, since=since, q_value=q_value)


def least_blocks(alpha: float) -> int:
    """Blocks of steps with fewer of which no two groups can be told apart, if one split is tested."""
    return 2 * math.ceil(-math.log2(alpha))


def _splits(late: Floats, labels: Sequence[Mapping[str, str]], noise_s: float) -> Iterator[_Split]:
    """What can be tested: first the values of each label, then the ranks by themselves."""
    if not late.size:
        return
    names = sorted({name for each in labels for name in each})
    for name in names:
        values = np.array([each.get(name, "") for each in labels])
        known = sorted({*values.tolist()})
        if not 2 <= len(known) < len(labels):
            continue
        typical = np.array([np.median(late[values == value]) for value in known])
        cut = _widest_gap(typical)
        if len(known) > 2 and not _is_far(typical, cut, noise_s, late.shape[1]):
            continue
        slow = [value for value, at in zip(known, typical, strict=True) if at > cut]
        if slow:
            yield _Split(np.isin(values, slow), name, tuple(slow))
    typical = np.median(late, axis=1)
    cut = _widest_gap(typical)
    if _is_far(typical, cut, noise_s, late.shape[1]):
        yield _Split(typical > cut)


def _widest_gap(typical: Floats) -> float:
    """The middle of the widest gap between neighbours."""
    ordered = np.sort(typical)
    at = int(np.diff(ordered).argmax())
    return float(ordered[at] + ordered[at + 1]) / 2


def _is_far(typical: Floats, cut: float, noise_s: float, steps: int) -> bool:
    """Whether the gap is wide compared with the differences inside both groups."""
    low, high = typical[typical <= cut], typical[typical > cut]
    if not len(low) or not len(high):
        return False
    inside = np.abs(np.concatenate([low - np.median(low), high - np.median(high)]))
    spread = MAD_TO_SIGMA * float(np.median(inside))
    chance = MEAN_TO_SIGMA * noise_s / math.sqrt(steps)
    return bool(high.min() - low.max() > FAR * max(spread, chance))


def _apart(late: Floats, slow: Bools) -> Floats:
    """[S] median of the slow group less that of the other."""
    apart: Floats = np.median(late[slow], axis=0) - np.median(late[~slow], axis=0)
    return apart


def _p_value(late: Floats, split: _Split) -> float:
    """P(the slow group's sum of ranks is above its middle in so many steps), if all ranks are alike."""
    from scipy.stats import binom, rankdata

    if not late.size:
        return 1.0
    places = rankdata(late, axis=0)[split.slow].sum(axis=0)
    middle = split.slow.sum() * (late.shape[0] + 1) / 2
    above = int((places > middle).sum())
    return float(binom.sf(above - 1, late.shape[1], 0.5))
