"""From a regular expression to the automaton of the texts that match it as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import itemgetter, or_

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.query.regex.alphabet import Alphabet, alphabet
from holdfast.lm.query.regex.characters import PERL, Ranges
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.parsing import parse
from holdfast.lm.query.regex.positions import LARGE, Key, Positions, bits, key
from holdfast.lm.query.regex.subsets import CharacterDfa, check_room, subset_automaton
from holdfast.lm.query.regex.syntax import (
    Assertion,
    Choice,
    Complement,
    Join,
    Meet,
    Node,
    Repeat,
    Text,
)
from holdfast.lm.query.regex.utf8 import encoded

_LINE_END: Ranges = ((10, 10),)
# Kinds of what stands on either side of a gap: the edge of the text, or a character.
_KINDS = _EDGE, _LINE, _WORD, _OTHER = range(4)


def compile_regex(pattern: str, *, ignore_case: bool = False) -> ByteDfa:
    """The exact full-match language of a pattern, in UTF-8.

    The syntax is RE2's (https://github.com/google/re2/wiki/Syntax), and beside it ``&``, which binds looser
    than joining and tighter than ``|``, for texts that match both sides, and ``~`` for the texts that the
    atom after it does not match (of all texts; it binds tighter than a repetition). Lazy repetitions match
    the same texts as greedy ones. ``^`` and ``$`` are the edges of the whole text, under ``(?m)`` of lines.

    Raises:
        InputError: if it is no such pattern; the message has the place of the character.
        LimitError: if its automaton would have more than 2^20 states, or not fit into memory.
    """
    syntax = parse(pattern, ignore_case)
    for kind in _astray(syntax.tree, True, False):
        raise InputError(
            "regular expression: an assertion inside of & or ~ that is itself part of a longer text",
            code="invalid-syntax",
            place=f"character {kind.place}",
            found=f"an assertion of {kind.kind}",
            expected="assertions outside, or & and ~ over the whole text",
            remedy="move the assertion out of the operand",
        )
    sets = list(syntax.sets)
    if syntax.assertions:
        sets += [_LINE_END, PERL["w"]]
    translation = _Translation(sets, syntax.assertions)
    return encoded(translation.automaton(syntax.tree), translation.alphabet.runs)


def _astray(node: Node, whole: bool, inside: bool) -> Iterator[Assertion]:
    """Assertions in an operand that is not the whole text: what stands beside it is not known."""
    match node:
        case Assertion():
            if inside:
                yield node
        case Choice(branches):
            for branch in branches:
                yield from _astray(branch, whole, inside)
        case Join(parts):
            for part in parts:
                yield from _astray(part, whole and len(parts) == 1, inside)
        case Repeat(part):
            yield from _astray(part, False, inside)
        case Meet(parts):
            for part in parts:
                yield from _astray(part, whole, inside or not whole)
        case Complement(part):
            yield from _astray(part, whole, inside or not whole)


class _Translation:
    """A tree's automaton over the symbols that its sets make."""

    def __init__(self, sets: list[Ranges], assertions: frozenset[str]) -> None:
        self.alphabet: Alphabet = alphabet(sets)
        members = self.alphabet.members
        self.symbols_of = [0] * len(sets)
        for symbol, member in enumerate(members):
            for number in bits(member):
                self.symbols_of[number] |= 1 << symbol
        self.kinds = [_EDGE] * len(members)
        self.assertions = assertions
        if assertions:
            line, word = len(sets) - 2, len(sets) - 1
            self.kinds = [
                _LINE if member >> line & 1 else _WORD if member >> word & 1 else _OTHER
                for member in members
            ]
        self.known: dict[int, CharacterDfa | None] = {}

    def automaton(self, node: Node) -> CharacterDfa:
        """The texts that match a part of the tree as a whole."""
        if isinstance(node, Meet):
            out = self.automaton(node.parts[0])
            for part in node.parts[1:]:
                out = out.meet(self.automaton(part))
            return out
        if isinstance(node, Complement):
            return self.automaton(node.part).complement()
        if isinstance(node, Choice):
            words = self.inner(node)
            if words is not None:
                return words
        if self.assertions:
            return self.guarded(node)
        positions = Positions(node, self.symbols_of, (), self.inner)
        reading = positions.reading(self.alphabet.size)
        follow, last = positions.follow, positions.last
        endless = positions.endless(self.alphabet.size)
        everything = (1 << self.alphabet.size) - 1
        # A state: whether the text may end, and what may follow, with its key.
        Open = tuple[bool, Key, int]
        reached: dict[Key, Open] = {}
        readers: dict[int, list[tuple[int, int]]] = {}  # symbols as bits -> who reads each

        def moves(state: Open) -> list[tuple[int, Open]]:
            following = state[2]
            symbols = everything
            if following.bit_count() < 8:  # most symbols lead nowhere
                symbols = 0
                for place in bits(following):
                    symbols |= positions.reads[place]
            if symbols not in readers:
                readers[symbols] = [(symbol, reading[symbol]) for symbol in bits(symbols)]
            out = []
            for symbol, reads in readers[symbols]:
                here = following & reads
                if not here:
                    continue
                found = here if here < LARGE else key(here)
                if found not in reached:
                    after = 0
                    for place in bits(here):
                        after |= follow[place]
                    if after & endless:  # whatever else may follow, everything does
                        after &= endless
                        after &= -after
                    reached[found] = bool(here & last), key(after), after
                out.append((symbol, reached[found]))
            return out

        start = positions.empty, key(positions.first), positions.first
        return subset_automaton(start, moves, itemgetter(0), len(reading))

    def guarded(self, node: Node) -> CharacterDfa:
        """The same, where what may follow depends on the characters on both sides of a gap."""
        known: dict[frozenset[str], Positions] = {}

        def positions(before: int, after: int) -> Positions:
            holds = _holding(before, after) & self.assertions
            if holds not in known:
                known[holds] = Positions(node, self.symbols_of, holds, self.inner)
            return known[holds]

        gaps = [[positions(before, after) for after in _KINDS] for before in _KINDS]
        reading = gaps[0][0].reading(self.alphabet.size)
        # A state: what may follow, for each kind of the next character, and whether the text may end.
        Guarded = tuple[tuple[int, ...], bool]
        reached: dict[tuple[Key, int], Guarded] = {}

        def moves(state: Guarded) -> list[tuple[int, Guarded]]:
            out = []
            for symbol, (reads, kind) in enumerate(zip(reading, self.kinds, strict=True)):
                here = state[0][kind] & reads
                if not here:
                    continue
                found = key(here), kind
                if found not in reached:
                    places = bits(here)
                    after = tuple(
                        reduce(or_, [gap.follow[place] for place in places]) for gap in gaps[kind]
                    )
                    reached[found] = after, bool(here & gaps[kind][_EDGE].last)
                out.append((symbol, reached[found]))
            return out

        start = tuple(gap.first for gap in gaps[_EDGE]), gaps[_EDGE][_EDGE].empty
        return subset_automaton(start, moves, itemgetter(1), len(reading))

    def inner(self, node: Node) -> CharacterDfa | None:
        """The automaton of a part that is not built from positions; computed once."""
        if id(node) not in self.known:
            if isinstance(node, Choice):
                made = word_list(node.branches, self.symbols_of, self.alphabet.size)
            else:
                made = self.automaton(node)
            self.known[id(node)] = made
        return self.known[id(node)]


