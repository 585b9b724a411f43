"""The morning summary: what an operator should know first, in sentences with numbers.

Each sentence names its number, its unit, its interval where there is one, and the section that proves
it. The order is the order of value to the reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.moments import minute
from holdfast.fleet.wording import (
    RATE_UNIT,
    brief_interval,
    drift,
    duration_interval,
    expected_text,
    probability,
    size,
)
from holdfast.numbers import brief, counted, duration, number, percent
from holdfast.report import Finding
from holdfast.report.html import UNKNOWN

MOST_FINDINGS = 7
MOST_NODES_NAMED = 4
FEWEST_RUNS = 3
"""Runs from which a mean ETTR has an interval."""
SMALLEST_GAIN = 0.001
"""A change that raises the ETTR by less is not worth a sentence."""


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
    return found[:MOST_FINDINGS]


def largest_measured(by_size: pa.Table) -> dict[str, Any] | None:
    """The largest job size with enough long runs for an interval, else the largest one."""
    rows: list[dict[str, Any]] = by_size.to_pylist()
    enough = [row for row in rows if row["runs"] >= FEWEST_RUNS]
    found = enough or rows
    return found[-1] if found else None


def measured_text(row: dict[str, Any]) -> str:
    """The measured ETTR of a job size: "97.6 % [96.9 %, 98.4 %] over 35 long runs on 257–512 GPUs"."""
    runs = int(row["runs"])
    between = f" [{percent(row['lo'], 1)}, {percent(row['hi'], 1)}]" * (runs >= FEWEST_RUNS)
    where = f" on {bucket_label(int(row['gpus_max']))} GPUs" * bool(row["gpus_max"])
    return f"{percent(row['ettr'], 1)}{between} over {counted(runs, 'long run')}{where}"


def _hidden_attempts(analysis: Analysis) -> Iterator[Finding]:
    if analysis.log.store.facts.get("duplicates_flag") == "missing":
        yield Finding(
            "every earlier attempt of a requeued job is hidden, and with them most node failures. "
            "All rates and losses below are too low. Export again with sacct -D.",
            UNKNOWN,
            lead="This log was written without sacct -D (--duplicates):",
        )


def _loss(analysis: Analysis) -> Iterator[Finding]:
    goodput = analysis.goodput
    total, lost = goodput.total_gpu_hours, goodput.lost_gpu_hours
    since = minute(analysis.log.begin_s)
    failures = counted(goodput.failures, "infrastructure failure")
    if not goodput.failures:
        hidden = analysis.log.store.facts.get("duplicates_flag") == "missing"
        work = f"in {brief(total)} GPU-hours " if total else ""
        yield Finding(
            f"no infrastructure failure {work}since {since} that this log shows.",
            "loss",
            lead="No failure is visible:" if hidden else "Nothing to do:",
        )
    elif not total:
        yield Finding(
            f"since {since}. The log records no GPUs, so their cost in GPU-hours is unknown.",
            "loss",
            lead=f"{failures[0].upper()}{failures[1:]}",
        )
    else:
        assumed = duration(analysis.log.assumptions.checkpoint_interval_s)
        yield Finding(
            f"to {failures} ({percent(lost / total)} of {brief(total)}; a checkpoint every {assumed} "
            f"is assumed).{_main_cause(analysis)}{_second_order(analysis)}",
            "loss",
            lead=f"{brief(lost)} GPU-hours were lost since {since}",
        )


def _main_cause(analysis: Analysis) -> str:
    goodput = analysis.goodput
    lost = {
        row["cause"]: row["first_order"] + row["second_order"]
        for row in goodput.by_cause.to_pylist()
        if row["cause"] != UNATTRIBUTED
    }
    if not lost or not goodput.lost_gpu_hours:
        return ""
    cause = max(lost, key=lambda each: lost[each])
    part = lost[cause] / goodput.lost_gpu_hours
    nodes = analysis.nodes_by_cause.get(cause, 0)
    where = f", on {counted(nodes, 'node')}" if nodes else ""
    return f" The largest share ({percent(part)}) is due to {cause}{where}."


def _second_order(analysis: Analysis) -> str:
    goodput = analysis.goodput
    if not goodput.lost_second_order:
        return ""
    part = percent(goodput.lost_second_order / goodput.lost_gpu_hours)
    attempts = counted(goodput.preemptions_second_order, "attempt")
    return f" {part} was lost in {attempts} preempted by jobs restarting after a failure."


def _nodes_to_pull(analysis: Analysis) -> Iterator[Finding]:
    if not analysis.nodes_known:
        yield Finding(
            "the log does not say on which nodes attempts ran. Export NodeList too.",
            UNKNOWN,
            lead="Which nodes fail is unknown:",
        )
        return
    rows = analysis.lemons.nodes.to_pylist()
    bad = [row for row in rows if row["node"] in set(analysis.lemons.lemons)]
    fleet = analysis.lemons.detector.fleet_rate_per_1000_node_days_
    for group in analysis.lemons.not_separable[:MOST_NODES_NAMED]:
        others = " and others" if len(group) > MOST_NODES_NAMED else ""
        yield Finding(
            f"{', '.join(group[:MOST_NODES_NAMED])}{others}. They failed in the same jobs: "
            "run them apart, or ingest health events.",
            "lemons",
            lead="At least one of these nodes fails more than chance explains:",
        )
    if bad:
        named = "; ".join(_evidence(row, fleet) for row in bad[:MOST_NODES_NAMED])
        more = f"; and {len(bad) - MOST_NODES_NAMED} more" if len(bad) > MOST_NODES_NAMED else ""
        change = -sum(row["fleet_rate_change"] for row in bad)
        yield Finding(
            f"{named}{more}. Without {'it' if len(bad) == 1 else 'them'} the fleet would have "
            f"{percent(change)} fewer node failures.",
            "lemons",
            lead="Pull",
        )
    if bad or analysis.lemons.not_separable:
        return
    suspects = [row for row in rows if row["failures"] > 1][:2]
    total = sum(row["failures"] for row in rows)
    if suspects:
        named = " and ".join(
            f"{row['node']} ({_blame(row)}, {probability('q', row['q_value'], 2)})"
            for row in suspects
        )
        yield Finding(
            f"the highest {'rate is that' if len(suspects) == 1 else 'rates are those'} of {named}, "
            "no more than chance and exposure explain.",
            "lemons",
            lead="Pull no node on this evidence:",
        )
    else:
        why = "no node has more than one failure" if total else "no node failed"
        yield Finding(f"{why}.", "lemons", lead="Pull no node:")


def _evidence(row: dict[str, Any], fleet: float) -> str:
    times, low, high = (
        row[name] / fleet for name in ("shrunk_rate", "shrunk_rate_low", "shrunk_rate_high")
    )
    return (
        f"{row['node']} ({_blame(row)}, {number(times, 1)} [{number(low, 1)}, {number(high, 1)}] "
        f"times the fleet's rate, {probability('q', row['q_value'])})"
    )


def _blame(row: dict[str, Any]) -> str:
    """Failures to blame on a node: a fraction where nothing tells which of several nodes failed."""
    failures = round(float(row["failures"]), 1)
    if failures.is_integer():
        return counted(int(failures), "failure")
    return f"{number(failures, 1)} failures"


def _crash_loops(analysis: Analysis) -> Iterator[Finding]:
    loops = analysis.goodput.crash_loops
    if not len(loops):
        return
    worst = loops.slice(0, 1).to_pylist()[0]
    more = len(loops) - 1
    others = f" {counted(more, 'more job')} looped." if more else ""
    on = f" on {counted(int(worst['gpus']), 'GPU')}" if worst["gpus"] > 0 else ""
    cost = f"; it cost {brief(float(worst['gpu_hours_lost']))} GPU-hours" if on else ""
    victims = int(worst["preempted"])
    preempted = f", and {counted(victims, 'attempt')} preempted by its restarts" if victims else ""
    yield Finding(
        f"{counted(int(worst['requeues']), 'requeue')} after infrastructure failures within "
        f"{duration(worst['last_s'] - worst['first_s'])}{on}{preempted}{cost}.{others}",
        "loops",
        lead=f"Job {worst['job_id']} looped:",
    )


def _rate(analysis: Analysis) -> Iterator[Finding]:
    if analysis.mttf is None:
        return
    model = analysis.mttf.model
    scope = f" in attempts above {analysis.min_gpus:,} GPUs" if analysis.min_gpus else ""
    low, high = (bound for bound in model.ci95_)
    if not analysis.mttf.nodes_known:
        scope += " (too high: nodes that never failed are not counted)"
    if model.failures_:
        lead = "Failure rate:"
        text = f"{brief(model.rate_per_1000_node_days_)} {brief_interval(low, high)} "
        text += f"failures {RATE_UNIT}{scope}; {mttf_text(analysis)}. "
        text += drift(analysis.trend) + _new_checks(analysis)
    else:
        lead = "Failure rate, an upper bound:"
        text = f"at most {brief(high)} failures {RATE_UNIT}{scope} (95 %); {mttf_text(analysis)}."
    yield Finding(text, "rate", lead=lead)


def mttf_text(analysis: Analysis) -> str:
    """What the rate means for the largest job: "a job on 128 GPUs fails every ... [...]"."""
    assert analysis.mttf is not None
    nodes = reference_nodes(analysis)
    per_node = analysis.mttf.gpus_per_node
    hours = analysis.mttf.model.mttf_hours(nodes * per_node, per_node)
    value, low, high = (None if each is None else 3600 * each for each in hours)
    job = f"a job on {size(analysis, nodes)}"
    if value is None:
        return f"{job} runs at least {duration(low)} between failures"
    return f"{job} fails every {duration(value)} {duration_interval(low, high)}"


def reference_nodes(analysis: Analysis) -> int:
    """Nodes of the job that the report speaks of: the largest that ran, or the whole fleet."""
    if analysis.outages is not None:
        return analysis.outages.nodes
    return max(analysis.largest_job_nodes, 1)


def _new_checks(analysis: Analysis) -> str:
    new = len(analysis.new_checks)
    if not new:
        return ""
    return (
        f" {counted(new, 'health check')} {'was' if new == 1 else 'were'} introduced during this period; "
        "a jump at that time reflects better detection, not more failures."
    )


def _unexplained(analysis: Analysis) -> Iterator[Finding]:
    none, failures = analysis.unattributed
    if not none:
        return
    if not analysis.log.store.facts.get("counts", {}).get("health_events"):
        yield Finding(
            f"the store has no health events that could explain its "
            f"{counted(failures, 'failure')}.",
            "causes",
            lead="No failure has a cause:",
        )
        return
    verb = "has" if none == 1 else "have"
    yield Finding(
        "no check fired near their end.",
        "causes",
        lead=f"{none:,} of {counted(failures, 'failure')} ({percent(none / failures)}) {verb} no "
        "cause:",
    )


def _ettr(analysis: Analysis) -> Iterator[Finding]:
    if analysis.expected_ettr is None or not analysis.goodput.failures:
        return
    text = f"{expected_text(analysis)} of its time is expected to be productive"
    if analysis.expected_ettr < SMALLEST_GAIN:
        assumed = duration(analysis.log.assumptions.checkpoint_interval_s)
        text += f": it hardly reaches a checkpoint, assumed every {assumed}"
    measured = largest_measured(analysis.measured.by_size)
    if measured is not None:
        text += f"; measured: {measured_text(measured)}"
    if analysis.levers and analysis.levers[0].ettr - analysis.expected_ettr >= SMALLEST_GAIN:
        best = analysis.levers[0]
        text += f". What would raise it most: {best.name} (to {percent(best.ettr, 1)})"
    yield Finding(
        f"{text}.", "ettr", lead=f"ETTR of a job on {size(analysis, analysis.largest_job_nodes)}:"
    )


def _without_attempts(analysis: Analysis) -> Iterator[Finding]:
    log = analysis.log
    if log.count("attempts"):
        yield Finding(
            f"the log ends {minute(log.end_s)}. Choose an earlier start with --since.",
            lead=f"No attempt was alive after {minute(log.begin_s)}:",
        )
    elif analysis.outages is None:
        yield Finding(
            "ingest a scheduler log, or a log of node failures.", lead="No attempt in it:"
        )
    else:
        yield from _outages(analysis)
        yield from _rate(analysis)


def _outages(analysis: Analysis) -> Iterator[Finding]:
    outages = analysis.outages
    assert outages is not None
    count = len(outages.rows)
    known = Counter(row["cause"] for row in outages.rows if row["cause"] is not None)
    nodes = Counter(row["node"] for row in outages.rows)
    down_s = float(sum(row["down_s"] for row in outages.rows))
    text = f"on {counted(len(nodes), 'node')} since "
    text += f"{minute(analysis.log.begin_s)}, {duration(down_s)} of one node's time down in all."
    if known:
        cause, n = min(known.items(), key=lambda each: (-each[1], each[0]))
        text += f" The most frequent cause: {cause}, {percent(n / count)}."
    yield Finding(text, "causes", lead=f"{counted(count, 'node failure')}")
    node, n = max(nodes.items(), key=lambda each: each[1], default=("", 0))
    if n > 1:
        yield Finding(
            f"{node} failed {n:,} times; the mean is {brief(count / outages.nodes)}.",
            "causes",
            lead="A node to look at:",
        )
