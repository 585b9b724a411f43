"""Decoding the outputs of CTC models: prefix beam search with a language model and hotwords."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InputError
from holdfast.speech.recognize import _kernels as kernels
from holdfast.speech.recognize.emissions import (
    Emissions,
    Kind,
    log_probabilities,
    padded,
    read_emissions,
    utterances,
)
from holdfast.speech.recognize.fusion import fuse, read_hotwords
from holdfast.speech.recognize.hypotheses import Decoded, Hypothesis, Utterance, Word
from holdfast.speech.recognize.labels import Labels
from holdfast.speech.recognize.language_model import LanguageModel

Hotwords = Sequence[str] | Mapping[str, float]


@dataclass(frozen=True)
class Decoder:
    """Prefix beam search for a model's labels; prepared at the first call.

    A text is ranked by ln P(x) + alpha ln P(words) + beta |words| + the weights of its hotwords, where
    P(x) sums the text's alignments (Hannun et al. 2014, "Deep Speech", section 2.2).

    Raises:
        InputError: if a setting is out of its range.
    """

    labels: Labels | str | Path | Sequence[str]
    """Labels of the outputs, or the file that has them; see `Labels.of`."""
    lm: LanguageModel | str | Path | None = None
    """N-gram model, or its ARPA file."""
    hotwords: Hotwords = ()
    """Words or phrases to favor, or phrase -> weight."""
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

    @cached_property
    def _language_model(self) -> LanguageModel | None:
        if self.lm is None or isinstance(self.lm, LanguageModel):
            return self.lm
        return LanguageModel.read(self.lm)

    @cached_property
    def _prepared(self) -> dict[int, tuple[Labels, kernels.Model, list[str]]]:
        return {}

    def _for(self, columns: int) -> tuple[Labels, kernels.Model, list[str]]:
        """Labels, scores and doubts for a model with a number of outputs."""
        if columns not in self._prepared:
            labels = Labels.of(self.labels, columns, self.blank, self.delimiter)
            hotwords = self.hotwords
            if not isinstance(hotwords, Mapping):
                hotwords = dict.fromkeys(hotwords, self.hotword_weight)
            model, doubts = fuse(
                labels,
                self._language_model,
                hotwords,
                alpha=self.alpha,
                beta=self.beta,
                unknown_score=self.unknown_score,
            )
            self._prepared[columns] = labels, model, doubts
        return self._prepared[columns]

    def decode(self, logits: Any, lengths: Sequence[int] | None = None) -> Decoded:
        """Decode an utterance or a batch; each utterance's texts are those that it has alone.

        Args:
            logits: [frames, labels], [utterances, frames, labels], a list of the former, or name -> the
                former; logits, log-probabilities or probabilities.
            lengths: [utterances] frames that are not padding.

        Raises:
            InputError: outputs that are none of these or have NaN, labels that do not fit them, or a
                language model whose words the labels cannot spell.
        """
        named = logits if isinstance(logits, Mapping) else utterances(logits, lengths)
        emissions = {
            name: log_probabilities(values, self.kind, name) for name, values in named.items()
        }
        # Every set of labels is prepared once, before the threads.
        doubts = [text for each in emissions.values() for text in self._for(each.shape[1])[2]]
        if lengths is None and getattr(logits, "ndim", 0) == 3:
            doubts += padded(logits)
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        with ThreadPoolExecutor(min(processors, len(emissions)) or 1) as pool:
            texts = list(pool.map(self._decode, emissions.values()))
        rows = zip(emissions.items(), texts, strict=True)
        return Decoded(
            tuple(Utterance(name, len(each), found) for (name, each), found in rows),
            tuple(dict.fromkeys(doubts)),
        )

    def _decode(self, log_probs: Emissions) -> tuple[Hypothesis, ...]:
        """The best texts of one utterance."""
        if not len(log_probs):
            return (Hypothesis("", 0.0, 0.0, ()),)
        labels, model, _ = self._for(log_probs.shape[1])
        if labels.silent:
            log_probs = log_probs.copy()
            log_probs[:, labels.silent] = -np.inf
        found = _Search(
            *kernels.search(
                log_probs,
                model,
                self.beam,
                float(self.least_log_prob) if self.beam > 1 else 0.0,
                float(self.margin),
            )
        )
        hypotheses = []
        # Prefixes of one text (with a space at the end, in other pieces) are one hypothesis.
        for group in found.groups(self.texts):
            best = max(group, key=lambda place: found.total[place])
            log_prob = float(np.logaddexp.reduce(found.acoustic[group]))
            extra = float(found.total[best] - found.acoustic[best])
            sequence = kernels.labels_of(found.prefixes, found.survivors[best])
            spans = kernels.align(log_probs, sequence, labels.blank)
            words = self._words(found, labels, sequence, spans)
            text = labels.joined.join(word.word for word in words)
            hypotheses.append(Hypothesis(text, log_prob + extra, log_prob, words))
        return tuple(hypotheses)

    def _words(
        self, found: _Search, labels: Labels, sequence: NDArray[np.int64], spans: NDArray[np.int64]
    ) -> tuple[Word, ...]:
        """The words of a sequence of labels, with the frames that its alignment gives."""
        pieces: list[
            list[Any]
        ] = []  # text, first frame, frame behind the last one, when the next starts
        open_word = False
        for label, (begin, end) in zip(sequence.tolist(), spans.tolist(), strict=True):
            for character in labels.texts[label]:
                if character == " ":
                    open_word = False
                    continue
                if not open_word:
                    if pieces:
                        pieces[-1][3] = begin
                    pieces.append(["", begin, end, None])
                open_word = True
                pieces[-1][0] += character
                pieces[-1][2] = end
        return tuple(
            Word(
                word,
                begin,
                end,
                None if self.frame_s is None else begin * self.frame_s,
                None if self.frame_s is None else end * self.frame_s,
                None if self.beam == 1 else found.share(word, next_begin),
            )
            for word, begin, end, next_begin in pieces
        )


@dataclass(frozen=True)
class _Search:
    """What `kernels.search` returns."""

    prefixes: NDArray[np.int64]
    survivors: NDArray[np.int64]
    acoustic: NDArray[np.float64]
    total: NDArray[np.float64]
    spans: NDArray[np.int64]
    seen: NDArray[np.int64]
    seen_score: NDArray[np.float64]

    def groups(self, limit: int) -> list[NDArray[np.int64]]:
        """Places of survivors by text, the best text first; of so many texts at most."""
        _, text = np.unique(kernels.text_hashes(self.prefixes, self.survivors), return_inverse=True)
        score = np.full(text.max() + 1, -np.inf)
        np.logaddexp.at(score, text, self.total)
        order = np.argsort(-score, kind="stable")  # hashes do not hang on the beam's order
        return [np.flatnonzero(text == each) for each in order[:limit]]

    def share(self, word: str, next_begin: int | None) -> float:
        """Share of the search's probability in which a word is the last that has ended.

        Args:
            word: the word.
            next_begin: the frame in which the next one begins; None: at the end of the utterance.
        """
        characters = np.array([ord(each) for each in word], np.int64)
        if next_begin is None:
            return kernels.word_share(
                self.prefixes, self.survivors, self.total, characters, ended=True
            )
        span = slice(*self.spans[next_begin])
        return kernels.word_share(
            self.prefixes, self.seen[span], self.seen_score[span], characters, ended=False
        )


def decode(
    logits: Any,
    labels: Labels | str | Path | Sequence[str],
    *,
    lengths: Sequence[int] | None = None,
    **settings: Any,
) -> Decoded:
    """Decode the outputs of a CTC model.

    Args:
        logits: [frames, labels], [utterances, frames, labels], a list of the former, or name -> the former;
            logits, log-probabilities or probabilities.
        labels: labels of the outputs, or the file that has them.
        lengths: [utterances] frames that are not padding.
        settings: ``lm``, ``hotwords``, ``beam`` and the other fields of `Decoder`.

    Raises:
        InputError: see `Decoder.decode`.
    """
    return Decoder(labels, **settings).decode(logits, lengths)


def decode_file(
    path: Path, labels: Path, *, hotwords: Path | None = None, **settings: Any
) -> Decoded:
    """Decode the arrays of an ``.npz`` file.

    Args:
        path: one matrix per utterance, or one batch and its ``lengths``.
        labels: file of the labels.
        hotwords: a phrase per line, and behind a tab its weight, if it has its own.
        settings: fields of `Decoder`.

    Raises:
        InputError: see `Decoder.decode`; with the file that is at fault.
    """
    named, doubts = read_emissions(path)
    decoder = Decoder(labels, **settings)
    if hotwords is not None:
        weights = read_hotwords(hotwords)
        own = {word: decoder.hotword_weight if w is None else w for word, w in weights.items()}
        decoder = replace(decoder, hotwords=own)
    try:
        found = decoder.decode(named)
    except InputError as error:
        raise error if error.path else error.at(path) from error
    return replace(found, doubts=(*doubts, *found.doubts))
