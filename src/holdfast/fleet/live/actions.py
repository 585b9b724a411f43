"""`holdfast fleet act`: what would be done about nodes, and the hand that does it once somebody approves.

Nothing runs by itself. An approval takes the lock of the journal, asks the cluster itself which nodes are
out, holds the limits against that, writes that it is approved, runs the command, and writes how it ended;
so two approvals at the same moment never pass a limit together, and a killed process leaves a node that
counts as out until somebody says what became of it.
"""

from __future__ import annotations

import getpass
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.answer import Answer, Finding, Section, Unknown, Value
from holdfast.errors import HoldfastError, InputError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.gaps import Doubtful
from holdfast.fleet.live.journal import AFTER, OUT, Entry, Life, entries, lives, named, writing
from holdfast.fleet.live.limits import check_limits, node_states, out_of_service, run, unavailable
from holdfast.fleet.live.proposals import Proposal, after_return, blind, proposals
from holdfast.fleet.live.settings import UNNAMED, Settings
from holdfast.fleet.log import DAY_S, AnyLog, open_log
from holdfast.fleet.losses import GPU_HOURS
from holdfast.fleet.moments import iso, minute
from holdfast.fleet.wording import listed, table
from holdfast.numbers import counted

USUAL = Settings()
HOLDFAST = "holdfast"  # Who proposes and judges

