"""How probable it is that a node, or what lies between nodes, is bad: exact inference, piece by piece.

Nodes that only passed together tell nothing of each other: in the model a pass is the product of what each
node (and the link) contributes, so it counts for each node by itself. Only failing tests join
nodes, into pieces that are mostly small. Inside a piece, nodes are summed out one by one, the one with the
fewest neighbours first, and the sums carried back (a junction tree): the exact posterior of
`holdfast.runs.pairing.model`. A piece in which more than `WIDEST` nodes hang together at once has no
probabilities: they would take too long, and the next round cuts it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.runs.pairing.model import FAULTY, GOOD, INTERMITTENT, STATES, PairModel, likelihood

Array = npt.NDArray[np.float64]
Set = tuple[str, ...]

WIDEST = 8


@dataclass(frozen=True)
class Tally:
    """All that was seen of one set of nodes."""

    nodes: Set
    """In a fixed order."""
    passed: int
    failed: int
    tests: tuple[str, ...] = ()
    """Identifiers of the failed ones."""


@dataclass(frozen=True)
class NodeBelief:
    """Probabilities of a node's states."""

    faulty: float
    intermittent: float

    @property
    def bad(self) -> float:
        """Faulty or intermittent."""
        return min(1.0, self.faulty + self.intermittent)


@dataclass(frozen=True)
class SetBelief:
    """What a failing set may be due to other than its nodes."""

    link: float
    """Probability that what lies between them is faulty or intermittent."""
    chance: float
    """Probability that nothing in it is bad."""


@dataclass(frozen=True)
class Beliefs:
    """The posterior; what is missing is too entangled."""

    nodes: Mapping[str, NodeBelief]
    sets: Mapping[Set, SetBelief]


@dataclass(frozen=True)
class _Factor:
    nodes: Set
    table: Array  # [3] * len(nodes)


def infer(tallies: Sequence[Tally], model: PairModel, untested: Iterable[str] = ()) -> Beliefs:
    """The probability that each node, and each failing set's link, is bad.

    Args:
        tallies: one for each set of nodes.
        model: the assumptions.
        untested: nodes of which nothing is known.

    Returns:
        Beliefs of all nodes and all failing sets, but for pieces that are too entangled.
    """
    alone = _alone(tallies, model)
    nodes = {node: _node_belief(model.node_prior) for node in untested}
    nodes |= {node: _node_belief(weights) for node, weights in alone.items()}
    failing = {tally.nodes: tally for tally in tallies if tally.failed}
    factors = [_factor(tally, model) for tally in failing.values()]
    sets: dict[Set, SetBelief] = {}
    for members, inside in _pieces(factors):
        joint = _posterior(inside, {node: alone[node] for node in members})
        for node in members:
            del nodes[node]
        if joint is None:
            continue
        for node in members:
            nodes[node] = _node_belief(joint[(node,)])
        for factor in inside:
            sets[factor.nodes] = _set_belief(joint[factor.nodes], failing[factor.nodes], model)
    return Beliefs(nodes, sets)


def _node_belief(weights: Array) -> NodeBelief:
    shares = weights / weights.sum()
    return NodeBelief(float(shares[FAULTY]), float(shares[INTERMITTENT]))


def _alone(tallies: Iterable[Tally], model: PairModel) -> dict[str, Array]:
    """Each node's prior times what sets that never failed say of it, [3]."""
    passed: dict[str, int] = defaultdict(int)
    for tally in tallies:
        for node in tally.nodes:
            passed[node] += 0 if tally.failed else tally.passed
    says = np.array(
        [1.0, 0.0, 1 - model.failing_share]
    )  # a pass: of a good, faulty, intermittent node
    return {node: model.node_prior * says**count for node, count in passed.items()}


def _factor(tally: Tally, model: PairModel) -> _Factor:
    """What a failing set says of its nodes together, summed over its link."""
    table = likelihood(model, len(tally.nodes), tally.passed, tally.failed)
    return _Factor(tally.nodes, table.sum(axis=-1))


def _pieces(factors: Sequence[_Factor]) -> list[tuple[list[str], list[_Factor]]]:
    """Nodes that failing sets join, and these sets: (nodes, factors) of each piece."""
    at: dict[str, list[_Factor]] = defaultdict(list)
    for factor in factors:
        for node in factor.nodes:
            at[node].append(factor)
    pieces: list[tuple[list[str], list[_Factor]]] = []
    known: set[str] = set()
    for start in at:
        if start in known:
            continue
        known.add(start)
        members, inside = [start], {}
        for node in members:  # grows while it is read
            for factor in at[node]:
                inside[factor.nodes] = factor
                new = [other for other in factor.nodes if other not in known]
                known.update(new)
                members += new
        pieces.append((members, list(inside.values())))
    return pieces