def _holding(before: int, after: int) -> frozenset[str]:
    """The assertions that are true between two kinds of characters."""
    edge_of_word = (before == _WORD) != (after == _WORD)
    return frozenset(
        kind
        for kind, true in (
            ("start", before == _EDGE),
            ("end", after == _EDGE),
            ("line start", before in (_EDGE, _LINE)),
            ("line end", after in (_EDGE, _LINE)),
            ("word edge", edge_of_word),
            ("no word edge", not edge_of_word),
        )
        if true
    )


FEWEST_WORDS = 32
"""Shorter lists are made of positions, as all else is."""


def word_list(
    branches: Sequence[Node], symbols_of: Sequence[int], symbols: int
) -> CharacterDfa | None:
    """The minimal automaton of a choice between words; None if it is something else.

    Args:
        branches: of the choice.
        symbols_of: [sets] the symbols of each set, as bits.
        symbols: how many.
    """
    if len(branches) < FEWEST_WORDS or not all(isinstance(branch, Text) for branch in branches):
        return None
    used = sorted(
        {number for branch in branches if isinstance(branch, Text) for number in branch.sets}
    )
    taken = 0
    for number in used:
        if taken & symbols_of[number]:
            return None  # two sets share a character: a trie would not be deterministic
        taken |= symbols_of[number]
    children: dict[tuple[int, int], int] = {}
    ends = set()
    for branch in branches:
        assert isinstance(branch, Text)
        state = 0
        for number in branch.sets:
            state = children.setdefault((state, number), len(children) + 1)
        ends.add(state)
    states = len(children) + 1
    check_room(states, symbols)
    table = np.full((states, symbols), DEAD, np.int32)
    read = {number: bits(symbols_of[number]) for number in used}
    for (state, number), child in children.items():
        table[state, read[number]] = child
    final = np.zeros(states, np.bool_)
    final[list(ends)] = True
    return CharacterDfa(table, final).minimal()
