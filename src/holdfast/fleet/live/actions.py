"""`holdfast fleet act`: what would be done about nodes, and the hand that does it once somebody approves.

Nothing runs by itself. An approval takes the lock of the journal, asks the cluster itself which nodes are
out, holds the limits against that, writes that it is approved, runs the command, and writes how it ended;
so two approvals at the same moment never pass a limit together, and a killed process leaves a node that
counts as out until somebody says what became of it.
"""

from __future__ import annotations

import getpass
import math
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.answer import Answer, Finding, Section, Unknown, Value
from holdfast.errors import HoldfastError, InputError
from holdfast.fleet.gaps import Doubtful
from holdfast.fleet.live import journal
from holdfast.fleet.live.journal import OUT, Entry, Life, Writer, lives
from holdfast.fleet.live.proposals import Proposal, after_return, proposals
from holdfast.fleet.live.settings import UNNAMED, Cluster, Settings
from holdfast.fleet.log import DAY_S, AnyLog, open_log
from holdfast.fleet.moments import iso, minute
from holdfast.fleet.wording import table
from holdfast.numbers import brief, counted, duration, percent

IN_SERVICE = ("IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "RESERVED")
FLAGS = "~#!%$@^-+"  # Of a state, harmless; `*` is not: the node does not answer
MOST_TOLD = 3  # Nodes that an error names
HOLDFAST = "holdfast"  # Who proposes

# What a user may ask for -> the event, and the command of the cluster that it runs
DEEDS = {
    "approve": ("drained", "drain"),
    "undo": ("undone", "resume"),
    "give-back": ("returned", "resume"),
    "repaired": ("repaired", ""),
    "reject": ("rejected", ""),
}


@dataclass(frozen=True)
class Actions(Doubtful):
    """What would be done, and what was decided."""

    proposals: list[Proposal]
    lives: list[Life]  # Those of the journal that were decided, earliest first
    commands: dict[str, str]  # Id of a proposal -> the command of its approval

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Actions"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet act``."""
        shown = [{**vars(each), "command": self.commands[each.id]} for each in self.proposals]
        told = [
            {
                "id": life.id,
                "cluster": life.cluster,
                "node": life.node,
                "state": life.state,
                "steps": [{**vars(step), "time": iso(step.time_s)} for step in life.steps],
            }
            for life in self.lives
        ]
        return {"proposals": shown, "lives": told}

    def values(self) -> Sequence[Value]:
        """How many nodes wait for a decision, and how many are out by one."""
        out = sum(life.state in OUT for life in self.lives)
        wins = [each.wins for each in self.proposals]
        unit = self.proposals[0].unit if self.proposals else "GPU-hours"
        won = None if None in wins else sum(each or 0.0 for each in wins)
        return [
            Value("proposed", len(self.proposals), "nodes", better="lower"),
            Value("out", out, "nodes", better="lower"),
            Value("wins_a_month", won, unit),
        ]

    def findings(self) -> Sequence[Finding]:
        """What to decide; what was begun and not ended."""
        stuck = [life for life in self.lives if life.state == "approved"]
        begun = [
            Finding(
                f"{life.node} was approved by {life.steps[-1].who} at {minute(life.steps[-1].time_s)} and "
                f"nothing says whether it was drained: --approve {life.id} again, or --undo {life.id}."
            )
            for life in stuck
        ]
        return [*begun, *super().findings()]

    def sections(self) -> Sequence[Section]:
        """What to decide, and what was decided."""
        return [self._proposed(), *([self._decided()] if self.lives else [])]

    def _proposed(self) -> Section:
        if not self.proposals:
            text = "Nothing is proposed: no node in service fails more than chance explains."
            return Section("proposed", "What would be done?", text)
        rows = []
        for each in self.proposals:
            low, high = each.wins_ci95 or (None, None)
            row = {"id": each.id, "node": named(each), "wins": each.wins, "low": low, "high": high}
            rows.append({**row, "costs": each.costs, "command": self.commands[each.id]})
        first = self.proposals[0]
        text = (
            f"{counted(len(rows), 'node')} should be pulled, {named(first)} first: {expected(first)} "
            f"Nothing is done before --approve {first.id}."
        )
        shown = table(
            rows,
            "id node wins costs command",
            "One row per node, the largest win first; the cost is once, while it is repaired.",
            "",
            id="Id",
            wins={"label": "Wins a month", "unit": first.unit, "interval": ("low", "high")},
            costs={"label": "Repair costs", "unit": first.unit},
            command="Command",
        )
        return Section("proposed", "What would be done?", text, tables=[shown])

    def _decided(self) -> Section:
        rows = [
            {
                "id": life.id,
                "node": named(life),
                "state": life.state,
                "when": minute(life.steps[-1].time_s),
                "who": life.steps[-1].who,
                "why": life.steps[-1].why,
            }
            for life in reversed(self.lives)
        ]
        out = [named(life) for life in self.lives if life.state in OUT]
        text = f"{counted(len(out), 'node')} out by a decision in the journal."
        shown = table(
            rows,
            "id node state when who why",
            "One row per life of a node, the latest first.",
            "",
            id="Id",
            state="State",
            when="Since",
            who="Who",
            why="Why",
        )
        return Section("decided", "What was decided?", text, tables=[shown])

    def unknowns(self) -> Sequence[Unknown]:
        """Why no win can be told, if none can."""
        found = list(super().unknowns())
        if time.time() - self.log.end_s > DAY_S:
            text = f"What happened since the log ends, {minute(self.log.end_s)}."
            found.append(Unknown(text, "Ingest what is new before you decide.", doubt=True))
        if any(each.wins is None for each in self.proposals):
            found.append(
                Unknown(
                    "What a pull wins: the log tells no loss, or is shorter than a day.",
                    "See `holdfast fleet goodput`.",
                )
            )
        return found


@dataclass(frozen=True)
class Done(Entry, Answer):
    """What was done to one node: the line of the journal."""

    def values(self) -> Sequence[Value]:
        """None: a deed is no figure."""
        return []

    def findings(self) -> Sequence[Finding]:
        """What was done, and how to undo it."""
        undo = f" --undo {self.id} undoes it." if self.event == "drained" else ""
        return [Finding(f"{named(self)} is {self.event}, by {self.who}.{undo}")]


def choices(found: Actions) -> list[tuple[Proposal | Life, list[str]]]:
    """What may be decided next: each proposal and each node that is out, with its deeds."""
    deeds: list[tuple[Proposal | Life, list[str]]] = [
        (each, ["approve", "reject"]) for each in found.proposals
    ]
    for life in found.lives:
        if life.state in OUT:
            may = [deed for deed, (event, _) in DEEDS.items() if life.state in journal.AFTER[event]]
            deeds.append((life, [deed for deed in may if deed != "approve"]))
    return deeds


def named(each: Proposal | Life | Entry) -> str:
    """A node with its cluster."""
    return f"{each.cluster}:{each.node}" if each.cluster else each.node


def expected(each: Proposal) -> str:
    """What a pull wins and costs, in a sentence."""
    if each.wins is None or each.wins_ci95 is None:
        return "what it wins cannot be told."
    low, high = map(brief, each.wins_ci95)
    text = f"{each.evidence}; wins {brief(each.wins)} [{low}, {high}] {each.unit} a month"
    return f"{text}, costs about {brief(each.costs)} once." if each.costs else f"{text}."


def actions(log: AnyLog, settings: Settings | None = None, *, propose: bool = True) -> Actions:
    """What would be done about nodes, and what was decided.

    Args:
        log: a store or an open log.
        settings: how its clusters are acted on.
        propose: note in the journal what is proposed, or judged, for the first time.
    """
    log = open_log(log)
    settings = settings or Settings()
    store = log.store.path
    before = lives(journal.entries(store))
    found = proposals(log, before)
    new = [
        _entry(each, "proposed", HOLDFAST, each.evidence) for each in found if each.id not in before
    ]
    back = [life for life in before.values() if life.state in journal.AFTER["judged"]]
    told = ((life, after_return(log, life)) for life in back)
    new += [
        _entry(life, "judged", HOLDFAST, text)
        for life, text in told
        if text and text.partition(":")[0] != life.steps[-1].why.partition(":")[0]
    ]
    if propose and new:
        with suppress(HoldfastError), journal.writing(store) as writer:  # who may only read, reads
            for each in new:
                if _state(writer, each.id) in journal.AFTER[each.event]:
                    writer.add(each)
    waiting = [each for each in found if each.state not in ("rejected", *OUT)]
    commands = {each.id: _line(settings, each, "drain", each.reason) for each in waiting}
    lines = {each.id: shlex.join(commands[each.id]) for each in waiting}
    after = lives(journal.entries(store)).values()
    return Actions(waiting, [each for each in after if each.state != "proposed"], lines, log=log)


def act(
    log: AnyLog,
    deed: str,
    life_id: str,
    *,
    who: str = "",
    why: str = "",
    settings: Settings | None = None,
    may: Callable[[str], bool] = lambda cluster: True,
    clock: Callable[[], float] = time.time,
) -> Done:
    """Do one thing to one node, and write it into the journal.

    Args:
        log: a store or an open log.
        deed: one of `DEEDS`.
        life_id: the id that `actions` shows.
        who: name of who decided it; "": the user of this process.
        why: their reason.
        settings: limits, and how the cluster is acted on.
        may: whether they may act on a cluster, by its name.
        clock: epoch seconds now.

    Raises:
        InputError: ``unknown-name`` (no such id), ``refused`` (not theirs), ``conflict`` (the node is not
            in a state for it), ``limit`` (too many would be out), ``unsupported`` (only printed),
            ``unavailable`` (the command failed).
    """
    log = open_log(log)
    settings = settings or Settings()
    event, command = DEEDS[deed]
    if command and log.store.is_simulated:
        raise InputError(
            "a simulated log is no reason to act on a cluster",
            code="conflict",
            path=log.store.path,
            remedy="ingest the log of the cluster",
        )
    found = (
        proposals(log, lives(journal.entries(log.store.path)))
        if deed in ("approve", "reject")
        else []
    )
    with journal.writing(log.store.path) as writer:
        node = _node(life_id, found, lives(writer.entries))
        if not may(node.cluster):
            raise InputError(
                f"{who} may not act on {named(node)}",
                code="refused",
                place=life_id,
                expected=f"an operator of cluster {node.cluster or UNNAMED}",
            )
        who = who or getpass.getuser()
        reason = (node.reason if isinstance(node, Proposal) else "") or f"holdfast {life_id}"
        if not command:
            entry = _entry(node, event, who, why, time_s=clock())
            writer.add(entry)
            return Done(**vars(entry))
        line = _line(settings, node, command, f"{reason} ({who})")
        if settings.cluster(node.cluster).kind == "kubernetes":
            raise InputError(
                "holdfast does not act on Kubernetes",
                code="unsupported",
                found=named(node),
                remedy=f"run it yourself: {shlex.join(line)}",
            )
        if deed == "approve":
            _hold_limits(node, writer, settings, clock())
            writer.add(_entry(node, "approved", who, why, shlex.join(line), clock()))
        elif _state(writer, life_id) not in journal.AFTER[event]:
            writer.add(_entry(node, event, who, why))  # raises: it may not come now
        try:
            _run(line, settings.cluster(node.cluster).timeout)
            if deed == "approve":
                _confirm(node, settings.cluster(node.cluster), line)
        except InputError as error:
            if deed == "approve":
                writer.add(_entry(node, "failed", HOLDFAST, str(error.found), time_s=clock()))
            raise
        entry = _entry(node, event, who, why, shlex.join(line), clock())
        writer.add(entry)
    return Done(**vars(entry))


def _state(writer: Writer, life_id: str) -> str:
    known = lives(writer.entries)
    return known[life_id].state if life_id in known else ""


def _node(life_id: str, found: Sequence[Proposal], known: Mapping[str, Life]) -> Proposal | Life:
    """The proposal or the life with an id."""
    every: dict[str, Proposal | Life] = {**known, **{each.id: each for each in found}}
    if life_id not in every:
        raise InputError(
            f"no node has the id {life_id!r}",
            code="unknown-name",
            expected=", ".join([*every][:5]) or "an id that `holdfast fleet act STORE` shows",
        )
    return every[life_id]


def _entry(
    node: Proposal | Life,
    event: str,
    who: str,
    why: str = "",
    command: str = "",
    time_s: float | None = None,
) -> Entry:
    now = time.time() if time_s is None else time_s
    return Entry(now, node.id, event, node.cluster, node.node, who, why, command)


def _line(settings: Settings, node: Proposal | Life, command: str, reason: str) -> list[str]:
    """The command, as a list that no shell reads."""
    cluster = settings.cluster(node.cluster)
    if cluster.kind == "kubernetes":
        return ["kubectl", "cordon" if command == "drain" else "uncordon", node.node]
    parts: Sequence[str] = getattr(cluster, command)
    return [part.replace("{node}", node.node).replace("{reason}", reason) for part in parts]


def _run(line: Sequence[str], timeout_s: float) -> str:
    """What a command prints.

    Raises:
        InputError: ``unavailable`` if it cannot be run, fails or takes too long.
    """
    try:
        run = subprocess.run(line, capture_output=True, text=True, timeout=timeout_s, check=False)
        problem = run.stderr.strip()[-300:] or f"exit code {run.returncode}"
        if run.returncode == 0:
            return run.stdout
    except OSError as error:
        problem = error.strerror or str(error)
    except subprocess.TimeoutExpired:
        problem = f"no answer in {duration(timeout_s)}"
    raise InputError(
        f"`{line[0]}` failed",
        code="unavailable",
        found=problem,
        remedy=f"try it by hand: {shlex.join(line)}",
    )


# --- Limits --------------------------------------------------------------------------------------


@dataclass
class Seen:
    """The nodes of a cluster as it says they are now."""

    partitions: dict[str, set[str]] = field(default_factory=dict)  # Node -> its partitions
    out: set[str] = field(default_factory=set)


def seen(cluster: Cluster) -> Seen:
    """Ask a cluster which nodes are in service.

    Raises:
        InputError: ``unavailable`` if it cannot be asked, or says nothing that is understood.
    """
    found = Seen()
    for line in _run(cluster.nodes, cluster.timeout).splitlines():
        node, _, rest = line.strip().partition("|")
        partition, _, state = rest.partition("|")
        if not (node and state):
            continue
        found.partitions.setdefault(node, set()).add(partition)
        if state.upper().rstrip(FLAGS) not in IN_SERVICE:
            found.out.add(node)
    if not found.partitions:
        raise InputError(
            "the cluster does not say which nodes it has",
            code="unavailable",
            found="no line NODE|PARTITION|STATE",
            remedy=f"try it by hand: {shlex.join(cluster.nodes)}",
        )
    return found


def _confirm(node: Proposal | Life, cluster: Cluster, line: Sequence[str]) -> None:
    """Ask the cluster whether a node is out: a command that ends well may have done nothing.

    Raises:
        InputError: ``unavailable`` if it is in service.
    """
    if node.node not in seen(cluster).out:
        raise InputError(
            "the command ended well, and the node is still in service",
            code="unavailable",
            place=node.id,
            found=named(node),
            remedy=f"try it by hand: {shlex.join(line)}",
        )


def _hold_limits(node: Proposal | Life, writer: Writer, settings: Settings, now_s: float) -> None:
    """Refuse an approval after which too much would be out of service.

    Raises:
        InputError: ``limit``, or ``conflict`` if the node is out already or not of the cluster.
    """
    limits = settings.limits
    mine = [step for step in writer.entries if step.cluster == node.cluster and step.id != node.id]
    approved = [step.time_s for step in mine if step.event == "approved"]
    latest = max(approved, default=-math.inf)
    cluster = seen(settings.cluster(node.cluster))
    if node.node not in cluster.partitions:
        raise InputError(
            "the cluster has no such node",
            code="conflict",
            found=node.node,
            expected=f"a node such as {min(cluster.partitions)}",
        )
    if node.node in cluster.out:
        raise InputError("the node is out of service already", code="conflict", found=node.node)
    decided = {life.node for life in lives(mine).values() if life.state in OUT}
    out = cluster.out | (decided & set(cluster.partitions)) | {node.node}
    every = len(cluster.partitions)
    alone = [
        partition
        for partition in sorted(cluster.partitions[node.node])
        if not any(partition in of and each not in out for each, of in cluster.partitions.items())
    ]
    wait = duration(max(limits.cooldown - (now_s - latest), 0.0))
    share = f"{percent(len(out) / every)} of at most {percent(limits.share)}"
    problems = [
        (place, problem)
        for place, is_passed, problem in (
            ("cooldown", now_s - latest < limits.cooldown, f"too soon after the last: wait {wait}"),
            ("nodes", len(out) > limits.nodes, f"{len(out)} of at most {limits.nodes} nodes out"),
            ("share", len(out) > limits.share * every, f"{share} of the nodes out"),
            ("partition", bool(alone), f"the last node in service of {', '.join(alone)}"),
        )
        if is_passed
    ]
    for place, problem in problems[:1]:
        others = ", ".join(sorted(out - {node.node})[:MOST_TOLD])
        raise InputError(
            f"the approval is refused: {problem}",
            code="limit",
            place=f"limits.{place}",
            found=f"out already: {others or 'none'}",
            remedy="bring a node back first, or change the limits in the file of --actions",
        )
