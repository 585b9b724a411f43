"""`Path`: one path of a machine, from the start to a final state."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.automata.fst import Fst
from holdfast.automata.symbols import SymbolTable


@dataclass(frozen=True, slots=True)
class Path:
    """One path; epsilons are left out of its labels."""

    ilabels: tuple[int, ...]
    """The input string."""
    olabels: tuple[int, ...]
    """The output string."""
    weight: float
    """The product of the weights of its arcs and of its final state, in the machine's semiring."""
    arcs: tuple[int, ...]
    """Its arcs, as positions in the `Fst`."""

    def input(self, f: Fst) -> str:
        """The input string as symbols of the machine's table, numbers where it has none."""
        return _spelled(self.ilabels, f.isymbols)

    def output(self, f: Fst) -> str:
        """The output string as symbols of the machine's table, numbers where it has none."""
        return _spelled(self.olabels, f.osymbols)


def path_of(f: Fst, arcs: list[int]) -> Path:
    """The path along these arcs, which lead from the start to a final state."""
    state = int(f.nextstate[arcs[-1]]) if arcs else f.start
    weight = 0.0 if f.semiring.is_negative_log else 1.0
    for factor in (*f.weight[arcs].tolist(), float(f.final[state])):
        weight = weight + factor if f.semiring.is_negative_log else weight * factor
    return Path(
        tuple(label for label in f.ilabel[arcs].tolist() if label),
        tuple(label for label in f.olabel[arcs].tolist() if label),
        weight,
        tuple(arcs),
    )


def _spelled(labels: tuple[int, ...], symbols: SymbolTable | None) -> str:
    return " ".join(str(label) if symbols is None else symbols.symbol(label) for label in labels)
