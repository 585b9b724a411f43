"""The morning summary: what an operator should know first, in sentences with numbers.

Each sentence names its number, its unit, its interval where there is one, and the section that proves
it. The order is the order of value to the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.numbers import interval, number
from holdfast.report import Finding

MOST_NODES_NAMED = 4


def findings(analysis: Analysis) -> list[Finding]:
    """Three to seven sentences, the most valuable first."""
    if not analysis.status.attempts:
        return list(_without_attempts(analysis))
    found = [
        *_hidden_attempts(analysis),
        *_loss(analysis),
        *_nodes_to_pull(analysis),
        *_crash_loops(analysis),
        *_rate(analysis),
        *_unexplained(analysis),
        *_ettr(analysis),
    ]
    return found[:7]


def since_text(analysis: Analysis) -> str:
    """The start of the window, as the findings name it."""
    return f"{datetime.fromtimestamp(analysis.log.begin_s, UTC):%Y-%m-%d %H:%M} UTC"


def _hidden_attempts(analysis: Analysis) -> Iterator[Finding]:
    if analysis.log.store.facts.get("duplicates_flag") == "missing":
        yield Finding(
            "it hides every earlier attempt of a requeued job, and with them most node failures. "
            "All rates and losses below are too low. Export again with `sacct -D`.",
            "unknowns",
            lead="This log was written without `sacct -D` (--duplicates):",
        )


def _loss(analysis: Analysis) -> Iterator[Finding]:
    goodput = analysis.goodput
    total = goodput.total_gpu_hours
    if not goodput.failures:
        yield Finding(
            f"{number(total)} GPU-hours ran since {since_text(analysis)} without an infrastructure "
            "failure that this log shows.",
            "loss",
            lead="Nothing was lost to failures:",
        )
        return
    lost = goodput.lost_gpu_hours
    share = f"{lost / total:.1%} of {number(total)}" if total else "no GPU time is recorded"
    text = f"to {number(goodput.failures)} infrastructure failures ({share})."
    known = goodput.by_cause[goodput.by_cause["cause"] != UNATTRIBUTED]
    if len(known) and lost:
        top = known.assign(lost=known["first_order"] + known["second_order"]).nlargest(1, "lost")
        cause, part = str(top["cause"].iloc[0]), float(top["lost"].iloc[0]) / lost
        nodes = analysis.nodes_by_cause.get(cause, 0)
        where = f" on {nodes} {_plural('node', nodes)}" if nodes else ""
        text += f" {part:.0%} of it goes back to: {cause}{where}."
    if goodput.lost_second_order:
        text += (
            f" {number(goodput.lost_second_order)} of the GPU-hours were lost by "
            f"{goodput.preemptions_second_order:,} attempts that restarting jobs preempted."
        )
    yield Finding(
        text, "loss", lead=f"{number(lost)} GPU-hours were lost since {since_text(analysis)}"
    )


def _nodes_to_pull(analysis: Analysis) -> Iterator[Finding]:
    rows = analysis.lemons.nodes.to_pylist()
    bad = [row for row in rows if row["node"] in set(analysis.lemons.lemons)]
    fleet = analysis.lemons.detector.fleet_rate_per_1000_node_days_
    if bad:
        named = "; ".join(
            f"{row['node']} ({number(row['failures'], 1)} failures, "
            f"{number(row['shrunk_rate'] / fleet, 1)} times the fleet's rate, "
            f"q = {number(row['q_value'], 3)})"
            for row in bad[:MOST_NODES_NAMED]
        )
        more = f" and {len(bad) - MOST_NODES_NAMED} more" if len(bad) > MOST_NODES_NAMED else ""
        change = -sum(row["fleet_rate_change"] for row in bad)
        yield Finding(
            f"{named}{more}. Without {'it' if len(bad) == 1 else 'them'} the fleet would have "
            f"{change:.0%} fewer node failures.",
            "lemons",
            lead="Pull",
        )
        return
    suspects = [row for row in rows if row["failures"] > 1][:2]
    if suspects:
        named = " and ".join(
            f"{row['node']} ({number(row['failures'], 1)} failures, q = "
            f"{number(row['q_value'], 2)})"
            for row in suspects
        )
        total = sum(row["failures"] for row in rows)
        yield Finding(
            f"the highest rates are those of {named}, but {number(total, 0)} failures are too few to "
            "call a node bad rather than unlucky.",
            "lemons",
            lead="Pull no node on this evidence:",
        )
    else:
        yield Finding("no node has more than one failure.", "lemons", lead="Pull no node:")


def _crash_loops(analysis: Analysis) -> Iterator[Finding]:
    loops = analysis.goodput.crash_loops
    if not len(loops):
        return
    worst = loops.iloc[0]
    others = f"; {len(loops) - 1} more {_plural('job', len(loops) - 1)} loop" * (len(loops) > 1)
    hours = (worst["last_s"] - worst["first_s"]) / 3600
    span = f"{number(hours, 1)} h" if hours >= 1 else f"{number(hours * 60, 0)} min"
    yield Finding(
        f"{worst['requeues']} requeues after infrastructure failures within {span} on "
        f"{worst['gpus']:,.0f} GPUs; it preempted {worst['preempted']:,} attempts and cost "
        f"{number(float(worst['gpu_hours_lost']))} GPU-hours{others}.",
        "loops",
        lead=f"Job {worst['job_id']} is in a crash loop:",
    )


def _rate(analysis: Analysis) -> Iterator[Finding]:
    if analysis.mttf is None:
        return
    model = analysis.mttf.model
    nodes = analysis.largest_job_nodes
    gpus = nodes * analysis.mttf.gpus_per_node
    value, low, high = model.mttf_hours(gpus, analysis.mttf.gpus_per_node)
    scope = f" of attempts above {analysis.min_gpus:,} GPUs" if analysis.min_gpus else ""
    rate = (
        f"{number(model.rate_per_1000_node_days_)} failures per 1,000 node-days{scope} "
        f"{interval(*model.ci95_)}"
    )
    reach = (
        f"a job on {gpus:,} GPUs fails every {_hours(value)} [{_hours(low)}, {_hours(high)}]"
        if value is not None
        else f"a job on {gpus:,} GPUs runs at least {_hours(low)} between failures (95 %)"
    )
    drift = "" if analysis.trend.p_value is None else f" {analysis.trend.sentence}"
    new = len(analysis.introduced)
    if new:
        drift += (
            f" {new} {_plural('check', new)} began during the log: a rise at that moment is no "
            "degradation."
        )
    yield Finding(f"{rate}; {reach}.{drift}", "rate", lead="Failure rate:")


def _unexplained(analysis: Analysis) -> Iterator[Finding]:
    none, failures = analysis.unattributed
    if none:
        yield Finding(
            f"{none:,} of {failures:,} ({none / failures:.0%}) had no failed check in the window "
            "around their end.",
            "causes",
            lead="Nobody can explain some failures:",
        )


def _ettr(analysis: Analysis) -> Iterator[Finding]:
    if analysis.expected_ettr is None or not analysis.goodput.failures:
        return
    gpus = analysis.largest_job_nodes * analysis.log.gpus_per_node
    text = f"expected {analysis.expected_ettr:.1%} of the wall-clock time is productive"
    by_size = analysis.measured.by_size
    if len(by_size):
        largest = by_size.iloc[-1]
        text += (
            f"; measured over {largest['runs']:,.0f} long {_plural('run', int(largest['runs']))} "
            f"{largest['ettr']:.1%} [{largest['lo']:.1%}, {largest['hi']:.1%}]"
        )
    if analysis.levers:
        best = analysis.levers[0]
        text += f". What would raise it most: {best.name} (to {best.ettr:.1%})"
    yield Finding(f"{text}.", "ettr", lead=f"ETTR of a job on {gpus:,} GPUs:")


def _without_attempts(analysis: Analysis) -> Iterator[Finding]:
    if analysis.mttf is None:
        yield Finding(
            "ingest a scheduler log, or a log of node failures.", None, lead="No attempt in it:"
        )
        return
    yield from _rate(analysis)


def _hours(hours: float | None) -> str:
    if hours is None:
        return "∞"
    if hours < 1:
        return f"{number(hours * 60)} min" if hours * 60 >= 1 else f"{number(hours * 3600)} s"
    return f"{number(hours)} h" if hours < 72 else f"{number(hours / 24)} days"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
