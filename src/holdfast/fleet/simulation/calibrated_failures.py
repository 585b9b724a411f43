"""What breaks in a log, as `Failures`: the rate, the components, the lemon nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from holdfast.fleet.attribution import (
    UNATTRIBUTED,
    blamed_nodes,
    classified_health,
    infrastructure_failures,
    ranked_causes,
)
from holdfast.fleet.failures import counts_by_size
from holdfast.fleet.log import FleetLog
from holdfast.fleet.node_ranking import lemons
from holdfast.fleet.simulation.estimates import Findings, Interval, binomial_interval, rounded
from holdfast.fleet.simulation.outage_times import OutageTimes
from holdfast.fleet.simulation.scenario import Component, Failures, Lemons
from holdfast.fleet.wording import brief_interval
from holdfast.numbers import brief, counted, duration, percent
from holdfast.stats import poisson_interval

FIRM_FAILURES = 20
"""A rate of large attempts is used alone from so many failures on, and only if it differs."""
FIRM_SHARE = 10
"""A component has shares of its own from so many events on; one with fewer has those of all."""
BLAST_NODES = 3
"""So many nodes that fail within one attribution window of another are told to the user."""
SILENT_CHECK = "node_down"


@dataclass(frozen=True)
class Rate:
    """Failures per node-day of attempts above a size."""

    failures: int
    node_days: float
    rate: float
    interval: Interval
    """At 95 %, wider where one event of a node ends many attempts."""


def failures(log: FleetLog, nodes: set[str], outages: OutageTimes, findings: Findings) -> Failures:
    """Rate, components and lemon nodes.

    Args:
        log: the open log.
        nodes: the names of the simulated nodes.
        outages: of `outage_times`.
        findings: where estimates and assumptions are recorded.
    """
    rate = _rate(log, findings)
    findings.assumed("failures.shape", "a log of this length does not tell whether nodes age")
    if not rate:
        findings.note("No infrastructure failure in the log: none is simulated.")
        return Failures()
    components = _components(log, outages, findings)
    _tell_blasts(log, findings)
    return Failures(rate, lemons=_lemons(log, nodes, findings), components=components)


# --- The rate ------------------------------------------------------------------------------------


def _rate(log: FleetLog, findings: Findings) -> float:
    """The rate of attempts above the size that the fleet's assumptions name, or of all."""
    size = log.assumptions.min_gpus
    effect = _attempts_per_event(log)
    everything = rate_above(log, 0, effect) or Rate(0, 0.0, 0.0, (0.0, math.inf))
    large = rate_above(log, size, effect) if size else None
    key = "failures.rate_per_node_day"
    apart = large is not None and (
        large.interval[0] > everything.interval[1] or large.interval[1] < everything.interval[0]
    )
    used, what = everything, "all attempts"
    other: Rate | None = large
    if large is not None and large.failures >= FIRM_FAILURES and apart:
        used, other, what = large, everything, f"attempts above {size} GPUs"
        why = "they differ, and in small attempts a failure is easily the user's own"
    elif large is None:
        why = f"no attempt has more than {size} GPUs"
    elif apart:
        why = f"attempts above {size} GPUs saw only {counted(large.failures, 'failure')}"
    else:
        why = "both agree, and all attempts tell more"
    value = rounded(used.rate)
    said = f"{counted(used.failures, 'failure')} in {brief(used.node_days)} node-days of {what}"
    if other is not None:
        which = f"above {size} GPUs" if other is large else "of all attempts"
        said += (
            f"; the rate {which} is {brief(other.rate)} {brief_interval(*other.interval)}: {why}"
        )
    else:
        said += f": {why}"
    findings.found(key, value, said, interval=used.interval, n=used.failures)
    return value


def rate_above(log: FleetLog, min_gpus: int, attempts_per_event: float) -> Rate | None:
    """The rate of attempts with more than `min_gpus` GPUs (0: all); None if none ran above it."""
    frame = counts_by_size(log, min_gpus)
    count, days = int(frame["failures"].sum()), float(frame["node_days"].sum())
    if not days:
        return None
    # Attempts of one node fail together: so many independent events stand behind the count.
    low, high = poisson_interval(count / attempts_per_event, days / attempts_per_event)
    return Rate(count, days, count / days, (low, high))


def _attempts_per_event(log: FleetLog) -> float:
    """How much the variance of the count grows because one event ends several attempts.

    A compound Poisson count of events with m attempts each has the variance E[m^2] / E[m] times its
    mean.
    """
    frame = _blamed(log)
    if frame.empty:
        return 1.0
    sizes = frame.drop_duplicates("key").groupby("event").size().to_numpy(np.float64)
    return float((sizes**2).sum() / sizes.sum())


