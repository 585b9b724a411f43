"""What to test next: the tests of one round, all of them side by side.

Round one pairs all nodes; an odd one joins a triple. Later rounds depend on what is known by then, in
this order, each node being in one test of a round at most:

1. a contradiction (nodes that failed together and pass elsewhere) is repeated, its nodes first together,
   then apart beside good nodes;
2. a suspect stands beside a good node; where good nodes are too few, those suspects that failed least
   are paired with each other, in pairs that were not tested yet: a pass clears two;
3. nodes without a result are paired as in round one;
4. good nodes that passed fewer tests than asked for are paired anew.
"""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, Finding, Section, Table
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.runs.pairing.nodes import checked_names, expand_nodes, in_order, is_stdin
from holdfast.runs.pairing.records import PairResult, PairTest, as_results
from holdfast.runs.pairing.solve import (
    Contradiction,
    PairVerdict,
    solve_pairs,
)

REPEATS = 3
"""Executions of each test that is to explain a contradiction."""
MOST_CYCLES = 2
"""How often a contradiction is repeated, together and apart, before it stays open."""
MOST_SHOWN = 3
"""Tests of one purpose whose nodes are shown."""
MOST_NOT_RUN = 2
"""Tests with a node that could not start before the node is left alone."""


@dataclass(frozen=True)
class PairPlan(Answer):
    """The tests of one round: no node is in two of them."""

    round: int
    tests: tuple[PairTest, ...]
    """Empty: nothing is left that a test could tell."""
    nodes: tuple[str, ...]
    """All nodes that the plan is about."""
    path: Path | None = None
    """Where it was written."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the plan; `tests` are the lines that `plan` prints."""
        return {
            "round": self.round,
            "nodes": len(self.nodes),
            "tests": [test.to_dict() for test in self.tests],
        }

    def written(self) -> Mapping[str, Path]:
        """The file of the plan."""
        return {} if self.path is None else {"plan": self.path}

    def sections(self) -> Sequence[Section]:
        """The tests by purpose."""
        if not self.tests:
            return [
                Section("tests", "What to test next?", "Nothing is left that a test could tell.")
            ]
        rows = []
        for why in dict.fromkeys(test.why for test in self.tests):
            tests = [test for test in self.tests if test.why == why]
            nodes = ["+".join(test.nodes) for test in tests[:MOST_SHOWN]]
            more = " ..." if len(tests) > MOST_SHOWN else ""
            executions = sum(test.repeats for test in tests)
            text = ", ".join(nodes) + more
            row = {"why": why, "tests": len(tests), "executions": executions}
            rows.append({**row, "nodes": text})
        sentence = f"Round {self.round}: {counted(len(self.tests), 'test')}."
        table = Table(pa.Table.from_pylist(rows), caption="One row per purpose.")
        return [Section("tests", "What to test next?", sentence, tables=[table])]


@dataclass(frozen=True)
class Solved(Answer):
    """A verdict, and what to run next."""

    verdict: PairVerdict
    plan: PairPlan
    next_command: str | None
    """The line that plans and runs the next round; None: no further test can tell more."""
    gate: bool = False
    """The answer is a failure unless every node is good."""

    @property
    def exit_code(self) -> int:
        """1: the gate was not met."""
        return int(self.gate and len(self.verdict.names("good")) < len(self.verdict.nodes))

    def to_dict(self) -> dict[str, Any]:
        """The JSON that `solve` prints."""
        tests = len(self.plan.tests)
        after = {"round": self.plan.round, "tests": tests, "command": self.next_command}
        return {**self.verdict.to_dict(), "next": after if self.next_command else None}

    def findings(self) -> Sequence[Finding]:
        """Those of the verdict."""
        return self.verdict.findings()

    def sections(self) -> Sequence[Section]:
        """Those of the verdict."""
        return self.verdict.sections()

    def rendered(self, verbose: bool) -> list[str]:
        """What the terminal shows; the command stays on one line, to be pasted."""
        from holdfast.report.terminal import PIPE_WIDTH, text

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
        shown = [text(self.verdict, verbose, width)]
        if self.next_command:
            tests = counted(len(self.plan.tests), "test")
            shown.append(f"Next, round {self.plan.round} ({tests}):\n  {self.next_command}")
        elif not self.verdict.complete:
            shown.append("No further test of these nodes can tell more.")
        return shown


def plan_pairs(
    nodes: str | Iterable[str],
    results: Iterable[PairResult] | str | Path = (),
    *,
    passes: int = 1,
) -> PairPlan:
    """The tests of the next round.

    Args:
        nodes: names, or one text: a host list (``node[1-64]``) or a file with one host per line. Nodes that
            only the results name are taken along.
        results: all results so far, or their file; none for round one.
        passes: tests that a good node must have passed. One finds what fails always; a node that fails a
            share q of its tests is missed with probability (1 - q) ** passes.

    Returns:
        Tests without a node in common; none if nothing is left that a test could tell.

    Raises:
        InputError: if fewer than two nodes are named, or a name is none.

    Source: Acme (arXiv 2403.07648, section 6.1), for two rounds; the module says what follows them.
    """
    if passes < 1:
        raise InputError(
            "a good node must pass a test",
            code="invalid-value",
            found=str(passes),
            expected="1 or more",
        )
    given = as_results(results)
    named = expand_nodes(nodes) if isinstance(nodes, str) else checked_names(nodes)
    verdict = solve_pairs(given, nodes=named)
    everyone = tuple(node.node for node in verdict.nodes)
    if len(everyone) < 2:
        raise InputError(
            "a pair test needs at least two nodes",
            code="invalid-value",
            found=", ".join(everyone) or "none",
            expected="a host list (node[1-64]), or a file with one host per line",
            remedy="a name that was meant as a file: is the file there?" if everyone else None,
        )
    draft = _Draft(verdict, given, passes)
    draft.explain_contradictions()
    draft.try_suspects()
    draft.pair_untested()
    draft.confirm_good()
    return PairPlan(draft.round, tuple(draft.tests), everyone)


