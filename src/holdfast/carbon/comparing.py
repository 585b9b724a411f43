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
from typing import Any

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
        rows: level, policy, saved_share, from_signal (of it, beyond what is free), penalty, of_efficient
            (its from_signal over that of the efficient plan at the same penalty), equal_penalty (False:
            the baseline cannot spend as much), jain, strength (of a policy).
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
        sentence = (
            f"At a total penalty of {brief(own['penalty'])} units the efficient plan saves "
            f"{percent(own['saved_share'], 2)} of the CO2, the best baseline ({best['policy']}) "
            f"{percent(best['saved_share'], 2)}; {percent(self.free_share, 2)} of both is headroom that "
            "is free in every hour, without a signal."
        )
        points = [{**row, "saved": 100 * row["saved_share"]} for row in self.rows]
        axes = ("penalty", "saved", "Total penalty, units", "CO2 saved, %")
        meanings = dict(zip((*POLICIES, *BASELINES), COLOURS, strict=True))
        drawn = figures.lines(points, *axes, series="policy", meanings=meanings, points=True)
        columns = {
            **dict.fromkeys(("level", "policy", "penalty", "jain"), ColumnFormat()),
            "saved_share": ColumnFormat("CO2 saved", "%", 2),
            "from_signal": ColumnFormat("from the signal", "%", 2),
            "of_efficient": ColumnFormat("of the efficient plan's from the signal", "%", 0),
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
        remedy = "fit them with `holdfast carbon fit-penalty`, or state them"
        text = "without penalties every policy is the same"
        raise refused(text, "missing-key", None, "--penalties", remedy=remedy)
    windows = problem.windows(window_s, flex, problem.limit(cap))

    def plan_of(policy: str, strength: float | None, solved: Sequence[Solved]) -> Plan:
        return collected(problem, windows, solved, policy, strength, {})

    def solved(policy: str, strength: float | None) -> Sequence[Solved]:
        return [one for window in windows for one in solve(policy, [window], strength)]

    def reaching(policy: str, figure: str, aim: float, guess: float) -> Plan:
        return _reaching(partial(solved, policy), partial(plan_of, policy), figure, aim, guess)

    free_d = [window.without_signal(0.0) for window in windows]
    free = plan_of("none", None, [Solved(d, 0.0, 0.0) for d in free_d]).saved_share
    most = plan_of("efficient", None, solved("efficient", None)).saved_share
    rows: list[dict[str, Any]] = []
    strength = 1.0
    with progress.track("comparing", len(levels), "levels") as bar:
        for level in levels:
            own = reaching("efficient", "saved_share", free + level * (most - free), strength)
            strength = own.strength or strength
            found = {"efficient": own}
            guess = own.penalty / float(own.entitlements.sum())
            found["fair"] = reaching("fair", "penalty", own.penalty, guess)
            for name in BASELINES:
                pretended = [Solved(d, 0.0, 0.0) for d in best_baseline(windows, name, own.penalty)]
                found[name] = plan_of(name, None, pretended)
            bar.advance(1)
            for policy, made in found.items():
                spent = made.penalty / own.penalty if own.penalty else 1.0
                best = own.saved_share - free
                row: dict[str, Any] = {
                    "level": level,
                    "policy": policy,
                    "saved_share": made.saved_share,
                    "from_signal": made.saved_share - free,
                    "penalty": made.penalty,
                    "of_efficient": (made.saved_share - free) / best if best > TIE else None,
                    "equal_penalty": abs(spent - 1) <= 2 * CLOSE,
                    "jain": made.jain,
                    "strength": made.strength,
                }
                rows.append(row)
    return Comparison(rows, free, problem.signal)


def _reaching(
    solve: Callable[[float], Sequence[Solved]],
    plan_of: Callable[[float, Sequence[Solved]], Plan],
    figure: str,
    aim: float,
    guess: float,
) -> Plan:
    """The plan at which a figure that grows with the strength is as aimed.

    Where the figure jumps, all mixtures of the plans on both sides suit that strength equally well, and
    which one a solver gives is chance. So the strength is narrowed from both sides, and the two are mixed.
    """
    low, high, below = 0.0, max(guess, 1e-9), None
    above = solve(high)
    least, most = 0.0, getattr(plan_of(high, above), figure)
    while most < aim and high < 1e15:
        low, least, below = high, most, above
        high *= 4
        above = solve(high)
        most = getattr(plan_of(high, above), figure)
    while most - least > CLOSE * aim + 1e-9 and high - low > NARROW * (guess if low == 0 else high):
        # Between the chord and the middle: the chord alone creeps where the figure jumps.
        share = min(max((aim - least) / max(most - least, 1e-12), 0.1), 0.9)
        strength = low + share * (high - low)
        middle = solve(strength)
        if (found := getattr(plan_of(strength, middle), figure)) < aim:
            low, least, below = strength, found, middle
        else:
            high, most, above = strength, found, middle
    if below is None:  # what is free is taken at the least strength
        return plan_of(high, above)
    ends = [list(zip(a.d, b.d, strict=True)) for a, b in zip(below, above, strict=True)]

    def mixed(share: float) -> Plan:
        d = [[(1 - share) * a + share * b for a, b in each] for each in ends]
        return plan_of(low + share * (high - low), [Solved(each, 0.0, 0.0) for each in d])

    def missing(share: float) -> float:
        return float(aim - getattr(mixed(share), figure))

    if missing(0.0) > 0 > missing(1.0):
        return mixed(brentq(missing, 0.0, 1.0, rtol=1e-9))
    return mixed(float(missing(0.0) > 0))


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
    entitled = [window.with_rights() for window in windows]
    free = [window.without_signal(0.0) for window in windows]
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
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(free, d, strict=True)]

    def at(share: float) -> Curtailments:
        # Moved work has no free part; of other work, a baseline that curtails less takes it all the same.
        return [[a + share * (np.maximum(a, b) - a if a.any() else b) for a, b in g] for g in pairs]

    def spent(share: float) -> float:
        return _total(windows, at(share), lambda _, part, x: part.penalty.value(x, part.due))

    if spent(1.0) <= penalty:
        return at(1.0)
    return at(brentq(lambda x: spent(x) - penalty, 0, 1, rtol=1e-9))


def _settings(name: str, windows: Sequence[Window]) -> Iterator[Curtailments]:
    """The curtailments of every setting of a baseline."""
    if name == "capacity curve":
        yield [_capacity_curve(window) for window in windows]
        return
    if name == "no signal":
        yield [window.without_signal(None) for window in windows]
        return
    for quantile in QUANTILES:
        for order in ORDERS:
            for depth in DEPTHS if name == "priority" else (1.0,):
                batch_only = name == "waiting"
                yield [_in_turn(window, quantile, depth, order, batch_only) for window in windows]


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
    found = {}
    for place in sorted(range(len(window.parts)), key=lambda n: not window.parts[n].conserves):
        part = window.parts[place]
        most = np.maximum(part.high, 0.0) * (part.conserves or not batch_only)
        taken = np.clip(missing, 0.0, most)
        found[place] = _made_up(part, taken, window.grams, order)
        missing = missing - taken
    return [found[place] for place in range(len(found))]


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
