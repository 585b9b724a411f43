"""From log probabilities to words with times, and to SRT, VTT and CTM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp
from typing import TYPE_CHECKING, Literal

from holdfast.speech.recognize.alphabet import BLANK, Alphabet

if TYPE_CHECKING:
    from torch import Tensor

Format = Literal["srt", "vtt", "ctm"]
_CUE_WORDS, _CUE_GAP_S = 12, 1.0
"""A cue of subtitles has at most so many words, and ends before a longer pause."""


@dataclass(frozen=True)
class Word:
    """A word with its place."""

    word: str
    """Its characters."""
    start_s: float
    """Start of the output in which its first character appears, in seconds from the file's start."""
    end_s: float
    """End of the last output of its last character."""
    confidence: float
    """Geometric mean of the probabilities of its characters, 0 to 1."""


@dataclass(frozen=True)
class Character:
    """A label on a path, in the outputs first to last."""

    text: str
    first: int
    last: int
    log_probability: float
    """Mean over its outputs."""


def greedy(log_probabilities: Tensor, alphabet: Alphabet) -> list[Character]:
    """The labels of the best path: the likeliest output of each frame, repeats and blanks collapsed.

    Args:
        log_probabilities: [T', L] of one utterance.
        alphabet: texts of the labels.
    """
    best, outputs = log_probabilities.max(dim=1)
    found, place = [], 0
    for output, run in groupby(outputs.tolist()):
        end = place + len(list(run))
        if output != BLANK:
            mean = float(best[place:end].mean())
            found.append(Character(alphabet.labels[output - 1], place, end - 1, mean))
        place = end
    return found


def words(characters: Iterable[Character], frame_s: float) -> list[Word]:
    """Words between spaces.

    Args:
        characters: of `greedy`, or of another decoder.
        frame_s: seconds from output to output.
    """
    found = []
    for is_space, group in groupby(characters, lambda each: each.text == " "):
        if is_space:
            continue
        run = list(group)
        mean = sum(each.log_probability for each in run) / len(run)
        start, end = round(run[0].first * frame_s, 4), round((run[-1].last + 1) * frame_s, 4)
        found.append(Word("".join(each.text for each in run), start, end, min(1.0, exp(mean))))
    return found


def subtitles(found: Sequence[Word], form: Format, name: str) -> str:
    """A file of words: SRT or VTT cues, or CTM lines.

    Args:
        found: words in the order of their times.
        form: ``srt``, ``vtt`` or ``ctm`` (file, channel, start, duration, word, confidence).
        name: of the audio, in CTM.
    """
    if form == "ctm":
        name = name.replace(" ", "_")
        rows = [
            f"{name} 1 {each.start_s:.2f} {each.end_s - each.start_s:.2f} {each.word} "
            f"{each.confidence:.4f}\n"
            for each in found
        ]
        return "".join(rows)
    cues: list[list[Word]] = []
    for each in found:
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
