"""Texts gathered from their encodings, and what each text can still gain from the open tree."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from holdfast.lm.query.searching.tree import Tree
from holdfast.lm.tokenizers.tokenizer import Tokenizer


class Item(NamedTuple):
    """A piece of open mass: a child that was not taken, or (place -1) a node that waits."""

    mass: float
    node: int
    place: int


NOTHING = Item(0.0, -1, -1)


@dataclass
class Found:
    """A text, with what its encodings found so far add up to."""

    log: float
    encodings: int
    best: float
    """Log mass of its most probable encoding."""
    node: int
    """Where that encoding ends."""


class Texts:
    """The texts found, and bounds of what they and all others can have.

    An open piece whose text is u adds, at most, its mass to every text that starts with u. So a text gains
    at most the open mass on its byte path, from the empty text to itself; and no text that was not found
    has more than the largest such sum over all paths.

    Args:
        tree: the tree; its `hits` are taken from it.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.found: dict[bytes, Found] = {}
        self.emitted: dict[bytes, Found] = {}
        """Texts that left `found`: proven."""
        self._ranked: list[tuple[float, bytes]] = []
        self._at: dict[bytes, list[int]] = {}
        """Nodes by their text."""
        self._seen = 0
        self._ceiling = math.inf
        """What texts not found when `rivals` was last called can have, in logarithm: it only falls."""
        self._uppers: list[tuple[float, bytes]] = []
        """The same of every text that was found then, the largest first."""
        vocabulary = _Vocabulary.of(tree.tokenizer)
        self._ids, self._longest, self._nested = (
            vocabulary.ids,
            vocabulary.longest,
            vocabulary.nested,
        )

    # --- Gathering -------------------------------------------------------------------------------

    def gather(self) -> None:
        """Take what the tree accepted, and note its new nodes."""
        tree = self.tree
        for node, log in tree.hits:
            text = tree.text[node]
            known = self.found.get(text) or self.emitted.get(text)
            if known is None:
                known = self.found[text] = Found(log, 1, log, node)
            else:
                top = max(known.log, log)
                known.log = top + math.log1p(math.exp(min(known.log, log) - top))
                known.encodings += 1
                if (log, tree.path(known.node)) > (known.best, tree.path(node)):
                    known.best, known.node = log, node
            if text in self.found:
                heapq.heappush(self._ranked, (-_rounded(known.log), text))
        tree.hits.clear()
        for node in range(self._seen, len(tree.log)):
            self._at.setdefault(tree.text[node], []).append(node)
        self._seen = len(tree.log)

    def first(self) -> bytes | None:
        """The most probable text that was found and not emitted; ties by the text."""
        while self._ranked:
            key, text = self._ranked[0]
            if text in self.found and -key == _rounded(self.found[text].log):
                return text
            heapq.heappop(self._ranked)
        return None

    def emit(self, text: bytes) -> None:
        """Note that a text is proven to be the next."""
        self.emitted[text] = self.found.pop(text)

    def kept(self) -> list[list[Any]]:
        """What was found, as JSON has it: the texts that were emitted first, in their order."""
        return [
            [text.hex(), text in self.emitted, *vars(found).values()]
            for texts in (self.emitted, self.found)
            for text, found in texts.items()
        ]

    def restore(self, kept: list[list[Any]]) -> None:
        """Take back what `kept` gave."""
        for text, emitted, *values in kept:
            spelled, found = bytes.fromhex(text), Found(*values)
            (self.emitted if emitted else self.found)[spelled] = found
            if not emitted:
                heapq.heappush(self._ranked, (-_rounded(found.log), spelled))

    # --- What one text can gain ------------------------------------------------------------------

    def open_on(self, text: bytes, reference: float) -> list[Item]:
        """Every open piece on the byte path of a text, in units of exp(reference), the largest first."""
        tree, items = self.tree, []
        for size in range(len(text) + 1):
            for node in self._at.get(text[:size], ()):
                weight = tree.log[node] - reference
                if node in tree.waiting:
                    if size < len(text) or tree.event == "exact":
                        items.append(Item(_exp(weight), node, -1))
                    continue
                chances = tree.chances[node]
                if chances is None or _exp(float(tree.log_open[node]) - reference) < 1e-15:
                    continue
                items += [
                    Item(_exp(weight + math.log(chances[place])), node, place)
                    for place in self._places(node, text, size)
                    if chances[place] > 0
                ]
        items.sort(key=lambda item: (-item.mass, item.node, item.place))
        return items

    def stuck_on(self, text: bytes, reference: float) -> float:
        """What the text may have besides, that cannot be followed; in units of exp(reference)."""
        tree = self.tree
        return math.fsum(
            _exp(float(tree.log_stuck[node]) - reference)
            for size in range(len(text) + 1)
            for node in self._at.get(text[:size], ())
        )

    def _places(self, node: int, text: bytes, size: int) -> list[int]:
        """Places of a node's children whose text is on the way from `size` bytes to the whole text."""
        tree = self.tree
        rest = text[size : size + self._longest]
        pieces = [rest[:length] for length in range(1, len(rest) + 1)]
        if tree.starts_text(node):
            # Without the lead a token may not start like it; with it, it may be the lead alone.
            led = [tree.lead + rest[:length] for length in range(len(rest) + 1)]
            pieces = led + [piece for piece in pieces if not piece.startswith(tree.lead)]
        wanted = [token for piece in pieces for token in self._ids.get(piece, ())]
        if not wanted:
            return []
        tokens = tree.arcs(node)[0]
        columns = np.searchsorted(tokens, wanted)
        columns[columns == len(tokens)] = 0
        columns = columns[tokens[columns] == wanted]
        kept = tree.columns[node]
        if kept is None:
            return [int(column) for column in columns]
        places = np.searchsorted(kept, columns)
        places[places == len(kept)] = 0
        return [int(place) for place in places[kept[places] == columns]]

    # --- What any other text can have ------------------------------------------------------------

    def rivals(self, text: bytes, precision: float, tolerance: float) -> tuple[list[Item], bool]:
        """What keeps a text from being proven the next one.

        Children below `precision` of the text's mass are not looked at one by one: a node's add, together,
        at most what as many as can be prefixes of each other may have.

        Args:
            text: the most probable text found, itself resolved.
            precision: in units of its mass.
            tolerance: share of its own mass that another text found may still gain, once it stands equal.

        Returns:
            The pieces of open mass to look into, the largest of every path on which another text could have
            more; and whether all of them are above the precision (if not, a finer one may do).
        """
        tree, reference = self.tree, self.found[text].log
        limit = 1 + 1e-9
        here: dict[bytes, float] = {}  # open mass at a text, for it and what is longer
        below: dict[bytes, float] = {}  # for what is longer only
        largest: dict[bytes, Item] = {}

        def put(where: dict[bytes, float], at: bytes, item: Item, mass: float) -> None:
            where[at] = where.get(at, 0.0) + mass
            if item > largest.get(at, NOTHING):
                largest[at] = item

        size = len(tree.log)
        with np.errstate(over="ignore"):
            masses = np.exp(tree.log_open[:size] - reference)
        order = np.flatnonzero(masses)
        order = order[np.argsort(masses[order])]
        few = int(np.searchsorted(np.cumsum(masses[order]), precision))
        slack = float(masses[order[:few]].sum())
        for node in sorted(order[few:].tolist()):
            chances = tree.chances[node]
            at = tree.text[node]
            if chances is None:
                strict = tree.event == "spelled" and tree.is_final(node)
                mass = float(masses[node])
                put(below if strict else here, at, Item(mass, node, -1), mass)
                continue
            weight = _exp(tree.log[node] - reference)
            left = float(masses[node])
            if chances.max() * weight >= precision:
                large = np.flatnonzero(chances * weight >= precision)
                columns = tree.columns[node]
                tokens = tree.arcs(node)[0][large if columns is None else columns[large]]
                for place, token in zip(large.tolist(), tokens.tolist(), strict=True):
                    mass = float(chances[place]) * weight
                    child = tree.text_after(node, token)
                    put(here, child, Item(mass, node, place), mass)
                small = np.where(chances * weight < precision, chances, 0.0)
                left = float(small.sum()) * weight
            else:
                small = chances
            if left > 0:
                place = int(small.argmax())
                most = float(small[place]) * weight
                put(below, at, Item(most, node, place), min(left, self._nested * most))

        sums = _Paths(here, below, largest)
        wanted: dict[tuple[int, int], Item] = {}

        most = slack

        def check(total: float, item: Item) -> None:
            nonlocal most
            most = max(most, total + slack)
            if total + slack > limit and item.node >= 0:
                wanted[item.node, item.place] = item

        for at in here.keys() | below.keys():
            check(*sums.to(at))
        self._uppers = [(reference + tolerance, text)]
        for other, found in self.found.items():
            if other == text:
                continue
            total = sums.to(other)[0] - below.get(other, 0.0) + _exp(found.log - reference)
            self._uppers.append((reference + math.log(total + slack), other))
            if total + slack > limit:
                pieces = self.open_on(other, reference)
                gain = math.fsum(item.mass for item in pieces)
                if gain > tolerance * _exp(found.log - reference):
                    wanted[pieces[0].node, pieces[0].place] = pieces[0]
        self._uppers.sort(reverse=True)
        self._ceiling = reference + math.log(most) if most > 0 else -math.inf
        items = sorted(wanted.values(), key=lambda item: (-item.mass, item.node, item.place))
        return items, all(item.mass >= precision for item in items)

    def unrivalled(self, text: bytes) -> bool:
        """Whether the last `rivals` already proves a text to be the next."""
        least = self.found[text].log
        if self._ceiling > least:
            return False
        for upper, other in self._uppers:
            if upper <= least:
                return True
            if other != text and other in self.found:
                return False
        return True


