"""The fewest faulty nodes that could explain failures which no passing test has settled."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_NODES = 16
"""Larger puzzles are only counted: their explanations are too many to read."""
MOST_SHOWN = 12


@dataclass(frozen=True)
class Puzzle:
    """Failing tests that share suspects: at least one node of each test is bad."""

    nodes: tuple[str, ...]
    """The suspects."""
    tests: tuple[tuple[str, ...], ...]
    """The suspects of each failing test."""
    fewest: int | None
    """The least number of faulty nodes that explains all of them; None: too large to tell."""
    explanations: tuple[tuple[str, ...], ...]
    """Sets of that size, each of which explains all of them (the first `MOST_SHOWN`)."""
    count: int | None
    """How many there are."""

    @property
    def sentence(self) -> str:
        """What must be bad."""
        if self.fewest is None or self.count is None:
            return f"{len(self.nodes):,} suspects share {len(self.tests):,} failing tests."
        ways = " or ".join(" and ".join(chosen) for chosen in self.explanations[:3])
        more = f", or one of {self.count - 3:,} other ways" if self.count > 3 else ""
        return f"At least {self.fewest} of {' and '.join(self.nodes)} must be bad: {ways}{more}."


def puzzles(tests: Iterable[tuple[str, ...]]) -> tuple[Puzzle, ...]:
    """Failing tests grouped by the suspects that they share, each group with its explanations."""
    return tuple(_puzzle(group) for group in _groups(sorted(set(tests))))


def _groups(tests: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    head: dict[str, str] = {}

    def find(node: str) -> str:
        while head.setdefault(node, node) != node:
            head[node] = node = head[head[node]]
        return node

    for test in tests:
        for node in test[1:]:
            head[find(node)] = find(test[0])
    groups: dict[str, list[tuple[str, ...]]] = {}
    for test in tests:
        groups.setdefault(find(test[0]), []).append(test)
    return list(groups.values())


def _puzzle(tests: Sequence[tuple[str, ...]]) -> Puzzle:
    nodes = tuple(sorted({node for test in tests for node in test}))
    if len(nodes) > MOST_NODES:
        return Puzzle(nodes, tuple(tests), None, (), None)
    for size in range(1, len(nodes) + 1):
        found = [
            chosen
            for chosen in itertools.combinations(nodes, size)
            if all(not set(chosen).isdisjoint(test) for test in tests)
        ]
        if found:
            return Puzzle(nodes, tuple(tests), size, tuple(found[:MOST_SHOWN]), len(found))
    raise AssertionError("all nodes together explain every test")
