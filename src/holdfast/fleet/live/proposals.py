"""What holdfast would do: the lemon nodes that are still in service, and what pulling each would win.

Pulled and repaired, a node fails as the others of its kind do. Per month it then wins

    (its rate - the usual rate) x its node-days a month x the hours lost per failure,

each end of the interval with the ends of the rate (a gamma posterior, see `lemon_model`) and of the hours
per failure: these are a sum of a random number of losses, whose variance is the sum of the squares.
Against it stands, once, the time that a node is out for a repair.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from holdfast.fleet.lemon_model import DAYS_PER_MONTH
from holdfast.fleet.live.following import follow
from holdfast.fleet.live.journal import AS_BAD, OVER, Life
from holdfast.fleet.live.judge import FEWEST_DUE
from holdfast.fleet.live.rules import history
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog
from holdfast.fleet.losses import GPU_HOURS, Goodput, goodput
from holdfast.fleet.node_ranking import Lemons, lemons
from holdfast.fleet.schema import Row
from holdfast.numbers import brief, number, probability
from holdfast.tables import literal

Z95 = 1.959964


@dataclass(frozen=True)
class Proposal:
    """A node that should be pulled."""

    id: str
    cluster: str
    node: str
    evidence: str
    # Hours a month that it wins, of GPUs (of nodes where the log has none); None: not known
    wins: float | None
    wins_ci95: tuple[float, float] | None
    costs: (
        float | None
    )  # Hours, once: the node's own while it is repaired; None: no repair is in the log
    unit: str  # "GPU-hours" or "node-hours"
    state: str = ""  # The last event of the journal, if it is an open one

    @property
    def reason(self) -> str:
        """What Slurm shows beside the drained node."""
        return f"holdfast {self.id}: {self.evidence}".replace("−", "-")


def life_id(cluster: str, node: str, lived: int) -> str:
    """The id of the next life of a node, after so many that are over: the same for everyone who asks."""
    return hashlib.sha256(f"{cluster}\n{node}\n{lived}".encode()).hexdigest()[:8]


def proposals(log: FleetLog, lives: dict[str, Life]) -> list[Proposal]:
    """The nodes to pull that are in service, the largest win first.

    Args:
        log: an open log.
        lives: those of the journal.
    """
    ranked = lemons(log)
    cost = goodput(log)
    rows = {row["node"]: row for row in ranked.nodes.to_pylist()}
    found = [_proposal(log, ranked, rows[name], cost, lives) for name in ranked.lemons]
    return sorted(found, key=lambda each: (-(each.wins or 0.0), each.node))


def _proposal(
    log: FleetLog, ranked: Lemons, row: Row, cost: Goodput, lives: dict[str, Life]
) -> Proposal:
    cluster, _, node = row["node"].rpartition(":")
    own = [life for life in lives.values() if (life.cluster, life.node) == (cluster, node)]
    open_ = next((life for life in own if life.state not in OVER), None)
    wins, ends = _wins(log, ranked, row, cost)
    evidence = (
        f"{number(row['failures'], 1)} failures in {number(row['node_days'])} node-days, "
        f"q = {probability(row['q_value'])}"
    )
    return Proposal(
        open_.id if open_ else life_id(cluster, node, len(own)),
        cluster,
        node,
        evidence,
        wins,
        ends,
        _repair(log, row["node"], cost.unit),
        cost.unit,
        open_.state if open_ else "",
    )


def _wins(
    log: FleetLog, ranked: Lemons, row: Row, cost: Goodput
) -> tuple[float | None, tuple[float, float] | None]:
    """Hours a month that a pulled node wins, and their 95 % interval."""
    failures = sum(ranked.nodes["failures"].to_pylist())
    lost = cost.by_attempt["gpu_hours"].to_numpy()
    is_short = log.end_s - log.begin_s < DAY_S  # what happens in a month it does not tell
    if is_short or cost.verdict == "unknown" or not failures or not lost.sum():
        return None, None
    # 1. Hours per failure of the fleet: the node's own are too few.
    each = float(lost.sum()) / failures
    spread = math.exp(Z95 * math.sqrt(float((lost**2).sum())) / float(lost.sum()))
    # 2. Failures a month that it has beyond the usual ones.
    days = row["node_days"] / (max(log.end_s - log.begin_s, 1.0) / DAY_S) * DAYS_PER_MONTH
    rate, low, high = (
        max(row[f"shrunk_rate{end}"] - row["usual_rate"], 0.0) / 1000 * days
        for end in ("", "_low", "_high")
    )
    return rate * each, (low * each / spread, high * each * spread)


def _repair(log: FleetLog, node: str, unit: str) -> float | None:
    """Hours of one node while it is repaired: the median of the outages that are over."""
    outages = log.table("node_outages")
    seconds = log.value(f"SELECT median(end_s - start_s) FROM {outages} WHERE end_s > start_s")
    if seconds is None:
        return None
    known = f"SELECT max(gpus) FROM {log.table('nodes')} WHERE node = {literal(node)}"
    return float(seconds) / HOUR_S * ((log.value(known) or 0) if unit == GPU_HOURS else 1)


def after_return(log: FleetLog, life: Life) -> str:
    """What became of a node since it is back, beside matched nodes; "" while it is too early to say."""
    begin_s, end_s = life.when("drained"), life.when("returned")
    name = f"{life.cluster}:{life.node}" if life.cluster else life.node
    past = history(log)
    places = {each: place for place, each in enumerate(past.nodes["node"].to_pylist())}
    if begin_s is None or end_s is None or end_s >= log.end_s or name not in places:
        return ""
    found = follow(past, [(places[name], begin_s, end_s)], log.end_s - end_s)
    since, matched = found.failures, found.matched_failures
    text = (
        f"{brief(since.value)} failures in {brief(found.node_days)} node-days since, "
        f"{brief(matched.value)} on matched nodes"
    )
    if (since - matched).low > 0:
        return f"{AS_BAD}: {text}"
    due = (found.before or 0.0) * found.node_days
    if due >= FEWEST_DUE and since.high < due:
        return f"mended: {text}; {brief(due)} were due at its old rate"
    return ""