def _blamed(log: FleetLog) -> pd.DataFrame:
    """Blame with the event of the node that it belongs to: node, key, event_s, event."""
    frame = log.frame(blamed_nodes(log).select("node", "key", "event_s", "blame"))
    frame = frame.sort_values(["node", "event_s", "key"], ignore_index=True)
    gap = frame["event_s"].diff() > log.assumptions.incident_gap_s
    new = gap | (frame["node"] != frame["node"].shift())
    return frame.assign(event=new.cumsum())


def _tell_blasts(log: FleetLog, findings: Findings) -> None:
    """Say how often several nodes failed at once: common causes are not fitted."""
    frame = _blamed(log)
    sure = frame[frame["blame"] == 1].sort_values("event_s")
    new = sure["event_s"].diff() > log.assumptions.incident_gap_s
    nodes = sure.groupby(new.cumsum())["node"].nunique()
    blasts = int((nodes >= BLAST_NODES).sum())
    if blasts:
        findings.note(
            f"On {counted(blasts, 'occasion')} {BLAST_NODES} or more nodes failed within "
            f"{duration(log.assumptions.incident_gap_s)} of each other. Common causes are not fitted: "
            "these count as failures of single nodes. Add [[failures.blasts]] for them."
        )
    else:
        findings.assumed("failures.blasts", "no sign of a common cause")


# --- Components ----------------------------------------------------------------------------------


def _components(log: FleetLog, outages: OutageTimes, findings: Findings) -> tuple[Component, ...]:
    """Kinds of failures with their shares, how they are seen, and how long they are repaired."""
    ended = _ended_by_label(log)
    seen = _seen_by_label(log)
    silent = int(ended.loc[ended["label"] == UNATTRIBUTED, "failures"].sum())
    checked = ended[(ended["label"] != UNATTRIBUTED) & (ended["failures"] > 0)]
    crashes, total = int(checked["failed"].sum()), int(checked["failures"].sum())
    labels = sorted({*checked["label"], *(seen["label"] if total else [])})
    high_all = float(seen["high"].sum())
    rows = []
    for label in labels:
        mine, events = checked[checked["label"] == label], seen[seen["label"] == label]
        count = int(mine["failures"].sum())
        high, low = float(events["high"].sum()), float(events["low"].sum())
        # Drains are counted beside the HIGH events of all nodes, and failures end attempts of busy
        # ones: what they have in common is the ratio of HIGH to LOW.
        if count:
            drained = low / (high + low) if high else low / (count + low)
            share = count / max(1 - drained, 1e-9)
        else:
            drained, share = 1.0, low * (total / high_all if high_all else 1.0)
        if share > 0:
            rows.append((label, share, drained, count, int(mine["failed"].sum()), events))
    whole = sum(row[1] for row in rows) + silent
    made: list[Component] = []
    for label, share, drained, count, failed, events in rows:
        key = f"failures.components[{len(made)}]"
        part = rounded(share / whole, 3)
        findings.found(
            f"{key}.share",
            part,
            f"{counted(count, 'failure')} explained by it"
            + (f", {percent(drained)} of its events drained the node" if drained else ""),
            interval=binomial_interval(share, whole),
            n=count,
        )
        crash = failed / count if count >= FIRM_SHARE else crashes / max(total, 1)
        if count:
            findings.found(
                f"{key}.crash",
                rounded(crash, 3),
                "FAILED among its failures"
                if count >= FIRM_SHARE
                else "FAILED among the failures of all components: it has too few",
                interval=binomial_interval(failed, count)
                if count >= FIRM_SHARE
                else binomial_interval(crashes, total),
                n=count if count >= FIRM_SHARE else total,
            )
        drained = round(drained, 3)
        check, xid = _check_of(events, label)
        made.append(
            Component(
                label,
                part,
                check,
                xid,
                high=round(1 - drained, 3),
                low=drained,
                crash=rounded(crash, 3),
                permanent=_permanent(f"{key}.permanent", label, outages, findings),
            )
        )
    if silent:
        key = f"failures.components[{len(made)}]"
        part = rounded(silent / whole, 3)
        findings.found(
            f"{key}.share",
            part,
            "failures that no check explains: simulated as nodes that fall silent",
            interval=binomial_interval(silent, whole),
            n=silent,
        )
        permanent = _permanent(f"{key}.permanent", UNATTRIBUTED, outages, findings)
        made.append(Component(UNATTRIBUTED, part, SILENT_CHECK, high=0.0, permanent=permanent))
    if not seen.size:
        findings.note(
            "The log has no health events: every failure counts as a node that falls silent, and "
            "failures that ended attempts as FAILED cannot be told from the users' own."
        )
    return tuple(made)


def _ended_by_label(log: FleetLog) -> pd.DataFrame:
    """Failures by likeliest cause: label, failures, failed (those recorded as FAILED)."""
    t = infrastructure_failures(log)
    return log.frame(
        t.group_by("label").agg(failures=t.count(), failed=(t.state == "FAILED").sum())
    )


