"""Errors of the models of `speech_study.py`, per utterance, and bootstrap intervals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from scipy.signal import lfilter

from holdfast.speech.recognize import (
    Decoder,
    SpeechModel,
    read_audio,
    read_manifest,
)
from holdfast.speech.recognize.hypotheses import together
from holdfast.speech.recognize.manifests import Utterance
from holdfast.speech.recognize.noise import mix
from holdfast.speech.recognize.streaming import transcribe

Sound = NDArray[np.float32]
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
QUIET_S = 60


def write_digits(path: Path) -> Path:
    """The language model: every digit, and the end, have the same probability."""
    share = f"{-np.log10(len(DIGITS) + 1):.4f}"
    lines = [f"{share} {word}" for word in (*DIGITS, "</s>")]
    head = f"\\data\\\nngram 1={len(lines) + 1}\n\n\\1-grams:\n-99 <s>\n"
    path.write_text(head + "\n".join(lines) + "\n\n\\end\\\n")
    return path


def texts_of(model: SpeechModel, decoder: Decoder, sounds: Sequence[Sound]) -> list[str]:
    """What is said in each sound."""
    found: list[str] = []
    for first in range(0, len(sounds), 16):
        parts = transcribe(model, decoder, sounds[first : first + 16])
        found += [together(each).text for each in parts]
    return found


def edits_of(references: Sequence[str], texts: Sequence[str]) -> list[int]:
    """Wrong words of each text."""
    pairs = zip(references, texts, strict=True)
    return [Levenshtein.distance(one.split(), other.split()) for one, other in pairs]


def score_set(
    model: SpeechModel, utterances: Sequence[Utterance], lm: Path, snr_db: float | None = None
) -> dict[str, list[int]]:
    """Words, and wrong words, of each utterance; greedy, and with the digits as a language model."""
    rng = np.random.default_rng(0)
    sounds = [read_audio(each.path, model.features.rate).samples for each in utterances]
    if snr_db is not None:
        sounds = [mix(each, rng.standard_normal(len(each)), snr_db) for each in sounds]
    references = [each.text for each in utterances]
    decoders = {"greedy": model.decoder(beam=1), "digits": model.decoder(lm=lm)}
    found = {"words": [len(each.split()) for each in references]}
    for name, decoder in decoders.items():
        found[name] = edits_of(references, texts_of(model, decoder, sounds))
    return found


def quiet(rate: int) -> dict[str, Sound]:
    """A minute each of what a microphone gives when nobody speaks."""
    rng, size = np.random.default_rng(1), QUIET_S * rate
    white = rng.standard_normal(size)
    brown = lfilter([1.0], [1.0, -0.98], white)
    hum = np.sin(np.arange(size) * 2 * np.pi * 50 / rate)
    sounds = {
        "digital silence": np.zeros(size),
        "dither": np.round(white / 2) / 32768,
        "white noise, -60 dBFS": white * 1e-3,
        "white noise, -40 dBFS": white * 1e-2,
        "brown noise, -60 dBFS": brown / brown.std() * 1e-3,
        "hum of 50 Hz, -60 dBFS": hum * 1.4e-3 + white * 1e-5,
    }
    return {name: each.astype(np.float32) for name, each in sounds.items()}


def words_in_silence(model: SpeechModel, sounds: Sequence[Sound] = ()) -> int:
    """Words that the model writes where nobody speaks."""
    decoder = model.decoder(beam=1)
    given = sounds or list(quiet(model.features.rate).values())
    return sum(len(text.split()) for text in texts_of(model, decoder, given))


def evaluate(folder: Path, work: Path, data: str) -> None:
    """Write `scores.json` beside a model."""
    if (folder / "scores.json").exists():
        return
    model, lm = SpeechModel.load(folder), write_digits(folder / "digits.arpa")
    official, _ = read_manifest(work / "official" / "test.jsonl")
    sets = {"known": [each for each in official if each.speaker != data]}
    if data != "official":
        sets["left out"], _ = read_manifest(work / data / "test.jsonl")
    scores: dict[str, Any] = {
        name: score_set(model, utterances, lm) for name, utterances in sets.items()
    }
    scores["silence"] = words_in_silence(model)
    (folder / "scores.json").write_text(json.dumps(scores))


def rate(sets: Sequence[dict[str, list[int]]], kind: str) -> float:
    """Word error rate of several sets together, in percent."""
    return 100 * sum(sum(each[kind]) for each in sets) / sum(sum(each["words"]) for each in sets)


def interval(
    sets: Sequence[dict[str, list[int]]],
    kind: str,
    others: Sequence[dict[str, list[int]]] | None = None,
    draws: int = 2000,
) -> tuple[float, float]:
    """95 % interval of the rate, or of what it is above that of other runs on the same utterances.

    Utterances are drawn with replacement within each set (percentile bootstrap): of these speakers and
    seeds, not of others.
    """
    rng, errors, words = np.random.default_rng(0), np.zeros(draws), np.zeros(draws)
    for place, each in enumerate(sets):
        wrong = np.array(each[kind]) - (np.array(others[place][kind]) if others else 0)
        chosen = rng.integers(len(wrong), size=(draws, len(wrong)))
        errors += wrong[chosen].sum(1)
        words += np.array(each["words"])[chosen].sum(1)
    low, high = np.quantile(100 * errors / words, [0.025, 0.975])
    return float(low), float(high)


def spelled(value: float, ends: tuple[float, float], sign: str = "") -> str:
    """``3.1 [2.5, 3.8]``."""
    return f"{value:{sign}.1f} [{ends[0]:{sign}.1f}, {ends[1]:{sign}.1f}]"
