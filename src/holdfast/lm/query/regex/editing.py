"""Texts within some edits of a language: Levenshtein's automaton on top of any other."""

from __future__ import annotations

from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.positions import bits
from holdfast.lm.query.regex.subsets import subset_automaton
from holdfast.lm.query.regex.utf8 import encoded
from holdfast.lm.query.regex.utf8_decoding import decoded


def edited(dfa: ByteDfa, edits: int) -> ByteDfa:
    """Texts at most `edits` insertions, deletions and replacements away from a text of the language.

    Edits apply to whole characters; an inserted character may be any of Unicode.

    Raises:
        ValueError: if a string of the language is not UTF-8, or `edits` is negative.
        LimitError: if the automaton becomes too large.
    """
    if edits < 0:
        raise ValueError("edits are counted from 0")
    if edits == 0 or dfa.is_empty:
        return dfa
    characters, runs = decoded(dfa)
    table = characters.table.tolist()
    symbols = characters.table.shape[1]
    # Sets of states are whole numbers, bit n for state n.
    steps = [[0 if target == DEAD else 1 << target for target in row] for row in table]
    final = sum(1 << state for state, ends in enumerate(characters.final.tolist()) if ends)
    known: dict[int, tuple[list[int], int]] = {}

    def stepped(states: int) -> tuple[list[int], int]:
        """Where each symbol leads, and where any does."""
        if states not in known:
            out = [0] * symbols
            for state in bits(states):
                out = [some | more for some, more in zip(out, steps[state], strict=True)]
            anywhere = 0
            for some in out:
                anywhere |= some
            known[states] = out, anywhere
        return known[states]

    # level[n] holds the states reached with at most n edits; deletions read nothing.
    Levels = tuple[int, ...]

    def with_deletions(levels: list[int]) -> Levels:
        for fewer in range(edits):
            levels[fewer + 1] |= levels[fewer] | stepped(levels[fewer])[1]
        return tuple(levels)

    def moves(levels: Levels) -> list[tuple[int, Levels]]:
        after = [stepped(level) for level in levels]
        # An insertion stays where it is, a replacement goes wherever some character leads.
        spent = [0] + [
            level | anywhere for level, (_, anywhere) in zip(levels[:-1], after[:-1], strict=True)
        ]
        reached: dict[Levels, Levels] = {}
        out = []
        for symbol in range(symbols):
            raw = tuple([read[symbol] | more for (read, _), more in zip(after, spent, strict=True)])
            if raw not in reached:
                reached[raw] = with_deletions(list(raw))
            if reached[raw][-1]:
                out.append((symbol, reached[raw]))
        return out

    start = with_deletions([1] * (edits + 1))
    return encoded(
        subset_automaton(start, moves, lambda levels: levels[-1] & final != 0, symbols), runs
    )
