"""What the results of pair tests prove, what they make probable, and what they leave open.

Proof needs two rules. A test that passes shows that its nodes work. A test that fails although all its
nodes but one work shows that this one is faulty (round two of Acme's test, arXiv 2403.07648, section
6.1, in which that one stands beside a known-good node). Nothing more follows: whatever these two rules
leave open has one explanation with a given suspect good and another with it faulty.

A failing test of which *all* nodes work elsewhere is a contradiction: some node fails now and then, or
what lies between them is bad, or it failed by chance. `holdfast.runs.pairing.beliefs` weighs these; the
contradiction is settled when one explanation has `SURE` of the probability, and open until then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from holdfast.runs.pairing import wording
from holdfast.runs.pairing.beliefs import Beliefs, Set, Tally, infer
from holdfast.runs.pairing.explanations import Puzzle, puzzles
from holdfast.runs.pairing.model import PairModel
from holdfast.runs.pairing.nodes import by_number, in_order
from holdfast.runs.pairing.records import PairResult, as_results

State = Literal["good", "faulty", "intermittent", "suspect", "doubtful", "untested"]

SURE = 0.95

MODEL = PairModel()


@dataclass(frozen=True)
class NodeVerdict:
    """Verdict on one node."""

    node: str
    state: State
    """``good``: it passed, without evidence against it; ``faulty``: it failed with nodes that work, and
    never passed; ``intermittent``: it passes and fails; ``suspect``: it failed with others that may be at
    fault; ``doubtful``: it passed, but is in an unresolved contradiction; ``untested``."""
    probability: float | None
    """Probability of being faulty or intermittent, given the model; None if there are too many connected
    suspects."""
    passed: int
    """Number of its tests that passed."""
    failed: int
    """Number of its tests that failed, including those that hung."""
    timed_out: int
    """Number of its tests that hung."""
    not_run: int
    """Number of its tests that could not start."""
    evidence: tuple[str, ...]
    """The failed tests, ``test:node+node``."""

    @property
    def rank(self) -> float:
        """The probability, rounded to ignore rounding errors."""
        return round(self.probability or 0.0, 9)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of one node."""
        return {**vars(self), "evidence": list(self.evidence)}


@dataclass(frozen=True)
class Contradiction:
    """Nodes that failed together although each of them passes elsewhere."""

    nodes: tuple[str, ...]
    passed: int
    """Tests of these nodes together that passed."""
    failed: int
    tests: tuple[str, ...]
    """Identifiers of the failed ones."""
    verdict: Literal["intermittent", "link", "chance", "open"]
    """``intermittent``: the node `culprit`; ``link``: the link between them; ``chance``: it failed
    without a lasting cause; ``open``: none of these is certain."""
    culprit: str | None
    probabilities: Mapping[str, float] | None
    """Probabilities of ``link``, ``chance`` and of each node (to be intermittent)."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of one contradiction."""
        found = self.probabilities
        return {
            "nodes": list(self.nodes),
            "passed": self.passed,
            "failed": self.failed,
            "tests": list(self.tests),
            "verdict": self.verdict,
            "culprit": self.culprit,
            "probabilities": None if found is None else dict(found),
        }


