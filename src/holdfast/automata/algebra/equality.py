"""Whether two machines are the same: in their strings, surely or probably."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from holdfast.automata.algebra import _kernels as kernels
from holdfast.automata.algebra.assembling import agreed_tables, beside
from holdfast.automata.algebra.sets import is_deterministic
from holdfast.automata.algebra.sides import invert, project
from holdfast.automata.algebra.strings import string_fst
from holdfast.automata.composition.composing import compose
from holdfast.automata.fst import EPS, I32, Fst
from holdfast.automata.path_sums.distances import costs_of, shortest_distance, without_zero_arcs
from holdfast.automata.path_sums.path import Path
from holdfast.automata.path_sums.sampling import random_paths
from holdfast.automata.simplifying.epsilons.removing import rmepsilon
from holdfast.automata.simplifying.subsets.determinizing import determinize
from holdfast.automata.structure.components import is_acyclic
from holdfast.automata.structure.connecting import connect
from holdfast.errors import InputError, LimitError

DELTA = 1 / 1024
SPARE_LENGTH = 100
MOST_DELAYS = 20_000_000


def equivalent(a: Fst, b: Fst, delta: float = DELTA, *, max_states: int = 100_000) -> bool:
    """Whether two machines map the same strings to the same strings with the same weights.

    Acceptors are freed of epsilons and made deterministic, if they are not; then states are merged as
    Hopcroft and Karp do, each with the difference in cost of what follows. Transducers without epsilons are
    acceptors of pairs of labels. Others, if one of them is functional (has one output for each input), are
    equivalent if and only if they give the same outputs to the inputs that both accept (the delay of one
    output behind the other depends on the pair of states alone) and the same weights to the same inputs.
    Two that are not functional are equivalent if they are so with input epsilons as labels, or as acceptors
    of pairs of labels; if not, equivalence is undecidable.

    Args:
        a: A.
        b: B.
        delta: how much the costs (-log of the weight) of what follows a state may differ. Smaller
            differences in the weights of a cycle are not seen, though they add up along a long string.
        max_states: how many states a machine may have when it is made deterministic.

    Raises:
        InputError: if semirings or symbol tables differ, the sum over a cycle of epsilons diverges, or
            (code "undecidable") neither machine is functional and it cannot be decided.
        LimitError: if a machine does not become deterministic within `max_states`; some weighted machines
            with cycles never do. `randequivalent` asks less.
    """
    agreed_tables(a, b)
    a, b = (rmepsilon(f.with_(isymbols=None, osymbols=None)) for f in (a, b))
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
        steps = steps.with_trusted(weight=np.ones_like(steps.weight))
        max_length = int(shortest_distance(steps)) + SPARE_LENGTH
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
    return f.with_trusted(ilabel=made, olabel=made, isymbols=None, osymbols=None)


def _deterministic(f: Fst, max_states: int) -> Fst:
    free = rmepsilon(f)
    return free if is_deterministic(free) else determinize(free, max_states)
