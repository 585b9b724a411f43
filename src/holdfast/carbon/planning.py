"""Plans: a load over a signal under a policy, window by window, each with its proof of optimality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.carbon.policies import Solved, Window, efficient, fair
from holdfast.carbon.problems import Event, Problem, aligned
from holdfast.carbon.signals import HOUR_S, FloatArray, Signal, refused, utc
from holdfast.carbon.workloads import Load
from holdfast.numbers import brief, counted, percent
from holdfast.report import figures

Policy = Literal["efficient", "fair"]
POLICIES = {"efficient": efficient, "fair": fair}
DAY_H = 24
# Hours that figures and tables show.
SHOWN_H = 7 * DAY_H
# Gap up to which a plan counts as the optimum.
PROVEN = 1e-6


@dataclass(frozen=True)
class Plan(Answer):
    """A plan of all whole windows that the load and the signal have in common.

    Attributes:
        policy: ``"efficient"`` or ``"fair"``.
        strength: as of `plan`.
        kg_before: CO2 without the plan.
        kg_after: CO2 with it, and with what curtailed training emits when it is made up for.
        kg_always: what a plan that knows no signal saves, by curtailing in all hours alike what has no
            penalty (``efficient``: what costs less than it saves). A ramp can leave less than that.
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
        hours_left_out: of the load, outside of the signal or of whole windows: neither planned nor in any
            figure.
        signal: interpolated.
        settings: window_h, flex, cap_mw, ramp_mw_per_h, and of a rolling plan its horizon.
        extra: further keys of the JSON: the event, the cost of the energy, what a forecast lost.
    """

    policy: str
    strength: float | None
    kg_before: float
    kg_after: float
    kg_always: float
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
    def always_share(self) -> float:
        """Share of the CO2 that is saved without a signal: of what the plan saves, between 0 and all."""
        kg = max(min(self.kg_always, self.kg_before - self.kg_after), 0.0)
        return kg / self.kg_before if self.kg_before else 0.0

    @property
    def peaks(self) -> tuple[float, float]:
        """Largest power of the site in MW, without a plan and with it."""
        before, after = (each.sum(axis=0).max(initial=0.0) for each in (self.before, self.after))
        return float(before), float(after)

    @property
    def penalty(self) -> float:
        """Total penalty of all workloads."""
        return float(self.penalties.sum())

    @property
    def gap(self) -> float:
        """(objective - bound) / |objective|: by how much another plan could be better, at most."""
        missing = max(self.objective - self.bound, 0.0)
        # Where there is nothing to emit, a solver's last digits are no share of it.
        return missing / abs(self.objective) if abs(self.objective) > 1e-6 else min(missing, PROVEN)

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
            "peak_mw_before": self.peaks[0],
            "peak_mw_after": self.peaks[1],
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
            Value("always_share", self.always_share, how="saved without a signal"),
            Value("after", self.kg_after, "kg CO2", better="lower"),
            Value("peak", self.peaks[1], "MW", better="lower"),
            Value("penalty", self.penalty, "penalty units", better="lower"),
            Value("gap", self.gap, better="lower", how="(objective - dual bound) / |objective|"),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The signal."""
        return self.signal.inputs()

    def unknowns(self) -> Sequence[Unknown]:
        """What the signal cannot say, and what was left out."""
        unknowns = [Unknown(note) for note in self.signal.notes]
        if self.signal.kind == "average":
            text = "The saving is by average intensity; what a grid emits less, its marginal plants set."
            unknowns.append(Unknown(text, "Plan with a marginal signal too, and compare."))
        total = self.before.sum(axis=0)
        if self.settings["cap_mw"] is None and total.min() >= 0.99 * self.peaks[0]:
            text = "The load hardly leaves its maximum, above which the site draws nothing without --cap."
            unknowns.append(
                Unknown(text, "Say what the site may draw (--cap), or little can be moved.")
            )
        if self.hours_left_out:
            hours = counted(self.hours_left_out, "hour")
            text = f"{hours} outside of the signal or of whole windows: not planned, not in the figures."
            unknowns.append(Unknown(text, doubt=True))
        return unknowns

    def sections(self) -> Sequence[Section]:
        """The power over the signal, and the workloads."""
        proof = f"no plan of its kind is better by more than a share of {PROVEN:.0e} (dual bound)."
        if self.gap > PROVEN:
            proof = f"the solver stopped short: others may be better by a share of {self.gap:.1e}."
        of_time = self.saved_share - self.always_share
        followed = "signal and price" if "cost_before" in self.extra else "the signal"
        parts = f"{percent(of_time, 2)} comes from {followed}"
        if self.always_share:
            parts += f", {percent(self.always_share, 2)} from what is curtailed in every hour alike"
        saved = f"{percent(self.saved_share, 2)} of {brief(self.kg_before)} kg CO2"
        sentence = f"The {self.policy} plan saves {saved}: {parts}; {proof}"
        if "kept_share" in self.extra:
            kept = self.extra["kept_share"]
            of = (
                "all: perfect foresight saves nothing either"
                if kept is None
                else f"{percent(kept)} of what perfect foresight saves"
            )
            sentence = (
                f"Planned anew each day on a forecast, {saved} is saved: {parts}. Of what the signal "
                f"can save that is {of}."
            )
        peak = f"The site draws at most {brief(self.peaks[1])} MW ({brief(self.peaks[0])} without a plan)."
        if "mwh_shed" in self.extra:
            peak += f" It sheds {brief(self.extra['mwh_shed'])} MWh in the event."
        if "cost_before" in self.extra:
            costs = [self.extra[f"cost_{when}"] for when in ("before", "after")]
            peak += f" Its energy costs {brief(costs[1])} ({brief(costs[0])} without a plan)."
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
            Section("site", "What does the site draw?", peak),
            Section("workloads", question, burden, [bars], [table]),
        ]


