"""`canonical_automaton`: the token sequences that a tokenizer itself produces for texts of a language."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.canonical import _kernels as kernels
from holdfast.lm.query.canonical.cutting import cut_language
from holdfast.lm.query.canonical.marking import MarkedLanguage, marked_language
from holdfast.lm.query.canonical.pairs import PairFilter
from holdfast.lm.query.canonical.patterns import CHARACTERS
from holdfast.lm.query.regex.dfa import ByteDfa
from holdfast.lm.query.tokens import _kernels as walking
from holdfast.lm.query.tokens.automaton import TokenAutomaton
from holdfast.lm.query.tokens.lexicon import Lexicon
from holdfast.lm.query.tokens.spelling import SpellingAutomaton, absorbing
from holdfast.lm.tokenizers.tokenizer import Tokenizer

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Check = Callable[[tuple[int, ...]], bool]

MOST_KEPT_ARCS = 1 << 25
"""Arcs that an automaton caches (8 bytes each); beyond, the least recently used are recomputed."""
LOOKED_AHEAD_STATES, LOOKED_AHEAD_ARCS = 2_000, 200_000
"""States and arcs unfolded in advance from the start, to drop dead ends."""
NARROW_BYTES, NARROW_STATES = 4, 32
"""Where at most this many bytes can follow, most tokens lead to dead ends: this many states are examined
before an arc leads there."""

_UNKNOWN, _ALIVE, _DEAD = 0, 1, 2

# Texts on which normalisation shows: full-width, ligature, decomposed, spaces at the ends and twice.
_PROBES = ("a", " a", "a  b ", "\n", "\uff21", "\ufb01", "e\u0301")


def canonical_automaton(
    dfa: ByteDfa,
    tokenizer: Tokenizer,
    lexicon: Lexicon,
) -> tuple[TokenAutomaton, Check | None]:
    """Exactly the token sequences that the tokenizer produces for the texts of a language, infinite or not.

    Args:
        dfa: what token sequences spell, `tokenizer.lead` included. A final state that every byte leads back
            to means that anything may follow.
        tokenizer: any.
        lexicon: its tokens.

    Returns:
        The automaton, and None; or where the tokenizer cannot be analysed (no merges, an unknown
        splitter, a normaliser), all spellings and the check that a sequence must pass besides.
    """
    marked = _marked_language(tokenizer)
    if marked is None:
        return SpellingAutomaton(dfa, lexicon), canonical_check(tokenizer)
    return CanonicalAutomaton(dfa, marked, PairFilter.of(tokenizer), lexicon), None


def canonical_check(tokenizer: Tokenizer) -> Check:
    """Whether a token sequence is what its text encodes to: told by encoding again."""

    def check(tokens: tuple[int, ...]) -> bool:
        text = tokenizer.spell(tokens)
        return is_utf8(text) and tuple(tokenizer.encode(text)) == tokens

    return check


_MADE: WeakKeyDictionary[Tokenizer, MarkedLanguage | None] = WeakKeyDictionary()


def _marked_language(tokenizer: Tokenizer) -> MarkedLanguage | None:
    """The texts that the tokenizer reads, with marks that no merge crosses; None if that is not known.

    Made once, and kept as long as the tokenizer.
    """
    if tokenizer not in _MADE:
        _MADE[tokenizer] = _new_marked_language(tokenizer)
    return _MADE[tokenizer]


def _new_marked_language(tokenizer: Tokenizer) -> MarkedLanguage | None:
    if tokenizer.kind != "bpe" or tokenizer.merges is None or _changes_texts(tokenizer):
        return None
    pairs = PairFilter.of(tokenizer)
    if pairs.characters:
        return fallback_language(tokenizer, pairs) if tokenizer.splitter is None else None
    if tokenizer.lead:
        return None
    if tokenizer.splitter is None:
        return _any_text()
    return None if _takes_words_whole(tokenizer, pairs) else cut_language(tokenizer.splitter)


@cache
def _any_text() -> MarkedLanguage:
    """Every text, without marks."""
    outcomes = np.array([[[0], [-1]]], np.int32)
    return marked_language(np.zeros(CHARACTERS, np.int16), outcomes, np.ones(1, np.bool_))


def _changes_texts(tokenizer: Tokenizer) -> bool:
    """Whether what is encoded is not what was given: a normaliser, or spaces removed."""
    if tokenizer.normalizes:
        return True
    for text in _PROBES:
        pieces = [tokenizer.pieces[token] for token in tokenizer.encode(text.encode())]
        spelled = b"".join(piece or b"" for piece in pieces)
        if None not in pieces and spelled != tokenizer.lead + text.encode():
            return True
    return False


def _takes_words_whole(tokenizer: Tokenizer, pairs: PairFilter) -> bool:
    """Whether words may become tokens that merges do not make (tiktoken, ``ignore_merges``)."""
    for token in np.flatnonzero(~pairs.whole):
        piece = tokenizer.pieces[token]
        if piece and is_utf8(piece) and tokenizer.encode(piece) == [token]:
            return True
    return False


def is_utf8(text: bytes) -> bool:
    """Whether the bytes are whole characters."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class CanonicalAutomaton:
    """The canonical token sequences of a language, with states unfolded on demand.

    A state combines the position in the text (in the language and, for each possible continuation, among
    the cuts between words) with the last token. A token continues the same word if the pair filter keeps
    it apart from the last one, or begins a word at a cut; whether a cut was right may show only later, so
    both are followed in parallel. At most one token sequence per text is accepted.

    From every state some text of the language can be completed, including its cuts. Whether canonical
    tokens can spell it is checked in small automata, which have no dead ends, and in larger ones near the
    start (`LOOKED_AHEAD_STATES`) and where few bytes can follow (`NARROW_STATES`). Elsewhere a sequence
    may reach a dead end some tokens later: a state without arcs that is not final.

    Where anything may follow (the event ``prefix``), a sequence is accepted if its cuts are right for some
    completion, and its pairs are kept apart.
    """

    def __init__(
        self, dfa: ByteDfa, marked: MarkedLanguage, pairs: PairFilter, lexicon: Lexicon
    ) -> None:
        self._lexicon = lexicon
        self._pairs = pairs
        self._labels = lexicon.size + 1  # the last token of a state: 0 for none, else id + 1
        self._kept: OrderedDict[int, tuple[I32, I32]] = OrderedDict()
        self._kept_arcs = 0
        self._fate = np.zeros(1024, np.int8)
        """[states] whether a state is known to lead to acceptance, or nowhere."""
        self._walked: dict[int, tuple[I32, I32]] = {}
        self._walked_arcs = 0
        self._reached = np.empty(lexicon.size, np.int32)
        self._keys = np.zeros(1024, np.int64)
        self._slots = np.full(4096, -1, np.int64)
        self._count = 0
        self.start = -1
        if not dfa.is_empty:
            self._join(dfa, marked)

    def _join(self, dfa: ByteDfa, marked: MarkedLanguage) -> None:
        """Follow the language and the cuts together."""
        common = dfa.classes.astype(np.int64) * 256 + marked.classes
        found, classes = np.unique(common, return_inverse=True)
        anything = absorbing(dfa)
        left, right, table, alive = kernels.product(
            found // 256, dfa.next, dfa.final, found % 256, marked.next, marked.mark, marked.final
        )
        self._classes = classes.reshape(-1).astype(np.uint8)
        table = table.reshape(len(left), -1)
        self._next = np.ascontiguousarray(table[:, :-1])
        self._mark = np.ascontiguousarray(table[:, -1])
        self._final: Bools = anything[left] | (dfa.final[left] & marked.final[right])
        self._stop: Bools = marked.stop[right]
        self._anything: Bools = np.take(anything, left)
        # The last token matters where a word may go on.
        self._matters: Bools = np.any(self._next >= 0, axis=1)
        choices = np.bincount(self._classes, minlength=self._next.shape[1])  # bytes of a class
        bytes_next = (self._next >= 0) @ choices
        bytes_next += np.where(self._mark >= 0, bytes_next[self._mark], 0)
        self._narrow: Bools = (bytes_next <= NARROW_BYTES) & ~self._anything
        self._places: list[tuple[int, ...]] = []
        """Sets of more than one place; number `len(self._next)` + i is the i-th."""
        self._numbers: dict[tuple[int, ...], int] = {}
        if alive[0]:
            start = int(self._states(np.zeros(1, np.int64), np.full(1, -1, np.int64))[0])
            self._settle([start], LOOKED_AHEAD_STATES, narrow=False)
            if self._fate[start] != _DEAD:
                self.start = start

    # --- States ----------------------------------------------------------------------------------

    def _members(self, place: int) -> tuple[int, ...]:
        single = len(self._next)
        return (place,) if place < single else self._places[place - single]

    def _set(self, members: tuple[int, ...]) -> int:
        """The number of a set of places."""
        if len(members) == 1:
            return members[0]
        number = self._numbers.get(members)
        if number is None:
            number = self._numbers[members] = len(self._next) + len(self._places)
            self._places.append(members)
        return number

    def _states(self, places: I64, tokens: I64) -> I32:
        """The states of places, after the last tokens (-1: none)."""
        single = len(self._next)
        one = places < single
        matters = np.ones(len(places), np.bool_)
        anything = np.zeros(len(places), np.bool_)
        matters[one] = self._matters[places[one]]
        anything[one] = self._anything[places[one]]
        for k in np.flatnonzero(~one):
            anything[k] = self._anything[self._members(int(places[k]))[0]]
        keys = places * self._labels + np.where(matters, tokens + 1, 0)
        keys[anything] = -1  # all alike: what is accepted needs no more tokens
        return self._numbered(keys)

    def _numbered(self, keys: I64) -> I32:
        need = self._count + len(keys)
        if need > len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros(need, np.int64)])
            self._fate = np.concatenate([self._fate, np.zeros(need, np.int8)])
        if 2 * need > len(self._slots):
            self._slots = np.full(1 << (4 * need).bit_length(), -1, np.int64)
            known = self._keys[: self._count].copy()
            kernels.number_keys(known, self._slots, self._keys, 0, np.empty(len(known), np.int32))
        numbers = np.empty(len(keys), np.int32)
        self._count = kernels.number_keys(keys, self._slots, self._keys, self._count, numbers)
        return numbers

    # --- Arcs ------------------------------------------------------------------------------------

    def arcs(self, state: int) -> tuple[I32, I32]:
        """(tokens, next states) that leave a state, by rising token id; kept."""
        arcs = self._kept.get(state)
        if arcs is None:
            arcs = self._kept[state] = self._living(self._unfolded(state))
            self._kept_arcs += len(arcs[0])
            while self._kept_arcs > MOST_KEPT_ARCS and len(self._kept) > 1:
                _, (tokens, _) = self._kept.popitem(last=False)
                self._kept_arcs -= len(tokens)
        else:
            self._kept.move_to_end(state)
        return arcs

    def is_final(self, state: int) -> bool:
        """Whether a text of the language may end here."""
        key = int(self._keys[state])
        return key == -1 or bool(self._final[list(self._members(key // self._labels))].any())

    def _unfolded(self, state: int) -> tuple[I32, I32]:
        key = int(self._keys[state])
        if key == -1:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        place, last = key // self._labels, key % self._labels - 1
        parts = []
        for member in self._members(place):
            tokens, to = self._walk(member)
            if last >= 0 and len(tokens):
                apart = self._pairs.apart(last, tokens)
                tokens, to = tokens[apart], to[apart]
            parts.append((tokens, to))
            if self._mark[member] >= 0:
                parts.append(self._walk(int(self._mark[member])))
        parts = [part for part in parts if len(part[0])]
        if len(parts) == 1:
            tokens, places = parts[0][0], parts[0][1].astype(np.int64)
        else:
            tokens, places = self._together(parts)
        return tokens, self._states(places, tokens.astype(np.int64))

    def _together(self, parts: list[tuple[I32, I32]]) -> tuple[I32, I64]:
        """Arcs of several places as arcs of their set: each token once, with the set that it leads to."""
        none = np.empty(0, np.int32)
        tokens = np.concatenate([none, *(part[0] for part in parts)])
        places = np.concatenate([none, *(part[1] for part in parts)]).astype(np.int64)
        order = np.argsort(tokens, kind="stable")
        tokens, places = tokens[order], places[order]
        first = np.flatnonzero(np.diff(tokens, prepend=-1))
        sizes = np.diff(np.append(first, len(tokens)))
        chosen = places[first]
        for k in np.flatnonzero(sizes > 1):
            members = sorted(set(places[first[k] : first[k] + sizes[k]].tolist()))
            chosen[k] = self._set(tuple(members))
        return tokens[first], chosen

    def _walk(self, place: int) -> tuple[I32, I32]:
        """(tokens, places) of all tokens that lead from a place to where a token may end; kept."""
        found = self._walked.get(place)
        if found is None:
            mask = np.zeros(self._lexicon.mask_words, np.uint32)
            automaton = (self._classes, self._next)
            count = walking.walk(*self._lexicon.trie, *automaton, place, mask, self._reached)
            tokens, to = np.empty(count, np.int32), np.empty(count, np.int32)
            walking.sweep(mask, self._reached, tokens, to)
            kept = self._stop[to] & self._pairs.whole[tokens]
            found = self._walked[place] = (tokens[kept], to[kept])
            self._walked_arcs += len(found[0])
            if self._walked_arcs > MOST_KEPT_ARCS:
                self._walked = {place: found}
                self._walked_arcs = len(found[0])
        return found

    # --- Dead ends -------------------------------------------------------------------------------

    def _living(self, arcs: tuple[I32, I32]) -> tuple[I32, I32]:
        """The arcs without those to states that are known to lead nowhere."""
        tokens, to = arcs
        fate = self._fate[to]
        open_states = to[fate == _UNKNOWN]
        if len(open_states):
            places = self._keys[open_states] // self._labels
            single = places < len(self._narrow)
            single[single] = self._narrow[places[single]]
            self._settle(open_states[single].tolist(), NARROW_STATES, narrow=True)
            fate = self._fate[to]
        kept = fate != _DEAD
        return (tokens, to) if kept.all() else (tokens[kept], to[kept])

    def _settle(self, states: list[int], most: int, narrow: bool) -> None:
        """Find dead ends, by unfolding at most `most` states.

        Args:
            states: states to start from.
            most: states to unfold; successors of the others count as alive.
            narrow: continue through narrow places only.
        """
        unfolded: dict[int, tuple[I32, I32]] = {}
        waiting, seen, arcs = list(states), set(states), 0
        for state in waiting:
            if len(unfolded) >= most or arcs >= LOOKED_AHEAD_ARCS:
                break
            found = unfolded[state] = self._unfolded(state)
            arcs += len(found[0])
            for follows in np.unique(found[1]).tolist():
                if follows not in seen and self._fate[follows] == _UNKNOWN:
                    place = int(self._keys[follows]) // self._labels
                    if not narrow or (0 <= place < len(self._narrow) and self._narrow[place]):
                        seen.add(follows)
                        waiting.append(follows)
        for state in unfolded:
            self._fate[state] = _ALIVE if self.is_final(state) else _DEAD
        changed = True
        while changed:
            changed = False
            for state in reversed(unfolded):
                if self._fate[state] == _DEAD and (self._fate[unfolded[state][1]] != _DEAD).any():
                    self._fate[state] = _ALIVE
                    changed = True


_IN_BYTES, _NEVER, _PIECE = range(3)
_SPACE_SIGN = "\u2581"


def fallback_language(tokenizer: Tokenizer, pairs: PairFilter) -> MarkedLanguage:
    """What canonical sequences spell, a mark in front of every character that is written in bytes.

    SentencePiece writes a character that has no piece as the tokens of its bytes, which never merge;
    every other token is made of whole characters that have pieces. Tokens may end inside a marked
    character only.

    Texts other than the empty one begin with `tokenizer.lead`, and hold more than it. SentencePiece's
    sign for a space is read as a space, so that no text with that sign is spelled.
    """
    alike = np.full(CHARACTERS, _IN_BYTES, np.int16)
    alike[[ord(character) for character in pairs.base]] = _PIECE
    if _SPACE_SIGN not in pairs.base:
        tokens = tokenizer.encode(_SPACE_SIGN.encode())
        if tokenizer.spell(tokens) != _SPACE_SIGN.encode():
            alike[ord(_SPACE_SIGN)] = _NEVER
    lead = tokenizer.lead.decode()
    for group, character in enumerate(sorted(set(lead)), start=_PIECE + 1):
        alike[ord(character)] = group
    groups = int(alike.max()) + 1

    # Configurations: one for every character of the lead that was read, then one behind more than the lead.
    behind = len(lead) + 1
    outcomes = np.full((behind + 1, 2, groups), -1, np.int32)
    final = np.zeros(behind + 1, np.bool_)
    final[[0, behind]] = True
    for read, character in enumerate(lead):
        outcomes[read, 0, alike[ord(character)]] = read + 1
    for configuration in (len(lead), behind):
        outcomes[configuration, 0, _PIECE:] = behind
        outcomes[configuration, 1, _IN_BYTES] = behind
    return marked_language(alike, outcomes, final, stop_inside=(False, True))
