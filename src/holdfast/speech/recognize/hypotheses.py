"""Texts of a decoder: scores, word times, confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Section, Table, Unknown


@dataclass(frozen=True)
class Word:
    """A word of a text."""

    word: str
    first_frame: int
    """Where its first label begins, in the most probable alignment."""
    end_frame: int
    """Behind its last label."""
    start_s: float
    """The same in seconds; NaN where the time of a frame is not known."""
    end_s: float
    confidence: float
    """Share of the search's probability, once the word had ended, of texts in which it is the last word
    that ended, whatever stands before it. Greedy decoding has no other texts: geometric mean of the
    probabilities of its labels."""


@dataclass(frozen=True)
class Hypothesis:
    """One text."""

    text: str
    score: float
    """ln P(alignments) + alpha ln P(words) + beta for each word + hotwords; what texts are ranked by."""
    log_prob: float
    """ln of the sum of the CTC probabilities of the text's alignments that the search kept."""
    words: tuple[Word, ...]

    @property
    def confidence(self) -> float | None:
        """Mean of the words'; None without words."""
        return fmean(word.confidence for word in self.words) if self.words else None


Segment = tuple[Hypothesis, ...]
"""The texts of what was said up to a pause, the best first."""


def joined(segments: Sequence[Segment]) -> str:
    """The best text of each, with spaces."""
    return " ".join(each[0].text for each in segments)


@dataclass(frozen=True)
class Utterance:
    """The texts of one utterance."""

    name: str
    frames: int
    hypotheses: tuple[Hypothesis, ...]
    """The best first; never empty."""

    @property
    def text(self) -> str:
        """The best."""
        return self.hypotheses[0].text


@dataclass(frozen=True)
class Decoded(Answer):
    """Texts of utterances, in the order of the input."""

    utterances: tuple[Utterance, ...]
    doubts: tuple[str, ...] = ()
    """What the labels, the language model or the hotwords do not allow."""

    @property
    def texts(self) -> list[str]:
        """The best text of each utterance."""
        return [each.text for each in self.utterances]

    @property
    def title(self) -> str:
        """Heading of the page."""
        return "Decoded utterances"

    def to_dict(self) -> dict[str, Any]:
        """`utterances`: name, frames, hypotheses (text, score, log_prob, words)."""
        from holdfast.plain import plain

        return {"utterances": plain(self.utterances)}

    def unknowns(self) -> Sequence[Unknown]:
        """The doubts."""
        return [Unknown(text, doubt=True) for text in self.doubts]

    def sections(self) -> Sequence[Section]:
        """The texts."""
        frames = sum(each.frames for each in self.utterances)
        empty = sum(not each.text for each in self.utterances)
        words = sum(len(each.hypotheses[0].words) for each in self.utterances)
        sentence = f"{len(self.utterances):,} utterances, {frames:,} frames, {words:,} words"
        sentence += f"; {empty:,} without a text." if empty else "."
        rows = [(each, hypothesis) for each in self.utterances for hypothesis in each.hypotheses]
        table = pa.table(
            {
                "utterance": [each.name for each, _ in rows],
                "text": [one.text for _, one in rows],
                "score": [one.score for _, one in rows],
                "confidence": [one.confidence for _, one in rows],
            }
        )
        columns = {
            "utterance": ColumnFormat(),
            "text": ColumnFormat(),
            "score": ColumnFormat(digits=2),
            "confidence": ColumnFormat(label="mean confidence", digits=2),
        }
        return [Section("texts", "What was said?", sentence, tables=[Table(table, columns)])]
