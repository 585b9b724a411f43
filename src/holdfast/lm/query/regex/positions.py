"""Positions of a syntax tree that read a character: the first, the last, and what follows each.

The position automaton (V. Glushkov, 1961; R. McNaughton and H. Yamada, 1960) has no empty moves and one
position for each character of the pattern. Sets of positions are integers, bit p for position p. An
assertion depends on the gap between two characters; for gaps of one kind it is constant, so each kind of
gap has separate positions, which differ only in what may follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.errors import LimitError
from holdfast.lm.query.regex.dfa import DEAD
from holdfast.lm.query.regex.subsets import CharacterDfa
from holdfast.lm.query.regex.syntax import (
    EMPTY,
    Assertion,
    Choice,
    Join,
    Node,
    Repeat,
    Text,
)

MOST_POSITIONS = 1 << 15
LARGE = 1 << 61
"""Python's hash of whole numbers is their rest by one less."""
_PRIME = (1 << 61) - 31

Key = int | tuple[int, int]
"""What a set of positions is looked up by, from `key`."""
Fragment = tuple[bool, int, int]
"""A part of the pattern: whether it matches the empty text, its first and its last positions."""


class Positions:
    """The positions of a tree, for one kind of gap."""

    def __init__(
        self,
        tree: Node,
        symbols_of: Sequence[int],
        holds: Collection[str],
        inner: Callable[[Node], CharacterDfa | None],
    ) -> None:
        """Walk the tree.

        Args:
            tree: what is to be matched.
            symbols_of: [sets] the symbols of each set, as bits.
            holds: the assertions that are true of such a gap.
            inner: the automaton of a part that is better not made of positions; None where it is.

        Raises:
            LimitError: if repetitions make too many positions.
        """
        self._symbols_of = symbols_of
        self._holds = holds
        self._inner = inner
        self.follow: list[int] = []
        """The positions that may come after each."""
        self.reads: list[int] = []
        """What each position reads: symbols, as bits."""
        self.readers: dict[int, int] = {}
        """The same by symbols: as bits -> the positions that read just these."""
        self.empty, self.first, self.last = self._built(tree)

    def reading(self, symbols: int) -> list[int]:
        """[symbols] the positions that read each symbol."""
        out = [0] * symbols
        for read, positions in self.readers.items():
            for symbol in bits(read):
                out[symbol] |= positions
        return out

    def endless(self, symbols: int) -> int:
        """The positions after which anything goes, of texts over so many symbols: what ends `(?s).*`."""
        candidates = self.readers.get((1 << symbols) - 1, 0) & self.last
        return sum(1 << place for place in bits(candidates) if self.follow[place] >> place & 1)

    def _position(self, symbols: int) -> int:
        """A new position; its bit."""
        if len(self.follow) >= MOST_POSITIONS:
            raise LimitError(
                "regular expression: its repetitions, written out, become too long",
                needed=f"more than {MOST_POSITIONS:,} characters",
                allowed=f"{MOST_POSITIONS:,} characters",
                remedy="repeat less, or repeat one class of characters in place of a group",
            )
        bit = 1 << len(self.follow)
        self.follow.append(0)
        self.reads.append(symbols)
        self.readers[symbols] = self.readers.get(symbols, 0) | bit
        return bit

    def _link(self, before: int, after: int) -> None:
        """Let positions follow others."""
        for position in bits(before):
            self.follow[position] |= after

    def _joined(self, left: Fragment, right: Fragment) -> Fragment:
        empty, first, last = left
        then_empty, then_first, then_last = right
        if last and then_first:
            self._link(last, then_first)
        return (
            empty and then_empty,
            first | then_first if empty else first,
            last | then_last if then_empty else then_last,
        )

    def _built(self, node: Node) -> Fragment:
        if isinstance(node, Text):
            first = last = 0
            for number in node.sets:
                bit = self._position(self._symbols_of[number])
                if last:
                    self.follow[-2] |= bit
                else:
                    first = bit
                last = bit
            return not node.sets, first, last
        if isinstance(node, Join):
            out: Fragment = (True, 0, 0)
            for part in node.parts:
                out = self._joined(out, self._built(part))
            return out
        if isinstance(node, Choice):
            words = self._inner(node)
            return self._chosen(node.branches) if words is None else self._embedded(words)
        if isinstance(node, Repeat):
            return self._repeated(node)
        if isinstance(node, Assertion):
            return node.kind in self._holds, 0, 0
        inner = self._inner(node)
        assert inner is not None
        return self._embedded(inner)

    def _chosen(self, branches: Sequence[Node]) -> Fragment:
        """Branches that begin with the same characters share their positions, as in a trie."""
        empty, first, last = False, 0, 0
        children: dict[
            tuple[int, int], int
        ] = {}  # (position, or -1, and set that is read next) -> position
        for branch in branches:
            text, rest = _parted(branch)
            before = -1
            for number in text:
                child = children.get((before, number))
                if child is None:
                    child = children[before, number] = len(self.follow)
                    bit = self._position(self._symbols_of[number])
                    if before < 0:
                        first |= bit
                    else:
                        self.follow[before] |= bit
                before = child
            then_empty, then_first, then_last = self._built(rest)
            last |= then_last
            if before < 0:
                empty, first = empty or then_empty, first | then_first
            else:
                self.follow[before] |= then_first
                last |= then_empty << before
        return empty, first, last

    def _repeated(self, node: Repeat) -> Fragment:
        part, least, most = node
        if most == 0:
            return True, 0, 0
        before = len(self.follow)
        empty, first, last = self._built(part)
        if len(self.follow) == before:  # nothing is read, however often
            return empty or least == 0, 0, 0
        if most is None:
            self._link(last, first)
            out: Fragment = (empty or least == 0, first, last)
            for _ in range(least - 1):
                out = self._joined(self._built(part), out)
            return out
        # Copies that may be missing are nested, x(x(x)?)?, so that each is followed by one other.
        optional = most - least
        out = (empty or optional > 0, first, last)
        for copy in range(1, most):
            empty, first, last = self._joined(self._built(part), out)
            out = (empty or copy < optional, first, last)
        return out

    def _embedded(self, inner: CharacterDfa) -> Fragment:
        """An automaton's moves as positions: one for each state and way into it."""
        ways: dict[tuple[int, int], int] = {}
        targets: list[int] = []
        start = len(self.follow)
        leaving: list[int] = []
        for row in inner.table.tolist():
            symbols_to: dict[int, int] = {}
            for symbol, target in enumerate(row):
                if target != DEAD:
                    symbols_to[target] = symbols_to.get(target, 0) | 1 << symbol
            out = 0
            for way in symbols_to.items():
                if way not in ways:
                    ways[way] = self._position(way[1])
                    targets.append(way[0])
                out |= ways[way]
            leaving.append(out)
        last = 0
        for at, target in enumerate(targets):
            self.follow[start + at] = leaving[target]
            if inner.final[target]:
                last |= 1 << (start + at)
        return (bool(inner.final[0]), leaving[0], last) if leaving else (False, 0, 0)


def _parted(branch: Node) -> tuple[tuple[int, ...], Node]:
    """The characters that a branch begins with, and the rest of it."""
    match branch:
        case Text(sets):
            return sets, EMPTY
        case Join((Text(sets), *rest)):
            return sets, Join(tuple(rest))
    return (), branch


def key(number: int) -> Key:
    """What a set is looked up by.

    Among large powers of 2 there are but 61 hashes, so a large number brings its rest by another prime.
    """
    return number if number < LARGE else (number % _PRIME, number)


def bits(number: int) -> list[int]:
    """The places of a number's bits, ascending."""
    out = []
    while number:
        low = number & -number
        out.append(low.bit_length() - 1)
        number ^= low
    return out