class _Draft:
    """A round in the making: the tests so far, and the nodes that are not in one yet."""

    def __init__(self, verdict: PairVerdict, results: Sequence[PairResult], passes: int) -> None:
        self.verdict = verdict
        self.passes = passes
        self.round = verdict.rounds + 1
        self.tests: list[PairTest] = []
        self.busy: set[str] = set()
        self.records = {node.node: node for node in verdict.nodes}
        self.partners: dict[str, set[str]] = defaultdict(set)
        self.apart: dict[str, int] = defaultdict(int)
        self.together: dict[tuple[str, ...], int] = defaultdict(int)
        for result in results:
            key = in_order(result.nodes)
            self.together[key] += 1
            for node in key:
                self.apart[node] += 1
                if len(key) == 2:  # a triple that failed says little of its pairs
                    self.partners[node].update(set(key) - {node})
        good = [node for node in verdict.nodes if node.state == "good"]
        good.sort(key=lambda node: (node.not_run, -node.passed))
        self.good = dict.fromkeys(node.node for node in good)
        """Helpers that are free: those that passed most tests first."""

    def explain_contradictions(self) -> None:
        for found in self.verdict.open:
            if not self.busy.isdisjoint(found.nodes):
                continue
            repeated, apart = self._seen(found)
            limit = 1 + MOST_CYCLES * REPEATS
            if repeated < limit and repeated <= 1 + apart:
                self._add(found.nodes, "together", REPEATS)
            elif apart < limit:
                for node in found.nodes:
                    self._beside_good(node, "apart", REPEATS)

    def _seen(self, found: Contradiction) -> tuple[int, int]:
        """(tests of these nodes together, of the least tested one with others)."""
        together = self.together[found.nodes]
        return together, min(self.apart[node] for node in found.nodes) - together

    def try_suspects(self) -> None:
        """Suspects, those with the most failures first, beside good nodes; the others in new pairs."""
        suspects = self._open("suspect")
        suspects.sort(key=lambda node: self.records[node].rank, reverse=True)
        left = [node for node in suspects if not self._beside_good(node, "suspect")]
        self._pair_anew(left[::-1], "suspects")

    def pair_untested(self) -> None:
        """As in round one; an odd one joins a triple, unless a good node is free.

        Where a test could not start, one of its nodes may be down: they are kept from each other.
        """
        tried = [node for node in self._open("untested") if self.records[node].not_run]
        left = [node for node in tried if not self._beside_good(node, "pair")]
        self._pair_anew(left, "pair")
        nodes = [node for node in self._open("untested") if not self.records[node].not_run]
        odd = [nodes.pop()] if len(nodes) % 2 else []
        if odd and self._beside_good(odd[0], "pair"):
            odd = []
        pairs = [tuple(nodes[at : at + 2]) for at in range(0, len(nodes), 2)]
        if odd and pairs:
            pairs[-1] += tuple(odd)
        for pair in pairs:
            self._add(pair, "pair")

    def confirm_good(self) -> None:
        """Good nodes that passed too few tests, with new partners."""
        few = [node for node in self._open("good") if self.records[node].passed < self.passes]
        for node in self._pair_anew(few, "confirm"):
            self._beside_good(node, "confirm")

    def _open(self, state: str) -> list[str]:
        return [
            node
            for node, record in self.records.items()
            if record.state == state and node not in self.busy and record.not_run < MOST_NOT_RUN
        ]

    def _add(self, nodes: tuple[str, ...], why: str, repeats: int = 1) -> None:
        identifier = f"r{self.round}-{len(self.tests) + 1:04d}"
        self.tests.append(PairTest(self.round, identifier, nodes, why, repeats))
        self.busy.update(nodes)
        for node in nodes:
            self.good.pop(node, None)

    def _beside_good(self, node: str, why: str, repeats: int = 1) -> bool:
        """Put a node beside a free good node with which it was not tested yet."""
        if node in self.busy:
            return False
        others = (helper for helper in self.good if helper != node)
        helper = next((other for other in others if other not in self.partners[node]), None)
        if helper is None and why == "apart":
            helper = next((other for other in self.good if other != node), None)
        if helper is None:
            return False
        self._add((node, helper), why, repeats)
        return True

    def _pair_anew(self, nodes: Sequence[str], why: str) -> list[str]:
        """Pair nodes that were not tested together yet, neighbours in the list first; who is left."""
        waiting = dict.fromkeys(nodes)
        left: list[str] = []
        while waiting:
            node = next(iter(waiting))
            del waiting[node]
            known = self.partners[node]
            partner = next((other for other in waiting if other not in known), None)
            if partner is None:
                left.append(node)
            else:
                del waiting[partner]
                self._add((node, partner), why)
        return left


def next_command(results: str, known: Sequence[PairResult], passes: int = 1) -> str:
    """The line that plans and runs the next round, with the command of the last one."""
    template = next((row.template for row in reversed(known) if row.template), "")
    file = quote("RESULTS" if is_stdin(results) else results)
    options = f" --passes {passes}" if passes > 1 else ""
    command = quote(template) if template else "COMMAND"
    return (
        f"holdfast runs pairtest plan --from {file}{options} | "
        f"holdfast runs pairtest run - --command {command} -o {file}"
    )
