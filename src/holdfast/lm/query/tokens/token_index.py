"""`TokenIndex`: a whole token automaton, its arcs kept by what tokens do rather than one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.tokens import _kernels as kernels
from holdfast.lm.query.tokens.automaton import ArcCache

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]

_NONE = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """The token automaton of a language, with every state unfolded.

    Tokens that lead every state to the same state have the same *effect* (they are one element of the
    automaton's transition monoid), and a language of a few states knows few: a word of letters does to
    ``[a-z]*`` what any other does. A state therefore keeps one entry for each effect; the arcs of single
    tokens are made when they are asked for, one state with `arcs`, all states with `offsets`, `tokens` and
    `nextstate`.

    States are those of the automaton over bytes. Those that no token sequence reaches from the start, or
    from which none reaches acceptance, have no arcs and are not final.
    """

    start: int
    """0; -1 when no token sequence spells a text of the language."""
    final: Bools
    """[states]"""
    row_offsets: I64
    """[states + 1] where the entries of each state begin."""
    row_effect: I32
    """[entries] an effect; a state has at most one entry for each."""
    row_next: I32
    """[entries] the state that follows."""
    effect_offsets: I64
    """[effects + 1] where the tokens of each effect begin."""
    effect_tokens: I32
    """[tokens that have an effect] ascending within an effect."""
    size: int
    """V, the ids of the vocabulary."""
    eos: int | None
    _kept: ArcCache = field(default_factory=ArcCache, repr=False)

    @property
    def num_states(self) -> int:
        """Number of states, those without use included."""
        return len(self.final)

    @cached_property
    def num_arcs(self) -> int:
        """Number of arcs, one for each token."""
        return int(np.diff(self.effect_offsets)[self.row_effect].sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, arcs that were asked for left out."""
        arrays = (self.final, self.row_offsets, self.row_effect, self.row_next)
        return sum(a.nbytes for a in (*arrays, self.effect_offsets, self.effect_tokens))

    # --- one state -----------------------------------------------------------------------------------

    def arcs(self, state: int) -> tuple[I32, I32]:
        """(tokens, next states) that leave a state, by rising token id; kept."""
        found = self._kept.get(state)
        if found is None:
            found = self._kept.keep(state, self._expanded(state, state + 1))
        return found

    def is_final(self, state: int) -> bool:
        """Whether a text of the language may end here."""
        return bool(self.final[state])

    def mask(self, state: int) -> U32:
        """[ceil(V / 32)] a bit for every id that may follow, EOS among them where the text may end.

        Id i is bit i % 32 of word i // 32, as guided decoding has it.
        """
        mask = np.zeros(-(-self.size // kernels.BITS), np.uint32)
        for effect in self.row_effect[self._row(state)].tolist():
            begin, end = self.effect_offsets[effect : effect + 2].tolist()
            kernels.set_bits(self.effect_tokens[begin:end], mask)
        return with_eos(mask, self.eos if self.is_final(state) else None)

    def steps(self, state: int) -> tuple[I32, I64]:
        """(next states, tokens that lead there): arcs side by side counted, each next state once."""
        row = self._row(state)
        number = np.diff(self.effect_offsets)[self.row_effect[row]]
        follows, place = np.unique(self.row_next[row], return_inverse=True)
        total = np.zeros(len(follows), np.int64)
        np.add.at(total, place, number)
        return follows, total

    def _row(self, state: int) -> slice:
        return slice(*self.row_offsets[state : state + 2].tolist())

    # --- all states ----------------------------------------------------------------------------------

    @cached_property
    def offsets(self) -> I64:
        """[states + 1] where the arcs of each state begin in `tokens` and `nextstate`."""
        arcs = np.zeros(len(self.row_effect) + 1, np.int64)
        np.cumsum(np.diff(self.effect_offsets)[self.row_effect], out=arcs[1:])
        return arcs[self.row_offsets]

    @property
    def tokens(self) -> I32:
        """[arcs] token ids, ascending within a state."""
        return self._all[0]

    @property
    def nextstate(self) -> I32:
        """[arcs] the states that the arcs enter."""
        return self._all[1]

    @cached_property
    def _all(self) -> tuple[I32, I32]:
        return self._expanded(0, self.num_states)

    def _expanded(self, begin: int, end: int) -> tuple[I32, I32]:
        """The arcs of the states from `begin` to `end`, one after another."""
        arcs = int(self.offsets[end] - self.offsets[begin])
        if not arcs:
            return _NONE, _NONE
        tokens, nextstate = np.empty(arcs, np.int32), np.empty(arcs, np.int32)
        effect_of, live = self._effects
        rows = (self.row_offsets, self.row_effect, self.row_next)
        effects = (self.effect_offsets, self.effect_tokens)
        kernels.expand(*rows, *effects, effect_of, live, begin, end, tokens, nextstate)
        return tokens, nextstate

    @cached_property
    def _effects(self) -> tuple[I32, I32]:
        """The effect of every id [V], -1 without one; the ids that have one, ascending."""
        effect_of = np.full(self.size, -1, np.int32)
        number = np.arange(len(self.effect_offsets) - 1, dtype=np.int32)
        effect_of[self.effect_tokens] = np.repeat(number, np.diff(self.effect_offsets))
        return effect_of, np.flatnonzero(effect_of >= 0).astype(np.int32)


def with_eos(mask: U32, eos: int | None) -> U32:
    """Set the bit of EOS, if there is one; the mask itself is changed."""
    if eos is not None:
        mask[eos // kernels.BITS] |= np.uint32(1 << (eos % kernels.BITS))
    return mask
