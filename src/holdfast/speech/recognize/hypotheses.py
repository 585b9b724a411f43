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


def together(segments: Sequence[Segment]) -> Hypothesis:
    """The best text of each, one after the other."""
    best = [each[0] for each in segments]
    return Hypothesis(
        " ".join(each.text for each in best),
        sum(each.score for each in best),
        sum(each.log_prob for each in best),
        tuple(word for each in best for word in each.words),
    )


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
        rows = [(each.name, text) for each in self.utterances for text in each.hypotheses]
        return [texts_section(sentence, "utterance", rows)]


def texts_section(sentence: str, name: str, rows: Sequence[tuple[str, Hypothesis]]) -> Section:
    """One row per text.

    Args:
        sentence: what is above the table.
        name: of the first column.
        rows: where each text is from.
    """
    table = pa.table(
        {
            name: [place for place, _ in rows],
            "text": [each.text for _, each in rows],
            "score": [each.score for _, each in rows],
            "confidence": [each.confidence for _, each in rows],
        }
    )
    columns = {
        name: ColumnFormat(),
        "text": ColumnFormat(),
        "score": ColumnFormat(digits=2),
        "confidence": ColumnFormat(label="mean confidence", digits=2),
    }
    return Section("texts", "What was said?", sentence, tables=[Table(table, columns)])
