"""What breaks in a log: the rate, the components, the lemon nodes, how soon checks see it, repairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.fleet import attribution
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.formats.hosts import hosts_of
from holdfast.fleet.log import FleetLog
from holdfast.fleet.node_ranking import Lemons as LemonRanking
from holdfast.fleet.schema import Row
from holdfast.fleet.simulation.estimates import Findings, rounded, rounded_time
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.scenario import Component, Detection, Failures, Lemons, Repair
from holdfast.numbers import counted
from holdfast.stats import clopper_pearson_interval

SILENT_CHECK = "node_down"
FEWEST_OUTAGES = 5
# Repairs are of two kinds if a split of log durations explains this share of their variance and the
# typical long one takes this many times the typical short one.
CLEAR_SPLIT = 0.8
APART = 4.0
TAIL = 0.05


@dataclass(frozen=True)
class OutageTimes:
    """Durations of outages, split in two kinds."""

    repair: Repair
    long: int = 0  # Outages that took a long repair
    known: int = 0  # Outages whose kind is known


def failures(log: FleetLog, names: str, outages: OutageTimes, findings: Findings) -> Failures:
    """Rate, components and lemon nodes.

    Args:
        log: the open log.
        names: host list of the simulated nodes.
        outages: of `outage_times`.
        findings: where estimates and assumptions are recorded.
    """
    analysis = Analysis(log)
    fitted = analysis.mttf
    if fitted is None or not fitted.model.failures_:
        findings.note("No infrastructure failure in the log: none is simulated.")
        return Failures()
    model = fitted.model
    rate, *ends = (each / 1000 for each in (model.rate_per_1000_node_days_, *model.ci95_))
    interval = ends[0], ends[1]
    rate = findings.record("failures.rate_per_node_day", rounded(rate), model.failures_, interval)
    components = _components(log, outages, findings)
    nodes = set(hosts_of(names) or ()) if names else set()
    return Failures(rate, lemons=_lemons(analysis.lemons, nodes, findings), components=components)


# --- Components ----------------------------------------------------------------------------------


def _components(log: FleetLog, outages: OutageTimes, findings: Findings) -> tuple[Component, ...]:
    """Kinds of failures with their shares, how they are seen, and how long they are repaired."""
    # By likeliest cause: failures, and those of them recorded as FAILED.
    ended = log.rows(
        "SELECT label, count(*) AS failures, count(*) FILTER (WHERE state = 'FAILED') AS failed "
        f"FROM {attribution.infrastructure_failures(log)} GROUP BY label "
        f"ORDER BY label = '{attribution.UNATTRIBUTED}', label"
    )
    signs = _signs(log)
    total = sum(row["failures"] for row in ended)
    told = [row for row in ended if row["label"] != attribution.UNATTRIBUTED]
    # Of all components together: single ones have few failures.
    seen, failed = (sum(row[name] for row in told) for name in ("failures", "failed"))
    components = []
    for place, (label, count, _) in enumerate(row.values() for row in ended):
        key = f"failures.components[{place}]"
        interval = clopper_pearson_interval(count, total)
        share = findings.record(f"{key}.share", rounded(count / total, 3), count, interval)
        shown: dict[str, Any] = {"check": SILENT_CHECK, "high": 0.0}
        if label != attribution.UNATTRIBUTED:
            crash = rounded(failed / seen, 3)
            findings.record(f"{key}.crash", crash, seen, clopper_pearson_interval(failed, seen))
            shown = {"crash": crash, **signs[label]}
        permanent = _permanent(f"{key}.permanent", outages, findings)
        components.append(Component(label, share, permanent=permanent, **shown))
    if not log.count("health"):
        findings.note(
            "The log has no health events: every failure counts as a node that falls silent, and "
            "failures that ended attempts as FAILED cannot be told from the users' own."
        )
    return tuple(components)


def _signs(log: FleetLog) -> dict[str, Row]:
    """Likeliest cause -> the check that most often shows it, and its XID."""
    rows = log.rows(
        f"""SELECT label, "check", coalesce(xid, 0) AS xid FROM {attribution.classified_health(log)}
        WHERE result = 'fail' GROUP BY label, "check", xid, severity
        ORDER BY label, severity = 'HIGH', count(*), "check" DESC"""
    )
    return {row.pop("label"): row for row in rows}  # the last of a label counts


def _permanent(key: str, outages: OutageTimes, findings: Findings) -> float:
    """The share of long repairs among all outages."""
    if not outages.known:
        return findings.assumed(key, "the log has no outages of nodes", Component.permanent)
    interval = clopper_pearson_interval(outages.long, outages.known)
    share = rounded(outages.long / outages.known, 3)
    return findings.record(key, share, outages.known, interval)


# --- Lemon nodes ---------------------------------------------------------------------------------


def _lemons(ranking: LemonRanking, nodes: set[str], findings: Findings) -> Lemons:
    """Nodes that are not bad by chance, and how much more often they fail than the others."""
    table = ranking.nodes.to_pylist()
    worse = {*ranking.lemons, *ranking.lemons_out}  # also those that are drained by now
    lemon_rows = [row for row in table if row["node"] in worse & nodes]
    if not lemon_rows:
        findings.record("failures.lemons.count", 0, len(table))
        return Lemons()
    others = [row for row in table if row["node"] not in worse]
    days = sum(row["node_days"] for row in others)
    healthy = sum(row["shrunk_rate"] * row["node_days"] for row in others) / days if days else 0.0
    factors = {
        row["node"]: rounded(min(max(row["shrunk_rate"] / max(healthy, 1e-300), 1.0), 1e4), 3)
        for row in lemon_rows
    }
    findings.record("failures.lemons.nodes", None, len(lemon_rows))
    return Lemons(nodes=dict(sorted(factors.items())))


# --- Detection -----------------------------------------------------------------------------------


def detection(typical_s: float) -> Detection:
    """How soon failures are noticed: as usual, and no later than a typical attempt lasts."""
    usual = (Detection.check_interval_s, Detection.heartbeat_s)
    return Detection(*(rounded(min(each, typical_s), 3) for each in usual))


# --- Repairs -------------------------------------------------------------------------------------


def outage_times(log: FleetLog, findings: Findings) -> OutageTimes:
    """Fit the two ranges of repair times.

    A range is that of the uniform distribution with the same 5 % and 95 % quantiles as the durations.
    An outage that is not over counts as long once it has lasted longer than short ones do; before
    that nothing is known of it. Drains count only where nothing else is known: a node that is drained
    works on for a while.
    """
    rows = _outages(log)
    broken = [row for row in rows if not row["drained"]]
    rows = broken if len(broken) >= FEWEST_OUTAGES else rows
    ended = np.array([row["lasted_s"] for row in rows if row["over"]], np.float64)
    if ended.size < FEWEST_OUTAGES:
        findings.assumed(
            "repair",
            f"{counted(ended.size, 'outage')} of nodes with an end, fewer than {FEWEST_OUTAGES}",
        )
        return OutageTimes(Repair())
    ended = np.maximum(ended, 1.0)
    split = two_kinds(ended)
    short = ended[ended <= split]
    long = ended[ended > split]
    fast = uniform_range(short)
    slow = uniform_range(long) if long.size else fast
    findings.record("repair.fast_min", fast[0], short.size)
    if long.size:
        findings.record("repair.slow_min", slow[0], long.size)
    else:
        findings.assumed("repair.slow_min", "no outage is of another kind: as the short ones")
    decided = [row for row in rows if row["over"] or row["lasted_s"] > split]
    if len(decided) < len(rows):
        left = counted(len(rows) - len(decided), "outage")
        findings.note(f"{left} not over at the end of the log: left out.")
    long_ones = sum(row["lasted_s"] > split for row in decided)
    return OutageTimes(Repair(*fast, *slow), long_ones, len(decided))


def _outages(log: FleetLog) -> list[Row]:
    """Outages of the window but for maintenance: drained, over, lasted_s."""
    return log.rows(
        f"""SELECT coalesce(upper(state) LIKE '%DRAIN%', FALSE) AS drained,
            end_s IS NOT NULL AS over, coalesce(end_s, {log.end_s}) - start_s AS lasted_s
        FROM {log.table("node_outages")}
        WHERE upper(state) NOT LIKE '%MAINT%' AND start_s >= {int(log.begin_s)}
        ORDER BY start_s, node, state"""
    )


def two_kinds(seconds: Array) -> float:
    """The duration that parts short repairs from long ones; infinity if they are of one kind.

    The split of the sorted log durations that explains most of their variance (Otsu 1979), if the
    two sides are clearly apart.
    """
    logs = np.sort(np.log(seconds))
    n = logs.size
    total = float(((logs - logs.mean()) ** 2).sum())
    if n < FEWEST_OUTAGES or total == 0:
        return float("inf")
    left = np.arange(1, n)
    sums = np.cumsum(logs)[:-1]
    gap = sums / left - (logs.sum() - sums) / (n - left)
    between = left * (n - left) / n * gap**2
    best = int(np.argmax(between))
    clear = between[best] / total >= CLEAR_SPLIT
    apart = np.median(logs[best + 1 :]) - np.median(logs[: best + 1]) >= np.log(APART)
    return float(np.exp((logs[best] + logs[best + 1]) / 2)) if clear and apart else float("inf")


def uniform_range(seconds: Array) -> tuple[float, float]:
    """Ends of the uniform distribution with these 5 % and 95 % quantiles; whole seconds."""
    low, high = np.quantile(seconds, [TAIL, 1 - TAIL])
    beyond = (high - low) * TAIL / (1 - 2 * TAIL)
    first = rounded_time(max(float(low - beyond), min(1.0, float(low))))
    return first, max(rounded_time(float(high + beyond)), first)
