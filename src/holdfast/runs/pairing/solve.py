"""What the results of pair tests prove, and what they leave open.

Proof needs two rules. A test that passes shows that its nodes work. A test that fails although all its
nodes but one work shows that this one is faulty (round two of Acme's test, arXiv 2403.07648, section
6.1, in which that one stands beside a known-good node). Nothing more follows: whatever these two rules
leave open has one explanation with a given suspect good and another with it faulty.

A failing test of which *all* nodes work elsewhere is a contradiction. Counts settle it (`_verdict`): one
node that failed with several partners is intermittent; nodes that fail only together have a bad link;
what failed once and then no more was chance. Everything else is open.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Finding, Section, Table
from holdfast.numbers import counted
from holdfast.plain import plain
from holdfast.runs.pairing.nodes import by_number, in_order
from holdfast.runs.pairing.records import PairResult, as_results

State = Literal["good", "faulty", "intermittent", "suspect", "doubtful", "untested"]
Cause = Literal["intermittent", "link", "chance", "open"]

UNLIKELY = 0.02
"""An explanation under which the passes had a smaller probability is ruled out."""
FAILING_SHARE = 0.5
"""Share of tests that an intermittent node or link is taken to fail."""
SURE_FAILURES = 2
"""Failures beside good nodes after which a bad link or an intermittent helper is ruled out."""
MOST_NAMES = 12
MOST_EACH = 5
"""Sentences of one kind; the rest is counted."""
MOST_EVIDENCE = 3
_ORDER: tuple[State, ...] = ("faulty", "intermittent", "doubtful", "suspect", "untested", "good")


@dataclass(frozen=True)
class NodeVerdict:
    """Verdict on one node."""

    node: str
    state: State
    """``good``: it passed, without evidence against it; ``faulty``: it failed with nodes that work, and
    never passed; ``intermittent``: it passes and fails; ``suspect``: it failed with others that may be at
    fault; ``doubtful``: it passed, but is in an unresolved contradiction; ``untested``."""
    failed_beside_good: int
    """Number of different sets of good nodes beside which it failed."""
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
    def rank(self) -> tuple[int, int]:
        """Sorts the most suspicious last."""
        return self.failed_beside_good, self.failed


@dataclass(frozen=True)
class Contradiction:
    """Nodes that failed together although each of them passes elsewhere."""

    nodes: tuple[str, ...]
    passed: int
    """Tests of these nodes together that passed."""
    failed: int
    tests: tuple[str, ...]
    """Identifiers of the failed ones."""
    verdict: Cause
    """``intermittent``: the node `culprit`; ``link``: the link between them; ``chance``: it failed
    without a lasting cause; ``open``: none of these is certain."""
    culprit: str | None


@dataclass(frozen=True)
class PairVerdict(Answer):
    """What the tests say of all nodes."""

    nodes: tuple[NodeVerdict, ...]
    """In the order in which they were given; then the others by name."""
    contradictions: tuple[Contradiction, ...]
    rounds: int
    """The highest round in the results."""
    tests: int
    """Executions that passed or failed."""
    not_run: int
    """Executions that could not start."""
    set_aside: int
    """Lines of the results that could not be used."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Pair test"

    def names(self, state: State) -> list[str]:
        """The nodes in a state, those with the most failures first."""
        found = [node for node in self.nodes if node.state == state]
        found.sort(key=lambda node: node.rank, reverse=True)
        return [node.node for node in found]

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
        """The JSON of the verdict."""
        return {
            "findings": [finding.text for finding in self.findings()],
            "complete": self.complete,
            **{state: self.names(state) for state in _ORDER if state != "good"},
            "good": [node.node for node in self.nodes if node.state == "good"],
            "bad_links": [list(found.nodes) for found in self.bad_links],
            "contradictions": plain(self.contradictions),
            "nodes": plain(self.nodes),
            "rounds": self.rounds,
            "tests": self.tests,
            "not_run": self.not_run,
            "set_aside": self.set_aside,
        }

    def findings(self) -> list[Finding]:
        """Nodes to pull, links to check, what is open, what works: the most urgent first."""
        return [Finding(sentence, "nodes") for sentence in self._sentences()]

    def sections(self) -> Sequence[Section]:
        """The nodes, the bad ones first."""
        ordered = sorted(self.nodes, key=lambda node: node.rank, reverse=True)
        ordered.sort(key=lambda node: _ORDER.index(node.state))
        bad = [node for node in ordered if node.state != "good"]
        good = [node for node in ordered if node.state == "good"]
        tables = [_table(bad)] if bad else []
        if good:
            tables.append(_table(good, detail=True))
        return [Section("nodes", "Which nodes are bad?", self.headline, tables=tables)]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Tests and lines that were not used."""
        tests = (
            f"{self.tests:,} in {counted(self.rounds, 'round')}, {self.not_run:,} could not start"
        )
        return [("Tests", tests), ("Unreadable lines", f"{self.set_aside:,}")]

    def _sentences(self) -> list[str]:
        untested = self.names("untested")
        tried = [node.node for node in self.nodes if node.state == "untested" and node.not_run]
        why = f"; on {listed(tried)} the test could not start" if tried else ""
        unknown = [f"No result for {listed(untested)}{why}."] if untested else []
        if not self.tests:
            return ["No test has a result yet.", *unknown]
        if self.nothing_passed:
            nodes = counted(len(self.nodes), "node")
            nothing = (
                f"No test passed ({counted(self.tests, 'test')} on {nodes}): at most one node works, or, "
                "more likely, the command fails everywhere. Run it by hand on two nodes that you trust "
                "before you pull any."
            )
            return [nothing, *unknown]
        good = len(self.names("good"))
        works = (
            f"{counted(good, 'node')} of {len(self.nodes):,} {'works' if good == 1 else 'work'}."
        )
        return [
            *self._bad(),
            *_limited([_explained(found) for found in self.contradictions]),
            *self._suspects(),
            *unknown,
            f"All {good:,} nodes work." if good == len(self.nodes) else works,
        ]

    def _bad(self) -> list[str]:
        """Nodes to pull."""
        said = []
        if faulty := self.names("faulty"):
            verb = "is faulty: it" if len(faulty) == 1 else "are faulty: each"
            said.append(f"{listed(faulty)} {verb} failed beside nodes that work, and never passed.")
            by_name = {node.node: node for node in self.nodes}
            weak = [n for n in faulty if by_name[n].failed_beside_good < SURE_FAILURES]
            if weak:
                rest = "failed beside one good node only: a bad link is possible; try it beside another."
                said.append(f"{listed(weak)} {rest}")
        flapping = [node for node in self.nodes if node.state == "intermittent"]
        said += _limited(
            [
                f"{node.node} is intermittent: it failed {node.failed:,} of "
                f"{node.passed + node.failed:,} tests, with nodes that work."
                for node in flapping
            ]
        )
        return said

    def _suspects(self) -> list[str]:
        names = self.names("suspect")
        if not names:
            return []
        verb = "is a suspect: it" if len(names) == 1 else "are suspects: they"
        first = f"{listed(names)} {verb} failed, but not yet beside a node that surely works."
        return [first]


def solve_pairs(
    results: Iterable[PairResult] | str | Path, *, nodes: Iterable[str] = ()
) -> PairVerdict:
    """Which nodes are faulty, which are suspects, and what cannot be told.

    Args:
        results: what the tests showed: a file that `run_pairs` wrote, or its rows.
        nodes: all nodes, so that those without a result are named as untested.

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
    contradictions = _contradictions(tallies, works, records)
    intermittent = {one.culprit for one in contradictions if one.culprit is not None}
    doubtful = {node for one in contradictions if one.verdict == "open" for node in one.nodes}
    trusted = works - intermittent - doubtful
    blamed = [set(tally.nodes) - trusted for tally in tallies if tally.failed]
    alone = Counter(node for nodes in blamed if len(nodes) == 1 for node in nodes)
    faulty = {node for node in alone if node not in works}

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
                failed_beside_good=alone[node],
                passed=record.passed,
                failed=record.failed,
                timed_out=record.timed_out,
                not_run=record.not_run,
                evidence=tuple(record.evidence),
            )
            for node, record in records.items()
        ),
        contradictions=tuple(contradictions),
        rounds=max((result.round for result in given), default=0),
        tests=sum(result.outcome != "not_run" for result in given),
        not_run=sum(result.outcome == "not_run" for result in given),
        set_aside=len(given.set_aside),
    )


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Names as a sentence holds them: ``a``, ``a and b``, ``a, b and 7 more``."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most:,} more")
    first = ", ".join(shown[:-1])
    return f"{first} and {shown[-1]}" if first else "".join(shown)


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


