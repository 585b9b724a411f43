"""Compiled tries of words, n-grams and hotwords, and what they add to the score of a text.

Every trie (words of the language model, hotwords, n-grams) is one hash table from (node, symbol) to node,
so that a step costs the same however many entries it has. Symbols of the word and hotword tries are
characters: labels of several characters (BPE) take several steps, and all ways to spell a word reach the
same node.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.kernels import kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROOT = 0
NONE = -1
LEAST = -1e300

# Kernels that allocate nothing count no references; inlined, they get the model without copying it.
UNCOUNTED: dict[str, Any] = {"_nrt": False, "forceinline": True}

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
    start: int
    """Node at the start of a sentence: behind a space."""


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
    gain: Floats
    """[labels] The most that a label can add to the score."""
    hotwords: Hotwords


# --- Tries ---------------------------------------------------------------------------------------


@kernel(**UNCOUNTED)
def _slot(keys: Ints, key: int) -> int:
    """Where a key is, or the free place where it belongs."""
    mask = keys.size - 1
    mixed = key * -7046029254386353131  # 2**64 over the golden ratio, as a signed number
    place = (mixed ^ (mixed >> 32)) & mask
    while keys[place] != key and keys[place] != NONE:
        place = (place + 1) & mask
    return place


@kernel(**UNCOUNTED)
def step(trie: Trie, node: int, symbol: int) -> int:
    """The node behind a step; -1: there is none."""
    key = node * trie.symbols + symbol
    place = _slot(trie.keys, key)
    return trie.nodes[place] if trie.keys[place] == key else NONE


@kernel()
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


@kernel()
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
    for k in range(len(words)):
        node = ROOT
        for word in words[k, :-1]:
            node = step(trie, node, word)
            if node == NONE:
                return len(words) + k
        last = words[k, -1]
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


@kernel(**UNCOUNTED)
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


# --- Words and hotwords --------------------------------------------------------------------------


@kernel(**UNCOUNTED)
def hotword_step(hotwords: Hotwords, node: int, character: int) -> int:
    after = step(hotwords.trie, node, character)
    while after == NONE and node != ROOT:
        node = hotwords.fail[node]
        after = step(hotwords.trie, node, character)
    return max(after, ROOT)


@kernel(**UNCOUNTED)
def word_hash(word: int, character: int) -> int:
    """Hash of a word that grows by a character; 0 is that of no word."""
    return (word ^ character) * _HASH_STEP + 1


@kernel(**UNCOUNTED)
def text_hash(text: int, word: int) -> int:
    """Hash of a text that grows by a word."""
    return (text ^ word) * _HASH_STEP


@kernel(**UNCOUNTED)
def end_word(model: Model, lexicon: int, history: int, hotword: int) -> tuple[float, int, int]:
    """(what the end of a word adds to the score, the history after it, the hotword's node after it)."""
    score = 0.0
    if model.fused:
        word = NONE if lexicon == NONE else model.word[lexicon]
        ln_p, history = ngram_score(model.ngrams, history, max(word, NONE))
        score = model.alpha * ln_p + model.beta
        if word == NONE:
            score += model.unknown_score
    hotword = hotword_step(model.hotwords, hotword, SPACE)
    return score + model.hotwords.bonus[hotword], history, hotword
