"""Compiled parts of decoding: tries, the n-gram automaton, prefix beam search, alignment.

Every trie (words of the language model, hotwords, n-grams) is one hash table from (node, symbol) to node,
so that a step costs the same however many entries it has. Symbols of the word and hotword tries are
characters: labels of several characters (BPE) take several steps, and all ways to spell a word reach the
same node.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROOT = 0
NONE = -1

# Kernels that allocate nothing count no references, which would take most of their time.
_UNCOUNTED: dict[str, Any] = {"_nrt": False}

SPACE = 32
"""The character that separates words; characters are code points."""
HOTWORD_ONLY = -2
"""Id of a word that the language model does not have, but the hotwords."""

_HASH_STEP = (
    1_000_003  # an odd factor: two words of one length share a hash with probability 2**-60 or so
)


class Trie(NamedTuple):
    """Nodes 0 (root) to n - 1 and the steps between them."""

    keys: Ints
    """[slots] node * symbols + symbol, or -1: free; open addressing, a power of two, half full at most."""
    nodes: Ints
    """[slots] Where that step leads."""
    symbols: int
    """Number of different symbols."""


class Ngrams(NamedTuple):
    """An n-gram model as an automaton: one node per n-gram, the root for the empty history."""

    trie: Trie
    log_prob: Floats
    """[nodes] ln P(last word | the words before it)."""
    backoff: Floats
    """[nodes] ln of the backoff weight as a history."""
    suffix: Ints
    """[nodes] The longest shorter history that the model has."""
    leaf: NDArray[np.bool_]
    """[nodes] Of the highest order: a history of its suffix only."""
    unknown: int
    """Id of the word `<unk>`; -1: the model has none."""
    end: int
    """Id of `</s>`."""


class Hotwords(NamedTuple):
    """An Aho-Corasick automaton over phrases with a space on both sides."""

    trie: Trie
    fail: Ints
    """[nodes] The longest proper suffix that is a node."""
    bonus: Floats
    """[nodes] What the phrases that end here add, those of the suffixes included."""
    promise: Floats
    """[nodes] What the phrase that has begun adds as long as it can be completed."""


class Model(NamedTuple):
    """All that scores a text beside the acoustic model; immutable, shared by threads."""

    spelling: Ints
    """Characters of all labels, one after the other."""
    starts: Ints
    """[labels + 1] Where each label's characters start."""
    blank: int
    space: int
    """The label that is only the space; -1: there is none."""
    fused: bool
    """Whether there is a language model."""
    lexicon: Trie
    """Words of the language model and of the hotwords."""
    word: Ints
    """[nodes of the lexicon] Id of the word that ends here, or -1."""
    ngrams: Ngrams
    history: int
    """Node of the n-gram automaton at the start of a sentence."""
    alpha: float
    beta: float
    unknown_score: float
    gain: float
    """The most that a label can add to the score."""
    hotwords: Hotwords


# --- Tries ---------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, **_UNCOUNTED)
def _slot(keys: Ints, key: int) -> int:
    """Where a key is, or the free place where it belongs."""
    mask = keys.size - 1
    mixed = key * -7046029254386353131  # 2**64 over the golden ratio, as a signed number
    place = (mixed ^ (mixed >> 32)) & mask
    while keys[place] != key and keys[place] != NONE:
        place = (place + 1) & mask
    return place


@njit(cache=True, nogil=True, **_UNCOUNTED)
def step(trie: Trie, node: int, symbol: int) -> int:
    """The node behind a step; -1: there is none."""
    key = node * trie.symbols + symbol
    place = _slot(trie.keys, key)
    return trie.nodes[place] if trie.keys[place] == key else NONE


@njit(cache=True, nogil=True)
def build_trie(trie: Trie, symbols: Ints, starts: Ints) -> tuple[Ints, int]:
    """Add sequences to an empty trie.

    Args:
        trie: with at least twice as many slots as symbols.
        symbols: of all sequences, one after the other.
        starts: [sequences + 1] where each starts.

    Returns:
        ([sequences] the node at which each ends, number of nodes).
    """
    ends = np.empty(starts.size - 1, np.int64)
    count = 1
    for k in range(ends.size):
        node = ROOT
        for symbol in symbols[starts[k] : starts[k + 1]]:
            key = node * trie.symbols + symbol
            place = _slot(trie.keys, key)
            if trie.keys[place] == NONE:
                trie.keys[place] = key
                trie.nodes[place] = count
                count += 1
            node = trie.nodes[place]
        ends[k] = node
    return ends, count


