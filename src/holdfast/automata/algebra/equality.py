"""Whether two machines are the same: in their strings, surely or probably."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from holdfast.automata.algebra import _kernels as kernels
from holdfast.automata.algebra.assembling import agreed_tables, beside
from holdfast.automata.algebra.series import fits, same_series
from holdfast.automata.algebra.sets import is_deterministic
from holdfast.automata.algebra.sides import invert, project
from holdfast.automata.algebra.strings import string_fst
from holdfast.automata.composition.composing import compose
from holdfast.automata.fst import EPS, I32, Fst
from holdfast.automata.path_sums.best import paths
from holdfast.automata.path_sums.distances import costs_of, shortest_distance, without_zero_arcs
from holdfast.automata.path_sums.path import Path
from holdfast.automata.path_sums.sampling import random_paths
from holdfast.automata.simplifying.epsilon_removal import rmepsilon
from holdfast.automata.simplifying.subsets.determinizing import determinize
from holdfast.automata.structure import connect, is_acyclic
from holdfast.errors import InputError, LimitError

DELTA = 1 / 1024
SPARE_LENGTH = 100
MOST_DELAYS = 20_000_000
WITNESSES = 100
"""Number of shortest paths of each machine searched for a difference, and of random paths."""

Strings = tuple[tuple[int, ...], tuple[int, ...]]
"""Input and output labels."""


def equivalent(a: Fst, b: Fst, delta: float = DELTA, *, max_states: int = 100_000) -> bool:
    """Whether two machines map the same strings to the same strings with the same weights.

    Acceptors are freed of epsilons. Deterministic ones are compared by merging states as Hopcroft and Karp
    do, each with the difference in cost of what follows. Others are made deterministic first or, in a
    semiring with sums (log, log64, probability) and up to 500 states, compared by linear algebra, which
    always gives an answer. Transducers without epsilons are acceptors of pairs of labels. Others, if one of
    them is functional (has one output for each input), are equivalent if and only if they give the same
    outputs to the inputs that both accept (the delay of one output behind the other depends on the pair of
    states alone) and the same weights to the same inputs. Two that are not functional are equivalent if
    they are so with input epsilons as labels, or as acceptors of pairs of labels. If nothing else decides,
    they are not equivalent if one of their 100 shortest or of 100 random paths shows a difference.

    Args:
        a: A.
        b: B.
        delta: how much the costs (-log of the weight) of what follows a state may differ. Smaller
            differences in the weights of a cycle are not seen, though they add up along a long string.
        max_states: how many states a machine may have when it is made deterministic.

    Raises:
        InputError: if semirings or symbol tables differ, the sum over a cycle of epsilons diverges, or
            (code "undecidable") neither machine is functional and no difference was found.
        LimitError: if a machine does not become deterministic within `max_states` (some weighted machines
            with cycles never do), and no difference was found.
    """
    agreed_tables(a, b)
    a, b = (rmepsilon(f.with_(isymbols=None, osymbols=None)) for f in (a, b))
    try:
        return _decided(a, b, delta, max_states)
    except (InputError, LimitError):
        # What no algorithm decides, or none within its limit, may differ in a string all the same.
        listed = [list(paths(_by_length(f), WITNESSES)) for f in (a, b)]
        strings = {(path.ilabels, path.olabels) for path in (*listed[0], *listed[1])}
        if not _all_near(a, b, strings, delta):
            return False
        if max(map(len, listed)) < WITNESSES:  # those are all the paths that there are
            return True
        if not randequivalent(a, b, WITNESSES, delta=delta):
            return False
        raise


def _decided(a: Fst, b: Fst, delta: float, max_states: int) -> bool:
    """Whether two machines without arcs of epsilons on both sides are equivalent; see `equivalent`."""
    aligned = all((f.ilabel != EPS).all() and (f.olabel != EPS).all() for f in (a, b))
    if aligned or a.num_states == 0 or b.num_states == 0:
        return _same_strings(*_with_pairs_as_labels(a, b), delta, max_states)
    if _outputs_agree(a, b):
        return _same_strings(project(a), project(b), delta, max_states)
    # Some input has two outputs here: one more than a functional machine has.
    if _outputs_agree(a, a) or _outputs_agree(b, b):
        return False
    # Machines that are equal under a finer view are so: inputs with their epsilons as labels (which the
    # subset construction keeps), or pairs of labels.
    fresh = 1 + max(int(f.ilabel.max()) for f in (a, b))
    x, y = (f.with_trusted(ilabel=np.where(f.ilabel == EPS, fresh, f.ilabel)) for f in (a, b))
    if _outputs_agree(x, y) and _same_strings(project(x), project(y), delta, max_states):
        return True
    if _same_strings(*_with_pairs_as_labels(a, b), delta, max_states):
        return True
    raise InputError(
        "equivalence of non-functional transducers cannot be decided",
        code="undecidable",
        found="in both machines an input with several outputs",
        expected="one output for each input, or no epsilons",
        remedy="compare random paths with randequivalent()",
    )


def _same_strings(a: Fst, b: Fst, delta: float, max_states: int) -> bool:
    """Whether two acceptors accept the same strings with the same weights."""
    a, b = rmepsilon(a), rmepsilon(b)
    if a.num_states == 0 or b.num_states == 0:
        return a.num_states == b.num_states
    if not (a.semiring.is_idempotent or (is_deterministic(a) and is_deterministic(b))) and fits(
        a, b
    ):
        return same_series(a, b, delta)
    try:
        left, right = _deterministic(a, max_states), _deterministic(b, max_states)
    except (InputError, LimitError):
        # Their weights cannot be compared; they may differ in the strings alone.
        if a.semiring.name == "boolean":
            raise
        languages = (a.as_semiring("boolean"), b.as_semiring("boolean"))
        if not _same_strings(*languages, delta, max_states):
            return False
        raise
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


def _outputs_agree(a: Fst, b: Fst) -> bool:
    """Whether A and B give every string that both accept one and the same output.

    Source: M.-P. Beal, O. Carton, C. Prieur, J. Sakarovitch, "Squaring transducers: an efficient procedure
    for deciding functionality and sequentiality", 2003.
    """
    # Arcs of the product have the output of A as input label, and that of B as output label.
    product = compose(invert(a), b)
    if product.is_acceptor:
        return True
    nothing: tuple[int, ...] = ()
    delays = {product.start: (nothing, nothing)}
    waiting = [product.start]
    stored = 0
    bounds = product.offsets.tolist()
    while waiting:
        state = waiting.pop()
        for arc in range(bounds[state], bounds[state + 1]):
            left, right = delays[state]
            left += (int(product.ilabel[arc]),) * bool(product.ilabel[arc])
            right += (int(product.olabel[arc]),) * bool(product.olabel[arc])
            while left and right:
                if left[0] != right[0]:
                    return False
                left, right = left[1:], right[1:]
            target = int(product.nextstate[arc])
            if target not in delays:
                delays[target] = (left, right)
                waiting.append(target)
                stored += len(left) + len(right)
                if stored > MOST_DELAYS:
                    raise LimitError(
                        "one output lags far behind the other",
                        needed=f"more than {MOST_DELAYS:,} labels in all delays",
                        allowed=f"{MOST_DELAYS:,} labels",
                        remedy="compare random paths with randequivalent()",
                    )
            elif delays[target] != (left, right):
                return False
    return all(not any(delays[state]) for state in product.finals)


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
    return _all_near(a, b, drawn, delta)


def _all_near(a: Fst, b: Fst, pairs: set[Strings], delta: float) -> bool:
    """Whether two machines give pairs of strings the same costs; shorter pairs are compared first."""
    shorter_first = sorted(pairs, key=lambda pair: (len(pair[0]) + len(pair[1]), pair))
    costs = ([cost_of_strings(f, *pair) for f in (a, b)] for pair in shorter_first)
    return all(x == y or abs(x - y) <= delta for x, y in costs)


def _by_length(f: Fst) -> Fst:
    """The machine with a cost of 1 for each arc."""
    steps = f.as_semiring("boolean").as_semiring("tropical")
    return steps.with_trusted(weight=np.ones_like(steps.weight))


def _drawn(f: Fst, paths: int, seed: int, max_length: int | None) -> list[Path]:
    f = connect(without_zero_arcs(f))
    if f.num_states == 0:
        return []
    if max_length is None and not is_acyclic(f):
        max_length = int(shortest_distance(_by_length(f))) + SPARE_LENGTH
    return random_paths(f, paths, seed=seed, max_length=max_length)


def cost_of_strings(f: Fst, ilabels: tuple[int, ...], olabels: tuple[int, ...]) -> float:
    """-log of the weight that a machine gives to a pair of strings; inf if it does not accept it.

    In the boolean semiring 0 or inf; in the tropical one the cost of the best path.
    """
    read = compose(
        string_fst(ilabels, semiring=f.semiring), f.with_trusted(isymbols=None, osymbols=None)
    )
    both = compose(read, string_fst(olabels, semiring=f.semiring))
    total = shortest_distance(both)
    if f.semiring.is_negative_log:
        return total
    return -math.log(total) if total > 0 else math.inf


def _with_pairs_as_labels(a: Fst, b: Fst) -> tuple[Fst, Fst]:
    """Acceptors of the pairs of labels; epsilon on both sides stays epsilon."""
    codes = [f.ilabel.astype(np.int64) << 32 | f.olabel for f in (a, b)]
    _, label = np.unique(np.concatenate(([0], *codes)), return_inverse=True)
    split = len(a.ilabel) + 1
    return _with_label(a, label[1:split]), _with_label(b, label[split:])


def _with_label(f: Fst, label: npt.NDArray[np.intp]) -> Fst:
    made: I32 = label.astype(np.int32)
    return f.with_trusted(ilabel=made, olabel=made, isymbols=None, osymbols=None)


def _deterministic(f: Fst, max_states: int) -> Fst:
    return f if is_deterministic(f) else determinize(f, max_states)
