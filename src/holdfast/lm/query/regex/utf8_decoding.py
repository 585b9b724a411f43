"""UTF-8 bytes as characters: from an automaton over bytes to one over symbols."""

from __future__ import annotations

import numpy as np

from holdfast.lm.query.regex.alphabet import Runs
from holdfast.lm.query.regex.characters import LAST, SURROGATES
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.subsets import CharacterDfa, check_room
from holdfast.lm.query.regex.utf8 import LENGTHS


def decoded(dfa: ByteDfa) -> tuple[CharacterDfa, Runs]:
    """The automaton over characters that accepts the same texts, and the code points of its symbols.

    Every character has a symbol, including those that occur in no text.

    Raises:
        ValueError: if a string of the language is not UTF-8.
    """
    reader = _Reader(dfa)
    numbers = {0: 0}
    queue = [0]
    arcs: list[Runs] = []
    for state in queue:
        arcs.append(reader.characters(state))
        for _, _, target in arcs[-1]:
            if target not in numbers:
                numbers[target] = len(queue)
                queue.append(target)

    # Between two edges, every state treats all characters alike.
    starts = {0, SURROGATES[0], SURROGATES[1] + 1}
    for runs in arcs:
        for first, last, _ in runs:
            starts |= {first, last + 1}
    edges = sorted(starts - {LAST + 1})
    place = {edge: at for at, edge in enumerate([*edges, LAST + 1])}
    check_room(len(queue), len(edges))
    columns = np.full((len(edges), len(queue)), DEAD, np.int32)
    for state, runs in enumerate(arcs):
        for first, last, target in runs:
            columns[place[first] : place[last + 1], state] = numbers[target]
    symbols: dict[bytes, int] = {}
    kept: list[int] = []
    spans: Runs = []
    for at, (edge, end) in enumerate(zip(edges, [*edges[1:], LAST + 1], strict=True)):
        if edge != SURROGATES[0]:
            symbol = symbols.setdefault(columns[at].tobytes(), len(symbols))
            if symbol == len(kept):
                kept.append(at)
            spans.append((edge, end - 1, symbol))
    return CharacterDfa(np.ascontiguousarray(columns[kept].T), dfa.final[queue]), spans


class _Reader:
    """Follows whole characters through an automaton over bytes."""

    def __init__(self, dfa: ByteDfa) -> None:
        self.rows = dfa.next[:, dfa.classes].tolist()
        self.final = dfa.final.tolist()
        self.rests: dict[tuple[int, int], Runs] = {}

    def characters(self, state: int) -> Runs:
        """The code points that may come next, with the state behind each."""
        row = self.rows[state]
        runs: Runs = []
        for byte in range(128):
            if row[byte] != DEAD:
                _extend(runs, [(0, 0, row[byte])], byte)
        for left, (low, high, lead) in enumerate(LENGTHS, 1):
            for bits in range((high >> 6 * left) + 1):
                after = row[lead + bits]
                if after == DEAD:
                    continue
                rest = self.rest(after, left)
                base = bits << 6 * left
                if base + rest[0][0] < low or base + rest[-1][1] > high:
                    raise ValueError("a character of the language is written with too many bytes")
                _extend(runs, rest, base)
        if any(first <= SURROGATES[1] and last >= SURROGATES[0] for first, last, _ in runs):
            raise ValueError("a text of the language holds a surrogate")
        if any(target != DEAD for target in (*row[0x80:0xC0], *row[0xF5:])):
            raise ValueError("a text of the language does not begin with a character")
        return runs

    def rest(self, state: int, left: int) -> Runs:
        """What the last bytes of a character lead to, by the bits that they carry."""
        key = state, left
        if key not in self.rests:
            row = self.rows[state]
            if self.final[state] or any(target != DEAD for target in (*row[:0x80], *row[0xC0:])):
                raise ValueError("a text of the language breaks off within a character")
            runs: Runs = []
            for bits, after in enumerate(row[0x80:0xC0]):
                if after != DEAD:
                    found = [(0, 0, after)] if left == 1 else self.rest(after, left - 1)
                    _extend(runs, found, bits << 6 * (left - 1))
            self.rests[key] = runs
        return self.rests[key]


def _extend(runs: Runs, more: Runs, base: int) -> None:
    """Append runs, moved up by `base`; a run that continues the last one is merged into it."""
    for first, last, value in more:
        if runs and runs[-1][2] == value and runs[-1][1] == base + first - 1:
            runs[-1] = (runs[-1][0], base + last, value)
        else:
            runs.append((base + first, base + last, value))
