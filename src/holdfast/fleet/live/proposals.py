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

import pyarrow.compute as pc

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.lemon_model import DAYS_PER_MONTH
from holdfast.fleet.live.following import Amount, follow
from holdfast.fleet.live.journal import AS_BAD, OUT, OVER, Life, named
from holdfast.fleet.live.judge import FEWEST_DUE
from holdfast.fleet.live.rules import history
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog, extent
from holdfast.fleet.losses import GPU_HOURS
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import brief_interval
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
    costs: float | None  # Hours, once: the node's own during a repair; None: the log has no repair
    unit: str  # "GPU-hours" or "node-hours"
    state: str = ""  # The last event of the journal, if it is an open one
    command: str = ""  # Of its approval

    @property
    def gain(self) -> str:
        """What a pull wins and costs, in a sentence."""
        if self.wins is None or self.wins_ci95 is None:
            return "what it wins cannot be told: the log shows no loss, or is shorter than a day."
        wins = f"{brief(self.wins)} {brief_interval(*self.wins_ci95)} {self.unit} a month"
        costs = f", costs about {brief(self.costs)} once" if self.costs else ""
        return f"{self.evidence}; wins {wins}{costs}."


def life_id(cluster: str, node: str, lived: int) -> str:
    """The id of the next life of a node, after so many that are over: the same for everyone who asks."""
    return hashlib.sha256(f"{cluster}\n{node}\n{lived}".encode()).hexdigest()[:8]


def proposals(analysis: Analysis, lives: dict[str, Life]) -> list[Proposal]:
    """The nodes to pull, the largest win first; without those that are out, or rejected.

    Args:
        analysis: of an open log.
        lives: those of the journal.
    """
    lemons = analysis.lemons.lemons
    rows = [row for row in analysis.lemons.nodes.to_pylist() if row["node"] in lemons]
    every = [_proposal(analysis, row, lives) for row in rows]
    waiting = [each for each in every if each.state not in ("rejected", *OUT)]
    return sorted(waiting, key=lambda each: (-(each.wins or 0.0), each.node))


def blind(analysis: Analysis) -> str:
    """Why the log cannot tell which node to pull; "" if it can."""
    return analysis.lemons.blind if analysis.lemons.verdict == "unknown" else ""


def _proposal(analysis: Analysis, row: Row, lives: dict[str, Life]) -> Proposal:
    cluster, _, node = row["node"].rpartition(":")
    own = [life for life in lives.values() if (life.cluster, life.node) == (cluster, node)]
    id_, state = life_id(cluster, node, len(own)), ""
    for life in own:
        if life.state not in OVER:
            id_, state = life.id, life.state
    wins = _wins(analysis, row)
    unit = analysis.goodput.unit
    return Proposal(
        id_,
        cluster,
        node,
        f"{number(row['failures'], 1)} failures in {number(row['node_days'])} node-days, "
        f"q = {probability(row['q_value'])}",
        wins.value if wins else None,
        wins[1:] if wins else None,
        _repair(analysis.log, row["node"], unit),
        unit,
        state,
    )


def _wins(analysis: Analysis, row: Row) -> Amount | None:
    """Hours a month that a pulled node wins."""
    log, cost = analysis.log, analysis.goodput
    # Of several clusters its own: others have other jobs, and logs of other lengths.
    cluster = row["node"].rpartition(":")[0]
    failures = sum(
        each["failures"]
        for each in analysis.lemons.nodes.to_pylist()
        if each["node"].rpartition(":")[0] == cluster
    )
    of = f"{literal(cluster)} IN ('', cluster)"
    keys = log.arrow(f"SELECT key FROM {log.executions} WHERE {of}")["key"]
    own = pc.is_in(cost.by_attempt["key"], keys.combine_chunks())
    lost = cost.by_attempt["gpu_hours"].filter(own).to_numpy()
    begin_s, end_s = extent(log, cluster)
    days = (end_s - begin_s) / DAY_S
    # What happens in a month a log of less than a day does not tell.
    if days < 1 or cost.verdict == "unknown" or not failures or not lost.sum():
        return None
    # 1. Hours per failure of the fleet: the node's own are too few.
    each = float(lost.sum()) / failures
    spread = math.exp(Z95 * math.sqrt(float((lost**2).sum())) / float(lost.sum()))
    # 2. Failures a month that it has beyond the usual ones.
    month = row["node_days"] / days * DAYS_PER_MONTH / 1000
    value, low, high = (
        max(row[f"shrunk_rate{end}"] - row["usual_rate"], 0.0) * month * each
        for end in ("", "_low", "_high")
    )
    return Amount(value, low / spread, high * spread)


def _repair(log: FleetLog, node: str, unit: str) -> float | None:
    """Hours of one node while it is repaired: the median of the outages that are over."""
    outages = log.table("node_outages")
    own = f"{literal(node.rpartition(':')[0])} IN ('', split_part(node, ':', 1))"
    over = f"FROM {outages} WHERE end_s > start_s AND {own}"
    seconds = log.value(f"SELECT median(end_s - start_s) {over}")
    if seconds is None:
        return None
    known = f"SELECT max(gpus) FROM {log.table('nodes')} WHERE node = {literal(node)}"
    return float(seconds) / HOUR_S * ((log.value(known) or 0) if unit == GPU_HOURS else 1)


def after_return(log: FleetLog, life: Life) -> str:
    """What became of a node since it is back, beside matched nodes; "" if that is too early, or not new."""
    times = {step.event: step.time_s for step in life.steps}  # the last of each event
    begin_s, end_s = (times.get(event, math.inf) for event in ("drained", "returned"))
    past = history(log, life.cluster)
    names = past.nodes["node"].to_pylist()
    if max(begin_s, end_s) >= past.end_s or named(life) not in names:
        return ""
    after = follow(past, [(names.index(named(life)), begin_s, end_s)], past.end_s - end_s)
    since, matched = after.failures, after.matched_failures
    text = (
        f"{brief(since.value)} failures in {brief(after.node_days)} node-days since, "
        f"{brief(matched.value)} on matched nodes"
    )
    due = (after.before or 0.0) * after.node_days
    verdict = ""
    if (since - matched).low > 0:
        verdict = AS_BAD
    elif due >= FEWEST_DUE and since.high < due:
        verdict, text = "mended", f"{text}; {brief(due)} were due at its old rate"
    is_new = verdict and not life.steps[-1].why.startswith(f"{verdict}: ")
    return f"{verdict}: {text}" if is_new else ""
