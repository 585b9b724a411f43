"""The three policies of Carbon Responder (arXiv 2311.08589) on one window of hours.

    efficient   minimize  sum of C_i(d_i) - price * cut            (cut: kg CO2 less than without a plan)
    fair        maximize  cut  subject to  C_i(d_i) <= limit * E_i for every workload i
    market      a tax of tax * E_i from everyone, shared out again in proportion to each one's cut; every
                workload answers the rebate per kg with its own curtailment, and keeps its C_i to itself

All within  0 <= U - d <= maximum power, the share that can be curtailed, and the site's cap; the
energy of batch work is conserved in every window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.carbon.program import Program
from holdfast.carbon.signals import HOUR_S, FloatArray, IntArray, refused, utc
from holdfast.carbon.workloads import Penalty, Workload
from holdfast.errors import InputError

# Of the search for the market's rebate.
STEPS = 60
CLOSE = 1e-6
MOST_REBATE = 1e12
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
        cap: MW of the whole site.
    """

    parts: tuple[Part, ...]
    grams: FloatArray
    start_s: int
    cap: float | None = None

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
        """The window with its cap split among the parts by entitlement, without a shared cap."""
        if self.cap is None:
            return self
        everyone = sum(part.entitlement for part in self.parts)
        spare = (self.cap - self.total) / everyone  # [T] MW per unit, may be negative
        parts = [_bounded(part, spare * part.entitlement, "--cap") for part in self.parts]
        return replace(self, parts=tuple(parts), cap=None)


@dataclass(frozen=True)
class Solved:
    """Curtailments, and how far they can be from the optimum.

    Attributes:
        d: [T] MW per part.
        objective: what the policy minimizes, at `d`.
        bound: no feasible curtailments have a lower objective.
        rebate: of the market, penalty units per kg CO2.
    """

    d: list[FloatArray]
    objective: float
    bound: float
    rebate: float | None = None


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


def _add_site(
    program: Program, window: Window, places: Sequence[IntArray], exceed: Sequence[IntArray] = ()
) -> None:
    """Add the site's cap; with variables [T] by which it may be exceeded, if given."""
    if window.cap is not None:
        hours = np.arange(len(window.grams))
        terms = [(hours, each, -1.0) for each in (*places, *exceed)]
        program.at_most.add(window.cap - window.total, *terms)


def _infeasible(window: Window, limit: float | None) -> InputError:
    """The error that says when and by how much the best plan exceeds the site's cap."""
    program = Program()
    places = [_add(program, part, limit=limit) for part in window.parts]
    most = 2 * sum(float(part.power.sum() + np.abs(part.low).sum()) for part in window.parts)
    exceed = program.bounded(np.zeros(len(window.grams)), np.full(len(window.grams), most))
    _add_site(program, window, places, [exceed])
    program.cost(exceed, 1.0)
    found = program.solve()
    excess = np.zeros(1) if found is None else np.maximum(found.x[exceed], 0.0)
    worst = int(np.argmax(excess))
    within = "" if limit is None else ", and no workload's penalty above its limit"
    return refused(
        "no plan keeps the site's cap",
        "infeasible",
        place=utc(window.start_s + HOUR_S * worst),
        found=f"{excess.sum():.6g} MWh too much in this window, {excess[worst]:.6g} MW in this hour",
        expected=f"cap {window.cap} MW{within}",
        remedy="raise the limits, or the share that can be curtailed (--flex)",
    )


def _optimum(window: Window, paid: float, price: float, limit: float | None = None) -> Solved:
    """Minimize paid x penalties - price x cut; no penalty above limit x entitlement."""
    program = Program()
    places = [_add(program, part, paid, price * window.later, limit) for part in window.parts]
    for each in places:
        program.cost(each, -price * window.grams)
    _add_site(program, window, places)
    found = program.solve()
    if found is None:
        raise _infeasible(window, limit)
    d = []
    for part, each in zip(window.parts, places, strict=True):
        solved = _feasible(part, found.x[each])
        candidates = solved, _feasible(part, _rounded(part, solved))
        alone = replace(window, parts=(part,))
        d.append(min(candidates, key=lambda x, w=alone: _objective(w, [x], paid, price)))  # type: ignore[misc]
    objective = _objective(window, d, paid, price)
    return Solved(d, objective, found.bound(objective))


