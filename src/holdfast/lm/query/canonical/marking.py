"""Languages of texts with marks: automata over bytes with a transition that takes no byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

_DEAD = -1
_BLOCK = 64


@dataclass(frozen=True, eq=False)
class MarkedLanguage:
    """A deterministic automaton over the bytes of UTF-8 and one mark; every state leads to acceptance.

    State 0 is the start. For every text at most one placing of marks belongs to the language.
    """

    classes: U8
    """[256] class of every byte."""
    next: I32
    """[states, classes] the state after a byte, or -1."""
    mark: I32
    """[states] the state after a mark, or -1."""
    final: Bools
    """[states] whether the text may end here."""
    stop: Bools
    """[states] whether a token may end here."""


def marked_language(
    alike: npt.NDArray[np.integer],
    outcomes: I32,
    final: Bools,
    stop_inside: tuple[bool, bool] = (True, True),
) -> MarkedLanguage:
    """The automaton over bytes of one over characters.

    Args:
        alike: [0x110000] group of every character.
        outcomes: [configurations, without or with a mark in front, groups] the configuration after a
            character, or -1.
        final: [configurations] whether the text may end.
        stop_inside: whether a token may end inside a character: one without, and one with a mark in front.
    """
    trie = _CharacterTrie(alike)
    size = 2 * len(final)
    nodes = _Nodes(size)
    rows = np.full((size, 256), _DEAD, np.int32)
    for configuration in range(len(final)):
        for marked in (0, 1):
            targets = outcomes[configuration, marked]
            targets = np.where(targets >= 0, 2 * targets, _DEAD).astype(np.int32)
            rows[2 * configuration + marked] = trie.bytes_of(targets, nodes, marked)
    bound = np.arange(size)
    following = np.vstack([rows, nodes.table()])
    states = len(following)
    mark = np.full(states, _DEAD, np.int32)
    mark[0:size:2] = bound[1::2]
    ends = np.zeros(states, np.bool_)
    ends[0:size:2] = final
    stop = np.ones(states, np.bool_)
    stop[size:] = np.array(stop_inside)[nodes.kinds]
    return _reduced(following, mark, ends, stop)


class _Nodes:
    """States inside a character; those that lead to the same ends, and are of one kind, are one."""

    def __init__(self, first: int):
        self._first = first
        self._rows: list[I32] = []
        self._known: dict[tuple[int, bytes], int] = {}
        self.kinds: list[int] = []

    def node(self, row: I32, kind: int) -> int:
        """The state from which continuation byte 0x80 + i leads to row[i]."""
        if (row == _DEAD).all():
            return _DEAD
        key = (kind, row.tobytes())
        if key not in self._known:
            self._known[key] = self._first + len(self._rows)
            self._rows.append(row)
            self.kinds.append(kind)
        return self._known[key]

    def table(self) -> I32:
        """[states, 256] the state after a byte, or -1."""
        table = np.full((len(self._rows), 256), _DEAD, np.int32)
        if self._rows:
            table[:, 0x80:0xC0] = self._rows
        return table


class _CharacterTrie:
    """The UTF-8 of all characters by the groups that they belong to, equal subtrees once."""

    def __init__(self, alike: npt.NDArray[np.integer]):
        groups = alike.astype(np.int32).copy()
        self._dead = int(groups.max()) + 1
        groups[0xD800:0xE000] = self._dead
        self._ascii = groups[:0x80].copy()
        short, long = groups.copy(), groups.copy()
        short[:0x80] = self._dead  # overlong forms
        long[:0x800] = self._dead
        self._two_leaves, self._two = _distinct(short[:0x800].reshape(-1, _BLOCK))
        self._leaves, blocks = _distinct(long.reshape(-1, _BLOCK))
        self._middles, self._three = _distinct(blocks.reshape(-1, _BLOCK))
        four = self._three.copy()
        self._blank = len(self._middles)
        four[:16] = self._blank
        padded = np.full(5 * _BLOCK, self._blank, np.int32)
        padded[: len(four)] = four
        self._tops, self._four = _distinct(padded.reshape(-1, _BLOCK))

    def bytes_of(self, targets: I32, nodes: _Nodes, kind: int) -> I32:
        """[256] where each first byte leads, when a character of group g leads to targets[g]."""
        ends = np.append(targets, _DEAD).astype(np.int32)

        def level(below: I32, rows: I32) -> I32:
            return np.array([nodes.node(below[row], kind) for row in rows], np.int32)

        row = np.full(256, _DEAD, np.int32)
        row[:0x80] = ends[self._ascii]
        row[0xC0:0xE0] = level(ends, self._two_leaves)[self._two]
        leaves = level(ends, self._leaves)
        middles = level(leaves, self._middles)
        row[0xE0:0xF0] = middles[self._three[:16]]
        row[0xF0:0xF5] = level(np.append(middles, np.int32(_DEAD)), self._tops)[self._four]
        return row


def _distinct(rows: I32) -> tuple[I32, I32]:
    """(distinct rows in order of appearance, number of each row among them)."""
    known: dict[bytes, int] = {}
    numbers = [known.setdefault(row.tobytes(), len(known)) for row in np.ascontiguousarray(rows)]
    found = np.frombuffer(b"".join(known), rows.dtype).reshape(-1, rows.shape[1])
    return found.astype(np.int32), np.array(numbers, np.int32)


def _reduced(following: I32, mark: I32, final: Bools, stop: Bools) -> MarkedLanguage:
    """The automaton with the fewest states: those that lead to acceptance, equal ones once.

    States are split by what follows them until no split is left (Moore).
    """
    columns, classes = _distinct(following.T)
    table = np.hstack([columns.T, mark[:, None]])  # [states, classes and mark]
    alive = final.copy()
    while True:
        grown = alive | (alive[table] & (table >= 0)).any(axis=1)
        if (grown == alive).all():
            break
        alive = grown
    table = np.where((table >= 0) & alive[table], table, _DEAD)
    block, blocks = np.where(alive, 1 + 2 * final + stop, 0), -1
    while True:
        rows = np.where(table >= 0, block[table] + 1, 0)
        _, split = _distinct(np.hstack([block[:, None], rows]).astype(np.int32))
        if split.max() == blocks:
            break
        blocks, block = int(split.max()), split
    reached = _reached(table)
    living = reached[alive[reached]]
    numbers: dict[int, int] = {}
    for state in living:
        numbers.setdefault(int(block[state]), len(numbers))
    renumber = np.full(int(block.max()) + 1, _DEAD, np.int32)
    renumber[list(numbers)] = list(numbers.values())
    first = np.zeros(len(numbers), np.int64)
    first[renumber[block[living[::-1]]]] = living[::-1]
    chosen = table[first]
    chosen = np.where(chosen >= 0, renumber[block[chosen]], _DEAD).astype(np.int32)
    return MarkedLanguage(
        classes.astype(np.uint8),
        np.ascontiguousarray(chosen[:, :-1]),
        np.ascontiguousarray(chosen[:, -1]),
        final[first],
        stop[first],
    )


def _reached(table: I32) -> npt.NDArray[np.int64]:
    """States that the start leads to, in order of discovery."""
    seen = np.zeros(len(table), np.bool_)
    seen[0] = True
    layers = [np.array([0], np.int64)]
    while len(layers[-1]):
        targets = np.unique(table[layers[-1]])
        targets = targets[(targets >= 0)]
        targets = targets[~seen[targets]]
        seen[targets] = True
        layers.append(targets.astype(np.int64))
    return np.concatenate(layers)
