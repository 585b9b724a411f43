"""Speaking (Deep Voice, arXiv 1702.07825): phonemes of a text, their times in a recording, a trained voice.

speak.phonemes("Dr. Who paid $5.").words[0].phones      # ("D", "AA1", "K", "T", "ER0")
speak.align("call.wav", "what is said").words[0].start_s
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.speech.speak.alignment import Alignment, align
    from holdfast.speech.speak.g2p_training import train_phonemizer
    from holdfast.speech.speak.pronunciation import Phonemizer, Word, phonemes
    from holdfast.speech.speak.segmentation import train_aligner

_HOMES = {
    "Alignment": "alignment",
    "Phonemizer": "pronunciation",
    "Word": "pronunciation",
    "align": "alignment",
    "phonemes": "pronunciation",
    "train_aligner": "segmentation",
    "train_phonemizer": "g2p_training",
}

__all__ = [
    "Alignment",
    "Phonemizer",
    "Word",
    "align",
    "phonemes",
    "train_aligner",
    "train_phonemizer",
]

__getattr__ = lazily(__name__, _HOMES)
