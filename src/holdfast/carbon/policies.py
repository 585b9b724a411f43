"""Policies of Carbon Responder (arXiv 2311.08589) on windows of hours.

    efficient   minimize  sum of C_i(d_i) - price * cut            (cut: kg CO2 less than without a plan)
    fair        maximize  cut  subject to  C_i(d_i) <= limit * E_i for every workload i

All within  0 <= U - d <= maximum power, the share that can be curtailed, the site's limit of every hour,
and how fast its power may change; the energy of batch work is conserved in every window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.carbon.program import Program
from holdfast.carbon.signals import HOUR_S, FloatArray, IntArray, refused, utc
from holdfast.carbon.workloads import Penalty, Workload
from holdfast.errors import InputError

# Share of the largest curtailment that counts as none, where that is cheaper.
KINK = 1e-7


@dataclass(frozen=True)
class Part:
    """One workload in one window of T hours.

    Attributes:
        power: [T] MW without a plan.
        low: [T] least curtailment (negative: most extra power), MW.
        high: [T] largest curtailment, MW.
        penalty: of the curtailment.
        entitlement: its weight in fair policies.
        conserves: its energy must be made up for by the end of the window.
        due: MWh that earlier windows put off.
    """

    name: str
    power: FloatArray
    low: FloatArray
    high: FloatArray
    penalty: Penalty
    entitlement: float
    conserves: bool
    due: float = 0.0


@dataclass(frozen=True)
class Window:
    """The workloads and the signal of T hours.

    Attributes:
        parts: the workloads.
        grams: [T] gCO2/kWh, which is kg/MWh.
        start_s: start of the first hour.
        limit: [T] MW of the whole site; None: no limit.
    """

    parts: tuple[Part, ...]
    grams: FloatArray
    start_s: int
    limit: FloatArray | None = None

    @property
    def later(self) -> float:
        """Signal of energy that is used after the window: its mean."""
        return float(self.grams.mean())

    @property
    def total(self) -> FloatArray:
        """[T] MW of the site without a plan."""
        return np.sum([part.power for part in self.parts], axis=0)  # type: ignore[no-any-return]

    def cut(self, part: Part, d: FloatArray) -> float:
        """CO2 in kg that a curtailment [T] saves, less what its work emits later."""
        return float(self.grams @ d - self.later * part.penalty.owed(d).sum())

    def first(self, hours: int) -> Window:
        """Its first hours, with the penalties that they have in the whole."""
        parts = tuple(
            replace(
                part,
                power=part.power[:hours],
                low=part.low[:hours],
                high=part.high[:hours],
                penalty=part.penalty.first(hours),
                entitlement=part.entitlement * min(hours / len(part.power), 1.0),
            )
            for part in self.parts
        )
        return replace(self, parts=parts, grams=self.grams[:hours])

    def with_rights(self) -> Window:
        """The window with its limit split among the parts by entitlement, without a shared one."""
        if self.limit is None:
            return self
        everyone = sum(part.entitlement for part in self.parts)
        spare = (self.limit - self.total) / everyone  # [T] MW per unit, may be negative
        parts = [_bounded(part, spare * part.entitlement, "--cap") for part in self.parts]
        return replace(self, parts=tuple(parts), limit=None)

    def without_signal(self, price: float | None) -> list[FloatArray]:
        """The plan of a constant signal: what pays in every hour alike, so that nothing is moved in time.

        Args:
            price: penalty units per kg CO2; None: whatever its penalty; 0: what has no penalty.

        Returns:
            [T] MW per part, in closed form: up to the first knot where an hour costs more than it saves.
        """
        paid, price = (0.0, 1.0) if price is None else (1.0, price)
        gaps = []
        for part in self.parts:
            d, cost = np.zeros(len(part.power)) if part.conserves else part.high.copy(), 0.0
            for hinge in sorted(part.penalty.hinges, key=lambda hinge: hinge.knot):
                cost = cost + (paid * hinge.weight + price * self.later * hinge.owed) * hinge.rate
                knot = hinge.knot / np.maximum(hinge.rate, 1e-300)
                d = np.where(cost > price * self.later * (1 + 1e-9), np.minimum(d, knot), d)
            gaps.append(d if part.conserves else np.maximum(d, part.low))
        return gaps


@dataclass(frozen=True)
class Solved:
    """Curtailments, and how far they can be from the optimum.

    Attributes:
        d: [T] MW per part.
        objective: what the policy minimizes, at `d`.
        bound: no feasible curtailments have a lower objective; of windows solved together, their sum.
    """

    d: list[FloatArray]
    objective: float
    bound: float


def part_of(workload: Workload, hours: slice, flex: float, due: float = 0.0) -> Part:
    """A workload in some of its hours.

    Args:
        workload: the workload.
        hours: which hours.
        flex: share of its power that can be curtailed, where the workload does not say.
        due: MWh put off earlier that these hours must make up for (batch work).

    Raises:
        InputError: ``infeasible``: the workload's own limits contradict each other.
    """
    power, spec = workload.power[hours], workload.spec
    high = workload.flex(flex) * power
    batch = spec.kind == "batch"
    # At most all that can be curtailed in the window, and what is due, in one hour.
    low = np.full(len(power), -(high.sum() + max(due, 0.0)) if batch else 0.0)
    entitlement = float(power.sum()) if spec.entitlement is None else spec.entitlement
    penalty = workload.penalty(hours)
    # More done ahead than can be curtailed in these hours is left for the next ones.
    due = max(due, -float(high.sum()))
    part = Part(workload.name, power, low, high, penalty, entitlement, batch, due)
    return part if spec.max_power is None else _bounded(part, spec.max_power - power, "max_power")


def _bounded(part: Part, extra: FloatArray, place: str) -> Part:
    """A part whose power is at most its own plus some more (negative: less), [T] MW."""
    low = np.maximum(part.low, -extra)
    over, missing = float((low - part.high).max()), float(low.sum()) + part.due
    for excess, unit in ((over, "MW in an hour"), (missing * part.conserves, "MWh in a window")):
        if excess > 1e-9:
            problem, remedy = "no plan keeps this limit", "raise it, or the share of --flex"
            found = f"exceeded by at least {excess:.6g} {unit}"
            place = f"{part.name}, {place}"
            raise refused(problem, "infeasible", None, place, found, None, remedy)
    return replace(part, low=low, high=np.maximum(part.high, low))


def _add(
    program: Program, part: Part, paid: float = 0.0, later: float = 0.0, limit: float | None = None
) -> IntArray:
    """Add a part's constraints, paid x its penalty, and later x its energy owed; give its curtailment."""
    hours = np.arange(len(part.power))
    most = np.inf if limit is None else limit * part.entitlement
    with np.errstate(divide="ignore", invalid="ignore"):  # beyond it, one hour alone costs more
        reach = np.sqrt(2 * most / part.penalty.quadratic)  # [T]
    reach = np.where(part.penalty.quadratic > 0, reach, np.inf)
    d = program.bounded(np.maximum(part.low, -reach), np.minimum(part.high, reach))
    penalty: list[tuple[IntArray, FloatArray]] = []

    def positive(right: FloatArray, high: FloatArray, weight: FloatArray, *term: Any) -> IntArray:
        """Variables [T] of at least 0 and at least term - right; an optimum has no larger ones."""
        with np.errstate(divide="ignore", invalid="ignore"):
            high = np.minimum(np.maximum(high, 0.0), np.where(weight > 0, most / weight, np.inf))
        h = program.variables(np.zeros(len(hours)), high)
        program.at_most.add(np.zeros(len(hours)), (hours, h, -1.0))
        program.at_most.add(right, term, (hours, h, -1.0))
        penalty.append((h, weight))
        return h

    if part.conserves and not part.penalty.backlog.any():
        program.equal.add(-part.due, (np.zeros(len(hours)), d, 1.0))
    elif part.conserves:  # the energy put off by the end of each hour; nothing by that of the last
        high = part.due + np.cumsum(part.high)
        # No more is done ahead than the hours that follow can curtail.
        low = np.maximum(part.due + np.cumsum(part.low), high - high[-1])
        put_off = program.variables(low, high)
        now, before = (hours, put_off, 1.0), (hours[1:], put_off[:-1], -1.0)
        program.equal.add(np.where(hours == 0, part.due, 0.0), now, before, (hours, d, -1.0))
        program.equal.add(0.0, ([0], put_off[-1:], 1.0))
        positive(np.zeros(len(hours)), high, part.penalty.backlog, hours, put_off, 1.0)
    for hinge in part.penalty.hinges:
        if not (hinge.rate * part.high > hinge.knot).any():
            continue  # out of reach
        knot = np.full(len(hours), hinge.knot)
        high, weight = hinge.rate * part.high - knot, np.full(len(hours), hinge.weight)
        h = positive(knot, high, weight, hours, d, hinge.rate)
        program.cost(h, later * hinge.owed)
    program.square(d, paid * part.penalty.quadratic)
    for places, weights in penalty:
        program.cost(places, paid * weights)
    if limit is not None:
        program.limit(most, penalty, d, part.penalty.quadratic)
    return d