@dataclass(frozen=True)
class _Tally:
    """All outcomes of one set of nodes."""

    nodes: tuple[str, ...]
    passed: int
    failed: int
    tests: tuple[str, ...]


def _tallies(results: Iterable[PairResult]) -> list[_Tally]:
    """The outcomes of each set of nodes."""
    by_set: dict[tuple[str, ...], list[PairResult]] = defaultdict(list)
    for result in results:
        if result.outcome != "not_run":
            by_set[in_order(result.nodes)].append(result)
    tallies = []
    for nodes, rows in sorted(by_set.items(), key=lambda item: [*map(by_number, item[0])]):
        failed = [result.test for result in rows if result.failed]
        tallies.append(_Tally(nodes, len(rows) - len(failed), len(failed), tuple(failed)))
    return tallies


def _contradictions(
    tallies: Sequence[_Tally], works: set[str], records: Mapping[str, _Record]
) -> list[Contradiction]:
    """Failing tests of nodes that all work, with their cause where counts settle it."""
    failing = [tally for tally in tallies if tally.failed and works.issuperset(tally.nodes)]
    culprits = _culprits(failing)
    partners = Counter(node for tally in failing for node in tally.nodes)
    contradictions = []
    for tally in failing:
        culprit = next((node for node in tally.nodes if node in culprits), None)
        # Nodes that also failed elsewhere say nothing of the link between them.
        only_here = all(partners[node] == 1 for node in tally.nodes)
        apart = min(records[node].passed for node in tally.nodes) - tally.passed
        cause: Cause = "open"
        if culprit is not None:
            cause = "intermittent"
        elif only_here:
            cause = _cause(tally, apart)
        contradictions.append(
            Contradiction(tally.nodes, tally.passed, tally.failed, tally.tests, cause, culprit)
        )
    return contradictions


