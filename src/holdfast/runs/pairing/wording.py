"""The verdict of the pair test in sentences, the most urgent first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.numbers import counted, percent

if TYPE_CHECKING:
    from holdfast.runs.pairing.explanations import Puzzle
    from holdfast.runs.pairing.solve import Contradiction, NodeVerdict, PairVerdict

MOST_NAMES = 12
MOST_EACH = 5
"""Sentences of one kind; what is left is counted."""


def findings(verdict: PairVerdict) -> tuple[str, ...]:
    """What the verdict says: nodes to pull, links to look at, what is open, what is well."""
    if not verdict.tests:
        return ("No test has a result yet.", *_untested(verdict))
    if verdict.nothing_passed:
        return (_nothing_passed(verdict), *_untested(verdict))
    settled = [found for found in verdict.contradictions if found.verdict in ("link", "chance")]
    return (
        *_faulty(verdict),
        *_limited([_intermittent(verdict, name) for name in verdict.names("intermittent")]),
        *_limited([_settled(found) for found in settled]),
        *_limited([_open(found) for found in verdict.open]),
        *_suspects(verdict),
        *_untested(verdict),
        _good(verdict),
    )


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Names as a sentence holds them: ``a``, ``a and b``, ``a, b and 7 more``."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most:,} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _limited(sentences: list[str]) -> list[str]:
    more = len(sentences) - MOST_EACH
    return sentences if more <= 0 else [*sentences[:MOST_EACH], f"({more:,} more like this.)"]


def _nothing_passed(verdict: PairVerdict) -> str:
    return (
        f"No test passed ({counted(verdict.tests, 'test')} on {counted(len(verdict.nodes), 'node')}): "
        "at most one node works, or, more likely, the command fails everywhere. Run it by hand on two "
        "nodes that you trust before you pull any."
    )


def _faulty(verdict: PairVerdict) -> list[str]:
    from holdfast.runs.pairing.solve import SURE

    names = verdict.names("faulty")
    if not names:
        return []
    records = {node.node: node for node in verdict.nodes}
    verb = "is faulty: it" if len(names) == 1 else "are faulty: each"
    said = [f"{listed(names)} {verb} failed beside nodes that work, and never passed."]
    weak = [name for name in names if (records[name].probability or 1.0) < SURE]
    if weak:
        shares = [f"{name} ({percent(records[name].probability)})" for name in weak]
        said.append(
            f"Less sure, for want of a second test beside a node that works: {listed(shares)}; "
            "--confirm plans one."
        )
    return said


def _intermittent(verdict: PairVerdict, name: str) -> str:
    node: NodeVerdict = next(node for node in verdict.nodes if node.node == name)
    return (
        f"{name} is intermittent: it failed {node.failed:,} of {node.passed + node.failed:,} tests, "
        f"with nodes that work ({percent(node.probability)})."
    )


def _settled(found: Contradiction) -> str:
    shares = found.probabilities or {}
    tests = f"failed together in {found.failed:,} of {counted(found.passed + found.failed, 'test')}"
    if found.verdict == "link":
        return (
            f"The network between {listed(found.nodes)} is to blame, not the nodes: they {tests} and "
            f"pass with others ({percent(shares.get('link'))})."
        )
    return (
        f"{listed(found.nodes)} {tests}; it did not come again, so it was probably chance "
        f"({percent(shares.get('chance'))})."
    )


def _open(found: Contradiction) -> str:
    text = (
        f"{listed(found.nodes)} failed together in {found.failed:,} of "
        f"{counted(found.passed + found.failed, 'test')} but pass elsewhere, and the cause cannot be told"
    )
    if found.probabilities is None:
        return text + "."
    names = {"link": "the network between them", "chance": "chance"}
    shares = sorted(found.probabilities.items(), key=lambda item: -item[1])
    said = [f"{names.get(name, name)} {percent(share)}" for name, share in shares]
    return f"{text}: {', '.join(said)}."


def _suspects(verdict: PairVerdict) -> list[str]:
    names = verdict.names("suspect")
    if not names:
        return []
    verb = "is a suspect: it" if len(names) == 1 else "are suspects: they"
    first = f"{listed(names)} {verb} failed, but not yet beside a node that surely works."
    return [first, *_limited([_puzzle(puzzle) for puzzle in verdict.puzzles])]


def _puzzle(puzzle: Puzzle) -> str:
    if puzzle.fewest is None or puzzle.count is None:
        return (
            f"{len(puzzle.nodes):,} suspects share {counted(len(puzzle.tests), 'failing test')}: too many "
            "to list what could explain them."
        )
    ways = [listed(chosen) for chosen in puzzle.explanations[:3]]
    more = f", or one of {puzzle.count - 3:,} other ways" if puzzle.count > 3 else ""
    return f"At least {puzzle.fewest} of {listed(puzzle.nodes)} must be bad: {' or '.join(ways)}{more}."


def _untested(verdict: PairVerdict) -> list[str]:
    names = verdict.names("untested")
    if not names:
        return []
    tried = [node.node for node in verdict.nodes if node.state == "untested" and node.not_run]
    why = f"; on {listed(tried)} the test could not start" if tried else ""
    return [f"{listed(names)} {'has' if len(names) == 1 else 'have'} no result{why}."]


def _good(verdict: PairVerdict) -> str:
    good = len(verdict.names("good"))
    if good == len(verdict.nodes):
        return f"All {good:,} nodes work."
    return f"{counted(good, 'node')} of {len(verdict.nodes):,} {'works' if good == 1 else 'work'}."
