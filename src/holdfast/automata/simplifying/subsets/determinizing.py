"""`determinize`: at most one arc of each input label leaves a state.

Source: M. Mohri, "Finite-state transducers in language and speech processing", Computational Linguistics
23(2), 1997, section 3.3 (weighted subsets with residuals) and 3.4 (strings that output still owes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.arguments import invalid
from holdfast.automata.composition.memory import available_bytes
from holdfast.automata.fst import I32, Fst
from holdfast.automata.path_sums.distances import without_zero_arcs
from holdfast.automata.simplifying.alphabets import Alphabet, alphabet_of
from holdfast.automata.simplifying.costs import Costs, costs_of, weights_of
from holdfast.automata.simplifying.partition_kernels import repeated_label
from holdfast.automata.simplifying.string_kernels import LONGEST, spelled
from holdfast.automata.simplifying.subsets import _kernels as kernels
from holdfast.automata.simplifying.subsets.chains import Outputs, spelled_out
from holdfast.automata.simplifying.subsets.constructing import Constructed, construct
from holdfast.automata.simplifying.subsets.room import Machine
from holdfast.automata.structure import connect
from holdfast.errors import InputError, LimitError

DELTA = 1e-6
LEAST_LIMIT = 1_000_000


def determinize(
    f: Fst,
    max_states: int | None = None,
    encode_labels: bool = False,
    *,
    delta: float = DELTA,
    memory_bytes: int | None = None,
) -> Fst:
    """An equivalent machine in which the arcs that leave a state have different input labels.

    A state of the result is a set of states of f, each with the weight, and for a transducer the output,
    that the arcs have not given yet. Epsilon is a label like any other, as in OpenFST: call `rmepsilon`
    first to remove it. States are numbered breadth first, labels ascending. In the boolean semiring this is
    the subset construction of a DFA. A machine that is deterministic already is returned as it is.

    A transducer must be functional: one output for each input. Output comes as early as all paths of an
    input agree on it; an arc that owes several labels becomes a chain of arcs with input epsilon.

    Args:
        f: the machine; states on no path to a final state are left out first.
        max_states: how many states the result may have, before chains (default: a million, or four times
            those of f if that is more).
        encode_labels: take the pair of input and output label as the label, so that any transducer can be
            determinized; the result is deterministic in pairs only.
        delta: weights that are owed and round to the same multiple of it (of costs; -log in the
            probability semiring) are equal, as in OpenFST. The cost of a string of n labels differs by at
            most (n + 1) * delta.
        memory_bytes: stop before the construction takes more (default: the memory available).

    Returns:
        A connected machine; arcs ascend in their (encoded) labels, unless f was deterministic.

    Raises:
        LimitError: if there would be more states or memory, or an output lag by more than 10,000 labels. A
            weighted machine without the twins property has no finite result. The input is untouched.
        InputError: if one input has two outputs, or `delta` is not above 0.
    """
    if not delta > 0:
        raise invalid("delta", delta, "a cost above 0")
    f = connect(without_zero_arcs(f))
    if not f.num_states:
        return f
    costs = costs_of(f)
    coded = _encoded(f, costs, encode_labels)
    labels = len(coded.alphabet.labels)
    if repeated_label(f.offsets, coded.alphabet.place, labels) < 0:
        return f
    limit = max(LEAST_LIMIT, 4 * f.num_states) if max_states is None else max_states
    memory = available_bytes() if memory_bytes is None else memory_bytes
    subsets = _construct(coded, f, costs, limit, delta, memory)
    weight = weights_of(subsets.cost, f.semiring)
    arcs = coded.alphabet.expanded(subsets.offsets, subsets.label, subsets.nextstate, weight)
    ilabel, olabel = (arcs.label, arcs.label) if coded.pairs is None else coded.pairs[arcs.label].T
    result = f.with_trusted(
        offsets=arcs.offsets,
        ilabel=ilabel.astype(np.int32),
        olabel=olabel.astype(np.int32),
        nextstate=arcs.nextstate,
        weight=arcs.weight,
        final=weights_of(subsets.final, f.semiring),
        start=0,
    )
    if coded.owes:
        outputs = Outputs(subsets.strings, subsets.string[arcs.origin], subsets.final_string)
        return spelled_out(result, outputs)
    return result


_ENCODE = "--encode-labels (in Python encode_labels=True)"


class _Encoded(NamedTuple):
    """A machine as the construction sees it: an acceptor, or a transducer if `owes`."""

    alphabet: Alphabet
    owes: bool
    """Output labels are owed, rather than a part of the label."""
    pairs: npt.NDArray[np.int64] | None
    """[L, 2] input and output label; None if a label is its input label."""


def _encoded(f: Fst, costs: Costs, encode_labels: bool) -> _Encoded:
    label: npt.NDArray[np.integer] = f.ilabel
    owes = not (encode_labels or f.is_acceptor)
    pairs = None
    if encode_labels and not f.is_acceptor:
        # Packed in one number: unique rows would be compared as bytes.
        packed = f.ilabel.astype(np.int64) << 32 | f.olabel
        packed, label = np.unique(packed, return_inverse=True)
        pairs = np.stack((packed >> 32, packed & 0xFFFFFFFF), axis=1)
    value = (costs.arc + 0.0).view(np.int64)  # turns -0.0 into 0.0, which has other bits
    if owes:
        value = value + f.olabel.astype(np.int64) * 0x5851F42D4C957F2D  # hashed with the cost
    return _Encoded(alphabet_of(label, f.source, f.nextstate, value), owes, pairs)


def _construct(
    coded: _Encoded, f: Fst, costs: Costs, max_states: int, delta: float, memory: int
) -> Constructed:
    """Run the kernel over the labels that stand for their groups."""
    kept = np.flatnonzero(coded.alphabet.representatives)
    offsets = np.searchsorted(kept, f.offsets)
    machine = Machine(
        offsets,
        coded.alphabet.group[coded.alphabet.place[kept]],
        f.olabel[kept] if coded.owes else np.empty(0, np.int32),
        f.nextstate[kept],
        costs.arc[kept],
        costs.final,
    )
    labels = len(coded.alphabet.offsets) - 1
    subsets = construct(machine, f.start, labels, costs.code, delta, max_states, memory)
    if subsets.outcome == kernels.TOO_MANY_STATES:
        raise LimitError(
            "the deterministic machine has too many states",
            needed=f"more than {max_states:,} states, from {f.num_states:,}",
            allowed=f"{max_states:,} states (--max-states)",
            remedy="raise --max-states (in Python max_states); a weighted machine without the twins "
            "property (two cycles with one input and different weights or outputs) has no finite "
            "deterministic form: prune it first",
        )
    if subsets.outcome == kernels.LAGGING:
        raise LimitError(
            "the output of the deterministic machine lags too far behind its input",
            needed=f"more than {LONGEST:,} labels",
            allowed=f"{LONGEST:,} labels",
            remedy="two cycles have one input and outputs of different lengths (no twins property): "
            f"{_ENCODE} makes it deterministic in pairs of labels",
        )
    if subsets.outcome == kernels.TWO_OUTPUTS:
        raise InputError(
            "the transducer gives two outputs for one input",
            code="not-functional",
            found=" and ".join(_spelling(f, subsets.strings, one) for one in subsets.conflict),
            expected="one output for each input (a functional transducer)",
            remedy=f"{_ENCODE} makes it deterministic in pairs of labels",
        )
    return subsets


def _spelling(f: Fst, strings: I32, string: int) -> str:
    labels = spelled(strings, string, 0)
    names = [f.osymbols.symbol(int(one)) if f.osymbols else str(one) for one in labels]
    return f"...{' '.join(names)!r}"
