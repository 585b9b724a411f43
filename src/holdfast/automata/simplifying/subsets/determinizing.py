"""`determinize`: at most one arc of each input label leaves a state.

Source: M. Mohri, "Finite-state transducers in language and speech processing", Computational Linguistics
23(2), 1997, section 3.3 (weighted subsets with residuals) and 3.4 (strings that output still owes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.fst import I32, Fst
from holdfast.automata.path_sums.distances import F64, without_zero_arcs
from holdfast.automata.simplifying.alphabets import Alphabet, alphabet_of
from holdfast.automata.simplifying.costs import Costs, costs_of, weights_of
from holdfast.automata.simplifying.strings._kernels import LONGEST, spelled
from holdfast.automata.simplifying.subsets import _kernels as kernels
from holdfast.automata.simplifying.subsets.chains import Outputs, spelled_out
from holdfast.automata.simplifying.subsets.constructing import Constructed, construct
from holdfast.automata.simplifying.subsets.room import Machine
from holdfast.automata.structure.connecting import connect
from holdfast.errors import InputError, LimitError

DELTA = 1 / 1024


def determinize(
    f: Fst,
    max_states: int = 1_000_000,
    encode_labels: bool = False,
    *,
    encode_weights: bool = False,
    delta: float = DELTA,
) -> Fst:
    """An equivalent machine in which the arcs that leave a state have different input labels.

    A state of the result is a set of states of f, each with the weight, and for a transducer the output,
    that the arcs have not given yet. Epsilon is a label like any other, as in OpenFST: call `rmepsilon`
    first if it shall be none. States are numbered breadth first, labels ascending. In the boolean semiring
    this is the subset construction of a DFA.

    A transducer must be functional: one output for each input. Output comes as early as all paths of an
    input agree on it; an arc that owes several labels becomes a chain of arcs with input epsilon.

    Args:
        f: the machine; states on no path to a final state are left out first.
        max_states: how many states the result may have, before chains.
        encode_labels: take the pair of input and output label as the label, so that any transducer can be
            determinized; the result is deterministic in pairs only.
        encode_weights: take the weight of an arc as a part of its label too. Then the result is always
            finite, and arcs of a state that differ in weight stay apart.
        delta: weights that are owed and round to the same multiple of it (of costs; -log in the
            probability semiring) are equal. The weights of the first set found are kept, unrounded.

    Returns:
        A connected machine; arcs ascend in their (encoded) labels.

    Raises:
        LimitError: if there would be more states, or an output lag by more than 10,000 labels. A weighted
            machine without the twins property has no finite result. The input is untouched.
        InputError: if one input has two outputs.
    """
    f = connect(without_zero_arcs(f))
    if not f.num_states:
        return f
    costs = costs_of(f)
    coded = _encoded(f, costs, encode_labels, encode_weights)
    made = _construct(coded, f, costs, max_states, delta)
    weight = made.cost if encode_weights else weights_of(made.cost, f.semiring)
    arcs = coded.alphabet.expanded(made.offsets, made.label, made.nextstate, weight)
    if encode_weights:
        weight = weights_of(arcs.weight + coded.cost_of(arcs.label), f.semiring)
    ilabel = coded.ilabel_of(arcs.label)
    result = f.with_trusted(
        offsets=arcs.offsets,
        ilabel=ilabel,
        olabel=ilabel if coded.pairs is None else coded.olabel_of(arcs.label),
        nextstate=arcs.nextstate,
        weight=weight if encode_weights else arcs.weight,
        final=weights_of(made.final, f.semiring),
        start=0,
    )
    if coded.owes:
        outputs = Outputs(made.strings, made.string[arcs.origin], made.final_string)
        return spelled_out(result, outputs)
    return result


class _Encoded(NamedTuple):
    """A machine as the construction sees it: an acceptor, or a transducer if `owes`."""

    alphabet: Alphabet
    owes: bool
    """Output labels are owed, rather than a part of the label."""
    pairs: npt.NDArray[np.int64] | None
    """[L, 2 or 3] input label, output label, bits of the cost; None if a label is its input label."""
    arc: F64
    """[E] what each arc costs beside its label."""

    def ilabel_of(self, label: npt.NDArray[np.integer]) -> I32:
        return (label if self.pairs is None else self.pairs[label, 0]).astype(np.int32, copy=False)

    def olabel_of(self, label: npt.NDArray[np.integer]) -> I32:
        return (label if self.pairs is None else self.pairs[label, 1]).astype(np.int32, copy=False)

    def cost_of(self, label: npt.NDArray[np.integer]) -> F64 | float:
        if self.pairs is None or self.pairs.shape[1] < 3:
            return 0.0
        return np.ascontiguousarray(self.pairs[label, 2]).view(np.float64)


def _encoded(f: Fst, costs: Costs, encode_labels: bool, encode_weights: bool) -> _Encoded:
    label: npt.NDArray[np.integer] = f.ilabel
    owes = not (encode_labels or encode_weights or f.is_acceptor)
    pairs = None
    if encode_weights or (encode_labels and not f.is_acceptor):
        columns = [f.ilabel.astype(np.int64), f.olabel.astype(np.int64)]
        if encode_weights:
            columns.append((costs.arc + 0.0).view(np.int64))  # no -0.0, which has bits of its own
        pairs, label = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    arc = np.where(costs.arc == np.inf, np.inf, 0.0) if encode_weights else costs.arc
    value = (arc + 0.0).view(np.int64)
    if owes:
        value = value + f.olabel.astype(np.int64) * 0x5851F42D4C957F2D  # hashed with the cost
    return _Encoded(alphabet_of(label, f.source, f.nextstate, value), owes, pairs, arc)


def _construct(coded: _Encoded, f: Fst, costs: Costs, max_states: int, delta: float) -> Constructed:
    """Run the kernel over the labels that stand for their groups."""
    kept = np.flatnonzero(coded.alphabet.representatives & (coded.arc != np.inf))
    offsets = np.searchsorted(kept, f.offsets)
    machine = Machine(
        offsets,
        coded.alphabet.group[coded.alphabet.place[kept]],
        f.olabel[kept] if coded.owes else np.empty(0, np.int32),
        f.nextstate[kept],
        coded.arc[kept],
        costs.final,
    )
    labels = len(coded.alphabet.offsets) - 1
    made = construct(machine, f.start, labels, costs.code, delta, max_states)
    if made.outcome == kernels.TOO_MANY_STATES:
        raise LimitError(
            "the deterministic machine has too many states",
            needed=f"more than {max_states:,} states, from {f.num_states:,}",
            allowed=f"{max_states:,} states (max_states)",
            remedy="a weighted machine without the twins property (two cycles with one input and different "
            "weights or outputs) has no finite deterministic form: encode_weights=True gives one, or prune "
            "it first. Else raise max_states. The input is untouched",
        )
    if made.outcome == kernels.LAGGING:
        raise LimitError(
            "the output of the deterministic machine lags further and further behind its input",
            needed=f"more than {LONGEST:,} labels",
            allowed=f"{LONGEST:,} labels",
            remedy="two cycles have one input and outputs of different lengths (no twins property): "
            "encode_labels=True makes it deterministic in pairs of labels. The input is untouched",
        )
    if made.outcome == kernels.TWO_OUTPUTS:
        raise InputError(
            "the transducer gives two outputs for one input",
            found=" and ".join(_spelling(f, made.strings, one) for one in made.conflict),
            expected="one output for each input (a functional transducer)",
            remedy="encode_labels=True makes it deterministic in pairs of labels",
        )
    return made


def _spelling(f: Fst, strings: I32, string: int) -> str:
    labels = spelled(strings, string, 0)
    names = [f.osymbols.symbol(int(one)) if f.osymbols else str(one) for one in labels]
    return f"...{' '.join(names)!r}"
