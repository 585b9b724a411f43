"""Plans: a load over a signal under a policy, window by window, each with its proof of optimality."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.carbon.policies import Part, Solved, Window, efficient, fair, market, part_of
from holdfast.carbon.signals import HOUR_S, FloatArray, Signal, refused, utc
from holdfast.carbon.workloads import Load, Workload
from holdfast.numbers import brief, counted, percent
from holdfast.report import figures

Policy = Literal["efficient", "fair", "market"]
POLICIES = {"efficient": efficient, "fair": fair, "market": market}
DAY_H = 24
# Hours that figures and tables show.
SHOWN_H = 7 * DAY_H
# Gap up to which a plan counts as the optimum.
PROVEN = 1e-6


@dataclass(frozen=True)
class Plan(Answer):
    """A plan of all whole windows that the load and the signal have in common.

    Attributes:
        policy: ``"efficient"``, ``"fair"`` or ``"market"``.
        strength: as of `plan`.
        kg_before: CO2 without the plan.
        kg_after: CO2 with it, and with what curtailed training emits when it is made up for.
        objective: what the policy minimizes (kg CO2, or penalty units), summed over the windows.
        bound: the dual bound: no plan has a lower objective.
        names: of the workloads.
        start_s: start of the first hour.
        before: [workload, H] MW.
        after: [workload, H] MW.
        grams: [H] signal.
        penalties: [workload] over all windows.
        entitlements: [workload] over all windows.
        kg_cut: [workload].
        mwh_owed: [workload] energy that training needs after its window.
        hours_left_out: at the end, of an incomplete window: neither planned nor in any figure.
        signal: interpolated.
        settings: window_h, flex, cap_mw, and of a rolling plan its horizon.
        extra: further keys of the JSON: the market's rebates, what a forecast lost.
    """

    policy: str
    strength: float | None
    kg_before: float
    kg_after: float
    objective: float
    bound: float
    names: tuple[str, ...]
    start_s: int
    before: FloatArray
    after: FloatArray
    grams: FloatArray
    penalties: FloatArray
    entitlements: FloatArray
    kg_cut: FloatArray
    mwh_owed: FloatArray
    hours_left_out: int
    signal: Signal
    settings: dict[str, float | None]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Power plan, {self.policy}"

    @property
    def saved_share(self) -> float:
        """Share of the CO2 that the plan saves."""
        return 1 - self.kg_after / self.kg_before if self.kg_before else 0.0

    @property
    def penalty(self) -> float:
        """Total penalty of all workloads."""
        return float(self.penalties.sum())

    @property
    def gap(self) -> float:
        """(objective - bound) / |objective|: by how much another plan could be better, at most."""
        return max(self.objective - self.bound, 0.0) / max(abs(self.objective), 1e-12)

    @property
    def jain(self) -> float | None:
        """Jain's index of penalty per entitlement."""
        return fairness(self.penalties, self.entitlements)

    @property
    def schedule(self) -> pa.Table:
        """time, workload, baseline_mw, planned_mw, g_per_kwh: one row per hour and workload."""
        hours, count = self.before.shape[1], len(self.names)
        times = (self.start_s + HOUR_S * np.arange(hours)).astype("datetime64[s]").astype(str)
        columns = {
            "time": np.repeat(np.char.add(times, "Z"), count),
            "workload": np.tile(np.array(self.names), hours),
            "baseline_mw": self.before.T.ravel(),
            "planned_mw": self.after.T.ravel(),
            "g_per_kwh": np.repeat(self.grams, count),
        }
        return pa.table(columns)

    @property
    def by_workload(self) -> pa.Table:
        """One row per workload."""
        columns = {
            "workload": list(self.names),
            "mwh_before": self.before.sum(axis=1),
            "mwh_after": self.after.sum(axis=1),
            "mwh_owed": self.mwh_owed,
            "kg_cut": self.kg_cut,
            "penalty": self.penalties,
            "penalty_per_entitlement": self.penalties / np.maximum(self.entitlements, 1e-12),
        }
        return pa.table(columns)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast carbon plan``."""
        return {
            **{name: getattr(self, name) for name in _KEYS},
            "dual_bound": self.bound,
            "kg_co2_before": self.kg_before,
            "kg_co2_after": self.kg_after,
            **self.settings,
            "hours": self.before.shape[1],
            "hours_left_out": self.hours_left_out,
            **self.extra,
            "signal": self.signal.to_dict(),
            "notes": list(self.signal.notes),
            "by_workload": self.by_workload.to_pylist(),
            "schedule": self.schedule.to_pylist(),
        }

    def values(self) -> Sequence[Value]:
        """The figures of the plan."""
        return [
            Value("saved_share", self.saved_share, better="higher"),
            Value("after", self.kg_after, "kg CO2", better="lower"),
            Value("penalty", self.penalty, "penalty units", better="lower"),
            Value("gap", self.gap, better="lower", how="(objective - dual bound) / |objective|"),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The signal."""
        return self.signal.inputs()

    def unknowns(self) -> Sequence[Unknown]:
        """What the signal cannot say, and what was left out."""
        found = [Unknown(note) for note in self.signal.notes]
        if self.signal.kind == "average":
            text = "The saving is by average intensity; what a grid emits less, its marginal plants set."
            found.append(Unknown(text, "Plan with a marginal signal too, and compare."))
        if self.hours_left_out:
            hours = counted(self.hours_left_out, "hour")
            text = f"{hours} at the end do not fill a window: not planned, not in the figures."
            found.append(Unknown(text))
        return found

    def sections(self) -> Sequence[Section]:
        """The power over the signal, and the workloads."""
        total = f"{brief(self.kg_before)} kg CO2"
        proof = f"no plan of its kind is better by more than a share of {PROVEN:.0e} (dual bound)."
        if self.gap > PROVEN:
            proof = f"the solver stopped short: others may be better by a share of {self.gap:.1e}."
        sentence = (
            f"The {self.policy} plan saves {percent(self.saved_share, 2)} of {total}; {proof}"
        )
        if "kept_share" in self.extra:
            kept = self.extra["kept_share"]
            of = (
                "as much as with perfect foresight"
                if kept is None
                else f"{percent(kept)} of what perfect foresight saves"
            )
            sentence = (
                f"Planned anew each day on a forecast, {percent(self.saved_share, 2)} of {total} is "
                f"saved: {of}."
            )
        burden = f"Total penalty {brief(self.penalty)} units."
        if self.jain is not None:
            burden += f" Jain's index {self.jain:.3f} (1: all bear the same)."
        hours = min(SHOWN_H, self.before.shape[1])
        times = [np.datetime64(self.start_s + HOUR_S * h, "s").item() for h in range(hours)]
        rows = [
            {"time": time, "series": name, "mw": mw}
            for name, totals in (("without a plan", self.before), ("plan", self.after))
            for time, mw in zip(times, totals.sum(axis=0).tolist(), strict=False)
        ]
        meanings = {"without a plan": "unattributed", "plan": "user"}
        axes = ("time", "mw", "Time", "Power of the site, MW")
        power = figures.lines(rows, *axes, series="series", meanings=meanings, zone="UTC")
        values = [{"time": t, "v": v} for t, v in zip(times, self.grams.tolist(), strict=False)]
        title = f"{self.signal.kind.capitalize()}, {self.signal.unit}"
        signal = figures.lines(values, "time", "v", "Time", title, zone="UTC")
        bounds = {"strength": self.strength, "objective": self.objective, "bound": self.bound}
        stated = {n: "none" if v is None else v for n, v in (self.settings | bounds).items()}
        source = (
            "Carbon Responder, arXiv 2311.08589; solver: Clarabel, its multipliers give the bound"
        )
        how = How(_FORMULAS[self.policy], stated, source)
        bars = figures.bars(self.by_workload, "workload", "kg_cut", "Saved, kg CO2")
        columns = dict.fromkeys(self.by_workload.column_names, ColumnFormat())
        for name in ("before", "after", "owed"):
            columns[f"mwh_{name}"] = ColumnFormat(name, "MWh")
        table = Table(self.by_workload, {**columns, "kg_cut": ColumnFormat("saved", "kg CO2")})
        asked, question = "When should power be spent?", "Who saves, and what does it cost them?"
        return [
            Section("power", asked, sentence, [power, signal], how=how),
            Section("workloads", question, burden, [bars], [table]),
        ]