# Of the JSON, under their own names.
_KEYS = ("policy", "saved_share", "always_share", "gap", "objective", "penalty", "jain", "strength")
_FORMULAS = {
    "efficient": "minimize sum_i C_i(d_i) - strength x cut   (unlimited: maximize cut)",
    "fair": "maximize cut subject to C_i(d_i) <= strength x E_i for every workload",
}


def fairness(penalties: FloatArray, entitlements: FloatArray) -> float | None:
    """Jain's index of penalty per entitlement: 1 where everyone bears the same.

    None with one workload, or without any penalty.
    """
    ratios = penalties / np.maximum(entitlements, 1e-12)
    if len(ratios) < 2 or penalties.sum() <= 1e-9:
        return None
    return float(ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()))


def plan(
    load: Load,
    signal: Signal,
    *,
    policy: Policy = "efficient",
    flex: float = 0.4,
    cap: float | None = None,
    window_s: float = DAY_H * HOUR_S,
    strength: float | None = None,
    ramp: float | None = None,
    event: Event | None = None,
    price: Signal | None = None,
    carbon_price: float | None = None,
) -> Plan:
    """Plan the power of a load so that it emits less, at a provable optimum.

    Args:
        load: workloads, MW per hour.
        signal: average or marginal intensity.
        policy: ``"efficient"`` or ``"fair"``; see `holdfast.carbon.policies`.
        flex: share of its power that a workload can curtail, where its penalties do not say.
        cap: MW of the whole site. None: the most that the load draws without a plan.
        window_s: time within which batch work is made up for; a multiple of one hour.
        strength: efficient: penalty units per t CO2; fair: most penalty per unit of entitlement.
            None: the largest cut at any penalty.
        ramp: MW by which the site's power may change from one hour to the next. All windows are then
            one program.
        event: hours in which the site sheds power.
        price: money per MWh in every hour.
        carbon_price: money per t CO2: the plan then saves CO2 and cost, worth what this says.

    Raises:
        InputError: ``infeasible`` (which limit, by how much, when), ``no-match``, ``missing-key``
            for penalties without a strength.
    """
    problem = aligned(load, signal, price, carbon_price)
    if strength is None and problem.costs:
        expected = "efficient: penalty units per t CO2; fair: per MWh of entitlement"
        text = "work with penalties needs a strength"
        raise refused(text, "missing-key", None, "--strength", None, expected)
    windows = problem.windows(window_s, flex, problem.limit(cap, event))
    groups = [[window] for window in windows] if ramp is None else [windows]
    solved: list[Solved] = []
    with progress.track("planning", len(groups), "windows") as bar:
        for group in groups:
            solved += solve(policy, group, strength, ramp)
            bar.advance(1)
    settings = {"flex": flex, "cap_mw": cap, "ramp_mw_per_h": ramp}
    made = collected(problem, windows, solved, policy, strength, settings)
    if event is None:
        return made
    hours = problem.in_event(event)
    if hours.stop > made.before.shape[1]:
        found, expected = f"{utc(event.start_s)}", "hours of a whole window"
        raise refused("an event that is not planned", "no-match", None, "--event", found, expected)
    shed = float((made.before - made.after)[:, hours].sum())
    return replace(made, extra=made.extra | {"mwh_shed": shed})


