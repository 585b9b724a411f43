"""Limits on what is out of service at once, held against what the cluster itself says."""

from __future__ import annotations

import math
import shlex
import subprocess
from collections.abc import Sequence

from holdfast.errors import InputError
from holdfast.fleet.live.journal import OUT, Entry, Life, lives
from holdfast.fleet.live.settings import Cluster, Settings
from holdfast.fleet.wording import listed
from holdfast.numbers import duration, percent

IN_SERVICE = ("IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "RESERVED")
FLAGS = "~#!%$@^-+"  # Of a state, harmless; `*` is not: the node does not answer
MOST_NAMED = 3  # Nodes that an error names


def run(line: Sequence[str], timeout_s: float) -> str:
    """What a command prints.

    Raises:
        InputError: ``unavailable`` if it cannot be run, fails or takes too long.
    """
    try:
        process = subprocess.run(
            line, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if process.returncode == 0:
            return process.stdout
        problem = process.stderr.strip()[-300:] or f"exit code {process.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    raise unavailable(f"`{line[0]}` failed", problem, line)


def unavailable(text: str, problem: str, line: Sequence[str]) -> InputError:
    """A cluster does not do, or say, what it is asked."""
    remedy = f"try it by hand: {shlex.join(line)}"
    return InputError(text, code="unavailable", found=problem, remedy=remedy)


def node_states(cluster: Cluster) -> list[list[str]]:
    """Ask a cluster for its nodes: name, partition and state, a row for each partition of a node.

    Raises:
        InputError: ``unavailable`` if it cannot be asked, or says nothing that is understood.
    """
    rows = [line.strip().split("|", 2) for line in run(cluster.nodes, cluster.timeout).splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[0] and row[2]]
    if not rows:
        problem = "no line NODE|PARTITION|STATE"
        raise unavailable("the cluster does not say which nodes it has", problem, cluster.nodes)
    return rows


def out_of_service(rows: Sequence[Sequence[str]]) -> set[str]:
    """Nodes whose state, one of `node_states`, is not one of service."""
    return {node for node, _, state in rows if state.upper().rstrip(FLAGS) not in IN_SERVICE}


def check_limits(life: Life, steps: Sequence[Entry], settings: Settings, now_s: float) -> None:
    """Refuse an approval after which too much would be out of service.

    Args:
        life: of the node that is to be drained.
        steps: the journal.
        settings: limits, and how to ask the cluster.
        now_s: epoch seconds.

    Raises:
        InputError: ``limit``, or ``conflict`` if the node is out already or not of the cluster.
    """
    rows = node_states(settings.cluster(life.cluster))
    names = {node for node, _, _ in rows}
    out = out_of_service(rows)
    # An approval that was killed may have drained it.
    if life.node not in (names if life.state == "approved" else names - out):
        raise InputError(
            "the cluster has no such node in service",
            code="conflict",
            found=life.node,
            expected=f"a node such as {min(names - out, default='none')}",
        )
    # What the journal says to be out counts too: a drain may be under way.
    others = [step for step in steps if step.cluster == life.cluster and step.id != life.id]
    decided = {each.node for each in lives(others).values() if each.state in OUT}
    out |= {life.node} | decided & names
    in_service = {partition for node, partition, _ in rows if node not in out}
    latest_s = max((each.time_s for each in others if each.event == "approved"), default=-math.inf)
    limits = settings.limits
    passed = {
        "cooldown": now_s - latest_s < limits.cooldown,
        "nodes": len(out) > limits.nodes,
        "share": len(out) / len(names) > limits.share,
        "partition": any(
            node == life.node and partition not in in_service for node, partition, _ in rows
        ),
    }
    for limit, is_passed in passed.items():
        if is_passed:
            raise InputError(
                f"the approval would pass a limit: {limit}",
                code="limit",
                place=f"limits.{limit}",
                found=f"{len(out)} of {len(names)} nodes out with it: {listed(sorted(out), MOST_NAMED)}",
                expected=f"{limits.nodes} nodes, {percent(limits.share)} of them, "
                f"{duration(limits.cooldown)} between approvals, a node left in each partition",
                remedy="bring a node back first, or change the limits in the file of --actions",
            )
