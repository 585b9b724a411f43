"""The contexts of a back-off model as a trie: states of its exact automaton, and their distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.lm.models.arpa import Arpa

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Contexts:
    """A trie of the contexts that matter, by length, then parent, then word; state 0 is the empty context.

    A context matters if words are listed after it, or its back-off weight is not 1, or it starts one that
    does. The state of a history is its longest suffix in the trie: no longer one can ever be told apart.
    """

    words: int
    """Size of the vocabulary, V."""
    keys: I64
    """[states - 1] parent * V + word of every state but 0, ascending."""
    shorter: I64
    """[states] state of the longest proper suffix; 0 of state 0."""
    level: I64
    """[order + 1] states of length n are level[n]:level[n + 1]."""
    backoff: F64
    """[states] natural log of the weight of the distribution of `shorter`, for words not listed."""
    first: I64
    """[states + 1] n-grams of a state are first[s]:first[s + 1]; of state 0, all words."""
    listed: I64
    """[n-grams] state * V + word, ascending."""
    logprob: F64
    """[n-grams] natural log of the probability that the file lists."""

    @staticmethod
    def of(arpa: Arpa, never: int | None = None) -> Contexts:
        """Build the trie; the word `never` has probability 0 everywhere (``<s>``).

        Raises:
            InputError: if an n-gram stands twice in the file.
        """
        size, order = len(arpa.vocabulary), int(arpa.orders[-1].words.shape[1])
        keys, level, nodes, weighted = _trie(arpa, size, order)
        states = len(keys) + 1
        backoff = np.zeros(states)
        for grams, node in zip(arpa.orders, weighted, strict=True):
            told = node >= 0
            backoff[node[told]] = grams.log10_backoff[told] * math.log(10)
        listed = np.concatenate(
            [
                node * size + grams.words[:, -1]
                for grams, node in zip(arpa.orders, nodes, strict=True)
            ]
        )
        logprob = np.concatenate([grams.log10_probability for grams in arpa.orders]) * math.log(10)
        lines = np.concatenate([grams.lines for grams in arpa.orders])
        turn = np.argsort(listed, kind="stable")
        listed, logprob = listed[turn], logprob[turn]
        twice = np.flatnonzero(listed[1:] == listed[:-1])
        if len(twice):
            raise InputError(
                "duplicate n-gram",
                code="duplicate",
                path=arpa.path,
                place=f"line {lines[turn[twice[0] + 1]]}",
                found=f"the n-gram of line {lines[turn[twice[0]]]}",
                expected="every n-gram once",
                remedy="take one of them out, and correct the header",
            )
        if never is not None:
            logprob[listed % size == never] = -np.inf
        first = np.searchsorted(listed, np.arange(states + 1) * size)
        return Contexts(
            size, keys, _suffixes(keys, level, size), level, backoff, first, listed, logprob
        )

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.shorter)

    def child(self, state: int, word: int) -> int:
        """The context with one more word at its end; 0 where the trie has none."""
        key = state * self.words + word
        place = int(np.searchsorted(self.keys, key))
        return place + 1 if place < len(self.keys) and self.keys[place] == key else 0

    def step(self, state: int, word: int) -> int:
        """The state after one more word."""
        longer = self.child(state, word)
        while not longer and state:
            state = int(self.shorter[state])
            longer = self.child(state, word)
        return longer

    def words_of(self, state: int) -> tuple[int, ...]:
        """The words of a context, the oldest first."""
        words: list[int] = []
        while state:
            state, word = divmod(int(self.keys[state - 1]), self.words)
            words.append(word)
        return tuple(reversed(words))

    def distribution(self, state: int) -> F64:
        """[V] natural log-probabilities after a context, as the file tells them."""
        chain = [state]
        while chain[-1]:
            chain.append(int(self.shorter[chain[-1]]))
        values = self.logprob[: self.words].copy()  # state 0 lists every word, in order
        for one in reversed(chain[:-1]):
            values += self.backoff[one]
            span = slice(self.first[one], self.first[one + 1])
            values[self.listed[span] - one * self.words] = self.logprob[span]
        return values

    def sums(self) -> F64:
        """[states] sums of the distributions.

        By sum(h) = p(listed | h) + backoff(h) * (sum(h') - p(listed | h')), where h' is the shorter context
        and `listed` are the words listed after h.
        """
        return self._sums

    @cached_property
    def _sums(self) -> F64:
        totals = np.zeros(self.size)
        totals[0] = np.exp(self.logprob[: self.words]).sum()
        owner = self.listed // self.words
        for low, high in pairwise(self.level[1:]):
            span = slice(self.first[low], self.first[high])
            states, word = owner[span], self.listed[span] % self.words
            count = high - low
            told = np.bincount(states - low, np.exp(self.logprob[span]), count)
            elsewhere = np.exp(self._probabilities(self.shorter[states], word))
            covered = np.bincount(states - low, elsewhere, count)
            rest = np.maximum(totals[self.shorter[low:high]] - covered, 0)
            totals[low:high] = told + np.exp(self.backoff[low:high]) * rest
        return totals

    def _probabilities(self, states: I64, words: I64) -> F64:
        """[N] log-probability of each word in each state."""
        states, values = states.copy(), np.zeros(len(states))
        open_ = np.arange(len(states))
        while len(open_):
            wanted = states[open_] * self.words + words[open_]
            place = np.searchsorted(self.listed, wanted)
            found = self.listed[np.minimum(place, len(self.listed) - 1)] == wanted
            values[open_[found]] += self.logprob[place[found]]
            open_ = open_[~found]
            values[open_] += self.backoff[states[open_]]
            states[open_] = self.shorter[states[open_]]
        return values


def _trie(arpa: Arpa, size: int, order: int) -> tuple[I64, I64, list[I64], list[I64]]:
    """Keys, levels, and by order: the context of every n-gram; its own state if it has a weight, or -1."""
    nodes = [np.zeros(len(grams.lines), np.int64) for grams in arpa.orders]
    weighted = [np.full(len(grams.lines), -1, np.int64) for grams in arpa.orders]
    keys: list[I64] = []
    level = [0, 1]
    for length in range(1, order):
        wanted = {}
        for place, grams in enumerate(arpa.orders):
            if (size_of := grams.words.shape[1]) < length:
                continue
            # An n-gram needs the words in front of its last, and all of them if they carry a weight.
            rows = np.flatnonzero(grams.log10_backoff) if size_of == length else slice(None)
            wanted[place] = rows, nodes[place][rows] * size + grams.words[rows, length - 1]
        here = np.unique(np.concatenate([key for _, key in wanted.values()]))
        for place, (rows, key) in wanted.items():
            state = level[-1] + np.searchsorted(here, key)
            if isinstance(rows, slice):
                nodes[place] = state
            else:
                weighted[place][rows] = state
        keys.append(here)
        level.append(level[-1] + len(here))
    every = np.concatenate([np.empty(0, np.int64), *keys])
    return every, np.array(level), nodes, weighted


def _suffixes(keys: I64, level: I64, size: int) -> I64:
    """[states] the longest proper suffix that is in the trie, of every context."""
    shorter = np.zeros(len(keys) + 1, np.int64)
    for low, high in pairwise(level[2:]):  # contexts of one word have the empty one
        parent, word = np.divmod(keys[low - 1 : high - 1], size)
        state = shorter[parent]
        open_ = np.arange(high - low)
        while len(open_):
            wanted = state[open_] * size + word[open_]
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            found = keys[place] == wanted
            shorter[low + open_[found]] = place[found] + 1
            open_ = open_[~found]
            open_ = open_[state[open_] > 0]
            state[open_] = shorter[state[open_]]
    return shorter
