"""Speech for the transducer benchmark: lexicon, bigram grammar and emissions from a real package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import sphinx_model
from automata_inputs import Case, Pair, finals, from_columns
from holdfast.automata import Fst


@dataclass(frozen=True)
class Speech:
    """A dictionary and a bigram model over one numbering of words."""

    bigrams: sphinx_model.Bigrams
    pronunciations: dict[str, list[tuple[int, ...]]]
    """Word -> its phones, numbered from 1; the likeliest word first."""
    phones: int
    label: dict[str, int]
    """Word -> label; the words of the model come first, in its order."""

    def lexicon(self, words: int) -> Fst:
        """L of the likeliest words: phones -> words, the word on the first arc, a loop through state 0."""
        arcs = []
        states = 1
        for word, phones, cost in self._listed(words):
            at = 0
            for k, phone in enumerate(phones):
                after = 0 if k == len(phones) - 1 else states
                arcs.append((at, phone, word, cost, after) if k == 0 else (at, phone, 0, 0, after))
                at = after
                states += after > 0
        return from_columns(*zip(*arcs, strict=True), finals(states, {0: 0.0}))

    def lexicon_tree(self, words: int) -> Fst:
        """The same with common beginnings merged and the word on the last arc."""
        arcs = []
        node: dict[tuple[int, ...], int] = {(): 0}
        for word, phones, cost in self._listed(words):
            for k in range(1, len(phones)):
                if phones[:k] not in node:
                    node[phones[:k]] = len(node)
                    arcs.append((node[phones[: k - 1]], phones[k - 1], 0, 0, node[phones[:k]]))
            arcs.append((node[phones[:-1]], phones[-1], word, cost, 0))
        return from_columns(*zip(*arcs, strict=True), finals(len(node), {0: 0.0}))

    def _listed(self, words: int) -> Iterable[tuple[int, tuple[int, ...], float]]:
        for word in list(self.pronunciations)[:words]:
            several = self.pronunciations[word]
            yield from (
                (self.label[word], phones, float(np.log(len(several)))) for phones in several
            )

    def grammar(self) -> Fst:
        """G: state 0 backs off, state 1 + h has the word h behind it; nothing is left out.

        `<s>` is where it starts, `</s>` makes a state final; backoff is an epsilon arc.
        """
        model = self.bigrams
        count = len(model.words)
        begin, end = model.words.index("<s>"), model.words.index("</s>")
        every = np.arange(count)
        plain = every[(every != begin) & (every != end)]
        leaves = every[every != end]
        inner = (model.word != begin) & (model.word != end)
        closing = model.word == end
        final = np.full(1 + count, np.inf)
        final[0] = model.cost[end]
        final[1 + model.history[closing]] = model.bigram_cost[closing]
        label = np.concatenate([0 * leaves, 1 + plain, 1 + model.word[inner]])
        return from_columns(
            np.concatenate([1 + leaves, 0 * plain, 1 + model.history[inner]]),
            label,
            label,
            np.concatenate([model.backoff[leaves], model.cost[plain], model.bigram_cost[inner]]),
            np.concatenate([0 * leaves, 1 + plain, 1 + model.word[inner]]),
            final,
            1 + begin,
        )

    def emissions(self, frames: int) -> Fst:
        """Every phone at every frame, with a random distribution: V = frames + 1."""
        score = np.random.default_rng(3).normal(0, 2, (frames, self.phones))
        cost = np.log(np.exp(score).sum(1, keepdims=True)) - score
        label = np.tile(np.arange(1, self.phones + 1), frames)
        source = np.repeat(np.arange(frames), self.phones)
        return from_columns(
            source, label, label, cost.ravel(), source + 1, finals(frames + 1, {frames: 0.0})
        )


@cache
def read_speech(model: Path) -> Speech:
    """The package's dictionary and language model."""
    bigrams = sphinx_model.read_bigrams(model)
    dictionary = sphinx_model.read_dictionary(model)
    phones = {
        phone: k for k, phone in enumerate(sorted({p for _, ps in dictionary for p in ps}), 1)
    }
    cost = dict(zip(bigrams.words, bigrams.cost.tolist(), strict=True))
    pronunciations: dict[str, list[tuple[int, ...]]] = {}
    for word, spoken in sorted(dictionary, key=lambda row: (cost.get(row[0], np.inf), row[0])):
        pronunciations.setdefault(word, []).append(tuple(phones[phone] for phone in spoken))
    words = bigrams.words + [word for word in pronunciations if word not in cost]
    label = {word: k for k, word in enumerate(words, 1)}
    return Speech(bigrams, pronunciations, len(phones), label)


def speech_cases(model: Path) -> list[Case]:
    """L o G, and emissions o L: a state and an arc for each of L's and each frame."""

    def grammar_case(words: int, states: int, arcs: int) -> Case:
        def make() -> Pair:
            speech = read_speech(model)
            return speech.lexicon(words), speech.grammar()

        return Case(f"L o G, {words:,} words", "L o G", make, states, arcs)

    def emissions_case(tree: bool, words: int, frames: int, states: int, arcs: int) -> Case:
        def make() -> Pair:
            speech = read_speech(model)
            lexicon = speech.lexicon_tree if tree else speech.lexicon
            return speech.emissions(frames), lexicon(words)

        name = f"emissions T={frames:,} o {'tree of L' if tree else 'L'}, {words:,} words"
        return Case(name, "emissions o L", make, frames * states, frames * arcs)

    return [
        grammar_case(1_000, 5_171, 344_016),
        grammar_case(10_000, 66_786, 1_816_500),
        grammar_case(100_000, 505_066, 3_110_270),
        emissions_case(False, 1_000, 250, 4_170, 5_408),
        emissions_case(False, 1_000, 1_000, 4_170, 5_408),
        emissions_case(False, 10_000, 250, 56_785, 68_559),
        emissions_case(False, 10_000, 1_000, 56_785, 68_559),
        emissions_case(False, 100_000, 250, 582_619, 690_517),
        emissions_case(True, 10_000, 1_000, 16_160, 27_934),
        emissions_case(True, 100_000, 250, 135_882, 243_780),
    ]