@dataclass(frozen=True)
class PairVerdict:
    """What the tests say of all nodes."""

    nodes: tuple[NodeVerdict, ...]
    """In the order in which they were given; then the others by name."""
    contradictions: tuple[Contradiction, ...]
    puzzles: tuple[Puzzle, ...]
    """What is open among the suspects."""
    rounds: int
    """The highest round in the results."""
    tests: int
    """Executions that passed or failed."""
    not_run: int
    """Executions that could not start."""
    set_aside: int
    """Lines of the results that could not be used."""
    model: PairModel = field(default=MODEL)

    def names(self, state: State) -> list[str]:
        """The nodes in a state, the most probably bad first where probabilities are known."""
        found = [node for node in self.nodes if node.state == state]
        found.sort(key=lambda node: -node.rank)
        return [node.node for node in found]

    @property
    def findings(self) -> tuple[str, ...]:
        """The verdict in sentences, the most urgent first."""
        return wording.findings(self)

    @property
    def bad_links(self) -> list[Contradiction]:
        """Nodes between which the network is to blame."""
        return [found for found in self.contradictions if found.verdict == "link"]

    @property
    def open(self) -> list[Contradiction]:
        """Contradictions that are not settled."""
        return [found for found in self.contradictions if found.verdict == "open"]

    @property
    def complete(self) -> bool:
        """Every node is good, faulty or intermittent, and no contradiction is open."""
        known = ("good", "faulty", "intermittent")
        return not self.open and all(node.state in known for node in self.nodes)

    @property
    def nothing_passed(self) -> bool:
        """No test passed: rather the command fails everywhere than all nodes are bad."""
        return self.tests > 0 and not any(node.passed for node in self.nodes)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the verdict; probabilities are of being bad, given ``model``."""
        states: tuple[State, ...] = ("faulty", "intermittent", "suspect", "doubtful", "untested")
        return {
            "findings": list(self.findings),
            "complete": self.complete,
            **{state: self.names(state) for state in states},
            "good": [node.node for node in self.nodes if node.state == "good"],
            "bad_links": [list(found.nodes) for found in self.bad_links],
            "contradictions": [found.to_dict() for found in self.contradictions],
            "puzzles": [puzzle.to_dict() for puzzle in self.puzzles],
            "nodes": [node.to_dict() for node in self.nodes],
            "rounds": self.rounds,
            "tests": self.tests,
            "not_run": self.not_run,
            "set_aside": self.set_aside,
            "model": vars(self.model),
        }


def solve_pairs(
    results: Iterable[PairResult] | str | Path,
    *,
    nodes: Iterable[str] = (),
    model: PairModel = MODEL,
) -> PairVerdict:
    """Which nodes are faulty, which are suspects, and what cannot be told.

    Args:
        results: what the tests showed: a file that `run_pairs` wrote, or its rows.
        nodes: all nodes, so that those without a result are named as untested.
        model: what is assumed of nodes before any test; it changes probabilities and how contradictions
            are settled, never which node is called faulty by a test beside a node that works.

    Returns:
        A verdict on every node, with its evidence.

    Raises:
        InputError: if the file cannot be read or holds no results.

    Source: the two rounds of Acme (arXiv 2403.07648, section 6.1); the rest is described in this module.
    """
    given = as_results(results)
    records = _records(given, nodes)
    tallies = _tallies(given)
    works = {node for node, record in records.items() if record.passed}
    beliefs = infer(tallies, model, (node for node, record in records.items() if not record.seen))
    found = [_contradiction(tally, beliefs) for tally in _contradictory(tallies, works)]
    intermittent = {one.culprit for one in found if one.culprit is not None}
    doubtful = {node for one in found if one.verdict == "open" for node in one.nodes}
    trusted = works - intermittent - doubtful
    blamed = [
        tuple(node for node in tally.nodes if node not in trusted)
        for tally in tallies
        if tally.failed
    ]
    faulty = {nodes[0] for nodes in blamed if len(nodes) == 1 and nodes[0] not in works}
    settled = faulty | intermittent

    def state(node: str) -> State:
        if not records[node].seen:
            return "untested"
        if node in intermittent:
            return "intermittent"
        if node in faulty:
            return "faulty"
        if node not in works:
            return "suspect"
        return "doubtful" if node in doubtful else "good"

    return PairVerdict(
        nodes=tuple(
            NodeVerdict(
                node=node,
                state=state(node),
                probability=None if node not in beliefs.nodes else beliefs.nodes[node].bad,
                passed=record.passed,
                failed=record.failed,
                timed_out=record.timed_out,
                not_run=record.not_run,
                evidence=tuple(record.evidence),
            )
            for node, record in records.items()
        ),
        contradictions=tuple(found),
        puzzles=puzzles(
            nodes for nodes in blamed if settled.isdisjoint(nodes) and not works.issuperset(nodes)
        ),
        rounds=max((result.round for result in given), default=0),
        tests=sum(result.outcome != "not_run" for result in given),
        not_run=sum(result.outcome == "not_run" for result in given),
        set_aside=len(given.set_aside),
        model=model,
    )


@dataclass
class _Record:
    passed: int = 0
    failed: int = 0
    timed_out: int = 0
    not_run: int = 0
    evidence: list[str] = field(default_factory=list)

    @property
    def seen(self) -> bool:
        return self.passed + self.failed > 0


def _records(results: Sequence[PairResult], nodes: Iterable[str]) -> dict[str, _Record]:
    """What happened to each node."""
    named = in_order({node for result in results for node in result.nodes})
    records: dict[str, _Record] = {node: _Record() for node in (*nodes, *named)}
    for result in results:
        for node in result.nodes:
            record = records[node]
            record.passed += result.outcome == "passed"
            record.failed += result.failed
            record.timed_out += result.timed_out
            record.not_run += result.outcome == "not_run"
            if result.failed:
                record.evidence.append(f"{result.test or '?'}:{'+'.join(result.nodes)}")
    return records


def _tallies(results: Iterable[PairResult]) -> list[Tally]:
    """The outcomes of each set of nodes."""
    by_set: dict[Set, list[PairResult]] = defaultdict(list)
    for result in results:
        if result.outcome != "not_run":
            by_set[in_order(result.nodes)].append(result)
    return [
        Tally(
            nodes,
            sum(result.outcome == "passed" for result in rows),
            sum(result.failed for result in rows),
            tuple(result.test for result in rows if result.failed),
        )
        for nodes, rows in sorted(by_set.items(), key=lambda item: [*map(by_number, item[0])])
    ]


def _contradictory(tallies: Sequence[Tally], works: set[str]) -> list[Tally]:
    return [tally for tally in tallies if tally.failed and works.issuperset(tally.nodes)]


def _contradiction(tally: Tally, beliefs: Beliefs) -> Contradiction:
    """How a failing test of nodes that all work is explained, if one explanation is sure."""
    shares: dict[str, float] | None = None
    verdict: Literal["intermittent", "link", "chance", "open"] = "open"
    culprit: str | None = None
    if belief := beliefs.sets.get(tally.nodes):
        nodes = {node: beliefs.nodes[node].bad for node in tally.nodes}
        shares = {"link": belief.link, "chance": belief.chance, **nodes}
        worst = max(tally.nodes, key=nodes.__getitem__)
        if nodes[worst] >= SURE:
            verdict, culprit = "intermittent", worst
        elif belief.link >= SURE:
            verdict = "link"
        elif belief.chance >= SURE:
            verdict = "chance"
    return Contradiction(
        tally.nodes, tally.passed, tally.failed, tally.tests, verdict, culprit, shares
    )