class _Paths:
    """Sums of open mass along byte paths, each prefix summed once."""

    def __init__(
        self, here: dict[bytes, float], below: dict[bytes, float], largest: dict[bytes, Item]
    ) -> None:
        self._here, self._below, self._largest = here, below, largest
        self._sums: dict[bytes, tuple[float, Item]] = {}

    def to(self, text: bytes) -> tuple[float, Item]:
        """(open mass on the path to a text, itself included; its largest piece)."""
        size = len(text)
        total, item = 0.0, NOTHING
        while size >= 0:
            known = self._sums.get(text[:size])
            if known is not None:
                total, item = known
                break
            size -= 1
        for longer in range(size + 1, len(text) + 1):
            at = text[:longer]
            if at in self._largest:
                total += self._here.get(at, 0.0) + self._below.get(at, 0.0)
                item = max(item, self._largest[at])
                self._sums[at] = (total, item)
        self._sums[text] = (total, item)
        return total, item


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _rounded(log: float) -> float:
    """What texts are ordered by: equal within what sums of different order can differ."""
    return round(log, 9)


@dataclass(frozen=True)
class _Vocabulary:
    """What paths need of a tokenizer; made once."""

    ids: dict[bytes, list[int]]
    longest: int
    """Bytes of the longest piece."""
    nested: int
    """How many tokens, at most, are prefixes of each other."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> _Vocabulary:
        made = _MADE.get(tokenizer)
        if made is None:
            ids: dict[bytes, list[int]] = {}
            for token, piece in enumerate(tokenizer.pieces):
                if piece:
                    ids.setdefault(piece, []).append(token)
            longest = max(map(len, ids), default=0)
            made = _MADE[tokenizer] = cls(ids, longest, _deepest(ids))
        return made


_MADE: WeakKeyDictionary[Tokenizer, _Vocabulary] = WeakKeyDictionary()


def _deepest(ids: dict[bytes, list[int]]) -> int:
    above: list[tuple[bytes, int]] = []
    most = 0
    for piece in sorted(ids):  # what a piece starts with comes before it
        while above and not piece.startswith(above[-1][0]):
            above.pop()
        number = len(ids[piece]) + (above[-1][1] if above else 0)
        above.append((piece, number))
        most = max(most, number)
    return most
