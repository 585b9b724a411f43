"""Decoding the outputs of CTC models: prefix beam search with a language model and hotwords."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InputError
from holdfast.speech.recognize import _kernels as kernels
from holdfast.speech.recognize._tries import Model
from holdfast.speech.recognize.emissions import (
    Emissions,
    Kind,
    log_probabilities,
    read_emissions,
    utterances,
)
from holdfast.speech.recognize.fusion import fuse, read_hotwords
from holdfast.speech.recognize.hypotheses import Decoded, Hypothesis, Utterance, Word
from holdfast.speech.recognize.labels import Labels
from holdfast.speech.recognize.language_model import LanguageModel

Hotwords = str | Path | Sequence[str] | Mapping[str, float | None]


@dataclass(frozen=True)
class Decoder:
    """Prefix beam search for a model's labels; prepared at the first call.

    A text is ranked by ln P(x) + alpha ln P(words) + beta |words| + the weights of its hotwords, where
    P(x) sums the text's alignments (Hannun et al. 2014, "Deep Speech", section 2.2).

    Raises:
        InputError: if a setting is out of its range.
    """

    labels: Labels | str | Path | Sequence[str] | Mapping[str, int]
    """Labels of the outputs, label -> column, or the file that has them; see `Labels.of`."""
    lm: LanguageModel | str | Path | None = None
    """N-gram model, or its ARPA file."""
    hotwords: Hotwords | None = None
    """Words or phrases to favor, phrase -> weight, or a file that has them; see `read_hotwords`."""
    beam: int = 100
    """Prefixes that survive a frame; 1: greedy, the best label of each frame."""
    blank: int | str | None = None
    """Name or column of the blank; None: by its usual names."""
    delimiter: str | None = None
    """Label between words; None: by its usual names."""
    alpha: float = 0.5
    """Weight of the language model."""
    beta: float = 1.5
    """What each word adds, if there is a language model."""
    unknown_score: float = -10.0
    """What a word adds that neither the language model nor the hotwords have, from the letter on where
    that is certain."""
    hotword_weight: float = 10.0
    """What an occurrence of a hotword adds; a beginning adds its share."""
    least_log_prob: float = -5.0
    """Labels of less ln P are left out of a frame, except for its best."""
    margin: float = 10.0
    """Prefixes are dropped that score this much less than the best."""
    texts: int = 1
    """Best texts of each utterance to return, at most."""
    frame_s: float | None = None
    """Seconds from one frame to the next, for times of words."""
    kind: Kind = "auto"
    """What the model's outputs are; see `holdfast.speech.recognize.emissions`."""

    def __post_init__(self) -> None:
        ranges = {
            "beam": self.beam >= 1,
            "texts": self.texts >= 1,
            "frame_s": self.frame_s is None or 0 < self.frame_s < math.inf,
            "margin": self.margin > 0,
            "least_log_prob": self.least_log_prob <= 0,
            "alpha": math.isfinite(self.alpha),
            "beta": math.isfinite(self.beta),
            "unknown_score": self.unknown_score <= 0,
            "hotword_weight": math.isfinite(self.hotword_weight),
        }
        for name, fits in ranges.items():
            if not fits:
                found = str(getattr(self, name))
                raise InputError(f"invalid {name}", code="out-of-range", place=name, found=found)
        if self.beam == 1 and (self.lm is not None or self.hotwords):
            raise InputError(
                "a beam of 1 is greedy: no language model or hotword can change its text",
                code="conflict",
                place="beam",
                found="1, and a language model or hotwords",
                remedy="a wider beam, such as 100, or none of them",
            )

    @cached_property
    def _prepared(self) -> dict[int, tuple[Labels, Model, list[str]]]:
        return {}

    def prepared(self, columns: int) -> tuple[Labels, Model, list[str]]:
        """Labels, scores and doubts for a model with a number of outputs.

        Raises:
            InputError: labels that do not fit it, or a language model whose words they cannot spell.
        """
        if columns not in self._prepared:
            labels = Labels.of(self.labels, columns, self.blank, self.delimiter)
            lm, given = self.lm, self.hotwords
            if isinstance(lm, (str, Path)):
                lm = LanguageModel.read(lm)
            if isinstance(given, (str, Path)):
                given = read_hotwords(Path(given))
            own = given if isinstance(given, Mapping) else dict.fromkeys(given or ())
            hotwords = {word: self.hotword_weight if w is None else w for word, w in own.items()}
            scores = {"alpha": self.alpha, "beta": self.beta, "unknown_score": self.unknown_score}
            self._prepared[columns] = labels, *fuse(labels, lm, hotwords, **scores)
        return self._prepared[columns]

    def decode(self, logits: Any, lengths: Sequence[int] | None = None) -> Decoded:
        """Decode an utterance or a batch; each utterance's texts are those that it has alone.

        Args:
            logits: [frames, labels], [utterances, frames, labels], a list of the former, or name -> one of
                these; logits, log-probabilities or probabilities.
            lengths: [utterances] frames that are not padding.

        Raises:
            InputError: outputs that are none of these or have NaN, and what `prepared` refuses.
        """
        named, doubts = utterances(logits, lengths)
        emissions = {
            name: log_probabilities(values, self.kind, name) for name, values in named.items()
        }
        # Every set of labels is prepared once, before the threads.
        doubts += [text for each in emissions.values() for text in self.prepared(each.shape[1])[2]]
        with ThreadPoolExecutor() as pool:
            texts = list(pool.map(self.decode_log_probs, emissions.values()))
        rows = zip(emissions.items(), texts, strict=True)
        return Decoded(
            tuple(Utterance(name, len(each), found) for (name, each), found in rows),
            tuple(dict.fromkeys(doubts)),
        )

    def decode_log_probs(self, log_probs: Emissions) -> tuple[Hypothesis, ...]:
        """The best texts of one utterance, the best first; never empty."""
        search = Search(self, log_probs.shape[1])
        search.push(log_probs)
        return search.hypotheses()