def _seen_by_label(log: FleetLog) -> pd.DataFrame:
    """Events of nodes by what they mean: label, check, xid, high, low.

    Firings of one kind on one node within an attribution window of each other are one event. A LOW
    event counts if it drained the node; what may be the users' doing (a domain of its symptom) does not.
    """
    window = log.assumptions.check_before_s + log.assumptions.check_after_s
    t = classified_health(log).filter(lambda t: t.result == "fail")
    t = t.filter(~t.domains.contains("user") | (t.severity == "HIGH"))
    frame = log.frame(t.select("time_s", "node", "label", "severity", "check", "xid"))
    frame = frame[frame["severity"].isin(["HIGH", "LOW"])]
    kind = ["node", "label", "severity"]
    frame = frame.sort_values([*kind, "time_s"], ignore_index=True)
    same = (frame[kind] == frame[kind].shift()).all(axis=1)
    event = (~same | (frame["time_s"].diff() > window)).cumsum()
    drained = (frame["severity"] == "LOW") & _drained(log, frame, window)
    events = frame.assign(high=frame["severity"] == "HIGH", low=drained).groupby(event)
    found = events[["label", "check", "xid"]].first().join(events[["high", "low"]].max())
    grouped = found.groupby(["label", "check", "xid"], dropna=False, as_index=False)
    return grouped[["high", "low"]].sum()


def _drained(log: FleetLog, events: pd.DataFrame, window: float) -> pd.Series[bool]:
    """Which events came with a drain: not where they explain a failure, nor without an outage.

    A log without outages does not tell; there every one counts.
    """
    ended = ranked_causes(log).semi_join(infrastructure_failures(log), "key")
    causes = log.frame(ended.select("node", "check", "time_s").distinct())
    explains = events.merge(causes.assign(explains=True), "left", ["node", "check", "time_s"])
    free = explains["explains"].isna()
    t = log.table("node_outages")
    outages = log.frame(t.filter(t.state.upper().contains("DRAIN")).select("node", at="start_s"))
    if not log.count("node_outages"):
        return free
    left = events[["node", "time_s"]].assign(place=events.index).sort_values("time_s")
    right = outages.astype({"at": "float64"}).sort_values("at")
    near = pd.merge_asof(
        left,
        right,
        left_on="time_s",
        right_on="at",
        by="node",
        tolerance=window,  # type: ignore[arg-type]  # the stubs know no float
        direction="nearest",
    )
    return free & near.sort_values("place")["at"].notna().set_axis(free.index)


def _check_of(events: pd.DataFrame, label: str) -> tuple[str, int]:
    """The check that most often sees a component, and its XID."""
    if events.empty:
        return label, 0
    ranked = events.assign(n=events["high"] * 1e6 + events["low"])
    top = ranked.sort_values(["n", "check"], ascending=[False, True]).iloc[0]
    return str(top["check"]), 0 if pd.isna(top["xid"]) else int(top["xid"])


def _permanent(key: str, label: str, outages: OutageTimes, findings: Findings) -> float:
    """The share of long repairs: the component's own from enough outages on, else of all."""
    if not outages.count:
        default = Component("", 1.0, "").permanent
        findings.assumed(key, "the log has no outages of nodes")
        return default
    slow, count = outages.of(label)
    how = "long repairs among its outages"
    if count < FIRM_SHARE:
        slow, count = outages.slow, outages.count
        how = "long repairs among all outages: it has too few"
    share = rounded(slow / count, 3)
    findings.found(key, share, how, interval=binomial_interval(slow, count), n=count)
    return share


# --- Lemon nodes ---------------------------------------------------------------------------------


def _lemons(log: FleetLog, nodes: set[str], findings: Findings) -> Lemons:
    """Nodes that are not bad by chance, and how much more often they fail than the others."""
    if not log.nodes_known:
        findings.found("failures.lemons.count", 0, "the log does not say which nodes fail", n=0)
        return Lemons()
    found = lemons(log)
    table = found.nodes.to_pandas()
    named = [name for name in found.lemons if name in nodes]
    fdr = percent(log.assumptions.lemon_fdr)
    if not named:
        findings.found(
            "failures.lemons.count",
            0,
            f"no node fails more than chance explains (FDR {fdr})",
            n=len(table),
        )
        return Lemons()
    others = table[~table["node"].isin(found.lemons)]
    days = float(others["node_days"].sum())
    healthy = float((others["shrunk_rate"] * others["node_days"]).sum()) / days if days else 0.0
    factors = {}
    for row in table[table["node"].isin(named)].itertuples():
        factor = row.shrunk_rate / healthy if healthy > 0 else math.inf
        factors[row.node] = rounded(min(max(factor, 1.0), 1e4), 3)
    findings.found(
        "failures.lemons.nodes",
        None,
        f"nodes that fail more than chance explains (FDR {fdr}), with their shrunk rates over the "
        "mean of the others'",
        n=len(named),
    )
    return Lemons(nodes=dict(sorted(factors.items())))
