"""Characters as UTF-8 bytes: from an automaton over symbols to one over bytes.

A text's characters follow one another, so states between characters and states within one never match the
same texts. The bytes of a minimal automaton over characters are therefore minimal too, once equal rests of
characters are merged; this is done from the last byte to the first, over all states at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.regex.alphabet import Runs
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa, canonical
from holdfast.lm.query.regex.subsets import CharacterDfa, check_room

LENGTHS = ((0x80, 0x7FF, 0xC0), (0x800, 0xFFFF, 0xE0), (0x10000, 0x10FFFF, 0xF0))
"""Code points of two, three and four bytes, and the lead byte to which their first bits are added."""

Nodes = dict[tuple[tuple[int, int, int], ...], int]
"""Distinct tables of a continuation byte's six bits -> their numbers; values are nodes a level below."""


def encoded(characters: CharacterDfa, runs: Runs) -> ByteDfa:
    """The automaton over the UTF-8 bytes of the same texts.

    Args:
        characters: minimal.
        runs: code points and their symbols.
    """
    states = len(characters.final)
    # Symbols that nothing tells apart are one, and those that lead nowhere are none.
    columns: dict[bytes, int] = {np.full(states, DEAD, np.int32).tobytes(): -1}
    kept: list[int] = []
    merged: list[int] = []
    for symbol, column in enumerate(np.ascontiguousarray(characters.table.T)):
        key = column.tobytes()
        if key not in columns:
            columns[key] = len(kept)
            kept.append(symbol)
        merged.append(columns[key])
    live: Runs = []
    for low, high, symbol in runs:
        symbol = merged[symbol]
        if symbol < 0:
            continue
        if live and live[-1][2] == symbol and live[-1][1] == low - 1:
            live[-1] = (live[-1][0], high, symbol)
        else:
            live.append((low, high, symbol))

    symbols = len(kept)
    classes = np.full(256, symbols, np.int64)  # the class of bytes that lead nowhere
    for low, high, symbol in live:
        if low > 127:
            break
        classes[low : min(high, 127) + 1] = symbol
    first = np.full((states, symbols + 1), DEAD, np.int32)
    first[:, :symbols] = characters.table[:, kept]
    if not live or live[-1][1] < 128:
        return canonical(classes, first, characters.final, parted=True)

    levels: tuple[Nodes, Nodes, Nodes] = ({}, {}, {})
    leads = [_lifted(live, *bounds, levels[: size + 1]) for size, bounds in enumerate(LENGTHS)]
    edges = sorted(
        {
            edge
            for nodes in levels
            for node in nodes
            for low, high, _ in node
            for edge in (low, high + 1)
        }
        - {64}
    )
    check_room(states * sum(map(len, levels)), len(edges) + 1)
    class_of = np.searchsorted(edges, np.arange(64), side="right")  # 0 below the first edge

    # What a state and a rest of a character lead to, from the last byte to the first.
    reached = first
    blocks: list[npt.NDArray[np.int32]] = []
    total = states
    leading: list[npt.NDArray[np.int32]] = []
    for nodes, lead in zip(levels, leads, strict=True):
        children = np.full((len(nodes), len(edges) + 1), reached.shape[1] - 1, np.int64)
        for number, node in enumerate(nodes):
            for low, high, child in node:
                children[number, class_of[low] : class_of[high] + 1] = child
        rows = reached[:, children].reshape(-1, len(edges) + 1)
        distinct, inverse = _distinct(rows)
        dead = (distinct == DEAD).all(axis=1)
        numbers = np.where(dead, DEAD, total - 1 + np.cumsum(~dead)).astype(np.int32)
        reached = np.full((states, len(nodes) + 1), DEAD, np.int32)
        reached[:, :-1] = numbers[inverse].reshape(states, len(nodes))
        blocks.append(distinct[~dead])
        total += len(blocks[-1])
        base = symbols + 1 + len(edges) + 1 + sum(block.shape[1] for block in leading)
        picked: dict[int, int] = {}
        for low, high, node_number in lead:
            classes[low : high + 1] = base + picked.setdefault(node_number, len(picked))
        leading.append(reached[:, list(picked)])
    classes[0x80:0xC0] = symbols + 1 + class_of

    check_room(total, symbols + len(edges) + 2 + sum(block.shape[1] for block in leading))
    start = symbols + 1
    table = np.full((total, int(classes.max()) + 1), DEAD, np.int32)
    table[:states, :start] = first
    table[states:, start : start + len(edges) + 1] = np.vstack(blocks)
    table[:states, start + len(edges) + 1 :] = np.hstack(leading)
    final = np.zeros(total, np.bool_)
    final[:states] = characters.final
    return canonical(classes, table, final, parted=True)


def _lifted(runs: Runs, low: int, high: int, lead: int, levels: tuple[Nodes, ...]) -> Runs:
    """Lead bytes of the code points from low to high, each run with its node of the last level."""
    out = [
        (max(first, low), min(last, high), value)
        for first, last, value in runs
        if last >= low and first <= high
    ]
    for nodes in levels:
        out = _blocks(out, nodes)
    return [(lead + first, lead + last, node) for first, last, node in out]


def _blocks(runs: Runs, nodes: Nodes) -> Runs:
    """Numbers without their last six bits, each run with the node of what these bits lead to."""
    out: Runs = []
    block = -1
    parts: list[tuple[int, int, int]] = []

    def close(last: int) -> None:
        """The blocks up to `last` have the parts gathered."""
        if parts:
            node = nodes.setdefault(tuple(parts), len(nodes))
            if out and out[-1][2] == node and out[-1][1] == block - 1:
                out[-1] = (out[-1][0], last, node)
            else:
                out.append((block, last, node))
            parts.clear()

    for low, high, value in runs:
        first, last = low >> 6, high >> 6
        if first != block:
            close(block)
            block = first
        if first == last:
            parts.append((low & 63, high & 63, value))
            continue
        parts.append((low & 63, 63, value))
        close(block)
        if last - first > 1:
            block = first + 1
            parts.append((0, 63, value))
            close(last - 1)
        block = last
        parts.append((0, high & 63, value))
    close(block)
    return out


def _distinct(rows: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The different rows, and which of them each row is."""
    width = rows.shape[1]
    seen: dict[bytes, int] = {}
    whole: list[bytes]
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, 4 * width))).ravel().tolist()  # type: ignore[assignment]
    inverse = np.array([seen.setdefault(row, len(seen)) for row in whole], np.int64)
    return np.frombuffer(b"".join(seen), np.int32).reshape(len(seen), width), inverse
