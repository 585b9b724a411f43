"""How many strings a language has, and which they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.regex.dfa import DEAD, ByteDfa


def is_finite(dfa: ByteDfa) -> bool:
    """Whether the language has finitely many strings: no state of the trimmed automaton leads to itself."""
    return _backwards(dfa) is not None


def count_strings(dfa: ByteDfa) -> int | Literal["infinite"]:
    """How many strings the language has, exactly."""
    order = _backwards(dfa)
    if order is None:
        return "infinite"
    weights = _arcs(dfa)
    count = [0] * dfa.num_states
    for state in order:
        count[state] = int(dfa.final[state]) + sum(
            n * count[target] for target, n in weights[state]
        )
    return count[0] if count else 0


def strings(dfa: ByteDfa, limit: int) -> list[bytes]:
    """The first strings of the language, at most `limit`: by length, then in order of their bytes."""
    return list(islice(_in_order(dfa), limit))


def _arcs(dfa: ByteDfa) -> list[list[tuple[int, int]]]:
    """[states] the states that follow, each with the number of bytes that lead there."""
    sizes = np.bincount(dfa.classes, minlength=dfa.next.shape[1]).tolist()
    out = []
    for row in dfa.next.tolist():
        weights: dict[int, int] = {}
        for target, size in zip(row, sizes, strict=True):
            if target != DEAD:
                weights[target] = weights.get(target, 0) + size
        out.append(list(weights.items()))
    return out


def _backwards(dfa: ByteDfa) -> list[int] | None:
    """The states, each behind all that follow it; None if there is a cycle."""
    targets = [sorted({target for target in row if target != DEAD}) for row in dfa.next.tolist()]
    waits = [len(after) for after in targets]
    sources: list[list[int]] = [[] for _ in targets]
    for state, after in enumerate(targets):
        for target in after:
            sources[target].append(state)
    order = [state for state, count in enumerate(waits) if count == 0]
    for state in order:
        for source in sources[state]:
            waits[source] -= 1
            if waits[source] == 0:
                order.append(source)
    return order if len(order) == len(targets) else None


def _in_order(dfa: ByteDfa) -> Iterator[bytes]:
    """All strings by length, then bytes. Of each length only prefixes that can be completed are visited."""
    if dfa.is_empty:
        return
    longest = dfa.num_states - 1 if is_finite(dfa) else None
    arcs: list[list[tuple[int, int]]] = [
        [(byte, target) for byte, target in enumerate(row) if target != DEAD]
        for row in dfa.next[:, dfa.classes].tolist()
    ]
    ending = np.append(dfa.final, False)  # the last entry stands for the dead state
    completes: list[npt.NDArray[np.bool_]] = [
        ending
    ]  # [n][state] whether n bytes more can end there
    while True:
        length = len(completes) - 1
        if completes[length][0]:
            yield from _of_length(arcs, completes, length)
        if length == longest:
            return
        ahead = completes[length][dfa.next].any(axis=1)
        completes.append(np.append(ahead, False))


def _of_length(
    arcs: list[list[tuple[int, int]]], completes: list[npt.NDArray[np.bool_]], length: int
) -> Iterator[bytes]:
    """The strings of one length, in order of their bytes."""
    if length == 0:
        yield b""
        return
    text = bytearray()
    open_arcs = [iter(arcs[0])]
    while open_arcs:
        left = length - len(text) - 1
        for byte, target in open_arcs[-1]:
            if completes[left][target]:
                text.append(byte)
                if left == 0:
                    yield bytes(text)
                    text.pop()
                    continue
                open_arcs.append(iter(arcs[target]))
                break
        else:
            open_arcs.pop()
            if text:
                text.pop()
