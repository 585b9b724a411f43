"""`Lexicon`: the bytes of a vocabulary as a trie, laid out for depth-first walks."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from holdfast.errors import LimitError
from holdfast.lm.query.tokens import _kernels as kernels
from holdfast.lm.tokenizers.tokenizer import Tokenizer

LONGEST_PIECE = 65_535
"""In bytes: depths have 16 bits."""

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
I32 = npt.NDArray[np.int32]
Trie = tuple[U8, U16, I32, I32, I32, int]


@dataclass(frozen=True, eq=False)
class Lexicon:
    """The tokens of a vocabulary by their bytes: a trie of N nodes in preorder, the root left out.

    A walk keeps its state of the nodes above by depth, and continues with node i + 1, or with node skip[i]
    where a byte is dead: it needs no child pointers. Tokens without bytes are in no node; those with the
    same bytes are at the same node.
    """

    byte: U8
    """[N] the byte that leads into a node."""
    depth: U16
    """[N] bytes above it: 0 for the first byte of a piece."""
    skip: I32
    """[N] the node after its subtree."""
    first: I32
    """[N + 1] tokens[first[i]:first[i + 1]] end at node i."""
    tokens: I32
    """[tokens with bytes] ids, by their bytes."""
    longest: int
    """Bytes of the longest piece."""
    size: int
    """V, the ids of the vocabulary."""
    eos: int | None
    single_bytes: npt.NDArray[np.bool_]
    """[256] whether a single byte is a token."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Lexicon:
        """The lexicon of a tokenizer; made once, and kept as long as the tokenizer.

        Raises:
            LimitError: if a piece has more than `LONGEST_PIECE` bytes.
        """
        made = _MADE.get(tokenizer)
        if made is None:
            made = _MADE[tokenizer] = cls._make(tokenizer)
        return made

    @classmethod
    def _make(cls, tokenizer: Tokenizer) -> Lexicon:
        pieces = tokenizer.pieces
        spelled = [(piece, token) for token, piece in enumerate(pieces) if piece]
        spelled.sort()
        text = b"".join([piece for piece, _ in spelled])
        lengths = np.array([len(piece) for piece, _ in spelled], np.int64)
        longest = int(lengths.max(initial=0))
        if longest > LONGEST_PIECE:
            raise LimitError(
                f"a token of {tokenizer.name} is too long",
                needed=f"{longest:,} bytes",
                allowed=f"{LONGEST_PIECE:,} bytes",
                remedy="set its piece to None",
            )
        byte = np.empty(len(text), np.uint8)
        depth = np.empty(len(text), np.uint16)
        skip = np.empty(len(text), np.int32)
        first = np.empty(len(text) + 1, np.int32)
        nodes = kernels.preorder(
            np.frombuffer(text, np.uint8), np.cumsum(lengths), byte, depth, skip, first
        )
        held = np.zeros(256, np.bool_)
        held[[piece[0] for piece, _ in spelled if len(piece) == 1]] = True
        return cls(
            byte[:nodes].copy(),
            depth[:nodes].copy(),
            skip[:nodes].copy(),
            first[: nodes + 1].copy(),
            np.array([token for _, token in spelled], np.int32),
            longest,
            len(pieces),
            tokenizer.eos,
            held,
        )

    @property
    def trie(self) -> Trie:
        """What the kernels take of it."""
        return self.byte, self.depth, self.skip, self.first, self.tokens, self.longest

    @property
    def mask_words(self) -> int:
        """Words of 32 bits that hold a bit for every id."""
        return -(-self.size // kernels.BITS)


_MADE: WeakKeyDictionary[Tokenizer, Lexicon] = WeakKeyDictionary()
