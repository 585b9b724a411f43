r"""Which two tokens may stand side by side inside a word.

Byte-pair encoding starts from base tokens and makes, again and again, the merge of lowest rank among
adjacent pairs, the leftmost first among equals. A sequence of tokens is what a word encodes to iff every
adjacent pair (x, y) is: encode(bytes(x) + bytes(y)) == [x, y]. (As long as no merge crosses a boundary, the
tokens on both sides merge as they would alone; and the first merge to cross any boundary also comes first
between the two tokens at that boundary, since what lies beyond them has no part in it.)

So let x and y be tokens that come out of their own bytes. While no merge crosses, the last symbol u of
x's side is on the right spine of x's merge tree, and the first symbol v of y's side on the left spine
of y's. Write ``key(t)`` for the highest rank among the merges inside token t, -1 for base tokens. Ranks
inside a token need not rise: a merge may open another one of lower rank, which then comes next. But
such a merge waits for nothing, so of two sides that take turns by rank, the one whose next symbol has
the lower key makes it first; on equal keys x's side does, since it lies to the left. Hence, with p the
parent of u in x's tree (key infinite if u is x) and w the parent of v in y's tree (likewise),

* u and v stand side by side at some moment iff key(v) < key(p) and key(u) <= key(w);
* then, if key(p) <= key(w), the moments end with the merge into p, and (u, v) merges first iff its rank is
  *below* ``top_right(p)``, the highest rank among the merges that x's side makes while u stands;
* else they end with the merge into w, and (u, v) merges first iff its rank is *at most*
  ``top_left(w)``, the highest among those that y's side makes while v stands (on equal ranks the left
  one comes first).

It does not matter that these count merges from before the other symbol came: were the highest among
them, r, made before the other side's last merge, then that merge had a rank above r (or, y's before
x's, r at least), and all that x's side still makes before the moments end would have come in one go
with r, before it. Where ranks rise, as in GPT-2's file, both are the rank of the merge that ends the
moments.

The pairs that merge are few: those (u, v) with a merge, for each u on the right spine of x. Tokens
whose left spine holds w are one interval in a preorder of the forest in which the parent of a token is
the left part of its last merge; so one pass over the merges of u and the children of v marks all y at
once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.canonical import _kernels as kernels
from holdfast.lm.tokenizers.tokenizer import Tokenizer

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PairFilter:
    """The merge trees of a vocabulary, and the pairs of tokens that stay apart."""

    whole: Bools
    """[V] whether a token's own bytes merge to it; others are never part of a canonical sequence."""
    characters: bool
    """Whether base tokens are characters (SentencePiece) and not bytes."""
    base: dict[str, int]
    """Base token of a character, when they are characters."""
    _offsets: I64
    """[V + 1] merges by left token: `_rights` [M] rises within each, `_ranks` [M]."""
    _rights: I32
    _ranks: I32
    _child_offsets: I64
    """[V + 1] tokens by the left token of their last merge: `_children`."""
    _children: I32
    _right: I32
    """[V] right token of the last merge inside a token, -1 for base tokens."""
    _key: I32
    """[V] highest rank inside a token; -1 for base tokens, -2 for tokens that are not whole."""
    _top_left: I32
    _top_right: I32
    _place: I32
    """[V] number of a token in the preorder; `_end` one behind its descendants."""
    _end: I32

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> PairFilter:
        """The filter of a byte-pair encoder; made once, and kept as long as the tokenizer."""
        made = _MADE.get(tokenizer)
        if made is None:
            made = _MADE[tokenizer] = cls._make(tokenizer)
        return made

    @classmethod
    def _make(cls, tokenizer: Tokenizer) -> PairFilter:
        merges = tokenizer.merges
        assert merges is not None
        size = tokenizer.size
        order = np.lexsort((merges.right, merges.left))
        offsets = _offsets(merges.left, size)
        rights, merged, ranks = (
            np.ascontiguousarray(column[order], dtype=np.int32)
            for column in (merges.right, merges.merged, merges.rank)
        )
        characters = _merges_characters(tokenizer)
        base = _base_characters(tokenizer) if characters else {}
        begins, bases = _in_characters(tokenizer, base) if characters else _in_bytes(tokenizer)
        left, right, key, top_left, top_right = (np.full(size, -1, np.int32) for _ in range(5))
        kernels.merge_trees(
            begins, bases, offsets, rights, merged, ranks, left, right, key, top_left, top_right
        )
        children = np.lexsort((key, left)).astype(np.int32)
        children = children[left[children] >= 0]
        child_offsets = _offsets(left[children], size)
        place, end = np.full(size, -1, np.int32), np.zeros(size, np.int32)
        roots = np.flatnonzero(key == -1).astype(np.int32)
        kernels.forest_order(child_offsets, children, roots, place, end)
        return cls(
            key > -2,
            characters,
            base,
            offsets,
            rights,
            ranks,
            child_offsets,
            children,
            right,
            key,
            top_left,
            top_right,
            place,
            end,
        )

    def apart(self, token: int, candidates: I32) -> Bools:
        """Which of `candidates` may follow `token` inside a word: encode(x + y) == [x, y].

        Args:
            token: an id.
            candidates: [K] ids.

        Returns:
            [K]
        """
        if not self.whole[token]:
            return np.zeros(len(candidates), np.bool_)
        row = np.zeros(self._place.shape[0] + 1, np.bool_)
        row[-1] = True  # the place of tokens that are not whole
        kernels.merging(
            token,
            self._offsets,
            self._rights,
            self._ranks,
            self._child_offsets,
            self._children,
            self._right,
            self._key,
            self._top_left,
            self._top_right,
            self._place,
            self._end,
            row,
        )
        kept: Bools = ~row[self._place[candidates]]
        return kept


