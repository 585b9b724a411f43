"""Circles in what refers to what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The circles that a depth-first walk meets: each as its nodes in order, no two with a node in common.

    Time grows with nodes and edges; there is no recursion. Edges to what is no node are passed over.
    """
    state: dict[str, int] = {}  # 1: on the path, 2: done
    found: list[list[str]] = []
    taken: set[str] = set()
    for start in edges:
        if start in state:
            continue
        path, ahead = [start], [iter(edges[start])]
        state[start] = 1
        while path:
            step = next((node for node in ahead[-1] if node in edges), None)
            if step is None:
                state[path.pop()] = 2
                ahead.pop()
            elif step not in state:
                state[step] = 1
                path.append(step)
                ahead.append(iter(edges[step]))
            elif state[step] == 1:
                circle = path[path.index(step) :]
                if taken.isdisjoint(circle):
                    taken.update(circle)
                    found.append(circle)
    return found
