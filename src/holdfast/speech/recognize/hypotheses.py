"""Texts of a decoder: scores, word times, confidence; SRT, VTT and CTM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

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

    title = "Decoded utterances"

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


# --- Subtitles ------------------------------------------------------------------------------------

Format = Literal["srt", "vtt", "ctm"]
_CUE_WORDS, _CUE_GAP_S = 12, 1.0
"""A cue of subtitles has at most so many words, and ends before a longer pause."""


def subtitles(words: Sequence[Word], form: Format, name: str) -> str:
    """A file of words: SRT or VTT cues, or CTM lines.

    Args:
        words: words in the order of their times.
        form: ``srt``, ``vtt`` or ``ctm`` (file, channel, start, duration, word, confidence).
        name: of the audio, in CTM.
    """
    if form == "ctm":
        name = name.replace(" ", "_")
        return "".join(
            f"{name} 1 {each.start_s:.2f} {each.end_s - each.start_s:.2f} {each.word} "
            f"{each.confidence:.4f}\n"
            for each in words
        )
    cues: list[list[Word]] = []
    for each in words:
        full = cues and len(cues[-1]) == _CUE_WORDS
        if not cues or full or each.start_s - cues[-1][-1].end_s > _CUE_GAP_S:
            cues.append([])
        cues[-1].append(each)
    mark = "," if form == "srt" else "."
    blocks = [] if form == "srt" else ["WEBVTT\n"]
    for number, cue in enumerate(cues, 1):
        times = f"{_clock(cue[0].start_s, mark)} --> {_clock(cue[-1].end_s, mark)}"
        text = " ".join(each.word for each in cue)
        if form == "vtt":  # &, < and > are markup
            text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        blocks.append(f"{number}\n{times}\n{text}\n")
    return "\n".join(blocks)


def _clock(seconds: float, mark: str) -> str:
    """``00:00:01,500``."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
