"""What rules would have won, and what actions did win: pulls, false alarms, hours saved and hours wasted.

A rule is replayed through the log (`rules`); the nodes that it pulls are followed beside matched ones
(`following`). A pull moves the node's work to such nodes until the horizon, so it saves what the node
then lost more than they did in as much time: work, and hours out of service after its failures. It
costs the repair, on all GPUs of the node, as far as it was not out anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.answer import Finding, Section, Value
from holdfast.errors import InputError
from holdfast.fleet.gaps import Doubtful
from holdfast.fleet.lemon_model import DAYS_PER_MONTH
from holdfast.fleet.live.following import Amount, Followed, follow
from holdfast.fleet.live.rules import History, Rule, RuleFile, history, pulls, read_rules
from holdfast.fleet.log import DAY_S, HOUR_S, AnyLog, open_log
from holdfast.fleet.losses import GPU_HOURS, NODE_HOURS
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import RATE_UNIT, brief_interval, how, table
from holdfast.numbers import brief, counted, duration
from holdfast.stats import FloatArray, clopper_pearson_interval, mean_interval, poisson_interval

# Failures of matched nodes: where fewer were due, none at all would prove nothing (e^-3.7 = 2.5 %)
FEWEST_DUE = 3.7
# What somebody did to a node -> words of its state or reason; the first that fits
ACTIONS = {
    "reboot": r"reboot",
    "repair": r"repair|rma\b|replac|reseat|swap",
    "cordon": r"cordon",
    "drain": r"^(drain|drng|maint)",
}
BY_ITSELF = r"unexpectedly|not.respond"  # Reasons that Slurm gives by itself
VERDICTS = {
    "gain": "saves more than it costs",
    "loss": "costs more than it saves",
    "no pull": "pulls no node",
    "unclear": "cannot tell: the interval of the gain holds zero",
    "short": "cannot tell: the log ends before a node was followed for the whole horizon",
    "no cost": "cannot tell: nothing says how long a repair takes; state `repair` in the rule",
    "lower": "fails less than nodes left alone",
    "higher": "still fails more than nodes left alone",
    "same": "no difference from nodes left alone can be told",
    "early": "too early to say",
    "unmatched": "cannot tell: no node with such a history was left alone",
}


@dataclass(frozen=True)
class Judgement(Doubtful):
    """Rules and actions, beside doing nothing. Hours are those of GPUs, or of nodes (`unit`)."""

    # One per rule and cluster, in the order of the file: rule, cluster ("": the only one), in_force,
    # pulled (node, time_s each), pulls, nodes,
    # followed (pulls followed for the whole horizon; what follows is of these), again (failed again),
    # failed_again (share), matched_again (share of the matched nodes); false_alarms_per_month; avoided
    # (failures); saved, cost (of the repairs), wasted (of nodes that did not fail again), net (hours);
    # verdict. Amounts have their 95 % interval in _low and _high; what is not known is None.
    rules: list[Row]
    # One per kind and cluster: action, cluster, times, nodes, still_out, unmatched (times that no node
    # matches: they are in no rate), hours_out (median), rate_before, rate_after and
    # rate_matched (of nodes left alone; failures per 1,000 node-days), verdict
    actions: list[Row]
    horizon_s: float
    unit: str  # GPU-hours or node-hours
    days: float
    failures: float
    lost_hours: float  # Work that these failures lost, first order
    out_hours: float  # For which they took nodes away

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Rules and actions"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet judge``."""
        return {name: value for name, value in vars(self).items() if name != "log"}

    def values(self) -> Sequence[Value]:
        """What each rule would have won."""
        return [
            Value(
                f"net.{_of(row, row['rule'])}",
                row["net"],
                self.unit,
                (row["net_low"], row["net_high"]),
            )
            for row in self.rules
        ]

    def findings(self) -> Sequence[Finding]:
        """Each rule in a sentence, the best first, then each action."""
        ranked = sorted(self.rules, key=lambda row: -(row["net"] or 0.0))
        rules = [Finding(self._text(row), "rules") for row in ranked[:4]]
        return [*rules, *(Finding(_action_text(row), "actions") for row in self.actions)]

    def sections(self) -> Sequence[Section]:
        """What would each rule have won? What did actions win?"""
        rules, actions = (
            [{**row, "judged": VERDICTS[row["verdict"]].partition(":")[0]} for row in rows]
            for rows in (self.rules, self.actions)
        )
        apart = "cluster " if any(row["cluster"] for row in self.rules) else ""
        judged = table(
            rules,
            f"{apart}rule pulls failed_again matched_again false_alarms_per_month "
            "saved cost wasted net judged",
            f"One row per rule; hours are {self.unit}. Failed again: of nodes followed for the whole "
            "horizon, and of matched ones.",
        )
        acted = table(
            actions,
            f"{apart}action times nodes still_out unmatched hours_out "
            "rate_before rate_after rate_matched judged",
            f"One row per kind of action. Failures {RATE_UNIT}, in a horizon before it and after it (or up "
            "to the end of the log); times without a match are in no rate.",
            "The log shows no drain, cordon, reboot or repair.",
        )
        parameters = {"horizon": duration(self.horizon_s), "log": duration(self.days * DAY_S)}
        nothing = (
            f"Doing nothing: {brief(self.failures)} failures lost {brief(self.lost_hours)} {self.unit}, "
            f"and took nodes away for {brief(self.out_hours)}."
        )
        said = " ".join(map(_action_text, self.actions)) or acted.empty
        computed = [how(name, parameters) for name in ("judge", "actions")]
        return [
            Section(
                "rules", "What would each rule have won?", nothing, tables=[judged], how=computed[0]
            ),
            Section("actions", "What did actions win?", said, tables=[acted], how=computed[1]),
        ]

    def _text(self, row: Row) -> str:
        pulled = f"{counted(row['nodes'], 'node')} pulled, {counted(row['pulls'], 'time')} in all"
        again = (
            f"{row['again']} of {row['followed']} failed again within {duration(self.horizon_s)}"
        )
        text = (
            f"{_of(row, row['rule'])}{' (in force)' if row['in_force'] else ''}: {pulled}; {again}"
        )
        if row["net"] is not None:
            interval = brief_interval(row["net_low"], row["net_high"])
            text += f"; net {brief(row['net'])} {interval} {self.unit}"
        return f"{text}. Verdict: {VERDICTS[row['verdict']]}."