# What a user may ask for -> the event, and the command of the cluster that it runs
DEEDS = {
    "approve": ("approved", "drain"),
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
    blind: str  # Why the log cannot tell which node to pull; "" if it can

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet act``."""
        decided = [
            {
                **vars(life),
                "state": life.state,
                "steps": [{**vars(step), "time": iso(step.time_s)} for step in life.steps],
            }
            for life in self.lives
        ]
        return {"proposals": [vars(each) for each in self.proposals], "lives": decided}

    @property
    def out(self) -> list[str]:
        """Nodes that are out of service by a decision."""
        return [named(life) for life in self.lives if life.state in OUT]

    def values(self) -> Sequence[Value]:
        """How many nodes wait for a decision, and how many are out by one."""
        gains = [each.wins for each in self.proposals]
        gain = None if None in gains else sum(each or 0.0 for each in gains)
        unit = self.proposals[0].unit if self.proposals else GPU_HOURS
        return [
            Value("proposed", len(self.proposals), "nodes", better="lower"),
            Value("out", len(self.out), "nodes", better="lower"),
            Value("wins_a_month", gain, unit),
        ]

    def sections(self) -> Sequence[Section]:
        """What to decide, and what was decided."""
        return [self._proposed(), *([self._decided()] if self.lives else [])]

    def _proposed(self) -> Section:
        text, tables = "Nothing is proposed: no other node fails more than chance explains.", []
        if self.blind:
            text = f"Cannot tell: {self.blind}."
        elif self.proposals:
            first = self.proposals[0]
            text = (
                f"{counted(len(self.proposals), 'node')} should be pulled, {named(first)} first: "
                f"{first.gain} Nothing is done before --approve {first.id}."
            )
            rows = []
            for each in self.proposals:
                low, high = each.wins_ci95 or (None, None)
                rows.append({**vars(each), "node": named(each), "low": low, "high": high})
            proposed = table(
                rows,
                "id node wins costs command",
                "One row per node, the largest win first; the cost is once, while it is repaired.",
                wins={"unit": first.unit},
                costs={"unit": first.unit},
            )
            tables = [proposed]
        return Section("proposed", "What would be done?", text, tables=tables)

    def _decided(self) -> Section:
        rows = [{**vars(life.steps[-1]), "node": named(life)} for life in reversed(self.lives)]
        decided = table(
            rows,
            "id node event time_s who why",
            "One row per life of a node, the latest first.",
        )
        text = f"{counted(len(self.out), 'node')} out by a decision in the journal."
        if begun := [life.id for life in self.lives if life.state == "approved"]:
            text += (
                f" Approved, and perhaps never drained: {listed(begun)}; approve again, or undo."
            )
        return Section("decided", "What was decided?", text, tables=[decided])

    def unknowns(self) -> Sequence[Unknown]:
        """What makes it doubtful; a log that ends long ago is, too."""
        gaps = list(super().unknowns())
        if time.time() - self.log.end_s > DAY_S:
            text = f"What happened since the log ends, {minute(self.log.end_s)}."
            gaps.append(Unknown(text, "Ingest what is new before you decide.", doubt=True))
        return gaps


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


def deeds(each: Proposal | Life) -> list[str]:
    """What may be decided next of a proposal, or of a node that is out."""
    state = each.state or "proposed"
    return [deed for deed, (event, _) in DEEDS.items() if state in AFTER[event]]


def actions(log: AnyLog | Analysis, settings: Settings = USUAL) -> Actions:
    """What would be done about nodes, and what was decided.

    What is proposed, or judged, for the first time is noted in the journal.

    Args:
        log: a store, an open log, or what is computed of it.
        settings: how its clusters are acted on.
    """
    analysis = log if isinstance(log, Analysis) else Analysis(open_log(log))
    log, store = analysis.log, analysis.log.store.path
    before = lives(entries(store))
    waiting = proposals(analysis, before)
    news = [(each, "proposed", each.evidence) for each in waiting if each.id not in before]
    back = [life for life in before.values() if life.state in AFTER["judged"]]
    news += [(life, "judged", text) for life in back if (text := after_return(log, life))]
    if news:
        with suppress(HoldfastError), writing(store) as writer:  # who may only read, reads
            for each, event, text in news:
                with suppress(InputError):  # somebody else was first
                    writer.add(
                        Entry(time.time(), each.id, event, each.cluster, each.node, HOLDFAST, text)
                    )
    return Actions(
        [replace(each, command=shlex.join(_command(each, "drain", settings))) for each in waiting],
        [life for life in lives(entries(store)).values() if life.state != "proposed"],
        blind(analysis),
        log=log,
    )


def act(
    log: AnyLog,
    deed: str,
    life_id: str,
    *,
    who: str = "",
    why: str = "",
    settings: Settings = USUAL,
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
    event, command = DEEDS[deed]
    is_drain = command == "drain"
    if command and log.store.is_simulated:
        raise InputError(
            "a simulated log is no reason to act on a cluster",
            code="conflict",
            path=log.store.path,
            remedy="ingest the log of the cluster",
        )
    if life_id not in lives(entries(log.store.path)):
        actions(log)  # notes what is proposed
    who = who or getpass.getuser()
    with writing(log.store.path) as writer:
        # 1. Whether it may be done: by them, and after what was done before.
        known = lives(writer.entries)
        if life_id not in known:
            raise InputError(
                f"no node has the id {life_id!r}",
                code="unknown-name",
                expected=", ".join([*known][-5:]) or "an id that `holdfast fleet act STORE` shows",
            )
        life = known[life_id]
        if not may(life.cluster):
            raise InputError(
                f"{who} may not act on {named(life)}",
                code="refused",
                place=life_id,
                expected=f"an operator of cluster {life.cluster or UNNAMED}",
            )
        writer.check(life_id, event)

        def note(event: str, who: str = who, why: str = why, line: Sequence[str] = ()) -> Done:
            step = (life_id, event, life.cluster, life.node, who, why, shlex.join(line))
            writer.add(Entry(clock(), *step))
            return Done(**vars(writer.entries[-1]))

        if not command:
            return note(event)
        # 2. Whether the cluster bears it. An approval is in the journal before anything runs.
        cluster = settings.cluster(life.cluster)
        line = _command(life, command, settings, f" ({who})")
        if cluster.kind == "kubernetes":
            raise InputError(
                "holdfast does not act on Kubernetes",
                code="unsupported",
                found=named(life),
                remedy=f"run it yourself: {shlex.join(line)}",
            )
        if is_drain:
            check_limits(life, writer.entries, settings, clock())
            note(event, line=line)
        # 3. Do it; a command that ends well may have done nothing, so the cluster is asked again.
        try:
            run(line, cluster.timeout)
            if is_drain and life.node not in out_of_service(node_states(cluster)):
                text = "the command ended well, and the node is still in service"
                raise unavailable(text, named(life), line)
        except InputError as error:
            if is_drain:
                note("failed", HOLDFAST, str(error.found))
            raise
        return note("drained" if is_drain else event, line=line)


def _command(each: Proposal | Life, kind: str, settings: Settings, by: str = "") -> list[str]:
    """The command, as a list that no shell reads; Slurm shows its reason beside a drained node."""
    cluster = settings.cluster(each.cluster)
    if cluster.kind == "kubernetes":
        return ["kubectl", "cordon" if kind == "drain" else "uncordon", each.node]
    reason = f"holdfast {each.id}: {each.evidence}{by}".replace("−", "-")
    parts: Sequence[str] = getattr(cluster, kind)
    return [part.replace("{node}", each.node).replace("{reason}", reason) for part in parts]