def _limits(windows: Sequence[Window]) -> FloatArray:
    """[H] MW of the site in each hour of windows that follow each other."""
    return np.concatenate(
        [np.full(len(w.grams), np.inf) if w.limit is None else w.limit for w in windows]
    )


def _add_site(
    program: Program,
    windows: Sequence[Window],
    places: Sequence[Sequence[IntArray]],
    ramp: float | None,
    exceed: IntArray | None = None,
) -> None:
    """Add the site's limits, and how fast its power may change from hour to hour, also between windows.

    Args:
        program: with the curtailments.
        windows: one after the other.
        places: the curtailments of each.
        ramp: MW per hour.
        exceed: variables [H] by which each hour may miss them, if given.
    """
    total = np.concatenate([window.total for window in windows])
    limit = _limits(windows)
    by_part = [np.concatenate(each) for each in zip(*places, strict=True)]  # [H] variables
    missed = [] if exceed is None else [exceed]
    rows = np.flatnonzero(np.isfinite(limit))
    own = np.arange(len(rows))
    terms = [(own, each[rows], -1.0) for each in (*by_part, *missed)]
    program.at_most.add(limit[rows] - total[rows], *terms)
    if ramp is None:
        return
    own, rise = np.arange(len(total) - 1), np.diff(total)
    more = [(own, each[1:], -1.0) for each in missed]
    for sign in (1.0, -1.0):
        now = [(own, each[1:], -sign) for each in by_part]
        before = [(own, each[:-1], sign) for each in by_part]
        program.at_most.add(ramp - sign * rise, *now, *before, *more)


