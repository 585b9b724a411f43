"""Nodes with known faults, tested as a plan says: the truth against which verdicts are held."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.runs.pairing.plan import PairPlan, plan_pairs
from holdfast.runs.pairing.records import PairResult, PairTest
from holdfast.runs.pairing.solve import PairVerdict, solve_pairs

Fails = Callable[[Sequence[str]], bool]


def names(count: int) -> list[str]:
    return [f"node{number}" for number in range(1, count + 1)]


@dataclass
class Cluster:
    """Which nodes fail every test, which some, and which pairs never hear each other."""

    faulty: set[str] = field(default_factory=set)
    intermittent: dict[str, float] = field(default_factory=dict)
    dead_links: set[frozenset[str]] = field(default_factory=set)
    chance: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def fails(self, nodes: Sequence[str]) -> bool:
        if not self.faulty.isdisjoint(nodes):
            return True
        if any(frozenset(pair) in self.dead_links for pair in itertools.combinations(nodes, 2)):
            return True
        if any(self.random.random() < self.intermittent.get(node, 0.0) for node in nodes):
            return True
        return self.chance > 0 and self.random.random() < self.chance


@dataclass
class Campaign:
    verdict: PairVerdict
    results: list[PairResult]
    plans: list[PairPlan]

    @property
    def rounds(self) -> int:
        return len(self.plans)


def carry_out(tests: Iterable[PairTest], fails: Fails, triples: bool = True) -> list[PairResult]:
    """The results of a round; a triple as one test, or as the two pairs of {a} and {b}."""
    found: list[PairResult] = []
    for test in tests:
        groups = [test.nodes]
        if len(test.nodes) == 3 and not triples:
            groups = [test.nodes[:2], test.nodes[1:]]
        for part, nodes in enumerate(groups, 1):
            name = test.test if len(groups) == 1 else f"{test.test}.{part}"
            for attempt in range(1, test.repeats + 1):
                outcome = "failed" if fails(nodes) else "passed"
                found.append(PairResult(nodes, outcome, test.round, name, attempt))
    return found


def until_told(
    nodes: Sequence[str],
    fails: Fails,
    *,
    triples: bool = True,
    passes: int = 1,
    most_rounds: int = 60,
) -> Campaign:
    """Rounds until the plan is empty."""
    results: list[PairResult] = []
    plans: list[PairPlan] = []
    while (plan := plan_pairs(nodes, results, passes=passes)).tests:
        in_round = [node for test in plan.tests for node in test.nodes]
        assert len(in_round) == len(set(in_round)), "a node is in two tests of one round"
        assert len(plans) < most_rounds, "no end of rounds"
        plans.append(plan)
        results += carry_out(plan.tests, fails, triples)
    return Campaign(solve_pairs(results, nodes=nodes), results, plans)