def _posterior(factors: Sequence[_Factor], alone: Mapping[str, Array]) -> dict[Set, Array] | None:
    """Posterior of each node, and of the nodes of each factor together; None if too entangled.

    Args:
        factors: the failing sets of one piece.
        alone: for each node of the piece, what is known of it without them, [3].
    """
    order = _elimination_order(list(alone), factors)
    if order is None:
        return None
    place = {node: rank for rank, (node, _) in enumerate(order)}
    scope = {node: (node, *neighbours) for node, neighbours in order}
    waiting: dict[str, list[tuple[Set, Array]]] = {
        node: [((node,), weights)] for node, weights in alone.items()
    }
    for factor in factors:
        waiting[min(factor.nodes, key=place.__getitem__)].append((factor.nodes, factor.table))

    tables: dict[str, Array] = {}
    messages: dict[str, Array] = {}
    for node, neighbours in order:  # towards the last node: sum each node out
        table = _product(scope[node], waiting[node])
        tables[node] = table / table.sum()
        if neighbours:
            messages[node] = tables[node].sum(axis=0)
            waiting[min(neighbours, key=place.__getitem__)].append((neighbours, messages[node]))

    joint: dict[Set, Array] = {}
    for node, neighbours in reversed(order):  # and back: what the rest of the piece knows
        if neighbours:
            parent = min(neighbours, key=place.__getitem__)
            known = _marginal(scope[parent], tables[parent], neighbours)
            ratio = np.divide(
                known, messages[node], out=np.zeros_like(known), where=messages[node] > 0
            )
            tables[node] = tables[node] * ratio
        joint[(node,)] = _marginal(scope[node], tables[node], (node,))
    for factor in factors:
        home = min(factor.nodes, key=place.__getitem__)
        joint[factor.nodes] = _marginal(scope[home], tables[home], factor.nodes)
    return joint


def _elimination_order(
    members: Sequence[str], factors: Sequence[_Factor]
) -> list[tuple[str, Set]] | None:
    """Each node with its neighbours when it is summed out, fewest first; None if they are too many."""
    beside: dict[str, set[str]] = {node: set() for node in members}
    for factor in factors:
        for node in factor.nodes:
            beside[node].update(factor.nodes)
    for node, others in beside.items():
        others.discard(node)
    heap = [(len(beside[node]), rank, node) for rank, node in enumerate(members)]
    heapq.heapify(heap)
    rank_of = {node: rank for rank, node in enumerate(members)}
    order: list[tuple[str, Set]] = []
    while heap:
        degree, _, node = heapq.heappop(heap)
        if node not in beside or degree != len(beside[node]):
            continue  # gone, or counted again since
        if degree > WIDEST:
            return None
        neighbours = beside.pop(node)
        for other in neighbours:
            beside[other] |= neighbours
            beside[other] -= {other, node}
            heapq.heappush(heap, (len(beside[other]), rank_of[other], other))
        order.append((node, tuple(sorted(neighbours))))
    return order


def _product(scope: Set, parts: Sequence[tuple[Set, Array]]) -> Array:
    """The product of tables over the nodes of a scope, [3] * len(scope)."""
    made = np.ones((STATES,) * len(scope))
    axis = {node: number for number, node in enumerate(scope)}
    for nodes, table in parts:
        axes = [axis[node] for node in nodes]
        shape = [STATES if number in axes else 1 for number in range(len(scope))]
        made *= table.transpose(np.argsort(axes)).reshape(shape)
    return made


def _marginal(scope: Set, table: Array, nodes: Set) -> Array:
    """A table over a scope summed down to some of its nodes, in their order, adding up to one."""
    others = tuple(axis for axis, node in enumerate(scope) if node not in nodes)
    kept = [node for node in scope if node in nodes]
    found = table.sum(axis=others).transpose([kept.index(node) for node in nodes])
    shares: Array = found / found.sum()
    return shares


def _set_belief(joint: Array, tally: Tally, model: PairModel) -> SetBelief:
    """Shares of the explanations of a failing set that blame no node (alone)."""
    table = likelihood(model, len(tally.nodes), tally.passed, tally.failed)  # [3] * nodes + [3]
    total = table.sum(axis=-1, keepdims=True)
    link = np.divide(table, total, out=np.zeros_like(table), where=total > 0)
    both = joint[..., None] * link
    none_bad = both[(GOOD,) * (len(tally.nodes) + 1)]
    return SetBelief(float(1 - both[..., GOOD].sum()), float(none_bad))