_MADE: WeakKeyDictionary[Tokenizer, PairFilter] = WeakKeyDictionary()


def _offsets(keys: I32, size: int) -> I64:
    """[size + 1] where each key begins when they are sorted."""
    offsets = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=size), out=offsets[1:])
    return offsets


def _merges_characters(tokenizer: Tokenizer) -> bool:
    """Whether merging begins with characters: no merge holds a part of one, some character has none."""
    merges = tokenizer.merges
    assert merges is not None
    if tokenizer.byte_fallback:
        return True
    made = set(merges.merged.tolist())
    for token in {*merges.left.tolist(), *merges.right.tolist()}:
        if _text(tokenizer.pieces[token]) is None:
            return False
    return any(
        piece is not None and len(piece) > 1 and token not in made and len(_text(piece) or "") == 1
        for token, piece in enumerate(tokenizer.pieces)
    )


def _text(piece: bytes | None) -> str | None:
    try:
        return None if piece is None else piece.decode()
    except UnicodeDecodeError:
        return None


def _in_bytes(tokenizer: Tokenizer) -> tuple[I64, I32]:
    """(where the bytes of each token begin [V + 1], base token of each byte)."""
    merges = tokenizer.merges
    assert merges is not None
    used = {*merges.left.tolist(), *merges.right.tolist()}
    base = np.full(256, -1, np.int32)
    for token, piece in enumerate(tokenizer.pieces):
        if piece is not None and len(piece) == 1 and (base[piece[0]] < 0 or token in used):
            base[piece[0]] = token
    pieces = [piece or b"" for piece in tokenizer.pieces]
    begins = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=begins[1:])
    return begins, base[np.frombuffer(b"".join(pieces), np.uint8)]


def _in_characters(tokenizer: Tokenizer, base: dict[str, int]) -> tuple[I64, I32]:
    """(where the characters of each token begin [V + 1], base token of each character).

    The token of a byte stands for itself, unless the byte is a character that has its own token.
    """
    begins, bases = [0], []
    for token, piece in enumerate(tokenizer.pieces):
        text = _text(piece)
        if piece is not None and len(piece) == 1 and text not in base:
            bases.append(token)
        elif text is not None:
            bases += [base.get(character, -1) for character in text]
        elif piece is not None:
            bases.append(-1)
        begins.append(len(bases))
    return np.array(begins, np.int64), np.array(bases, np.int32)


def _base_characters(tokenizer: Tokenizer) -> dict[str, int]:
    """Base token of every character that has one.

    An ASCII character may have two tokens: its own, and that of its byte. Its own is in merges, or else
    it is the one that the encoder gives behind something it is not merged with.
    """
    merges = tokenizer.merges
    assert merges is not None
    used = {*merges.left.tolist(), *merges.right.tolist()}
    of_bytes = set(tokenizer.byte_fallback)
    found: dict[str, list[int]] = defaultdict(list)
    for token, piece in enumerate(tokenizer.pieces):
        text = _text(piece)
        if text is not None and len(text) == 1 and token not in of_bytes:
            found[text].append(token)
    base: dict[str, int] = {}
    for character, tokens in found.items():
        merging = [token for token in tokens if token in used]
        if len(tokens) > 1 and not merging:
            merging = [
                token
                for before in ("\n", "a", "~")
                for token in tokenizer.encode((before + character).encode())[-1:]
                if token in tokens
            ]
        base[character] = (merging or tokens)[0]
    return base
