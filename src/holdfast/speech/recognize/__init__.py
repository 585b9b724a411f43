"""Recognizing speech: decoding the outputs of any CTC model.

decoder = recognize.Decoder("vocab.json", lm="words.arpa", hotwords=["holdfast"])
decoder.decode(logits).texts                                   # logits: [frames, labels] or [batch, ...]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.speech.recognize.decoding import Decoder, decode, decode_file
    from holdfast.speech.recognize.hypotheses import Decoded
    from holdfast.speech.recognize.labels import Labels
    from holdfast.speech.recognize.language_model import LanguageModel

_HOMES = {
    "Decoded": "hypotheses",
    "Decoder": "decoding",
    "Labels": "labels",
    "LanguageModel": "language_model",
    "decode": "decoding",
    "decode_file": "decoding",
}

__all__ = [
    "Decoded",
    "Decoder",
    "Labels",
    "LanguageModel",
    "decode",
    "decode_file",
]

__getattr__ = lazily(__name__, _HOMES)