def _infeasible(windows: Sequence[Window], limit: float | None, ramp: float | None) -> InputError:
    """The error that says when and by how much the best plan exceeds what the site allows."""
    program = Program()
    places = [[_add(program, part, limit=limit) for part in window.parts] for window in windows]
    parts = [part for window in windows for part in window.parts]
    most = 2 * sum(float(part.power.sum() + np.abs(part.low).sum()) for part in parts)
    hours = sum(len(window.grams) for window in windows)
    exceed = program.bounded(np.zeros(hours), np.full(hours, most))
    _add_site(program, windows, places, ramp, exceed)
    program.cost(exceed, 1.0)
    solution = program.solve()
    excess = np.zeros(1) if solution is None else np.maximum(solution.x[exceed], 0.0)
    worst = int(np.argmax(excess >= (1 - 1e-6) * excess.max()))  # of equal ones the first
    limits = [f"at most {_limits(windows)[worst]:g} MW"]
    limits += [] if ramp is None else [f"a change of at most {ramp:g} MW from the hour before"]
    limits += [] if limit is None else ["no workload's penalty above its limit"]
    return refused(
        "no plan keeps the site's limits",
        "infeasible",
        place=utc(windows[0].start_s + HOUR_S * worst),
        found=f"{excess.sum():.6g} MWh too much in this window, {excess[worst]:.6g} MW in this hour",
        expected=", ".join(limits),
        remedy="raise the limits, or the share that can be curtailed (--flex)",
    )


def optimum(
    windows: Sequence[Window],
    paid: float,
    price: float,
    limit: float | None = None,
    ramp: float | None = None,
) -> list[Solved]:
    """Minimize paid x penalties - price x cut; no penalty above limit x entitlement.

    Windows are solved together, as a ramp ties the last hour of one to the first of the next.
    """
    program = Program()
    places = []
    for window in windows:
        places.append(
            [_add(program, part, paid, price * window.later, limit) for part in window.parts]
        )
        for each in places[-1]:
            program.cost(each, -price * window.grams)
    _add_site(program, windows, places, ramp)
    solution = program.solve()
    if solution is None:
        raise _infeasible(windows, limit, ramp)
    solved = []
    for window, group in zip(windows, places, strict=True):
        d, objective = [], 0.0
        for part, each in zip(window.parts, group, strict=True):
            own = _feasible(part, solution.x[each])
            candidates = own, _feasible(part, _rounded(part, own))
            # paid x penalty - price x cut
            costs = [
                paid * part.penalty.value(x, part.due) - price * window.cut(part, x)
                for x in candidates
            ]
            objective += min(costs)
            d.append(candidates[int(np.argmin(costs))])
        solved.append(Solved(d, objective, objective))
    total = sum(each.objective for each in solved)
    gap = total - solution.bound(total)
    return [*solved[:-1], replace(solved[-1], bound=solved[-1].objective - gap)]


def _feasible(part: Part, d: FloatArray) -> FloatArray:
    """The nearest curtailment that keeps the part's limits to the last digit."""
    d = np.clip(d, part.low, part.high)
    for _ in range(3 * part.conserves):
        left = -part.due - d.sum()
        room = part.high - d if left > 0 else d - part.low
        if left == 0 or room.sum() <= 0:
            break
        d = np.clip(d + left * room / room.sum(), part.low, part.high)
    return d


def _rounded(part: Part, d: FloatArray) -> FloatArray:
    """A curtailment without the solver's last digits, which cost much where a penalty is steep."""
    tiny = KINK * float(np.abs(part.high).max())
    d = np.where(np.abs(d) <= tiny, 0.0, d)
    put_off = part.due + np.cumsum(d)
    put_off[np.abs(put_off) <= tiny] = 0.0
    return np.diff(put_off, prepend=part.due) if part.conserves else d


def efficient(
    windows: Sequence[Window], price: float | None, ramp: float | None = None
) -> list[Solved]:
    """The least total penalty less price x cut.

    Args:
        windows: the hours.
        price: penalty units per kg CO2; None: the largest cut, whatever its penalty.
        ramp: MW by which the site's power may change from one hour to the next.
    """
    paid, price = (0.0, 1.0) if price is None else (1.0, price)
    return optimum(windows, paid, price, ramp=ramp)


def fair(windows: Sequence[Window], limit: float | None, ramp: float | None = None) -> list[Solved]:
    """The largest cut at which no workload bears more than limit x its entitlement (None: no limit)."""
    return optimum(windows, 0.0, 1.0, limit, ramp)