def _of(row: Row, text: str) -> str:
    """A text, of a cluster where there are several."""
    return f"{row['cluster']}: {text}" if row["cluster"] else text


def _action_text(row: Row) -> str:
    done = f"{counted(row['times'], row['action'])} of {counted(row['nodes'], 'node')}"
    return f"{_of(row, done)}: {VERDICTS[row['verdict']]}."


def judge(log: AnyLog, rules: str | Path | RuleFile) -> Judgement:
    """Replay a log through rules, and look at what actions did.

    Args:
        log: a store or an open log.
        rules: a TOML file of rules, see `holdfast.fleet.live.rules`.

    Returns:
        Pulls, false alarms, hours saved and wasted of each rule; rates around each kind of action.

    Raises:
        InputError: if the file is wrong, or the log does not tell on which nodes attempts ran.
    """
    given = rules if isinstance(rules, RuleFile) else read_rules(rules)
    log = open_log(log)
    if not log.ended() or not log.nodes_known:
        raise InputError(
            "rules need attempts and their nodes",
            code="no-data",
            path=log.store.path,
            found="none in the log",
            remedy="export again with `sacct -a -D -P --format=ALL`",
        )
    # Clusters have logs, failures and repairs of their own.
    own = [
        _of_cluster(history(log, cluster), given)
        for cluster in (log.store.facts["clusters"] if log.several_clusters else [""])
    ]
    rules_, actions, sums = zip(*own, strict=True)
    return Judgement(
        [row for rows in zip(*rules_, strict=True) for row in rows],
        [row for rows in actions for row in rows],
        given.horizon,
        GPU_HOURS if log.has_gpus else NODE_HOURS,
        (log.end_s - log.begin_s) / DAY_S,
        *np.sum(sums, axis=0).tolist(),
        log=log,
    )


def _of_cluster(past: History, given: RuleFile) -> tuple[list[Row], list[Row], FloatArray]:
    """Its rules and actions; its failures, the hours that they lost, and those that nodes were away."""
    log = past.log
    outages: list[Row] = log.rows(
        f"""SELECT *, stop_s - start_s AS out_s FROM (
            SELECT place, start_s, end_s, state, coalesce(reason, '') AS reason,
                coalesce(end_s, greatest(start_s, {past.end_s})) AS stop_s
            FROM {log.table("node_outages")} LEFT JOIN places USING (node) WHERE {past.mine}
        ) AS own ORDER BY start_s, place"""
    )
    outages = [{**row, "action": action_of(row["state"], row["reason"])} for row in outages]
    blame, hours, place = (past.incidents[name].to_numpy() for name in ("blame", "hours", "place"))
    down_s = sum(row["out_s"] for row in outages if not row["action"])
    out = down_s / HOUR_S / max(blame.sum(), 1.0) * past.width  # hours per failure, by node
    judged, actions = (
        [{"cluster": past.cluster, **row} for row in rows]
        for rows in (
            (_judged(past, rule, given.horizon, outages, out) for rule in given.rule),
            _actions(past, outages, given.horizon),
        )
    )
    return judged, actions, np.array([blame.sum(), blame @ hours, blame @ out[place]])


