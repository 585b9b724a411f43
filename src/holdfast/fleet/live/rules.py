"""Rules that pull nodes, and when each would have fired in a log, without looking ahead.

A rule sees what was known at a moment: events of checks up to then, incidents that had ended an attempt by
then. Its file says how long a node is followed after a pull, what a pull costs, and the rules:

    horizon = "28d"       # a node is followed so long after a pull, and not pulled again meanwhile

    [[rule]]
    name = "three in a week"
    failures = 3
    within = "7d"
    in_force = true       # the rule of today
    repair = "4h"         # a pull takes a node away so long; left out: measured from the outages
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from holdfast.config import Duration, invalid_value, read_config
from holdfast.fleet.incidents import ended_attempts, incidents, node_incidents
from holdfast.fleet.lemon_model import LemonDetector
from holdfast.fleet.lemon_statistics import Evidence, summed
from holdfast.fleet.log import DAY_S, HOUR_S, SHORTEST_S, FleetLog, extent, once
from holdfast.fleet.losses import losses
from holdfast.fleet.node_signals import kinds_of
from holdfast.stats import FloatArray
from holdfast.tables import literal

Times = FloatArray
KINDS = ("check", "failures", "lemon_fdr")  # What fires, one per rule
ONE_S = (
    60  # An event of a check may stand in several sources: as a node's condition and as an event
)
PART_S = 6.0 * HOUR_S  # A log's exposure is known at moments so far apart, in a short log ...
FEWEST_PARTS = 56  # ... at so many; between them it grows evenly


@dataclass(frozen=True)
class Rule:
    """When to pull a node; exactly one of `KINDS` says so."""

    name: str
    # A check fails whose name, symptom (of the taxonomy, "ib_link") or severity (HIGH, LOW) is this;
    # * stands for any text
    check: str = ""
    times: Annotated[int, Meta(ge=1, le=1_000_000)] | None = (
        None  # So often within `within`; None: 1
    )
    failures: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # So many failures of the node ...
    within: Duration = field(default=Duration(7 * DAY_S))  # ... (or checks) in so long a time
    lemon_fdr: Annotated[float, Meta(ge=0, lt=1)] = 0.0  # `fleet lemons` names the node ...
    every: Duration = field(default=Duration(DAY_S))  # ... when asked so often
    repair: Duration | None = None  # For how long a pull takes a node away
    in_force: bool = False  # The rule of today


@dataclass(frozen=True)
class RuleFile:
    """Rules and how they are judged."""

    rule: tuple[Rule, ...]
    horizon: Duration = field(default=Duration(28 * DAY_S))


def read_rules(path: str | Path) -> RuleFile:
    """The rules of a TOML file.

    Raises:
        InputError: if it cannot be read, or a rule says nothing, or more than one thing, that fires.
    """
    given = read_config(path, RuleFile, "the rules")
    wrong = partial(invalid_value, "invalid rules", Path(path))
    for number, rule in enumerate(given.rule):
        fires = [kind for kind in KINDS if getattr(rule, kind)]
        if len(fires) != 1:
            raise wrong(f"rule[{number}]", ", ".join(fires) or "none", f"one of {', '.join(KINDS)}")
        if rule.times and not rule.check:
            raise wrong(f"rule[{number}].times", f"times beside {fires[0]}", "times beside a check")
    names = [rule.name for rule in given.rule]
    times = [given.horizon, *(s for rule in given.rule for s in (rule.within, rule.every))]
    if len(set(names)) < max(len(names), 1) or min(times) <= 0:
        raise wrong("rule", ", ".join(names), "rules of different names, and times above zero")
    return given


@dataclass(frozen=True)
class History:
    """What happened on each node of a log, or of one of its clusters, in order of time."""

    log: FleetLog
    nodes: pa.Table  # place, node, gpus; also the table "places" of the log
    kinds: FloatArray  # A number for each kind of node, shape (nodes,)
    # place (of the node), node, incident, node_count, blame, known, stop_s, cluster, hours (GPU-hours or
    # node-hours that its attempts lost, first order)
    incidents: pa.Table
    days: pa.Table  # Exposure: place, node, node_count, part (of the log, ascending), node_days
    part_s: float  # Length of a part
    cluster: str = ""  # Of which alone all this is

    @property
    def begin_s(self) -> float:
        """When its log begins."""
        return extent(self.log, self.cluster)[0]

    @property
    def end_s(self) -> float:
        """When its log ends: what came later nobody saw."""
        return extent(self.log, self.cluster)[1]

    @property
    def mine(self) -> str:
        """SQL: a node is of this cluster."""
        return f"{literal(self.cluster)} IN ('', split_part(node, ':', 1))"

    @cached_property
    def stop_s(self) -> Times:
        """When each incident was seen, shape (incidents,)."""
        return self.incidents["stop_s"].to_numpy().astype(np.float64)

    @cached_property
    def width(self) -> FloatArray:
        """What an hour of each node counts: its GPUs, or 1 in a log without GPUs, shape (nodes,)."""
        gpus = self.nodes["gpus"].to_numpy()
        return np.maximum(gpus, 1.0) if self.log.has_gpus else np.ones(gpus.shape)

    @cached_property
    def _used(self) -> FloatArray:
        """Node-days up to the end of each part, shape (parts + 1, nodes)."""
        parts = 2 + int((self.log.end_s - self.log.begin_s) / self.part_s)
        used = np.zeros((parts + 1, self.nodes.num_rows))
        at = (self.days["part"].to_numpy() + 1, self.days["place"].to_numpy())
        np.add.at(used, at, self.days["node_days"].to_numpy())
        return used.cumsum(axis=0)

    def used(self, at_s: float) -> FloatArray:
        """Node-days of each node up to a moment, shape (nodes,)."""
        parts = len(self._used) - 1
        at = min(max((at_s - self.log.begin_s) / self.part_s, 0.0), float(parts))
        low = min(int(at), parts - 1)
        step = self._used[low + 1] - self._used[low]
        return np.asarray(self._used[low] + (at - low) * step)

    def between(self, begin_s: float, end_s: float) -> slice:
        """The incidents after a moment, up to another."""
        low, high = np.searchsorted(self.stop_s, (begin_s, end_s), "right")
        return slice(int(low), max(int(low), int(high)))

    def lemons(self, at_s: float, fdr: float) -> list[int]:
        """Places of the nodes that `fleet lemons` would have named at the last end of a part until then."""
        [named] = self.looks([at_s], fdr)
        return named

    def looks(self, times: Iterable[float], fdr: float) -> Iterator[list[int]]:
        """The same at several moments, one after the other."""
        names = self.nodes["node"].to_pylist()
        at = {name: place for place, name in enumerate(names)}
        columns = ("place", "node_count", "node_days", "part")
        *exposed, part = (self.days[name].to_numpy() for name in columns)
        columns = ("incident", "place", "node_count", "blame", "known")
        whole = Evidence.from_rows(self.kinds, exposed, [self.incidents[name] for name in columns])
        days = np.zeros_like(whole.days[0])
        low = 0
        for at_s in times:
            parts = math.floor((at_s - self.log.begin_s) / self.part_s + 1e-9)
            high = int(np.searchsorted(part, parts))
            days += summed(whole.cells[low:high], exposed[-1][low:high], days.shape)
            low = high
            seen = self.between(-np.inf, self.log.begin_s + parts * self.part_s).stop
            evidence = whole.first(seen, days)
            detector = LemonDetector(fdr).fit(
                names,
                node_days=days.sum(axis=1),
                failures=evidence.sums[0],
                known_failures=evidence.sums[1],
                jobs=np.bincount(
                    evidence.rows[1], minlength=len(names)
                ),  # each incident brings one that is new to the node
                exposure=evidence.exposure,
                kinds=self.kinds,
                p_values_without=evidence.p_values_without,
            )
            yield [at[name] for name in detector.lemons_]


@once
def history(log: FleetLog, cluster: str = "") -> History:
    """Incidents and exposure of every node, or of those of one of several clusters."""
    if cluster:
        past = history(log)
        incidents_, days = (
            each.filter(pc.starts_with(each["node"], f"{cluster}:"))
            for each in (past.incidents, past.days)
        )
        return replace(past, incidents=incidents_, days=days, cluster=cluster)
    part_s = min(PART_S, max((log.end_s - log.begin_s) / FEWEST_PARTS, 1.0))
    failed, _ = losses(log)
    cost = f"""SELECT incident, sum(lost) AS hours FROM {failed}
        JOIN {ended_attempts(log)} AS ended USING (key) GROUP BY incident"""
    found = log.arrow(
        f"""SELECT node, incident, node_count, blame, known, mine.stop_s, cluster,
            coalesce(hours, 0) AS hours
        FROM {node_incidents(log)} AS mine
        JOIN (SELECT incident, cluster FROM {incidents(log)}) AS linked USING (incident)
        LEFT JOIN ({cost}) AS cost USING (incident) ORDER BY mine.stop_s, node, incident"""
    )
    # A node that jobs share is in use once; a failed attempt takes time, also where it has none.
    begin, part = literal(float(log.begin_s)), literal(part_s)
    days = log.arrow(
        f"""WITH held AS (
            SELECT unnest(nodes) AS node, node_count, stop_s - exposed_s - {begin} AS low,
                stop_s - {begin} AS high
            FROM {log.executions} WHERE exposed_s > 0 AND node_count > 0
            UNION ALL SELECT node, node_count, stop_s - {SHORTEST_S} - {begin}, stop_s - {begin}
            FROM {node_incidents(log)}
        ), apart AS (
            SELECT node, node_count, high, greatest(low, coalesce(max(high) OVER (
                PARTITION BY node ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), low), 0) AS low FROM held
        )
        SELECT node, node_count, part, sum(least(high, (part + 1) * {part})
            - greatest(low, part * {part})) / {DAY_S} AS node_days
        FROM (
            SELECT *, unnest(range(CAST(floor(low / {part}) AS BIGINT),
                CAST(ceil(high / {part}) AS BIGINT))) AS part FROM apart WHERE high > low
        ) AS parts GROUP BY node, node_count, part ORDER BY part, node, node_count"""
    )
    log.engine.load("used_nodes", pa.table({"node": days["node"].unique()}))
    named = log.keep(
        "places",
        f"""SELECT row_number() OVER (ORDER BY node) - 1 AS place, node,
            CAST(coalesce(max(gpus), 0) AS DOUBLE) AS gpus
        FROM (
            SELECT node, gpus FROM {log.table("nodes")} UNION ALL SELECT node, 0 FROM used_nodes
        ) AS named WHERE node IS NOT NULL GROUP BY node""",
    )
    nodes = log.arrow(f"SELECT * FROM {named} ORDER BY place")
    places = nodes["node"].combine_chunks()
    found, days = (
        each.append_column("place", pc.index_in(each["node"], places)) for each in (found, days)
    )
    return History(log, nodes, kinds_of(nodes), found, days, part_s)


def pulls(past: History, rule: Rule, horizon_s: float) -> list[tuple[int, float]]:
    """Nodes (places) that a rule pulls, and when (epoch seconds), in order of time.

    What shows on a node within the horizon of a pull does not count, as if it had been repaired by then.
    """
    signs = _lemons if rule.lemon_fdr else _failures if rule.failures else _checks
    least = (rule.failures or rule.times or 1.0) - 1e-9
    recent: dict[int, deque[tuple[float, float]]] = defaultdict(deque)
    asked: dict[int, float] = defaultdict(lambda: -math.inf)
    found = []
    for place, at_s, weight in signs(past, rule):
        if at_s < asked[place]:
            continue
        mine = recent[place]
        mine.append((at_s, weight))
        while mine[0][0] < at_s - rule.within:
            mine.popleft()
        if sum(each for _, each in mine) >= least:
            mine.clear()
            asked[place] = at_s + horizon_s
            found.append((place, at_s))
    return found


Signs = Iterable[tuple[int, float, float]]  # Place of a node, when, weight; in order of time


def _failures(past: History, rule: Rule) -> Signs:
    """Incidents of nodes that had enough of them in all; shared blame counts in parts."""
    place, blame = (past.incidents[name].to_numpy() for name in ("place", "blame"))
    rows = np.bincount(place, blame)[place] >= rule.failures - 1e-9
    return zip(*(each[rows].tolist() for each in (place, past.stop_s, blame)), strict=True)


def _checks(past: History, rule: Rule) -> Signs:
    """Events of the checks that the rule names; those of a node that follow within a minute are one."""
    log = past.log
    key = (
        """concat("check", '|', coalesce(severity, ''), '|', coalesce(CAST(xid AS VARCHAR), ''))"""
    )
    failed = f"""FROM {log.table("health")} JOIN places USING (node)
        WHERE result = 'fail' AND time_s BETWEEN {past.begin_s} AND {past.end_s} AND {past.mine}"""
    kinds = log.rows(f'SELECT DISTINCT {key} AS key, "check", severity, xid {failed}')
    told = log.taxonomy.classify(*([row[name] for row in kinds] for name in ("check", "xid")))
    named = [
        row["key"]
        for row, of in zip(kinds, told.to_pylist(), strict=True)
        for words in [(row["check"], of["symptom"], row["severity"] or of["severity"])]
        if any(fnmatch(word.lower(), rule.check.lower()) for word in words)
    ]
    if not named:
        return []
    events = log.arrow(
        f"""SELECT place, time_s, 1.0 AS weight FROM (
            SELECT place, time_s, lag(time_s) OVER (PARTITION BY place ORDER BY time_s) AS before_s {failed}
            AND {key} IN {literal(named)}
        ) AS fired WHERE before_s IS NULL OR time_s - before_s > {ONE_S} ORDER BY time_s, place"""
    )
    return zip(*(column.to_pylist() for column in events.columns), strict=True)


def _lemons(past: History, rule: Rule) -> Signs:
    """`fleet lemons` names a node, asked at the ends of parts; nothing new where nothing failed."""
    step_s = max(round(rule.every / past.part_s), 1) * past.part_s
    edges = np.arange(past.log.begin_s + step_s, past.end_s, step_s).tolist()
    edges = [at_s for at_s in edges if len(past.stop_s[past.between(at_s - step_s, at_s)])]
    looks = past.looks(edges, rule.lemon_fdr)
    return ((place, at_s, 1.0) for at_s, named in zip(edges, looks, strict=True) for place in named)
