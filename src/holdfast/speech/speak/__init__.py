"""Speaking (Deep Voice, arXiv 1702.07825): phonemes of a text, their times in a recording, a trained voice.

speak.phonemes("Dr. Who paid $5.").words[0].phones      # ("D", "AA1", "K", "T", "ER0")
speak.speak("voice", "Good morning.", "morning.wav")
speak.align("call.wav", "what is said").words[0].start_s
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.speech.speak.alignment import Alignment, align
    from holdfast.speech.speak.g2p_training import train_phonemizer
    from holdfast.speech.speak.pitch import track_pitch
    from holdfast.speech.speak.pronunciation import Phonemizer, Word, phonemes
    from holdfast.speech.speak.prosody import TimedPhone
    from holdfast.speech.speak.segmentation import train_aligner
    from holdfast.speech.speak.synthesis import speak
    from holdfast.speech.speak.voice import Voice
    from holdfast.speech.speak.voice_training import train_voice

_HOMES = {
    "Alignment": "alignment",
    "Phonemizer": "pronunciation",
    "TimedPhone": "prosody",
    "Voice": "voice",
    "Word": "pronunciation",
    "track_pitch": "pitch",
    "align": "alignment",
    "phonemes": "pronunciation",
    "speak": "synthesis",
    "train_aligner": "segmentation",
    "train_phonemizer": "g2p_training",
    "train_voice": "voice_training",
}

__all__ = [
    "Alignment",
    "Phonemizer",
    "TimedPhone",
    "Voice",
    "Word",
    "align",
    "phonemes",
    "speak",
    "track_pitch",
    "train_aligner",
    "train_phonemizer",
    "train_voice",
]

__getattr__ = lazily(__name__, _HOMES)