class Search:
    """The decoding of one utterance: however its frames are divided, the texts are the same.

    Args:
        decoder: labels, scores and pruning.
        columns: number of the model's outputs.
        start: number of the first frame, from which words count theirs.
    """

    def __init__(self, decoder: Decoder, columns: int, start: int = 0) -> None:
        self.decoder, self.start = decoder, start
        self.labels, self.model, _ = decoder.prepared(columns)
        self.beam = kernels.new_beam(self.model)
        self.log_probs: Emissions = np.zeros((0, columns), np.float32)

    def push(self, log_probs: Emissions) -> None:
        """Continue with the next frames, ln P [frames, labels]."""
        if silent := self.labels.silent:
            # What writes nothing is as good as a blank.
            log_probs, blanks = log_probs.copy(), [self.labels.blank, *silent]
            log_probs[:, self.labels.blank] = np.logaddexp.reduce(log_probs[:, blanks], axis=1)
            log_probs[:, silent] = -np.inf
        self.log_probs = np.concatenate([self.log_probs, log_probs])
        greedy, rules = self.decoder.beam == 1, self.decoder
        least = 0.0 if greedy else float(rules.least_log_prob)
        self.beam = kernels.search(
            self.beam, log_probs, self.model, rules.beam, least, float(rules.margin)
        )

    @property
    def partial(self) -> str:
        """The best text so far."""
        labels = kernels.labels_of(self.beam.nodes, self.beam.active[0])
        return self.labels.joined.join(self.labels.words(labels))

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The best texts if the utterance ends here."""
        added, texts = kernels.ends(self.beam, self.model)  # [survivors]
        totals = self.beam.nodes["total"][self.beam.active]
        scores = totals + added
        # Prefixes of one text (with a space at the end, in other pieces) are one hypothesis.
        order = np.lexsort((-scores, texts))
        first = np.flatnonzero(np.r_[True, np.diff(texts[order]) != 0])
        log_prob = np.logaddexp.reduceat(totals[order], first)
        best = order[first]
        final = log_prob + added[best]
        found = []
        # Equal scores are in the order of the hashes, which do not hang on the beam's order.
        for rank in np.argsort(-final, kind="stable")[: self.decoder.texts]:
            words = self._words(self.beam.active[best[rank]], scores)
            text = self.labels.joined.join(word.word for word in words)
            found.append(Hypothesis(text, float(final[rank]), float(log_prob[rank]), words))
        return tuple(found)

    def _words(self, node: int, scores: NDArray[np.float64]) -> tuple[Word, ...]:
        """The words of a prefix; scores are those of the survivors."""
        labels = kernels.labels_of(self.beam.nodes, node)
        spans, confidence = kernels.words_of(
            self.beam, self.model, self.log_probs, labels, scores, self.decoder.beam == 1
        )
        frames = (spans + self.start).T
        frame_s = self.decoder.frame_s
        times = (
            [[nan] * len(spans)] * 2 if frame_s is None else np.round(frames * frame_s, 4).tolist()
        )
        columns = self.labels.words(labels), *frames.tolist(), *times, confidence.tolist()
        return tuple(map(Word, *columns))


def decode(
    logits: Any,
    labels: Labels | str | Path | Sequence[str] | Mapping[str, int],
    *,
    lengths: Sequence[int] | None = None,
    **settings: Any,
) -> Decoded:
    """Decode the outputs of a CTC model.

    Args:
        logits: [frames, labels], [utterances, frames, labels], a list of the former, or name -> one of
            these; logits, log-probabilities or probabilities. Or an ``.npz`` file: one matrix per
            utterance, or one batch and its ``lengths``.
        labels: labels of the outputs, or the file that has them.
        lengths: [utterances] frames that are not padding.
        settings: ``lm``, ``hotwords``, ``beam`` and the other fields of `Decoder`.

    Raises:
        InputError: see `Decoder.decode`; with the file that is at fault.
    """
    decoder = Decoder(labels, **settings)
    if not isinstance(logits, (str, Path)):
        return decoder.decode(logits, lengths)
    try:
        return decoder.decode(*read_emissions(Path(logits)))
    except InputError as error:
        raise error if error.path else error.at(logits) from error
