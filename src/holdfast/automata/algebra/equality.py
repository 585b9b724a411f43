"""Whether two machines are the same: in their strings, surely or probably."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from holdfast.automata.algebra import _kernels as kernels
from holdfast.automata.algebra.assembling import agreed_tables, beside
from holdfast.automata.algebra.sets import is_deterministic
from holdfast.automata.algebra.strings import string_fst
from holdfast.automata.composition.composing import compose
from holdfast.automata.fst import I32, Fst
from holdfast.automata.path_sums.distances import costs_of, shortest_distance, without_zero_arcs
from holdfast.automata.path_sums.path import Path
from holdfast.automata.path_sums.sampling import random_paths
from holdfast.automata.simplifying.epsilons.removing import rmepsilon
from holdfast.automata.simplifying.subsets.determinizing import determinize
from holdfast.automata.structure.components import is_acyclic
from holdfast.automata.structure.connecting import connect

DELTA = 1 / 1024
SPARE_LENGTH = 100


def equivalent(a: Fst, b: Fst, delta: float = DELTA, *, max_states: int = 100_000) -> bool:
    """Whether two machines accept the same strings with the same weights.

    Both are freed of epsilons and made deterministic, if they are not; then states are merged as Hopcroft
    and Karp do, each with the difference in cost of what follows. Transducers are compared with each pair
    of labels as one: that tells apart two that write the same output at different places.

    Args:
        a: A.
        b: B.
        delta: how much the cost (-log of the weight) of a string may differ.
        max_states: how many states a machine may have when it is made deterministic.

    Raises:
        InputError: if semirings or symbol tables differ, or the sum over a cycle of epsilons diverges.
        LimitError: if a machine does not become deterministic within `max_states`; some weighted machines
            with cycles never do. `randequivalent` asks less.
    """
    agreed_tables(a, b)
    if not (a.is_acceptor and b.is_acceptor):
        a, b = _with_pairs_as_labels(a, b)
    left, right = _deterministic(a, max_states), _deterministic(b, max_states)
    if left.num_states == 0 or right.num_states == 0:
        return left.num_states == right.num_states
    both = beside(left, right)
    view = both.by_ilabel
    cost, final = costs_of(both)
    same: bool = kernels.same_strings(
        both.offsets,
        view.label,
        view.nextstate,
        cost[view.arc],
        final,
        left.start,
        right.start + left.num_states,
        delta,
    )
    return same


def randequivalent(
    a: Fst,
    b: Fst,
    paths: int = 100,
    *,
    seed: int = 0,
    delta: float = DELTA,
    max_length: int | None = None,
) -> bool:
    """Whether random paths of both machines have the same weight in both.

    Paths are drawn from each machine, each of its paths as likely as another; the strings of each are then
    summed over all their paths in A and in B. False is certain, up to rounding; True is not.

    Args:
        a: A.
        b: B.
        paths: how many paths are drawn from each machine.
        seed: of the drawing.
        delta: how much the cost (-log of the weight) of a pair of strings may differ.
        max_length: how many arcs a path may have. If not given: any number, or with cycles up to 100 more
            than the shortest path.

    Raises:
        InputError: if semirings or symbol tables differ, or a machine has paths, but none so short.
    """
    agreed_tables(a, b)
    drawn = {
        (path.ilabels, path.olabels)
        for machine in (a, b)
        for path in _drawn(machine, paths, seed, max_length)
    }
    return all(
        _near(cost_of_strings(a, *strings), cost_of_strings(b, *strings), delta)
        for strings in sorted(drawn)
    )


def _drawn(f: Fst, paths: int, seed: int, max_length: int | None) -> list[Path]:
    f = connect(without_zero_arcs(f))
    if f.num_states == 0:
        return []
    if max_length is None and not is_acyclic(f):
        steps = f.as_semiring("boolean").as_semiring("tropical")
        steps = steps.with_(weight=np.ones_like(steps.weight))
        max_length = int(shortest_distance(steps)) + SPARE_LENGTH
    return random_paths(f, paths, seed=seed, max_length=max_length)


def cost_of_strings(f: Fst, ilabels: tuple[int, ...], olabels: tuple[int, ...]) -> float:
    """-log of the weight that a machine gives to a pair of strings; inf if it does not accept it.

    In the boolean semiring 0 or inf; in the tropical one the cost of the best path.
    """
    read = compose(string_fst(ilabels, semiring=f.semiring), f.with_(isymbols=None, osymbols=None))
    both = compose(read, string_fst(olabels, semiring=f.semiring))
    total = shortest_distance(both)
    if f.semiring.is_negative_log:
        return total
    return -math.log(total) if total > 0 else math.inf


def _near(x: float, y: float, delta: float) -> bool:
    return x == y or abs(x - y) <= delta


def _with_pairs_as_labels(a: Fst, b: Fst) -> tuple[Fst, Fst]:
    """Acceptors of the pairs of labels; epsilon on both sides stays epsilon."""
    codes = [f.ilabel.astype(np.int64) << 32 | f.olabel for f in (a, b)]
    _, label = np.unique(np.concatenate(([0], *codes)), return_inverse=True)
    split = len(a.ilabel) + 1
    return _with_label(a, label[1:split]), _with_label(b, label[split:])


def _with_label(f: Fst, label: npt.NDArray[np.intp]) -> Fst:
    made: I32 = label.astype(np.int32)
    return f.with_(ilabel=made, olabel=made, isymbols=None, osymbols=None)


def _deterministic(f: Fst, max_states: int) -> Fst:
    free = rmepsilon(f)
    return free if is_deterministic(free) else determinize(free, max_states)