@njit(cache=True, nogil=True)
def add_ngrams(trie: Trie, suffix: Ints, words: Ints, first: int) -> int:
    """Add the n-grams of one order, or the prefixes of one length; shorter ones are in the trie.

    Args:
        trie: of the n-grams; node numbers follow the order of addition.
        suffix: [nodes] filled for the new ones.
        words: [n-grams, order].
        first: number of the first new node.

    Returns:
        -1, or the row of the first n-gram that was there before (below the count) or whose history is
        missing (then its row plus the count).
    """
    rows, order = words.shape
    for k in range(rows):
        node = ROOT
        for word in words[k, : order - 1]:
            node = step(trie, node, word)
            if node == NONE:
                return rows + k
        last = words[k, order - 1]
        key = node * trie.symbols + last
        place = _slot(trie.keys, key)
        if trie.keys[place] == key:
            return k
        trie.keys[place] = key
        trie.nodes[place] = first + k
        # The longest shorter history: shorten the beginning until the last word can follow.
        shorter = ROOT
        while node != ROOT and shorter == ROOT:
            node = suffix[node]
            shorter = max(step(trie, node, last), ROOT)
        suffix[first + k] = shorter
    return NONE


@njit(cache=True, nogil=True, **_UNCOUNTED)
def ngram_score(ngrams: Ngrams, history: int, word: int) -> tuple[float, int]:
    """(ln P(word | history), the history after it); -1 stands for a word that the model does not have."""
    if word == NONE:
        word = ngrams.unknown
    if word == NONE:
        return -100 * math.log(10), ROOT  # as KenLM does without <unk>
    score, node = 0.0, history
    after = step(ngrams.trie, node, word)
    while after == NONE:
        score += ngrams.backoff[node]
        node = ngrams.suffix[node]
        after = step(ngrams.trie, node, word)
    score += ngrams.log_prob[after]
    return score, ngrams.suffix[after] if ngrams.leaf[after] else after


# --- Scores of a prefix --------------------------------------------------------------------------

# Columns of a prefix's integers ...
PARENT, LABEL, CHILD, SIBLING, PLACE, LEXICON, HISTORY, HOTWORD, PARTIAL, LAST, TEXT = range(11)
COLUMNS = 11
# ... and of its scores: of words that have ended, and of the word that has begun.
ENDED, BEGUN = 0, 1


@njit(cache=True, nogil=True, **_UNCOUNTED)
def _hotword_step(hotwords: Hotwords, node: int, character: int) -> int:
    after = step(hotwords.trie, node, character)
    while after == NONE and node != ROOT:
        node = hotwords.fail[node]
        after = step(hotwords.trie, node, character)
    return max(after, ROOT)


@njit(cache=True, nogil=True, **_UNCOUNTED)
def _word_hash(word: int, character: int) -> int:
    """Hash of a word that grows by a character; 0 is that of no word."""
    return (word ^ character) * _HASH_STEP + 1


@njit(cache=True, nogil=True, **_UNCOUNTED)
def _end_word(model: Model, state: Ints) -> float:
    """End the word that has begun, in place; what it adds to the score."""
    score = 0.0
    if model.fused:
        word = NONE if state[LEXICON] == NONE else model.word[state[LEXICON]]
        ln_p, state[HISTORY] = ngram_score(model.ngrams, state[HISTORY], max(word, NONE))
        score = model.alpha * ln_p + model.beta
        if word == NONE:
            score += model.unknown_score
    state[HOTWORD] = _hotword_step(model.hotwords, state[HOTWORD], SPACE)
    score += model.hotwords.bonus[state[HOTWORD]]
    state[LAST] = state[PARTIAL]
    state[TEXT] = (state[TEXT] ^ state[PARTIAL]) * _HASH_STEP
    state[PARTIAL] = 0
    state[LEXICON] = ROOT
    return score


@njit(cache=True, nogil=True, **_UNCOUNTED)
def _extend(model: Model, state: Ints, scores: Floats, label: int) -> None:
    """Append a label to a prefix whose state and scores were copied from its parent, in place."""
    for character in model.spelling[model.starts[label] : model.starts[label + 1]]:
        if character != SPACE:
            state[PARTIAL] = _word_hash(state[PARTIAL], character)
            if state[LEXICON] != NONE:
                state[LEXICON] = step(model.lexicon, state[LEXICON], character)
            state[HOTWORD] = _hotword_step(model.hotwords, state[HOTWORD], character)
        elif state[PARTIAL] != 0:  # several spaces are one, those at the start none
            scores[ENDED] += _end_word(model, state)
    scores[BEGUN] = model.hotwords.promise[state[HOTWORD]]
    if model.fused and state[LEXICON] == NONE:
        scores[BEGUN] += model.unknown_score