def solve(
    policy: str, windows: Sequence[Window], strength: float | None, ramp: float | None = None
) -> list[Solved]:
    """Windows together; of the efficient policy the strength is per tonne, in the program per kg."""
    return POLICIES[policy](windows, per_kg(policy, strength), ramp)


def per_kg(policy: str, strength: float | None) -> float | None:
    """The strength of a policy in the units of its program."""
    return strength / 1000 if policy == "efficient" and strength is not None else strength


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
    lengths = [len(window.grams) for window in windows]
    hours = sum(lengths)
    before = np.array([workload.power[:hours] for workload in problem.workloads])
    total, grams = before.sum(axis=0), problem.grams[:hours]
    # Work that is lost is made up for later, at the mean signal of its window.
    means = [each.mean() for each in np.split(grams, np.cumsum(lengths)[:-1])]
    later = np.repeat(means, lengths)  # [H]

    def cut_and_owed(curtailments: Sequence[Sequence[FloatArray]]) -> tuple[FloatArray, FloatArray]:
        """[workload] kg CO2 that are saved, and MWh owed."""
        pairs = zip(windows, curtailments, strict=True)
        rows = [
            [(x, part.penalty.owed(x)) for part, x in zip(window.parts, each, strict=True)]
            for window, each in pairs
        ]
        saved, owed = np.concatenate(rows, axis=2).swapaxes(0, 1)  # [workload, H] each
        return saved @ grams - owed @ later, owed.sum(axis=1)

    # What is free does not depend on the signal; what costs less than it saves, on the mean alone.
    price = per_kg(policy, strength) if policy == "efficient" else 0.0
    always, _ = cut_and_owed([window.without_signal(price) for window in windows])
    cut, owed = cut_and_owed([one.d for one in solved])
    penalties = [
        [part.penalty.value(x, part.due) for part, x in zip(window.parts, one.d, strict=True)]
        for window, one in zip(windows, solved, strict=True)
    ]
    kg_before = float(total @ grams)
    # What is minimized holds only what can change; what there is without a plan makes it a whole.
    constant = float(total @ problem.weights[:hours])
    if policy == "efficient" and strength is not None:
        constant *= strength / 1000
    extra: dict[str, Any] = {}
    if problem.prices is not None:
        powers = {"cost_before": total, "cost_after": total - d.sum(axis=0)}
        extra = {name: float(mw @ problem.prices[:hours]) for name, mw in powers.items()}
    return Plan(
        policy=policy,
        strength=strength,
        kg_before=kg_before,
        kg_after=kg_before - float(cut.sum()),
        kg_always=float(always.sum()),
        objective=sum(one.objective for one in solved) + constant,
        bound=sum(one.bound for one in solved) + constant,
        names=tuple(workload.name for workload in problem.workloads),
        start_s=problem.start_s,
        before=before,
        after=before - d,
        grams=grams,
        penalties=np.sum(penalties, axis=0),
        entitlements=np.sum([[part.entitlement for part in w.parts] for w in windows], axis=0),
        kg_cut=cut,
        mwh_owed=owed,
        hours_left_out=len(problem.grams) - hours + problem.outside,
        signal=problem.signal,
        settings={"window_h": float(len(windows[0].grams)), **settings},
        extra=extra,
    )
