"""OpenFST (through pywrapfst) as the oracle: machines there and back."""

from __future__ import annotations

from typing import Any

import pywrapfst

from holdfast.automata import Fst

ARC_TYPES = {"tropical": "standard", "log": "log", "log64": "log64"}


def to_openfst(machine: Fst) -> Any:
    """The same machine in OpenFST, states with the same numbers."""
    made = pywrapfst.VectorFst(arc_type=ARC_TYPES[machine.semiring.name])
    kind = made.weight_type()
    made.add_states(machine.num_states)
    if machine.num_states:
        made.set_start(machine.start)
    for arc in machine.arcs():
        weight = pywrapfst.Weight(kind, arc.weight)
        made.add_arc(arc.source, pywrapfst.Arc(arc.ilabel, arc.olabel, weight, arc.nextstate))
    for state, final in machine.finals.items():
        made.set_final(state, pywrapfst.Weight(kind, final))
    return made


def from_openfst(machine: Any) -> Fst:
    """The same machine here, states with the same numbers."""
    semiring = {arc_type: name for name, arc_type in ARC_TYPES.items()}[machine.arc_type()]
    if machine.start() < 0:
        return Fst.empty(semiring)
    arcs = [
        (state, arc.ilabel, arc.olabel, float(str(arc.weight)), arc.nextstate)
        for state in machine.states()
        for arc in machine.arcs(state)
    ]
    finals = {}
    for state in machine.states():
        final = float(str(machine.final(state)).replace("Infinity", "inf"))
        if final != float("inf"):
            finals[state] = final
    return Fst.build(
        arcs, finals, start=machine.start(), states=machine.num_states(), semiring=semiring
    )