@njit(cache=True, nogil=True, **_UNCOUNTED)
def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -np.inf else high + math.log1p(math.exp(low - high))


@njit(cache=True, nogil=True)
def _grown(array: NDArray[np.generic]) -> NDArray[np.generic]:
    more = np.empty((2 * array.shape[0], *array.shape[1:]), array.dtype)
    more[: array.shape[0]] = array
    return more


@njit(cache=True, nogil=True, **_UNCOUNTED)
def _child(prefixes: Ints, prefix: int, label: int) -> int:
    child = prefixes[prefix, CHILD]
    while child != NONE and prefixes[child, LABEL] != label:
        child = prefixes[child, SIBLING]
    return child


# --- Prefix beam search --------------------------------------------------------------------------


class Beam(NamedTuple):
    """A search between two frames; `search` continues it."""

    prefixes: Ints
    """[rows, COLUMNS] The prefix tree."""
    extra: Floats
    """[rows, 2] What its words and hotwords add."""
    count: int
    """Rows that are in use."""
    active: Ints
    """[survivors] Prefixes."""
    blank: Floats
    """[survivors] ln P of the alignments that end in a blank ..."""
    last: Floats
    """... that end in the last label ..."""
    total: Floats
    """... and of both."""
    spans: Ints
    """[frames, 2] Where the survivors of each frame are in the next two, from and to."""
    seen: Ints
    """[rows] Prefix."""
    seen_score: Floats
    """[rows] Total score, up to a constant of the frame."""


@njit(cache=True, nogil=True)
def new_beam(model: Model) -> Beam:
    """The search before the first frame: one prefix, the empty one."""
    prefixes = np.empty((1024, COLUMNS), np.int64)
    extra = np.zeros((1024, 2))
    prefixes[ROOT] = NONE
    prefixes[ROOT, LEXICON], prefixes[ROOT, HISTORY] = ROOT, model.history
    prefixes[ROOT, HOTWORD] = _hotword_step(model.hotwords, ROOT, SPACE)
    prefixes[ROOT, PARTIAL] = prefixes[ROOT, LAST] = prefixes[ROOT, TEXT] = 0
    extra[ROOT, BEGUN] = model.hotwords.promise[prefixes[ROOT, HOTWORD]]
    one, spans = np.zeros(1), np.zeros((0, 2), np.int64)
    seen, seen_score = np.empty(1024, np.int64), np.empty(1024)
    return Beam(
        prefixes,
        extra,
        1,
        np.zeros(1, np.int64),
        one,
        np.full(1, -np.inf),
        one.copy(),
        spans,
        seen,
        seen_score,
    )


