"""What a log cannot tell: what makes every figure of it doubtful, and whether it could show a failure.

"No failure" has three outcomes. Failures are seen through the state NODE_FAIL, which only Slurm has, and
through health events on the nodes of FAILED attempts. A log that could show neither says nothing about
failures, and no answer may turn its silence into an all-clear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from holdfast.answer import Unknown
from holdfast.config import parse_config
from holdfast.fleet.attribution import clock_lag, ranked_causes
from holdfast.fleet.log import KNOWABLE, NODE_FAIL, FleetLog
from holdfast.fleet.outage_log import NODES_UNKNOWN, all_nodes_known, only_outages, outage_failures
from holdfast.numbers import counted

UNKNOWNS = parse_config(Path(__file__).with_name("unknowns.toml"), "what a log may not tell")
SLURM = ("sacct", "sacct-json", "slurmctld")  # Formats with the states NODE_FAIL and PREEMPTED


def gap(kind: str, /, **words: str) -> Unknown:
    """A gap of the log, as ``unknowns.toml`` says it."""
    of = UNKNOWNS[kind]
    texts = (of[part].format(**words) for part in ("text", "remedy"))
    return Unknown(*texts, doubt=of.get("doubt", False))


def doubts(log: FleetLog) -> Iterator[Unknown]:
    """What makes the headline of every answer about failures doubtful; it stands above them."""
    lag = clock_lag(log)
    if hides_attempts(log):
        yield gap("hidden")
    if lag is not None:
        hours = -lag.lag_s / 3600
        example = f" (for example Etc/GMT{-hours:+.0f})" if hours.is_integer() else ""
        counts = {"matched": f"{lag.matched:,}", "now": f"{lag.matched_now:,}"}
        counts["failures"] = counted(lag.failures, "failure")
        when = "earlier" if hours > 0 else "later"
        zone = f"{hours:+g}{example}"
        yield gap("clocks", away=f"{abs(hours):g} h", when=when, zone=zone, **counts)
    elif unsure_zone(log):
        yield gap("zone")
    if log.unplaced:
        yield gap("unplaced", attempts=unplaced(log))
    if log.timeless:
        yield gap("timeless", attempts=counted(log.timeless, "failed attempt"))
    if conflicts := log.store.facts.get("state_conflicts"):
        yield gap("conflicts", attempts=counted(conflicts, "attempt"))
    if not log.nodes_known:
        yield replace(
            gap("column", name="NodeList", of="", consequence=KNOWABLE["nodes"][1]), doubt=True
        )
    if only_outages(log) and not all_nodes_known(log):
        yield NODES_UNKNOWN


def missing_columns(log: FleetLog) -> Iterator[Unknown]:
    """Columns whose absence changes an answer; without any node it is among the doubts."""
    missing = log.unknown_columns
    ran = missing["ran"]
    for column, (name, consequence) in KNOWABLE.items():
        if (n := missing[column]) and (column != "nodes" or log.nodes_known):
            of = "" if n == ran else f" for {n:,} of {counted(ran, 'attempt')}"
            yield gap("column", name=name, of=of, consequence=consequence)


def why_blind(log: FleetLog) -> str:
    """Why a log without an infrastructure failure proves nothing; "" where it could have shown one."""
    if only_outages(log):
        marked = log.value(f"SELECT count(*) FROM {outage_failures(log)}")
        return "" if marked else "the log does not say which outages are failures"
    if not log.ended():
        return "no attempt ran in that time"
    if hides_attempts(log):
        return "earlier attempts of requeued jobs are hidden"
    if log.unplaced:
        return f"{unplaced(log)} at an unknown time"
    if clock_lag(log) is not None or unsure_zone(log):
        return "the clocks of jobs and health events differ, or may"
    watched = log.nodes_known and log.count("health") > 0
    if not watched:
        lacks = "no health events" if log.nodes_known else "no NodeList to join health events by"
        if not names_ends(log):
            return f"its scheduler has no state for a failed node, and there are {lacks}"
        failed = log.ended("FAILED")
        if failed:
            return f"{counted(failed, 'attempt')} ended FAILED, and there are {lacks} to say why"
    return ""


def unsure_zone(log: FleetLog) -> bool:
    """Whether a zone was assumed that nothing confirms: no check is near the end of a failed attempt."""
    facts = [source.get("facts", {}) for source in log.store.facts["sources"]]
    assumed = any(each.get("zone") and not each.get("zone_stated") for each in facts)
    if not assumed or all(each.get("zone", "") for each in facts):
        return False
    fired = log.value(f"SELECT count(*) FROM {log.table('health')} WHERE result = 'fail'")
    failed = log.ended(NODE_FAIL, "FAILED")
    return bool(fired and failed) and not log.value(f"SELECT count(*) FROM {ranked_causes(log)}")


def names_ends(log: FleetLog) -> bool:
    """Whether the scheduler has states for attempts that a node or a preemption ended."""
    return any(source["format"] in SLURM for source in log.store.facts["sources"])


def hides_attempts(log: FleetLog) -> bool:
    """Whether the log was written without ``sacct --duplicates`` though jobs were requeued."""
    return bool(log.store.facts.get("duplicates_flag") == "missing")


def unplaced(log: FleetLog) -> str:
    """What cannot be placed in time: ``3 attempts failed (2 of them NODE_FAIL)``."""
    every, nodes = sum(log.unplaced.values()), log.unplaced.get(NODE_FAIL, 0)
    return f"{counted(every, 'attempt')} failed ({nodes:,} of them NODE_FAIL)"
