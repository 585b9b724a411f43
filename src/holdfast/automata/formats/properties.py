"""The property bits of OpenFST: facts about a machine that its readers trust without a look.

A property has two bits, one for yes and one for no; neither means that it is not known, and a reader works
it out when it needs it. What is cheap to prove is declared here, in one pass over each array and searches
in linear time; weighted cycles and `string` are left open unless they follow from the rest.
"""

from __future__ import annotations

import numpy as np

from holdfast.automata.formats import _kernels as kernels
from holdfast.automata.fst import Fst, Weights
from holdfast.automata.semirings import Semiring
from holdfast.automata.structure.components import strong_components, topological_order
from holdfast.automata.structure.reachability import accessible, coaccessible

EXPANDED, MUTABLE = 1 << 0, 1 << 1
BITS = {
    # property: (bit for yes, bit for no)
    "acceptor": (1 << 16, 1 << 17),
    "ilabel_deterministic": (1 << 18, 1 << 19),
    "olabel_deterministic": (1 << 20, 1 << 21),
    "epsilons": (1 << 22, 1 << 23),
    "input_epsilons": (1 << 24, 1 << 25),
    "output_epsilons": (1 << 26, 1 << 27),
    "ilabel_sorted": (1 << 28, 1 << 29),
    "olabel_sorted": (1 << 30, 1 << 31),
    "weighted": (1 << 32, 1 << 33),
    "cyclic": (1 << 34, 1 << 35),
    "initial_cyclic": (1 << 36, 1 << 37),
    "top_sorted": (1 << 38, 1 << 39),
    "accessible": (1 << 40, 1 << 41),
    "coaccessible": (1 << 42, 1 << 43),
    "weighted_cycles": (1 << 46, 1 << 47),
}


def known_properties(f: Fst) -> dict[str, bool]:
    """The properties of a machine that are known, by the names in `BITS`.

    `ilabel_deterministic` (no two arcs of a state share an ilabel) is missing if arcs are not sorted, and
    `weighted_cycles` if there are cycles and weights.
    """
    made = {"acceptor": f.is_acceptor}
    for side, long, label in (("ilabel", "input", f.ilabel), ("olabel", "output", f.olabel)):
        zero, in_order, repeated = kernels.label_facts(f.offsets, label)
        made |= {f"{long}_epsilons": zero, f"{side}_sorted": in_order}
        if in_order or repeated:
            made[f"{side}_deterministic"] = not repeated
    made["epsilons"] = (
        made["input_epsilons"]
        and made["output_epsilons"]
        and bool(np.any((f.ilabel == 0) & (f.olabel == 0)))
    )
    made["weighted"] = _weighted(f.weight, f.semiring) or _weighted(f.final, f.semiring)
    made |= _shape(f)
    if not (made["weighted"] and made["cyclic"]):
        made["weighted_cycles"] = False
    return made


def property_bits(f: Fst) -> int:
    """The same as the header of OpenFST's binary format has them."""
    known = known_properties(f)
    return EXPANDED | MUTABLE | sum(BITS[name][0 if holds else 1] for name, holds in known.items())


def _shape(f: Fst) -> dict[str, bool]:
    cyclic = topological_order(f) is None
    return {
        "cyclic": cyclic,
        "initial_cyclic": cyclic and _start_on_cycle(f),
        "top_sorted": bool(np.all(f.nextstate > f.source)),
        "accessible": bool(accessible(f).all()),
        "coaccessible": bool(coaccessible(f).all()),
    }


def _start_on_cycle(f: Fst) -> bool:
    of = strong_components(f).of
    inside = of[f.source] == of[f.nextstate]  # an arc of a cycle
    return bool(np.any(inside & (f.source == f.start)))


def _weighted(weights: Weights, ring: Semiring) -> bool:
    return bool(np.any((weights != ring.one) & (weights != ring.zero)))
