"""Token sequences that spell the texts of a language: all encodings, state by state or all at once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from holdfast.automata.structure_kernels import accessible, coaccessible
from holdfast.lm.query.regex.dfa import ByteDfa
from holdfast.lm.query.tokens import _kernels as kernels
from holdfast.lm.query.tokens.automaton import ArcCache
from holdfast.lm.query.tokens.lexicon import Lexicon
from holdfast.lm.query.tokens.token_index import TokenIndex, with_eos

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]

_NONE = np.empty(0, np.int32)

UNFOLDED_SINGLY = 8
"""States; who asks for more is likely to ask for most, and all at once cost little more than one."""
INDEXED_STATES = 2_000
"""Larger automata are never unfolded at once behind a question for one state."""


class SpellingAutomaton:
    """All encodings of the texts of a language, each state unfolded when it is first asked for.

    A state's arcs come from one walk of the vocabulary's trie, the state of the automaton over bytes kept
    for every depth; a byte that is dead skips its subtree. After some states, a small automaton is unfolded
    whole. States are those of the automaton over bytes.
    """

    def __init__(self, dfa: ByteDfa, lexicon: Lexicon) -> None:
        self.dfa = dfa
        self.lexicon = lexicon
        self._kept = ArcCache()
        self._reached = np.empty(lexicon.size, np.int32)

        # A vocabulary that lacks a byte may leave states without a way out, which only the whole tells.
        self._index = None if _spells_everything(dfa, lexicon) else index(dfa, lexicon)
        self.start = -1 if dfa.is_empty else 0
        if self._index is not None:
            self.start = self._index.start

    @cached_property
    def _absorbing(self) -> Bools:
        return absorbing(self.dfa)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return self.dfa.num_states

    def arcs(self, state: int) -> tuple[I32, I32]:
        """(tokens, next states) that leave a state, by rising token id; kept."""
        if (
            self._index is None
            and len(self._kept) >= UNFOLDED_SINGLY
            and self.num_states <= INDEXED_STATES
        ):
            self._index = index(self.dfa, self.lexicon)
        if self._index is not None:
            return self._index.arcs(state)
        found = self._kept.get(state)
        if found is None:
            found = self._kept.keep(state, self._unfolded(state))
        return found

    def is_final(self, state: int) -> bool:
        """Whether a text of the language may end here."""
        return bool((self.dfa if self._index is None else self._index).final[state])

    def mask(self, state: int) -> U32:
        """[ceil(V / 32)] a bit for every id that may follow, EOS among them where the text may end.

        Id i is bit i % 32 of word i // 32, as guided decoding has it.
        """
        if self._index is not None:
            return self._index.mask(state)
        mask = np.zeros(self.lexicon.mask_words, np.uint32)
        kept = self._kept.get(state)
        if kept is not None:
            kernels.set_bits(kept[0], mask)
        elif not self._absorbing[state]:
            self._walk(state, mask)
        return with_eos(mask, self.lexicon.eos if self.is_final(state) else None)

    def steps(self, state: int) -> tuple[I32, I64]:
        """(next states, tokens that lead there): arcs side by side counted, each next state once."""
        if self._index is None and self.num_states <= INDEXED_STATES:
            self._index = index(self.dfa, self.lexicon)
        if self._index is not None:
            return self._index.steps(state)
        follows, number = np.unique(self.arcs(state)[1], return_counts=True)
        return follows, number

    def _unfolded(self, state: int) -> tuple[I32, I32]:
        if self._absorbing[state]:
            return _NONE, _NONE
        mask = np.zeros(self.lexicon.mask_words, np.uint32)
        count = self._walk(state, mask)
        tokens, nextstate = np.empty(count, np.int32), np.empty(count, np.int32)
        kernels.sweep(mask, self._reached, tokens, nextstate)
        return tokens, nextstate

    def _walk(self, state: int, mask: U32) -> int:
        automaton = (self.dfa.classes, self.dfa.next)
        return kernels.walk(*self.lexicon.trie, *automaton, state, mask, self._reached)


def index(dfa: ByteDfa, lexicon: Lexicon) -> TokenIndex:
    """All encodings of the texts of a language, every state unfolded.

    Args:
        dfa: the texts. A final state that every byte leads back to has no arcs: what is accepted there
            needs no more tokens.
        lexicon: the vocabulary.
    """
    states = dfa.num_states
    sources = np.flatnonzero(~absorbing(dfa)).astype(np.int32)
    effect_of = np.full(lexicon.size, -1, np.int32)
    automaton = (dfa.classes, dfa.next)
    offsets, source, target = kernels.effects(*lexicon.trie, *automaton, sources, effect_of)
    token_offsets, tokens = kernels.members(effect_of, len(offsets) - 1)
    row, effect, follows = kernels.rows(offsets, source, target, token_offsets, states)
    final = dfa.final
    start = 0 if states else -1
    if not _spells_everything(dfa, lexicon):
        useful = _useful(row, follows, final)
        row, effect, follows = _kept_rows(row, effect, follows, useful)
        final = final & useful
        start = 0 if useful.any() else -1
    return TokenIndex(
        start, final, row, effect, follows, token_offsets, tokens, lexicon.size, lexicon.eos
    )


def absorbing(dfa: ByteDfa) -> Bools:
    """[states] whether a state is final and every byte leads back to it."""
    stays: Bools = np.all(dfa.next == np.arange(dfa.num_states)[:, None], axis=1)
    return dfa.final & stays


def _spells_everything(dfa: ByteDfa, lexicon: Lexicon) -> bool:
    """Whether every byte of the texts is a token: then there is a way out of every state."""
    used: Bools = np.any(dfa.next >= 0, axis=0)
    return bool(np.all(lexicon.single_bytes[used[dfa.classes]]))


def _useful(row: I64, follows: I32, final: Bools) -> Bools:
    """[states] whether a state lies on a path of tokens from the start to acceptance."""
    useful: Bools = accessible(row, follows, 0) & coaccessible(row, follows, final)
    return useful


def _kept_rows(row: I64, effect: I32, follows: I32, useful: Bools) -> tuple[I64, I32, I32]:
    """The rows without the entries that come from or lead to a state of no use."""
    source = np.repeat(np.arange(len(useful)), np.diff(row))
    kept = useful[source] & useful[follows]
    offsets = np.zeros(len(useful) + 1, np.int64)
    np.cumsum(np.bincount(source[kept], minlength=len(useful)), out=offsets[1:])
    return offsets, effect[kept], follows[kept]
