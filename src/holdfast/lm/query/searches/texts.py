"""Texts gathered from their encodings, and what each text can still gain from the open tree."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.lm.query.searches.paths import Item, OpenPaths, Vocabulary
from holdfast.lm.query.searches.tree import Tree


@dataclass
class TextMass:
    """A text, with what its encodings found so far add up to."""

    log: float
    encodings: int
    best: float
    """Log mass of its most probable encoding."""
    node: int
    """Where that encoding ends."""


class Texts:
    """The texts found, and bounds of what they and all others can have.

    A text gains at most the open mass on its byte path, from the empty text to itself; and no text that was
    not found has more than the largest such sum over all paths.

    Args:
        tree: the tree; its `hits` are taken from it.
        alone: no text has two encodings that count, so that none gains anything.
    """

    def __init__(self, tree: Tree, alone: bool = False) -> None:
        self.tree = tree
        self.paths = None if alone else OpenPaths(tree)
        self.found: dict[bytes, TextMass] = {}
        self.emitted: dict[bytes, TextMass] = {}
        """Texts that left `found`: proven."""
        self._ranked: list[tuple[float, bytes]] = []
        self._at: dict[bytes, list[int]] = {}
        """Nodes by their text."""
        self._seen = 0
        self._vocabulary = Vocabulary.of(tree.tokenizer)
        self._ceiling = math.inf
        """What texts not found when `rivals` was last called can have, in logarithm: it only falls."""
        self._uppers: list[tuple[float, bytes]] = []
        """The same of every text that was found then, the largest first."""
        self._texts: list[bytes] = []
        self._number: dict[bytes, int] = {}
        """Places in `_texts`; and, for each:"""
        self._where = np.empty(64, np.int32)
        """where it stands in the trie of paths,"""
        self._log = np.empty(64)
        """what it has; -inf once it was emitted."""

    # --- Gathering -------------------------------------------------------------------------------

    def gather(self) -> None:
        """Take what the tree accepted, and note its new nodes."""
        tree = self.tree
        if self.paths is not None:
            self.paths.follow()
        for node, log in tree.hits:
            text = tree.text[node]
            known = self.found.get(text) or self.emitted.get(text)
            if known is None:
                known = self.found[text] = TextMass(log, 1, log, node)
            else:
                top = max(known.log, log)
                known.log = top + math.log1p(math.exp(min(known.log, log) - top))
                known.encodings += 1
                if (log, tree.path(known.node)) > (known.best, tree.path(node)):
                    known.best, known.node = log, node
            if text in self.found:
                self._rank(text)
        tree.hits.clear()
        for node in range(self._seen, len(tree.log)):
            self._at.setdefault(tree.text[node], []).append(node)
        self._seen = len(tree.log)

    def _rank(self, text: bytes) -> None:
        """Note what a text that was not emitted has now."""
        log = self.found[text].log
        heapq.heappush(self._ranked, (-_rounded(log), text))
        if self.paths is None:
            return
        number = self._number.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
            if number == len(self._log):
                self._log, self._where = (
                    np.resize(self._log, 2 * number),
                    np.resize(self._where, 2 * number),
                )
            self._where[number] = self.paths.stand(text)
        self._log[number] = log

    def first(self) -> bytes | None:
        """The most probable text that was found and not emitted; ties by the text."""
        while self._ranked:
            key, text = self._ranked[0]
            if text in self.found and -key == _rounded(self.found[text].log):
                return text
            heapq.heappop(self._ranked)
        return None

    def after(self, text: bytes, least: float, most: int) -> list[bytes]:
        """The texts found, of at least `least`, that come after the first; `most` of them."""
        ranked: list[bytes] = []
        waiting = [0]  # places in the heap; what is below a place comes after it
        while waiting and len(ranked) <= most:
            place = min(waiting, key=self._ranked.__getitem__)
            waiting.remove(place)
            key, other = self._ranked[place]
            if -key < least:
                break
            known = self.found.get(other)
            if known is not None and -key == _rounded(known.log) and other != text:
                ranked.append(other)
            waiting += [
                child for child in (2 * place + 1, 2 * place + 2) if child < len(self._ranked)
            ]
        return ranked[:most]

    def emit(self, text: bytes) -> None:
        """Note that a text is proven to be the next."""
        self.emitted[text] = self.found.pop(text)
        if self.paths is not None:
            self._log[self._number[text]] = -np.inf

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
            spelled, found = bytes.fromhex(text), TextMass(*values)
            (self.emitted if emitted else self.found)[spelled] = found
            if not emitted:
                self._rank(spelled)

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
        rest = text[size : size + self._vocabulary.longest]
        pieces = [rest[:length] for length in range(1, len(rest) + 1)]
        if tree.starts_text(node):
            # Without the lead a token may not start like it; with it, it may be the lead alone.
            led = [tree.lead + rest[:length] for length in range(len(rest) + 1)]
            pieces = led + [piece for piece in pieces if not piece.startswith(tree.lead)]
        wanted = [token for piece in pieces for token in self._vocabulary.ids.get(piece, ())]
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

    def rivals(self, text: bytes, tolerance: float, even: float) -> list[Item]:
        """Open mass that keeps a text from being proven the next one.

        Args:
            text: the most probable text found, itself resolved.
            tolerance: share of its mass that another text found may still gain, once it is equal.
            even: log margin by which another text must exceed it to come first.

        Returns:
            The pieces of open mass to expand: the largest of every path on which another text could exceed
            it.
        """
        assert self.paths is not None
        reference, others = self.found[text].log, len(self._texts)
        log = self._log[:others]
        own = self._number[text]
        kept, log[own] = float(log[own]), -np.inf
        items, most, upper = self.paths.bound(reference, self._where[:others], log, tolerance, even)
        log[own] = kept
        upper[own] = 1 + tolerance
        self._ceiling = reference + math.log(most) if most > 0 else -math.inf
        order = np.argsort(-upper, kind="stable")
        self._uppers = [
            (reference + math.log(float(upper[other])), self._texts[other])
            for other in order[: np.count_nonzero(upper)].tolist()
        ]
        return items

    def unrivalled(self, text: bytes, even: float) -> bool:
        """Whether the last `rivals` already proves a text to be the next."""
        least = self.found[text].log + even
        if self._ceiling > least:
            return False
        for upper, other in self._uppers:
            if upper <= least:
                return True
            if other != text and other in self.found:
                return False
        return True


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _rounded(log: float) -> float:
    """What texts are ordered by: equal within what sums of different order can differ."""
    return round(log, 9)