@njit(cache=True, nogil=True)
def search(
    beam: Beam,
    log_probs: NDArray[np.float32],
    model: Model,
    width: int,
    least: float,
    margin: float,
) -> Beam:
    """Prefix beam search over frames (Hannun et al. 2014, with fusion at word ends).

    A prefix is a sequence of labels without blanks and repeats. Its acoustic score sums all alignments: of
    those that end in a blank and of those that end in its last label, which are kept apart because a
    repeated label needs a blank between.

    Args:
        beam: the search so far; its arrays are written to.
        log_probs: [frames, labels] ln P.
        model: what else scores a text.
        width: prefixes that survive a frame.
        least: labels of less ln P are left out of a frame, except for its best.
        margin: prefixes are dropped that score this much less than the best of the frame.
    """
    frames, labels = log_probs.shape
    prefixes, extra, count, active, blank, last, total, before, seen, seen_score = beam
    first = before.shape[0]
    spans = np.zeros((first + frames, 2), np.int64)
    spans[:first] = before
    end = before[first - 1, 1] if first else 0

    room = 0
    row, used = np.empty(labels), np.empty(labels, np.int64)
    for frame in range(frames):
        # 1. The labels of this frame.
        best = 0
        for c in range(labels):
            if log_probs[frame, c] > log_probs[frame, best]:
                best = c
        uses = 0
        for c in range(labels):
            row[c] = log_probs[frame, c]
            if c != best and not row[c] > least:
                row[c] = -np.inf
            elif c != model.blank and row[c] > -np.inf:
                used[uses] = c
                uses += 1
        size = active.size
        now = first + frame
        if uses == 0 and now > 0:
            # Only a blank: every score changes by the same, and the beam stays as it is.
            for i in range(size):
                total[i] += row[model.blank]
                blank[i], last[i] = total[i], -np.inf
            spans[now] = spans[now - 1]
            continue
        if size * (uses + 1) > room:
            # Candidates of a frame: those that stay, then those that grow by a label.
            room = 2 * size * (uses + 1)
            prefix, label = np.empty(room, np.int64), np.empty(room, np.int64)
            by_blank, by_last = np.empty(room), np.empty(room)
            both, score, kept = np.empty(room), np.empty(room), np.empty(room, np.int64)
            state, fused = np.empty((room, COLUMNS), np.int64), np.empty((room, 2))

        # 2. Prefixes that stay: a blank, or the last label again. Spaces at the start and after a space
        # change nothing either.
        highest = -np.inf
        for i in range(size):
            at = active[i]
            prefix[i], prefixes[at, PLACE] = at, i
            own = prefixes[at, LABEL]
            by_blank[i] = total[i] + row[model.blank]
            by_last[i] = -np.inf
            if model.space != NONE and (at == ROOT or own == model.space):
                by_last[i] = total[i] + row[model.space]
            elif at != ROOT:
                by_last[i] = last[i] + row[own]
            least_score = max(by_blank[i], by_last[i]) + extra[at, ENDED] + extra[at, BEGUN]
            highest = max(highest, least_score)

        # 3. Prefixes that grow. One that is in the beam already gets the sum; one that cannot come near
        # the best of those above is left out before its score is known.
        candidates = size
        for i in range(size):
            at = active[i]
            own = prefixes[at, LABEL]
            for c in used[:uses]:
                if c == model.space and (at == ROOT or own == c):
                    continue
                grown = (blank[i] if c == own else total[i]) + row[c]
                if grown == -np.inf:
                    continue
                child = _child(prefixes, at, c)
                if child != NONE and prefixes[child, PLACE] != NONE:
                    place = prefixes[child, PLACE]
                    by_last[place] = _log_add(by_last[place], grown)
                    continue
                known = extra[at, ENDED] + extra[at, BEGUN]
                if grown + known + model.gain < highest - margin:
                    continue
                prefix[candidates], label[candidates] = child, c
                by_blank[candidates], by_last[candidates] = -np.inf, grown
                if child == NONE:
                    state[candidates], fused[candidates] = prefixes[at], extra[at]
                    state[candidates, PARENT], state[candidates, LABEL] = at, c
                    _extend(model, state[candidates], fused[candidates], c)
                candidates += 1

        # 4. The best survive, the earlier of two equal ones.
        highest = -np.inf
        for k in range(candidates):
            at = prefix[k]
            both[k] = score[k] = _log_add(by_blank[k], by_last[k])
            for part in (ENDED, BEGUN):
                score[k] += fused[k, part] if at == NONE else extra[at, part]
            highest = max(highest, score[k])
        survivors = 0
        for k in range(candidates):
            if score[k] >= highest - margin and score[k] > -np.inf:
                kept[survivors] = k
                survivors += 1
        if survivors > width:
            cut = np.partition(score[kept[:survivors]], survivors - width)[survivors - width]
            equal, chosen = width, 0
            for k in kept[:survivors]:
                equal -= score[k] > cut
            for k in kept[:survivors]:
                if score[k] > cut or (score[k] == cut and equal > 0):
                    equal -= score[k] == cut
                    kept[chosen] = k
                    chosen += 1
            survivors = width

        # 5. They are the new beam; those that are new enter the tree.
        for i in range(size):
            prefixes[active[i], PLACE] = NONE
        if survivors != size:
            active = np.empty(survivors, np.int64)
            blank, last, total = np.empty(survivors), np.empty(survivors), np.empty(survivors)
        while end + survivors > seen.size:
            seen, seen_score = _grown(seen), _grown(seen_score)
        for i in range(survivors):
            k = kept[i]
            at = prefix[k]
            if at == NONE:
                if count == prefixes.shape[0]:
                    prefixes, extra = _grown(prefixes), _grown(extra)
                at, parent = count, state[k, PARENT]
                count += 1
                prefixes[at], extra[at] = state[k], fused[k]
                prefixes[at, CHILD], prefixes[at, PLACE] = NONE, NONE
                prefixes[at, SIBLING] = prefixes[parent, CHILD]
                prefixes[parent, CHILD] = at
            active[i], blank[i], last[i] = at, by_blank[k], by_last[k]
            total[i] = both[k]
            seen[end + i], seen_score[end + i] = at, score[k]
        spans[now, 0], spans[now, 1] = end, end + survivors
        end += survivors
    return Beam(prefixes, extra, count, active, blank, last, total, spans, seen, seen_score)


