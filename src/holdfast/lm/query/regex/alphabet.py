"""The characters that a pattern tells apart: few symbols in place of 1.1 million code points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.lm.query.regex.characters import LAST, SURROGATES, Ranges

Runs = list[tuple[int, int, int]]
"""(first, last, value): inclusive ranges of numbers, ascending, with a value each."""


@dataclass(frozen=True)
class Alphabet:
    """The coarsest partition of all characters in which every set is a union of symbols."""

    runs: Runs
    """Code points, each run with its symbol; surrogates have none."""
    members: list[int]
    """[symbols] which sets hold the symbol: bit n for set n."""

    @property
    def size(self) -> int:
        """Number of symbols."""
        return len(self.members)


def alphabet(sets: Sequence[Ranges]) -> Alphabet:
    """The symbols of some sets of characters."""
    no_text = 1 << len(sets)
    changes = {0: 0, SURROGATES[0]: no_text, SURROGATES[1] + 1: no_text}
    for number, ranges in enumerate(sets):
        bit = 1 << number
        for low, high in ranges:
            changes[low] = changes.get(low, 0) ^ bit
            changes[high + 1] = changes.get(high + 1, 0) ^ bit
    changes.pop(LAST + 1, None)
    starts = sorted(changes)
    runs: Runs = []
    symbols: dict[int, int] = {}
    inside = 0
    for start, end in zip(starts, [*starts[1:], LAST + 1], strict=True):
        inside ^= changes[start]
        if inside < no_text:
            runs.append((start, end - 1, symbols.setdefault(inside, len(symbols))))
    return Alphabet(runs, list(symbols))
