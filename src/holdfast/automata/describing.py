"""`describe`: what there is to know of a machine before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.answer import Answer, Finding
from holdfast.automata.formats import _kernels as kernels
from holdfast.automata.fst import I32, Fst
from holdfast.automata.structure import (
    accessible,
    coaccessible,
    strong_components,
    topological_order,
)
from holdfast.automata.symbols import SymbolTable
from holdfast.numbers import counted, number


@dataclass(frozen=True)
class Description(Answer):
    """The facts of one machine."""

    states: int
    arcs: int
    start: int
    """-1 for the machine without states."""
    finals: int
    """How many states are final."""
    semiring: str
    acyclic: bool
    connected: bool
    """Every state lies on a path from the start to a final state."""
    acceptor: bool
    """Both labels of every arc are the same."""
    weighted: bool
    """Some weight is neither one nor zero."""
    input_epsilons: int
    """Arcs with input label 0."""
    output_epsilons: int
    """Arcs with output label 0."""
    epsilons: int
    """Arcs with both labels 0."""
    ilabel_sorted: bool
    olabel_sorted: bool
    ilabel_deterministic: bool | None
    """No two arcs of a state have the same input label; None: unknown, as arcs are not sorted."""
    olabel_deterministic: bool | None
    top_sorted: bool
    """Every arc leads to a state of higher number."""
    accessible: int
    """States that the start reaches."""
    coaccessible: int
    """States that reach a final one."""
    components: int
    """Strongly connected components."""
    ilabels: int
    """Different input labels, epsilon left out."""
    olabels: int
    """Different output labels, epsilon left out."""
    most_arcs: int
    """Maximum number of arcs of a state."""
    isymbols: dict[str, Any] | None
    """Name and size of the table of input symbols."""
    osymbols: dict[str, Any] | None
    """Name and size of the table of output symbols."""
    bytes: int
    """Size of the arrays in memory."""

    def rendered(self, _: bool) -> str:
        """All facts, a line each."""
        return "\n".join(
            f"{name.replace('_', ' '):22}{_cell(value):>22}"
            for name, value in self.to_dict().items()
        )

    def findings(self) -> Sequence[Finding]:
        """Its size."""
        return [
            Finding(
                f"{counted(self.states, 'state')}, {counted(self.arcs, 'arc')}, {self.semiring}."
            )
        ]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['name']}, {number(value['symbols'])} symbols"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return value if isinstance(value, str) else number(value)


def describe(f: Fst) -> Description:
    """Counts, and what is cheap to prove; in time linear in states and arcs, and one sort of the labels."""
    in_sides, out_sides = (kernels.label_facts(f.offsets, label) for label in (f.ilabel, f.olabel))
    reached, reaching = accessible(f), coaccessible(f)
    ring = f.semiring
    return Description(
        states=f.num_states,
        arcs=f.num_arcs,
        start=f.start,
        finals=len(f.finals),
        semiring=ring.name,
        acyclic=topological_order(f) is not None,
        connected=bool(reached.all() and reaching.all()),
        acceptor=f.is_acceptor,
        weighted=any(
            bool(((values != ring.one) & (values != ring.zero)).any())
            for values in (f.weight, f.final)
        ),
        input_epsilons=int(np.count_nonzero(f.ilabel == 0)),
        output_epsilons=int(np.count_nonzero(f.olabel == 0)),
        epsilons=int(np.count_nonzero((f.ilabel == 0) & (f.olabel == 0))),
        ilabel_sorted=in_sides[0],
        olabel_sorted=out_sides[0],
        ilabel_deterministic=_deterministic(*in_sides),
        olabel_deterministic=_deterministic(*out_sides),
        top_sorted=bool(np.all(f.nextstate > f.source)),
        accessible=int(reached.sum()),
        coaccessible=int(reaching.sum()),
        components=int(strong_components(f).number),
        ilabels=_different(f.ilabel),
        olabels=_different(f.olabel),
        most_arcs=int(np.diff(f.offsets).max(initial=0)),
        isymbols=_table(f.isymbols),
        osymbols=_table(f.osymbols),
        bytes=f.nbytes,
    )


def _deterministic(is_sorted: bool, is_repeated: bool) -> bool | None:
    """Whether labels of a state differ: known if equal ones stand side by side."""
    return not is_repeated if is_sorted or is_repeated else None


def _different(labels: I32) -> int:
    """How many labels other than epsilon there are."""
    ordered = np.sort(labels)  # np.unique would import masked arrays
    return int(np.count_nonzero(np.diff(ordered, prepend=np.int32(0))))


def _table(symbols: SymbolTable | None) -> dict[str, Any] | None:
    return None if symbols is None else {"name": symbols.name, "symbols": len(symbols)}