@njit(cache=True, nogil=True)
def end_text(beam: Beam, model: Model) -> Floats:
    """[survivors] Total scores when the text ends here, and with it its last word."""
    scores = beam.total.copy()
    for i, at in enumerate(beam.active):
        ended = beam.prefixes[at].copy()
        scores[i] += beam.extra[at, ENDED]
        if ended[PARTIAL] != 0:
            scores[i] += _end_word(model, ended)
        if model.fused:
            ln_p, _ = ngram_score(model.ngrams, ended[HISTORY], model.ngrams.end)
            scores[i] += model.alpha * ln_p
    return scores


@njit(cache=True, nogil=True)
def labels_of(prefixes: Ints, prefix: int) -> Ints:
    """The labels of a prefix, first to last."""
    size, at = 0, prefix
    while at != ROOT:
        size, at = size + 1, prefixes[at, PARENT]
    labels, at = np.empty(size, np.int64), prefix
    for k in range(size):
        labels[size - 1 - k], at = prefixes[at, LABEL], prefixes[at, PARENT]
    return labels


@njit(cache=True, nogil=True)
def word_share(prefixes: Ints, active: Ints, score: Floats, characters: Ints, ended: bool) -> float:
    """The share of some prefixes' probability whose last complete word is one.

    Args:
        prefixes: the tree.
        active: some of it.
        score: [active] ln of their probabilities, up to a constant.
        characters: of the word.
        ended: whether the utterance has ended, and with it each last word.
    """
    word = 0
    for character in characters:
        word = _word_hash(word, character)
    highest, having, everything = score.max(), 0.0, 0.0
    for k, at in enumerate(active):
        mass = math.exp(score[k] - highest)
        everything += mass
        own = prefixes[at, PARTIAL] if ended and prefixes[at, PARTIAL] else prefixes[at, LAST]
        if own == word:
            having += mass
    return having / everything


@njit(cache=True, nogil=True)
def text_hashes(prefixes: Ints, active: Ints) -> Ints:
    """A number for each prefix that is the same for those of one text."""
    hashes = prefixes[active, TEXT]
    for k, at in enumerate(active):
        if prefixes[at, PARTIAL] != 0:
            hashes[k] = (hashes[k] ^ prefixes[at, PARTIAL]) * _HASH_STEP
    return hashes


@njit(cache=True, nogil=True)
def align(log_probs: NDArray[np.float32], labels: Ints, blank: int) -> Ints:
    """The most probable alignment of labels with frames (Viterbi).

    Returns:
        [labels, 2] the first frame of each label and the frame behind its last.
    """
    frames, size = log_probs.shape[0], labels.size
    spans = np.zeros((size, 2), np.int64)
    states = 2 * size + 1  # blank, label, blank, ..., label, blank
    value = np.full(states, -np.inf, np.float32)
    value[0] = 0.0  # in front of the first frame
    came = np.zeros((frames, states), np.int8)
    for frame in range(frames):
        row = log_probs[frame]
        # From the last on, so that `value` is that of the frame before; states that cannot be reached yet,
        # or from which the end cannot be reached any more, are left out.
        low = max(0, states - 2 * (frames - frame))
        for s in range(min(states - 1, 2 * frame + 1), low - 1, -1):
            own = blank if s % 2 == 0 else labels[s // 2]
            best, back = value[s], 0
            if s > 0 and value[s - 1] > best:
                best, back = value[s - 1], 1
            if s > 1 and s % 2 and own != labels[s // 2 - 1] and value[s - 2] > best:
                best, back = value[s - 2], 2
            value[s], came[frame, s] = best + row[own], back
    s = states - 1
    if size and value[states - 2] > value[s]:
        s = states - 2
    for frame in range(frames - 1, -1, -1):
        if s % 2:
            spans[s // 2, 0] = frame
            spans[s // 2, 1] = max(spans[s // 2, 1], frame + 1)
        s -= came[frame, s]
    return spans
