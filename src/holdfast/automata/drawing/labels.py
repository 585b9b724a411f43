"""What stands beside the states and arcs of a picture."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from holdfast.automata.fst import EPS, Arc, Fst
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import LimitError

LINES = 4  # of arcs between the same two states, before the rest is counted

MOST_STATES, MOST_ARCS = 300, 1500


@dataclass(frozen=True)
class Bundle:
    """All arcs from one state to another: they are drawn as one."""

    source: int
    target: int
    lines: tuple[str, ...]
    """A label each, and how many more there are."""
    arcs: int
    marked: tuple[bool, ...]
    """Whether the arc of each line is one of those to be seen at once."""


def arc_label(machine: Fst, arc: Arc) -> str:
    """`input:output/weight`; one label if both are the same, no weight if it is one."""
    left = _symbol(arc.ilabel, machine.isymbols)
    right = _symbol(arc.olabel, machine.osymbols)
    label = left if left == right else f"{left}:{right}"
    if arc.weight == machine.semiring.one:
        return label
    return f"{label}/{arc.weight:.4g}"


def state_label(machine: Fst, state: int) -> str:
    """The number of a state, and its final weight unless that is one."""
    final = float(machine.final[state])
    if final in (machine.semiring.zero, machine.semiring.one):
        return str(state)
    return f"{state}/{final:.4g}"


def bundles(machine: Fst, marked: Set[int] = frozenset()) -> list[Bundle]:
    """The arcs, those between the same two states together, in the order of the first.

    Args:
        machine: whose arcs.
        marked: numbers of arcs to be seen at once; they stand first in their bundle.

    Raises:
        LimitError: if the machine is too large for a picture that anybody could read.
    """
    for count, most, what in (
        (machine.num_states, MOST_STATES, "states"),
        (machine.num_arcs, MOST_ARCS, "arcs"),
    ):
        if count > most:
            raise LimitError(
                "the machine is too large to be drawn",
                needed=f"{count:,} {what}",
                allowed=f"{most:,} {what}",
                remedy="draw a part of it, such as shortest_path(f, 5) or prune(f, 1.0)",
            )
    together: dict[tuple[int, int], tuple[list[str], list[str]]] = {}
    for number, arc in enumerate(machine.arcs()):
        others, first = together.setdefault((arc.source, arc.nextstate), ([], []))
        (first if number in marked else others).append(arc_label(machine, arc))
    return [
        Bundle(
            source,
            target,
            lines := _shortened(first + others),
            len(first + others),
            tuple(place < len(first) for place in range(len(lines))),
        )
        for (source, target), (others, first) in together.items()
    ]


def _shortened(labels: list[str]) -> tuple[str, ...]:
    if len(labels) <= LINES:
        return tuple(labels)
    return (*labels[: LINES - 1], f"… {len(labels) - LINES + 1} more")


def _symbol(label: int, table: SymbolTable | None) -> str:
    if label == EPS:
        return "ε"
    return str(label) if table is None else table.symbol(label)