def _objective(window: Window, d: Sequence[FloatArray], paid: float, price: float) -> float:
    return sum(
        paid * part.penalty.value(one, part.due) - price * window.cut(part, one)
        for part, one in zip(window.parts, d, strict=True)
    )


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


def efficient(window: Window, price: float | None) -> Solved:
    """The least total penalty less price x cut.

    Args:
        window: the hours.
        price: penalty units per kg CO2; None: the largest cut, whatever its penalty.
    """
    return _optimum(window, 0.0, 1.0) if price is None else _optimum(window, 1.0, price)


def fair(window: Window, limit: float | None) -> Solved:
    """The largest cut at which no workload bears more than limit x its entitlement (None: no limit)."""
    return _optimum(window, 0.0, 1.0, limit)


Responder = Callable[[float], FloatArray]
"""What the market knows of a workload: a rebate per kg CO2 -> its curtailment [T] in MW."""


def balance(
    responders: Sequence[Responder],
    entitlements: Sequence[float],
    grams: FloatArray,
    tax: float,
    guess: float = 1e-3,
) -> tuple[list[FloatArray], float]:
    """The market's coordinator: find the rebate at which it pays out what the tax brings in.

    It calls the workloads and meters their curtailments, and knows nothing else of them. A larger rebate
    never means a smaller cut, so the rebate is found by narrowing an interval. At a rebate where some
    workload jumps from one answer to another, both suit it equally, and so does every mixture of them.

    Args:
        responders: one per workload.
        entitlements: one per workload; the tax is in penalty units per unit of them.
        grams: [T] kg CO2 per MWh.
        tax: >= 0.
        guess: of the rebate, > 0.

    Returns:
        Curtailments [T] per workload, and the rebate in penalty units per kg CO2.
    """
    pool = tax * sum(entitlements)

    def answers(rebate: float) -> tuple[float, list[FloatArray], float]:
        d = [respond(rebate) for respond in responders]
        return rebate, d, rebate * float(sum(grams @ each for each in d))

    above = answers(guess)
    below = (0.0, [np.zeros(len(grams)) for _ in responders], 0.0)
    while above[2] < pool and above[0] < MOST_REBATE:
        below, above = above, answers(4 * above[0])
    while below[0] == 0 and above[0] > 1 / MOST_REBATE:  # the guess was too high
        lower = answers(above[0] / 4)
        below, above = (lower, above) if lower[2] < pool else (below, lower)
    if above[2] < pool:  # nothing can be cut at any rebate
        return above[1], above[0]
    for _ in range(STEPS):
        if above[0] - below[0] <= CLOSE * above[0] or above[2] - below[2] <= CLOSE * pool:
            break
        # Between the chord and the middle: the chord alone creeps where the answers jump.
        share = (pool - below[2]) / (above[2] - below[2])
        share = min(max(share, 0.1), 0.9)
        middle = answers(below[0] + share * (above[0] - below[0]))
        below, above = (middle, above) if middle[2] < pool else (below, middle)
    paid = above[2] - below[2]
    share = (pool - below[2]) / paid if paid > 0 else 1.0
    mixed = [(1 - share) * a + share * b for a, b in zip(below[1], above[1], strict=True)]
    return mixed, above[0]


def market(window: Window, tax: float | None) -> Solved:
    """The market's plan; a cap is split into rights by entitlement, so that nobody sees another's load.

    Args:
        window: the hours.
        tax: penalty units per unit of entitlement; None: an unlimited rebate.
    """
    window = window.with_rights()
    alone = [replace(window, parts=(part,)) for part in window.parts]
    mixed, rebate = None, None
    if tax is not None:
        # Each closure holds a workload's penalty; the coordinator gets the closures only.
        responders = [lambda rebate, each=each: efficient(each, rebate).d[0] for each in alone]
        entitlements = [part.entitlement for part in window.parts]
        mixed, rebate = balance(responders, entitlements, window.grams, tax)
    # For the reader of the plan: what everyone's private optimum adds up to.
    solved = [efficient(each, rebate) for each in alone]
    d = [each.d[0] for each in solved] if mixed is None else mixed
    price = 1.0 if rebate is None else rebate
    objective = _objective(window, d, 0.0 if tax is None else 1.0, price)
    return Solved(d, objective, sum(each.bound for each in solved), rebate)
