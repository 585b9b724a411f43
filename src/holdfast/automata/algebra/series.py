"""Whether two acceptors give all strings the same sums of weights, by linear algebra.

Source: W.-G. Tzeng, "A polynomial-time algorithm for the equivalence of probabilistic automata", SIAM
Journal on Computing 21(2), 1992; M. P. Schützenberger, "On the definition of a family of automata", 1961.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from holdfast.automata.algebra.assembling import beside
from holdfast.automata.fst import I64, Fst
from holdfast.automata.path_sums.distances import F64, costs_of
from holdfast.automata.structure import Bools
from holdfast.errors import LimitError

MOST_STATES = 500
MOST_VECTORS = 50_000
"""Maximum of states times labels: vectors compared with the basis, which takes some seconds."""
NOISE = 1e-11
"""Relative to what was subtracted: a smaller rest is rounding. Too small a value only costs time."""
LARGE = 4.0
"""A coefficient above this makes a vector a better one for the basis."""
CHANGES = 100
"""Maximum number of changes of the basis per state; hundreds of random machines needed at most 3."""
LEAST = 700.0
"""The cost, above the least of a vector, that a float64 still holds as a probability."""


def fits(a: Fst, b: Fst) -> bool:
    """Whether the two are small enough for `same_series`."""
    states = a.num_states + b.num_states
    labels = len(np.union1d(a.ilabel, b.ilabel))
    return states <= MOST_STATES and states * labels <= MOST_VECTORS


def same_series(a: Fst, b: Fst, delta: float) -> bool:
    """Whether no string costs more in one acceptor than in the other, by more than delta.

    A string leads to a vector: of the sums of its paths to each state of both machines. The vector of a
    string continued is linear in it, so that strings whose vector is a linear combination of those before
    need not be continued: at most as many as there are states.

    Args:
        a: an acceptor without epsilons in a semiring with sums: log, log64 or probability.
        b: another.
        delta: in cost (-log of the weight).

    Returns:
        False is certain, as a string costs more in one machine. True holds up to the rounding of the
        combinations, and if a string's weights at different states differ by a factor of less than e^700.

    Raises:
        LimitError: if rounding keeps the basis from settling.
    """
    both = beside(a, b)
    states = both.num_states
    arc_cost, final = costs_of(both)
    # Arcs by label and target: the sums of a vector continued are those of its runs.
    labels, label = np.unique(both.ilabel, return_inverse=True)
    place = label.astype(np.int64) * states + both.nextstate
    order = np.argsort(place, kind="stable")
    source, arc_cost, place = both.source[order], arc_cost[order], place[order]
    runs = np.flatnonzero(np.diff(place, prepend=-1))
    start = np.full(states, np.inf)
    start[[a.start, a.num_states + b.start]] = 0.0
    basis = _Basis(states)
    left = CHANGES * states
    waiting = deque([start])
    while waiting:
        vector = waiting.popleft()
        ends = vector + final
        x, y = -_log_sums(-ends, np.array([0, a.num_states]))
        if x != y and not abs(x - y) <= delta:
            return False
        if not basis.changed(vector):
            continue
        left -= 1
        if not left:
            raise LimitError(
                "the weights are too uneven to be compared as sums",
                needed=f"more than {CHANGES} changes of the basis per state",
                allowed=f"{CHANGES} per state",
                remedy="compare random paths with randequivalent()",
            )
        if len(runs):
            following = np.full(len(labels) * states, np.inf)
            following[place[runs]] = -_log_sums(-(vector[source] + arc_cost), runs)
            least = following.reshape(-1, states).min(axis=1)
            # A common factor changes nothing, and strings without a path lead nowhere.
            waiting.extend(
                row - low
                for row, low in zip(following.reshape(-1, states), least, strict=True)
                if low < np.inf
            )
    return True


def _log_sums(values: F64, runs: I64) -> F64:
    """The logarithms of the sums of exponentials of each run of values; -inf of nothing."""
    highest = np.maximum.reduceat(values, runs)
    sizes = np.diff(runs, append=len(values))
    base = np.where(highest > -np.inf, highest, 0.0)
    with np.errstate(divide="ignore"):
        sums: F64 = base + np.log(np.add.reduceat(np.exp(values - np.repeat(base, sizes)), runs))
    return sums


class _Basis:
    """Linearly independent vectors, of which all others are combinations with small coefficients.

    Large ones would hide differences: a small one, allowed or from rounding, times a large coefficient. So
    a vector with a large coefficient takes the place of the basis vector that has it. That ends, as the
    volume that the basis spans grows by the coefficient.
    Source: B. Awerbuch, R. Kleinberg, "Online linear optimization and adaptive routing", 2008, section 2.3
    (approximate barycentric spanners).
    """

    def __init__(self, size: int) -> None:
        self._count = 0
        self._pivots = np.zeros(size, np.int64)
        # [count, size] the basis in reduced row echelon form; [count, count] that in terms of the basis.
        self._rows = np.zeros((size, size))
        self._terms = np.zeros((size, size))

    def changed(self, costs: F64) -> bool:
        """Whether a vector was added to the basis, or took another's place.

        What is rounding is decided for each entry, by what was subtracted there, so that strings of low
        weight count like others.
        """
        n = self._count
        rows, terms, pivots = self._rows[:n], self._terms[:n, :n], self._pivots[:n]
        vector = np.where(costs < np.inf, np.exp(-np.minimum(costs, LEAST)), 0.0)
        factors = vector[pivots]
        rest = vector - factors @ rows
        independent: Bools = np.abs(rest) > NOISE * (vector + np.abs(factors) @ np.abs(rows))
        independent[pivots] = False  # zero but for rounding
        coefficients = factors @ terms
        if independent.any():
            rest[~independent] = 0.0
            pivot = int(np.argmax(np.abs(rest)))
            self._rows[n] = rest / rest[pivot]
            self._terms[n, : n + 1] = np.append(-coefficients, 1.0) / rest[pivot]
            self._terms[:n, : n + 1] -= np.outer(rows[:, pivot], self._terms[n, : n + 1])
            rows -= np.outer(rows[:, pivot], self._rows[n])
            rows[:, pivot] = 0.0
            self._pivots[n] = pivot
            self._count += 1
            return True
        largest = int(np.argmax(np.abs(coefficients)))
        if abs(coefficients[largest]) <= LARGE:
            return False
        replaced = terms[:, largest] / coefficients[largest]
        terms -= np.outer(replaced, coefficients)
        terms[:, largest] = replaced
        return True
