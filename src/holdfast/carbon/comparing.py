"""Compare all policies and the usual baselines on one load, at the same total penalty.

A cut that costs more waiting is not a better plan, so every row of the comparison has the same penalty. The
efficient plan sets it; the fair policy gets the strength that reaches it, and each baseline its best
settings, scaled down to it. Curtailment that has no penalty in any hour needs no signal: all rows have it,
and plans are compared by what they save beyond it.

    proportional    in hours above a quantile of the signal, everyone gives up the same share
    priority        in those hours, batch work gives up first, the rest only what is still missing
    capacity curve  batch work follows the hourly capacity of least CO2, without penalties (CICS,
                    Radovanovic et al., IEEE Trans. Power Systems 2022)
    waiting         batch work waits while the signal is above a quantile (Wiesner et al., Let's Wait
                    Awhile, Middleware 2021)
    no signal       everyone gives up the same in every hour
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.optimize import brentq

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table
from holdfast.carbon.planning import DAY_H, POLICIES, Plan, collected, solve
from holdfast.carbon.policies import Part, Solved, Window, efficient
from holdfast.carbon.problems import aligned
from holdfast.carbon.signals import HOUR_S, FloatArray, Signal, refused
from holdfast.carbon.workloads import Load
from holdfast.numbers import brief, percent
from holdfast.report import figures

# Settings of the baselines: quantiles of the signal in a window above which they curtail, shares of the
# site's power that the priority cap takes, the hours in which batch work is made up for.
QUANTILES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DEPTHS = (0.1, 0.2, 0.3)
ORDERS = ("even", "cleanest", "first")
LEVELS = (0.25, 0.5, 0.75)
"""Shares of the largest cut at which policies are compared."""
CLOSE = 1e-3
"""Relative difference of total penalties that counts as equal."""
NARROW = 1e-5
"""Relative difference of strengths that counts as equal: solvers tell apart plans at its two ends."""
TIE = 1e-6
"""Relative difference of cuts that counts as none: the last digits of a solver choose nothing."""
BASELINES = ("proportional", "priority", "capacity curve", "waiting", "no signal")
COLOURS = ("user", "good", "purple", "system", "hardware", "sky", "unattributed")
Curtailments = list[list[FloatArray]]
"""Per window and part."""


@dataclass(frozen=True)
class Comparison(Answer):
    """Cuts at equal total penalty.

    Attributes:
        rows: level, policy, saved_share, beyond_free (of it, beyond what is free in every hour), penalty,
            of_efficient (its beyond_free over that of the efficient plan at the same penalty),
            equal_penalty (False: the baseline cannot spend as much), jain, strength (of a policy).
            The row "no signal" is what the same penalty saves in all hours alike: what a plan saves more
            comes from the signal.
        free_share: of the CO2: what is saved at no penalty and without a signal.
        signal: of the plans.
    """

    rows: list[dict[str, Any]]
    free_share: float
    signal: Signal

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Power plans at equal penalty"

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The signal."""
        return self.signal.inputs()

    def sections(self) -> Sequence[Section]:
        """The Pareto fronts, and fairness."""
        levels = sorted({row["level"] for row in self.rows})
        middle = [row for row in self.rows if row["level"] == levels[len(levels) // 2]]
        own, rivals = middle[0], [row for row in middle if row["policy"] in BASELINES]
        best = rivals[first_best([row["saved_share"] for row in rivals])]
        constant = rivals[BASELINES.index("no signal")]
        sentence = (
            f"At a total penalty of {brief(own['penalty'])} units the efficient plan saves "
            f"{percent(own['saved_share'], 2)} of the CO2, the best baseline ({best['policy']}) "
            f"{percent(best['saved_share'], 2)}; {percent(self.free_share, 2)} of both is headroom that "
            "is free in every hour. Without a signal, the same in every hour, the penalty saves "
            f"{percent(constant['saved_share'], 2)}: only what a plan saves more comes from the signal."
        )
        points = [{**row, "saved": 100 * row["saved_share"]} for row in self.rows]
        axes = ("penalty", "saved", "Total penalty, units", "CO2 saved, %")
        meanings = dict(zip((*POLICIES, *BASELINES), COLOURS, strict=True))
        drawn = figures.lines(points, *axes, series="policy", meanings=meanings, points=True)
        columns = {
            **dict.fromkeys(("level", "policy", "penalty", "jain"), ColumnFormat()),
            "saved_share": ColumnFormat("CO2 saved", "%", 2),
            "beyond_free": ColumnFormat("beyond what is free", "%", 2),
            "of_efficient": ColumnFormat("of the efficient plan's beyond what is free", "%", 0),
        }
        how = How(
            [
                "level: share of the largest cut beyond what is free that the efficient plan makes",
                "policies: strength at which the total penalty is that of the efficient plan (0.1 %)",
                "baselines: best of their settings, curtailment scaled to that penalty",
            ],
            source="Carbon Responder, arXiv 2311.08589; CICS; Let's Wait Awhile",
        )
        table = Table(pa.Table.from_pylist(self.rows), columns, "One row per level and policy.")
        question = "How much CO2 does a given penalty save, and who bears it?"
        return [Section("pareto", question, sentence, [drawn], [table], how)]


def compare(
    load: Load,
    signal: Signal,
    *,
    flex: float = 0.4,
    cap: float | None = None,
    window_s: float = DAY_H * HOUR_S,
    levels: Sequence[float] = LEVELS,
) -> Comparison:
    """Compare both policies and five baselines at equal total penalty.

    Args:
        load: workloads with penalties.
        signal: average or marginal intensity.
        flex: as of `plan`.
        cap: as of `plan`.
        window_s: as of `plan`.
        levels: shares of the largest cut at which to compare, between 0 and 1.

    Raises:
        InputError: ``missing-key`` if no work has a penalty; as `plan` raises.
    """
    problem = aligned(load, signal)
    if not problem.costs:
        remedy = "state them in a file for --penalties (docs/carbon.md)"
        text = "without penalties every policy is the same"
        raise refused(text, "missing-key", None, "--penalties", remedy=remedy)
    windows = problem.windows(window_s, flex, problem.limit(cap))

    def curtailed(policy: str, strength: float | None) -> Curtailments:
        return [one.d for window in windows for one in solve(policy, [window], strength)]

    def made(policy: str, strength: float | None, d: Curtailments) -> Plan:
        solved = [Solved(each, 0.0, 0.0) for each in d]
        return collected(problem, windows, solved, policy, strength, {})

    def reaching(policy: str, figure: str, aim: float, guess: float) -> Plan:
        return _reaching(partial(curtailed, policy), partial(made, policy), figure, aim, guess)

    free = made("none", None, _free(windows)).saved_share
    most = made("efficient", None, curtailed("efficient", None)).saved_share
    rows: list[dict[str, Any]] = []
    strength = 1.0
    with progress.track("comparing", len(levels), "levels") as bar:
        for level in levels:
            own = reaching("efficient", "saved_share", free + level * (most - free), strength)
            strength = own.strength or strength
            plans = {"efficient": own}
            guess = own.penalty / float(own.entitlements.sum())
            plans["fair"] = reaching("fair", "penalty", own.penalty, guess)
            for name in BASELINES:
                plans[name] = made(name, None, best_baseline(windows, name, own.penalty))
            bar.advance(1)
            best = own.saved_share - free
            for policy, one in plans.items():
                beyond, spent = one.saved_share - free, one.penalty - own.penalty
                row: dict[str, Any] = {
                    "level": level,
                    "policy": policy,
                    "saved_share": one.saved_share,
                    "beyond_free": beyond,
                    "penalty": one.penalty,
                    "of_efficient": beyond / best if best > TIE else None,
                    "equal_penalty": abs(spent) <= 2 * CLOSE * own.penalty,
                    "jain": one.jain,
                    "strength": one.strength,
                }
                rows.append(row)
    return Comparison(rows, free, problem.signal)


class _Point(NamedTuple):
    """A plan of a search: its strength, its figure, its curtailments."""

    strength: float
    figure: float
    d: Curtailments


def _reaching(
    curtailed: Callable[[float], Curtailments],
    made: Callable[[float, Curtailments], Plan],
    figure: str,
    aim: float,
    guess: float,
) -> Plan:
    """The plan at which a figure that grows with the strength is as aimed.

    Where the figure jumps, all mixtures of the plans on both sides suit that strength equally well, and
    which one a solver gives is chance. So the strength is narrowed from both sides, and the two are mixed.
    """

    def at(strength: float) -> _Point:
        d = curtailed(strength)
        return _Point(strength, getattr(made(strength, d), figure), d)

    low, high = _Point(0.0, 0.0, []), at(max(guess, 1e-9))
    while high.figure < aim and high.strength < 1e15:
        low, high = high, at(4 * high.strength)
    while high.figure - low.figure > CLOSE * aim + 1e-9:
        wide, jump = high.strength - low.strength, high.figure - low.figure
        if wide <= NARROW * (high.strength if low.d else guess):
            break
        # Between the chord and the middle: the chord alone creeps where the figure jumps.
        share = min(max((aim - low.figure) / jump, 0.1), 0.9)
        middle = at(low.strength + share * wide)
        low, high = (middle, high) if middle.figure < aim else (low, middle)
    if not low.d:  # what is free is taken at the least strength
        return made(high.strength, high.d)

    def mixed(share: float) -> Plan:
        strength = low.strength + share * (high.strength - low.strength)
        return made(strength, _mixed(low.d, high.d, share))

    def missing(share: float) -> float:
        return float(aim - getattr(mixed(share), figure))

    if missing(0.0) > 0 > missing(1.0):
        return mixed(brentq(missing, 0.0, 1.0, rtol=1e-9))
    return mixed(float(missing(0.0) > 0))


def _mixed(first: Curtailments, second: Curtailments, share: float) -> Curtailments:
    """Curtailments between two, at a share of the way."""
    pairs = [zip(a, b, strict=True) for a, b in zip(first, second, strict=True)]
    return [[a + share * (b - a) for a, b in pair] for pair in pairs]


def _free(windows: Sequence[Window]) -> Curtailments:
    """What has no penalty, in every hour."""
    return [window.without_signal(0.0) for window in windows]


def first_best(figures: Sequence[float]) -> int:
    """The place of the largest figure; of those that differ by less than `TIE` of it, the first."""
    most = max(figures)
    return next(n for n, each in enumerate(figures) if each >= most - TIE * abs(most))


def best_baseline(windows: Sequence[Window], name: str, penalty: float) -> Curtailments:
    """The baseline's best setting at a total penalty; one that cannot spend it counts at what it spends.

    Args:
        windows: the hours.
        name: one of `BASELINES`.
        penalty: penalty units, over all windows.
    """
    entitled, free = [window.with_rights() for window in windows], _free(windows)
    scaled = [_scaled(windows, free, d, penalty) for d in _settings(name, entitled)]
    return scaled[first_best([_total(windows, d, Window.cut) for d in scaled])]


def _total(
    windows: Sequence[Window], d: Curtailments, figure: Callable[[Window, Part, FloatArray], float]
) -> float:
    pairs = zip(windows, d, strict=True)
    return sum(figure(w, p, x) for w, each in pairs for p, x in zip(w.parts, each, strict=True))


def _scaled(
    windows: Sequence[Window], free: Curtailments, d: Curtailments, penalty: float
) -> Curtailments:
    """What is free, and the largest share of what else is curtailed whose penalty is no more than allowed.

    A penalty is convex and zero at what is free, so it grows with the share.
    """
    # Moved work has no free part; of other work, a baseline that curtails less takes it all the same.
    most = [
        [np.maximum(a, b) if a.any() else b for a, b in zip(*pair, strict=True)]
        for pair in zip(free, d, strict=True)
    ]

    def spent(share: float) -> float:
        d = _mixed(free, most, share)
        return _total(windows, d, lambda _, part, x: part.penalty.value(x, part.due)) - penalty

    return most if spent(1.0) <= 0 else _mixed(free, most, brentq(spent, 0, 1, rtol=1e-9))


def _settings(name: str, windows: Sequence[Window]) -> Iterator[Curtailments]:
    """The curtailments of every setting of a baseline."""
    if name == "capacity curve":
        yield [_capacity_curve(window) for window in windows]
        return
    if name == "no signal":
        yield [window.without_signal(None) for window in windows]
        return
    depths = DEPTHS if name == "priority" else (1.0,)
    for quantile, order, depth in product(QUANTILES, ORDERS, depths):
        yield [_in_turn(window, quantile, depth, order, name == "waiting") for window in windows]


def _capacity_curve(window: Window) -> list[FloatArray]:
    return [
        efficient([replace(window, parts=(part,))], None)[0].d[0]
        if part.conserves
        else np.zeros(len(window.grams))
        for part in window.parts
    ]


def _in_turn(
    window: Window, quantile: float, depth: float, order: str, batch_only: bool
) -> list[FloatArray]:
    """Take a share of the site's power in dirty hours, batch work first; depth 1 is all there is."""
    dirty = window.grams > np.quantile(window.grams, quantile)
    missing = depth * dirty * window.total
    plans = {}
    for place in sorted(range(len(window.parts)), key=lambda n: not window.parts[n].conserves):
        part = window.parts[place]
        most = np.maximum(part.high, 0.0) * (part.conserves or not batch_only)
        taken = np.clip(missing, 0.0, most)
        plans[place] = _made_up(part, taken, window.grams, order)
        missing = missing - taken
    return [plans[place] for place in range(len(plans))]


def _made_up(part: Part, cut: FloatArray, grams: FloatArray, order: str) -> FloatArray:
    """A curtailment of batch work with its energy made up for in the window; of other work, as it is.

    Args:
        part: the workload.
        cut: [T] MW >= 0.
        grams: [T] signal.
        order: ``"even"`` over all other hours, the ``"cleanest"`` first, or the ``"first"`` that come.
    """
    if not part.conserves:
        return cut
    room = np.where(cut > 0, 0.0, -part.low)  # [T] MW that can be drawn more
    total = float(room.sum())
    cut = cut * min(1.0, total / max(float(cut.sum()), 1e-12))
    owed = float(cut.sum())
    if order == "even":  # the same share of its room in every other hour
        extra = room * owed / total if total else room
    else:
        if order == "cleanest":
            places = np.argsort(grams, kind="stable")
        else:  # after the first curtailment, then around
            places = np.roll(np.arange(len(cut)), -int(np.argmax(cut > 0)))
        filled = np.minimum(np.cumsum(room[places]), owed)
        extra = np.zeros(len(cut))
        extra[places] = np.diff(np.concatenate([[0.0], filled]))
    return cut - extra
