"""Recognizing speech: training with CTC (Deep Speech 1 and 2), transcripts, error rates, decoding, streams.

recognize.train("digits.toml", "model")
recognize.recognize("model", ["call.wav"]).transcripts[0].text
recognize.score("model", "test.jsonl").wer
decoder = recognize.Decoder("vocab.json", lm="words.arpa", hotwords=["holdfast"])
decoder.decode(logits).texts                                   # logits: [frames, labels] or [batch, ...]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.speech.recognize.audio import read_audio
    from holdfast.speech.recognize.decoding import Decoder, decode
    from holdfast.speech.recognize.hypotheses import Decoded
    from holdfast.speech.recognize.labels import Labels
    from holdfast.speech.recognize.language_model import LanguageModel
    from holdfast.speech.recognize.manifests import read_manifest
    from holdfast.speech.recognize.model import SpeechModel
    from holdfast.speech.recognize.recognition import recognize
    from holdfast.speech.recognize.scoring import error_rates, score
    from holdfast.speech.recognize.serving import serve
    from holdfast.speech.recognize.streaming import Stream, advance
    from holdfast.speech.recognize.training import TrainConfig, train

_HOMES = {
    "Decoded": "hypotheses",
    "Decoder": "decoding",
    "Labels": "labels",
    "LanguageModel": "language_model",
    "SpeechModel": "model",
    "Stream": "streaming",
    "TrainConfig": "training",
    "advance": "streaming",
    "decode": "decoding",
    "error_rates": "scoring",
    "read_audio": "audio",
    "read_manifest": "manifests",
    "recognize": "recognition",
    "score": "scoring",
    "serve": "serving",
    "train": "training",
}

__all__ = [
    "Decoded",
    "Decoder",
    "Labels",
    "LanguageModel",
    "SpeechModel",
    "Stream",
    "TrainConfig",
    "advance",
    "decode",
    "error_rates",
    "read_audio",
    "read_manifest",
    "recognize",
    "score",
    "serve",
    "train",
]

__getattr__ = lazily(__name__, _HOMES)