def _judged(past: History, rule: Rule, horizon_s: float, outages: list[Row], out: Any) -> Row:
    """Replay one rule; a node is not pulled again within the horizon."""
    names = past.nodes["node"].to_pylist()
    pulled = pulls(past, rule, horizon_s)
    # Those near the end of the log have their cost behind them, and what they save before them
    done = [(node, at_s, at_s) for node, at_s in pulled if at_s + horizon_s <= past.end_s]
    found = follow(past, done, horizon_s, out)
    # What a pull costs: the time stated, or as long as nodes were out in this log; less what they were out
    # anyway, as after the failure that made the rule fire
    lengths = [row["out_s"] for row in outages if row["end_s"] is not None]
    cost = wasted = net = None

    node, start_s, stop_s = (
        np.array([row[name] for row in outages]) for name in ("place", "start_s", "stop_s")
    )

    def hours(length_s: float) -> float:
        extra_s = 0.0
        for place, low, _ in done:
            mine, high = node == place, low + max(length_s, 0.0)
            away_s = np.minimum(stop_s[mine], high) - np.maximum(start_s[mine], low)
            extra_s += past.width[place] * max(high - low - away_s.clip(0).sum(), 0.0)
        return extra_s / HOUR_S

    if rule.repair is not None or len(lengths) > 1:
        mean = mean_interval(lengths) if rule.repair is None else (rule.repair, 2 * (rule.repair,))
        cost = Amount(*map(hours, (mean[0], *mean[1])))
        net = found.hours - found.matched_hours - cost
    open_months = (past.end_s - past.begin_s - horizon_s) / DAY_S / DAYS_PER_MONTH
    false = found.full - found.again
    alarms = None
    if open_months > 0:
        alarms = Amount(false / open_months, *poisson_interval(false, open_months))
    if cost is not None and found.full:
        low, high = clopper_pearson_interval(false, found.full)
        wasted = Amount(false / found.full * cost.value, low * cost.low, high * cost.high)
    return {
        "rule": rule.name,
        "in_force": rule.in_force,
        "pulled": [{"node": names[place], "time_s": at_s} for place, at_s in pulled],
        "pulls": len(pulled),
        "nodes": len({place for place, _ in pulled}),
        "followed": found.full,
        "again": found.again,
        "failed_again": found.again / found.full if found.full else None,
        "matched_again": found.matched_again,
        **_flat(
            false_alarms_per_month=alarms,
            avoided=found.failures - found.matched_failures,
            saved=found.hours - found.matched_hours,
            cost=cost,
            wasted=wasted,
            net=net if found.full else None,
        ),
        "verdict": _verdict(found, net, len(pulled)),
    }


def _verdict(found: Followed, net: Amount | None, count: int) -> str:
    """The verdict on a rule, one of `VERDICTS`."""
    if not count:
        return "no pull"
    if not found.full:
        return "unmatched" if found.unmatched else "short"
    if net is None:
        return "no cost"
    return "gain" if net.low > 0 else "loss" if net.high < 0 else "unclear"


def _actions(past: History, outages: list[Row], horizon_s: float) -> Iterator[Row]:
    """Each kind of action that the log shows, with the rates before and after."""
    for kind in ACTIONS:
        mine = [row for row in outages if row["action"] == kind and row["place"] is not None]
        over = [row for row in mine if row["end_s"] is not None]
        if not mine:
            continue
        done = [(row["place"], row["start_s"], row["end_s"]) for row in over]
        found = follow(past, done, horizon_s, by_history=True)
        # Nothing to hold it against: before and after alone would mislead
        verdict = "unmatched" if found.unmatched else "early"
        after = matched = None
        if found.node_days:
            scale = 1000 / found.node_days
            after, matched = found.failures.scaled(scale), found.matched_failures.scaled(scale)
            less = found.matched_failures - found.failures
            verdict = "early" if found.matched_failures.value < FEWEST_DUE else "same"
            verdict = "lower" if less.low > 0 else "higher" if less.high < 0 else verdict
        yield {
            "action": kind,
            "times": len(mine),
            "nodes": len({row["place"] for row in mine}),
            "still_out": len(mine) - len(over),
            "unmatched": found.unmatched,
            "hours_out": float(np.median([row["out_s"] for row in over])) / HOUR_S
            if over
            else None,
            "rate_before": found.before and 1000 * found.before,
            **_flat(rate_after=after, rate_matched=matched),
            "verdict": verdict,
        }


def action_of(state: str, reason: str) -> str:
    """What somebody did to a node that was out, one of `ACTIONS`; "" if it failed by itself."""
    text = f"{state} {reason}".lower()
    if re.search(BY_ITSELF, text):
        return ""
    return next((name for name, pattern in ACTIONS.items() if re.search(pattern, text)), "")


def _flat(**amounts: Amount | None) -> Row:
    """Amounts as three columns each."""
    return {
        f"{name}{end}": value
        for name, amount in amounts.items()
        for end, value in zip(("", "_low", "_high"), amount or (None,) * 3, strict=True)
    }