def _culprits(failing: Sequence[_Tally]) -> set[str]:
    """Nodes that failed with several partners, each more often than any of these."""
    left, found = list(failing), set[str]()
    while True:
        # 1. How often each node failed with another.
        partners = Counter(node for tally in left for node in tally.nodes)
        for node, count in partners.most_common():
            # 2. A node that failed more often than each of its partners explains all of them at once.
            beside = [tally for tally in left if node in tally.nodes]
            others = {other for tally in beside for other in tally.nodes} - {node}
            if count > 1 and all(partners[other] < count for other in others):
                break
        else:
            return found
        # 3. Its tests are explained; what is left may have another culprit.
        found.add(node)
        left = [tally for tally in left if node not in tally.nodes]  # these are explained


def _cause(tally: _Tally, apart: int) -> Cause:
    """What made nodes fail together that failed nowhere else.

    Args:
        tally: their tests together.
        apart: passes, without a failure, of the least tested of them with others.
    """
    # A part that fails half of its tests would have failed again.
    if tally.failed == 1:
        return "chance" if FAILING_SHARE**tally.passed <= UNLIKELY else "open"
    # A node that does would have failed apart as well, and not each time together.
    seen = apart if tally.passed else apart + tally.failed
    return "link" if FAILING_SHARE**seen <= UNLIKELY else "open"


def _limited(sentences: list[str]) -> list[str]:
    more = len(sentences) - MOST_EACH
    return sentences if more <= 0 else [*sentences[:MOST_EACH], f"({more:,} more like this.)"]


def _explained(contradiction: Contradiction) -> str:
    """A contradiction in a sentence; of an intermittent node the tests say it."""
    names = listed(contradiction.nodes)
    every = counted(contradiction.passed + contradiction.failed, "test")
    tests = f"failed together in {contradiction.failed:,} of {every}"
    return {
        "link": f"The network between {names} is to blame, not the nodes: they {tests} and pass with "
        "others.",
        "chance": f"{names} {tests}; it did not come again, so it was probably chance.",
        "open": f"{names} {tests} but pass elsewhere, and the cause cannot be told: a node, the network "
        "between them, or chance.",
        "intermittent": f"{names} {tests}: because of {contradiction.culprit}.",
    }[contradiction.verdict]


def _table(nodes: Sequence[NodeVerdict], detail: bool = False) -> Table:
    rows = {
        "node": [node.node for node in nodes],
        "verdict": [node.state for node in nodes],
        "beside": [node.failed_beside_good for node in nodes],
        "passed": [node.passed for node in nodes],
        "failed": [node.failed for node in nodes],
        "hung": [node.timed_out for node in nodes],
        "tests": [
            ", ".join(node.evidence[:MOST_EVIDENCE])
            + (" ..." if len(node.evidence) > MOST_EVIDENCE else "")
            for node in nodes
        ],
    }
    columns = {name: ColumnFormat() for name in rows}
    columns |= {"beside": ColumnFormat("failed beside good"), "tests": ColumnFormat("failed tests")}
    return Table(pa.table(rows), columns, caption="One row per node.", detail=detail)
