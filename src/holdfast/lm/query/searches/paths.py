"""Open mass along texts: what a text that was not found, or was, can have at most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.searches import _kernels as kernels
from holdfast.lm.query.searches.tree import F64, Tree
from holdfast.lm.query.tokens.automaton import I32
from holdfast.lm.tokenizers.tokenizer import Tokenizer

FINE = math.log(1e-3)
"""Children of so much less than the tree's best piece share one piece of their node, until it matters."""
FINER = math.log(1e-2)
"""The same, against the largest of them, once it does."""


class Item(NamedTuple):
    """A piece of open mass: a child that was not taken, or (place -1) a node that waits."""

    mass: float
    node: int
    place: int


class OpenPaths:
    """The open pieces of a tree, each at its text in a trie of bytes.

    An open piece whose text is u adds, at most, its mass to every text that starts with u. So a text gains
    at most the open mass on its byte path, from the empty text to itself. Small children of a node stand
    together as one piece of it: they add, at most, what as many as can be prefixes of each other may have.

    Args:
        tree: the tree; what it opened and took is noted when `follow` is called.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        tree.followed = True
        tree.opened = [node for node, chances in enumerate(tree.chances) if chances is not None]
        self.vocabulary = Vocabulary.of(tree.tokenizer)
        self.at: list[int] = []
        """The node of the trie at which each node of the tree stands."""
        self._parent = np.full(1024, -1, np.int32)
        self._size = 1
        self._keys = np.full(4096, -1, np.int64)
        self._values = np.empty(4096, np.int32)
        self._where = np.empty(1024, np.int32)
        self._log = np.empty(1024)
        self._longer = np.empty(1024, np.bool_)
        self._node = np.empty(1024, np.int32)
        self._place = np.empty(1024, np.int32)
        self._count = 0
        self._waiting: dict[int, int] = {}  # node -> its piece
        self._children: dict[int, tuple[int, npt.NDArray[np.int64]]] = {}  # first piece, places
        self._small: dict[int, float] = {}  # piece of small children -> log of the largest of them

    def follow(self) -> None:
        """Take notice of nodes that are new, were taken, or were expanded."""
        tree = self.tree
        for node in range(len(self.at), len(tree.log)):
            self.at.append(self._stand(node))
            if node in tree.waiting:
                strict = tree.event == "spelled" and tree.is_final(node)
                self._waiting[node] = self._count
                self._put([self.at[node]], [tree.log[node]], node, [-1], strict)
        for node, place in tree.taken:
            first, places = self._children.get(node, (0, NONE))
            known = int(np.searchsorted(places, place))
            if known < len(places) and places[known] == place:
                self._log[first + known] = -np.inf
        tree.taken.clear()
        least = tree.top() + FINE
        for node in tree.opened:
            if node in self._waiting:
                self._log[self._waiting.pop(node)] = -np.inf
            self._open(node, least)
        tree.opened.clear()

    def bound(
        self, reference: float, text_nodes: I32, text_logs: F64, tolerance: float, even: float
    ) -> tuple[list[Item], float, F64]:
        """What every text can have, at most, in units of exp(reference).

        Returns:
            The pieces to look into, the largest first: those for which some text could have more than
            exp(even);
            the most that a text not found can have; and what each of the found can have.
        """
        upper = np.empty(len(text_nodes))
        while True:
            wanted, most = kernels.bound(
                self._parent, self._size, self._where, self._log, self._longer, self._count,
                text_nodes, text_logs, reference, tolerance, math.exp(even), upper,
            )  # fmt: skip
            rough = [piece for piece in wanted.tolist() if self._place[piece] == REST]
            if not rough:
                break
            for piece in rough:
                node = int(self._node[piece])
                self._log[piece] = -np.inf
                self._open(node, self._small.pop(piece) + FINER)
        items = [
            Item(
                math.exp(min(self._log[piece] - reference, 700.0)),
                int(self._node[piece]),
                int(self._place[piece]),
            )
            for piece in wanted.tolist()
        ]
        items.sort(key=lambda item: (-item.mass, item.node, item.place))
        return items, float(most), upper

    def _stand(self, node: int) -> int:
        """The node of the trie for a new node of the tree, whose parent stands already."""
        tree = self.tree
        parent = tree.parent[node]
        if parent < 0 or tree.starts_text(parent):
            return self.stand(tree.text[node])
        return int(self._insert(self.at[parent], np.array([tree.token[node]], np.int32))[0])

    def _open(self, node: int, least: float) -> None:
        """Give a piece to every child that was not taken and has at least exp(least); one to the rest."""
        tree = self.tree
        chances = tree.chances[node]
        if chances is None:
            return
        log = tree.log[node]
        first, places = self._children.get(node, (0, NONE))
        known = dict(zip(places.tolist(), range(first, first + len(places)), strict=True))
        large = np.flatnonzero(chances >= math.exp(min(least - log, 0.0)))
        large = large[chances[large] > 0]
        for piece in known.values():
            self._log[piece] = -np.inf  # they stand anew with those that join them
        if len(large):
            columns = tree.columns[node]
            tokens = tree.arcs(node)[0][large if columns is None else columns[large]]
            if tree.starts_text(node):
                stand = [self.stand(tree.text_after(node, int(token))) for token in tokens]
            else:
                stand = self._insert(self.at[node], tokens).tolist()
            self._children[node] = self._count, large
            self._put(stand, (log + np.log(chances[large])).tolist(), node, large.tolist(), False)
        left = float(chances.sum() - chances[large].sum())
        if len(large) < len(chances) and left > 0:
            small = chances.copy()
            small[large] = 0
            most = float(small.max())
            if most > 0:
                bound = min(float(small.sum()), self.vocabulary.nested * most)
                self._small[self._count] = log + math.log(most)
                self._put([self.at[node]], [log + math.log(bound)], node, [REST], True)

    def _put(
        self, where: list[int], logs: list[float], node: int, places: list[int], longer: bool
    ) -> None:
        end = self._count + len(where)
        if end > len(self._log):
            room = max(end, 2 * len(self._log))
            for name in ("_where", "_log", "_longer", "_node", "_place"):
                setattr(self, name, np.resize(getattr(self, name), room))
        into = slice(self._count, end)
        self._where[into], self._log[into], self._place[into] = where, logs, places
        self._node[into], self._longer[into] = node, longer
        self._count = end

    # --- The trie --------------------------------------------------------------------------------

    def _insert(self, at: int, tokens: I32) -> I32:
        """The nodes that the pieces of tokens lead to from one node."""
        vocabulary = self.vocabulary
        more = int((vocabulary.begin[tokens + 1] - vocabulary.begin[tokens]).sum())
        return self._inserted(at, tokens, vocabulary.text, vocabulary.begin, more)

    def stand(self, text: bytes) -> int:
        """The node of the trie for a whole text."""
        spelled = np.frombuffer(text, np.uint8)
        begin = np.array([0, len(text)], np.int64)
        return int(self._inserted(0, np.zeros(1, np.int32), spelled, begin, len(text))[0])

    def _inserted(self, at: int, tokens: I32, text: Any, begin: Any, more: int) -> I32:
        room = self._size + more
        if room > len(self._parent):
            self._parent = np.resize(self._parent, max(room, 2 * len(self._parent)))
        if 2 * room > len(self._keys):
            size = 1 << (4 * room).bit_length()
            self._keys, self._values = kernels.rehashed(self._keys, self._values, size)
        out = np.empty(len(tokens), np.int32)
        start = np.full(len(tokens), at, np.int32)
        self._size = kernels.insert(
            self._keys, self._values, self._parent, self._size, start, tokens, text, begin, out
        )
        return out


NONE = np.empty(0, np.int64)
REST = -2
"""The place of a piece that stands for the small children of a node."""


@dataclass(frozen=True)
class Vocabulary:
    """What paths need of a tokenizer; made once."""

    ids: dict[bytes, list[int]]
    longest: int
    """Bytes of the longest piece."""
    nested: int
    """How many tokens, at most, are prefixes of each other."""
    text: npt.NDArray[np.uint8]
    """The pieces of all tokens, one after the other."""
    begin: npt.NDArray[np.int64]
    """[V + 1] where each begins."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """That of a tokenizer."""
        made = _MADE.get(tokenizer)
        if made is None:
            ids: dict[bytes, list[int]] = {}
            for token, piece in enumerate(tokenizer.pieces):
                if piece:
                    ids.setdefault(piece, []).append(token)
            pieces = [piece or b"" for piece in tokenizer.pieces]
            made = _MADE[tokenizer] = cls(
                ids,
                max(map(len, ids), default=0),
                _deepest(ids),
                np.frombuffer(b"".join(pieces), np.uint8),
                np.cumsum([0, *map(len, pieces)], dtype=np.int64),
            )
        return made


_MADE: WeakKeyDictionary[Tokenizer, Vocabulary] = WeakKeyDictionary()


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