# Of the JSON, under their own names.
_KEYS = ("policy", "saved_share", "gap", "objective", "penalty", "jain", "strength")
_FORMULAS = {
    "efficient": "minimize sum_i C_i(d_i) - strength x cut   (unlimited: maximize cut)",
    "fair": "maximize cut subject to C_i(d_i) <= strength x E_i for every workload",
    "market": "each workload minimizes C_i(d_i) - rebate x own cut; rebates paid = strength x sum E_i",
}


def fairness(penalties: FloatArray, entitlements: FloatArray) -> float | None:
    """Jain's index of penalty per entitlement: 1 where everyone bears the same.

    None with one workload, or without any penalty.
    """
    ratios = penalties / np.maximum(entitlements, 1e-12)
    if len(ratios) < 2 or penalties.sum() <= 1e-9:
        return None
    return float(ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()))


@dataclass(frozen=True)
class Problem:
    """A load and a signal on the hours that both have.

    Attributes:
        workloads: in these hours.
        signal: interpolated.
        grams: [H] signal of every hour.
        start_s: start of the first hour.
    """

    workloads: tuple[Workload, ...]
    signal: Signal
    grams: FloatArray
    start_s: int

    @property
    def costs(self) -> bool:
        """Whether any work has a penalty."""
        return any(workload.costs for workload in self.workloads)

    def windows(self, window_s: float, flex: float, cap: float | None) -> list[Window]:
        """All whole windows.

        Raises:
            InputError: ``out-of-range`` for a window that is not a number of hours, or is too long.
        """
        hours = round(window_s / HOUR_S)
        if not 1 <= hours <= len(self.grams) or abs(hours * HOUR_S - window_s) > 1e-6:
            problem, found = "invalid window", f"{window_s / HOUR_S:g} h"
            expected = f"whole hours, at most the {len(self.grams)} that load and signal share"
            raise refused(problem, "out-of-range", None, "--window", found, expected)
        made = []
        for first in range(0, len(self.grams) - hours + 1, hours):
            chosen = slice(first, first + hours)
            parts = tuple(part_of(workload, chosen, flex) for workload in self.workloads)
            start_s = self.start_s + HOUR_S * first
            made.append(Window(parts, self.grams[chosen], start_s, cap))
        return made


