"""Every path of a machine up to a length, in plain Python."""

from __future__ import annotations

from holdfast.automata import Fst


def arc_paths(f: Fst, longest: int) -> dict[tuple[int, ...], float]:
    """The arcs of every path of at most so many arcs -> its cost."""
    found = {}
    finals = f.finals
    waiting: list[tuple[tuple[int, ...], int, float]] = [((), f.start, 0.0)]
    while waiting:
        arcs, state, cost = waiting.pop()
        if state in finals:
            found[arcs] = cost + finals[state]
        if len(arcs) < longest:
            waiting += [
                ((*arcs, arc), int(f.nextstate[arc]), cost + float(f.weight[arc]))
                for arc in range(f.offsets[state], f.offsets[state + 1])
            ]
    return found


def path_lengths(f: Fst, longest: int) -> list[int]:
    """The number of arcs of every path of at most so many."""
    return [len(arcs) for arcs in arc_paths(f, longest)]
