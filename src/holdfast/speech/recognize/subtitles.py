"""Words with times as SRT, VTT and CTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from holdfast.speech.recognize.hypotheses import Word

Format = Literal["srt", "vtt", "ctm"]
_CUE_WORDS, _CUE_GAP_S = 12, 1.0
"""A cue of subtitles has at most so many words, and ends before a longer pause."""


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