def aligned(load: Load, signal: Signal) -> Problem:
    """A load and a signal on the hours that both have.

    Raises:
        InputError: ``no-match`` where they have no hour in common; ``no-data`` for long gaps.
    """
    signal = signal.interpolated()
    start = signal.start_s if load.start_s is None else load.start_s
    first = max(start, signal.start_s)
    end = min(start + HOUR_S * load.hours, signal.end_s)
    if end <= first or (start - signal.start_s) % HOUR_S:
        found = f"load {utc(start)} to {utc(start + HOUR_S * load.hours)}"
        expected = f"full hours between {utc(signal.start_s)} and {utc(signal.end_s)}"
        problem = "the load and the signal have no hours in common"
        raise refused(problem, "no-match", load.source, None, found, expected)
    own = slice((first - start) // HOUR_S, (end - start) // HOUR_S)
    grams = signal.values[(first - signal.start_s) // HOUR_S : (end - signal.start_s) // HOUR_S]
    workloads = tuple(Workload(each.name, each.power[own], each.spec) for each in load.workloads)
    return Problem(workloads, signal, grams, first)


def plan(
    load: Load,
    signal: Signal,
    *,
    policy: Policy = "efficient",
    flex: float = 0.4,
    cap: float | None = None,
    window_s: float = DAY_H * HOUR_S,
    strength: float | None = None,
) -> Plan:
    """Plan the power of a load so that it emits less, at a provable optimum.

    Args:
        load: workloads, MW per hour.
        signal: average or marginal intensity.
        policy: ``"efficient"``, ``"fair"`` or ``"market"``; see `holdfast.carbon.policies`.
        flex: share of its power that a workload can curtail, where its penalties do not say.
        cap: MW of the whole site.
        window_s: time within which batch work is made up for; a multiple of one hour.
        strength: efficient: penalty units per t CO2; fair: most penalty per unit of entitlement;
            market: tax per unit of entitlement. None: the largest cut at any penalty.

    Raises:
        InputError: ``infeasible`` (which limit, by how much, when), ``no-match``, ``missing-key``
            for penalties without a strength.
    """
    problem = aligned(load, signal)
    if strength is None and problem.costs:
        expected = "efficient: penalty units per t CO2; fair, market: per MWh of entitlement"
        text = "work with penalties needs a strength"
        raise refused(text, "missing-key", None, "--strength", None, expected)
    windows = problem.windows(window_s, flex, cap)
    solved = []
    with progress.track("planning", len(windows), "windows") as bar:
        for window in windows:
            solved.append(solve(policy, window, strength))
            bar.advance(1)
    settings = {"flex": flex, "cap_mw": cap}
    return collected(problem, windows, solved, policy, strength, settings)


def solve(policy: str, window: Window, strength: float | None) -> Solved:
    """One window; of the efficient policy the strength is per tonne, in the program per kg."""
    per_tonne = policy == "efficient" and strength is not None
    return POLICIES[policy](window, strength / 1000 if per_tonne else strength)


def collected(
    problem: Problem,
    windows: Sequence[Window],
    solved: Sequence[Solved],
    policy: str,
    strength: float | None,
    settings: dict[str, float | None],
) -> Plan:
    """A plan from its solved windows."""
    d = np.concatenate([np.array(one.d) for one in solved], axis=1)  # [workload, H]
    hours = d.shape[1]
    before = np.array([workload.power[:hours] for workload in problem.workloads])
    grams = problem.grams[:hours]

    def summed(figure: Callable[[Window, Part, FloatArray], float]) -> FloatArray:
        """[workload] over all windows."""
        pairs = zip(windows, solved, strict=True)
        rows = [[figure(w, p, x) for p, x in zip(w.parts, s.d, strict=True)] for w, s in pairs]
        return np.array(rows).sum(axis=0)  # type: ignore[no-any-return]

    cut = summed(lambda window, part, each: window.cut(part, each))
    kg_before = float(before.sum(axis=0) @ grams)
    # What is minimized holds only what can change; the emissions without a plan make it a whole.
    constant = kg_before
    if policy == "efficient" and strength is not None:
        constant *= strength / 1000
    rebates = [one.rebate for one in solved if one.rebate is not None]
    if rebates:
        pairs = zip(rebates, windows, strict=True)
        constant = sum(rebate * float(window.total @ window.grams) for rebate, window in pairs)
    return Plan(
        policy=policy,
        strength=strength,
        kg_before=kg_before,
        kg_after=kg_before - float(cut.sum()),
        objective=sum(one.objective for one in solved) + constant,
        bound=sum(one.bound for one in solved) + constant,
        names=tuple(workload.name for workload in problem.workloads),
        start_s=problem.start_s,
        before=before,
        after=before - d,
        grams=grams,
        penalties=summed(lambda _, part, each: part.penalty.value(each, part.due)),
        entitlements=summed(lambda _, part, __: part.entitlement),
        kg_cut=cut,
        mwh_owed=summed(lambda _, part, each: float(part.penalty.owed(each).sum())),
        hours_left_out=len(problem.grams) - hours,
        signal=problem.signal,
        settings={"window_h": float(len(windows[0].grams)), **settings},
        extra={"rebates_per_t": [1000 * rebate for rebate in rebates]} if rebates else {},
    )
