"""Which utterances of a training set can be used, and why the others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import torch

from holdfast.errors import InputError
from holdfast.speech.recognize.alphabet import frames_needed
from holdfast.speech.recognize.audio import Array
from holdfast.speech.recognize.features import log_features
from holdfast.speech.recognize.manifests import (
    Excluded,
    Utterance,
    check_share,
    excluded_row,
    usable,
)
from holdfast.speech.recognize.model import SpeechModel


@dataclass(frozen=True)
class Example:
    """An utterance that can be trained on."""

    utterance: Utterance
    frames: int
    """Number of feature frames."""
    target: list[int]
    """Labels of its text."""
    fingerprint: str
    """Hash of its samples."""


@dataclass
class Screening:
    """What came of the utterances of a training set."""

    examples: list[Example] = field(default_factory=list)
    """Those that can be used."""
    excluded: list[Excluded] = field(default_factory=list)
    """The others: codes of `read_audio`, ``unknown-character``, and ``text-too-long`` where CTC needs
    more outputs than the audio has."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Characters outside the alphabet, with their counts."""
    seconds: float = 0.0
    """Audio of the examples."""


def screen(utterances: Sequence[Utterance], model: SpeechModel) -> Screening:
    """Read every utterance once, and set the normalization of the model's features.

    Raises:
        InputError: ``too-many-rejects`` if more than a tenth cannot be used, or all.
    """
    result, settings, network = Screening(), model.features, model.network
    count, sums = 0, torch.zeros(2, settings.bins, dtype=torch.float64)
    for each, audio in usable(utterances, settings.rate, result.excluded, settings.window):
        if unknown := model.alphabet.unknown(each.text):
            result.unknown += unknown
            reason = f"characters outside the alphabet: {''.join(unknown)}"
            result.excluded.append(excluded_row(each, "unknown-character", reason))
            continue
        features = log_features(audio.samples, settings).double()
        target = model.alphabet.encode(each.text)
        outputs = int(network.output_lengths(torch.tensor(len(features))))
        if frames_needed(target) > outputs:
            reason = f"{frames_needed(target)} outputs needed, {outputs} in {audio.seconds:.2f} s"
            result.excluded.append(excluded_row(each, "text-too-long", reason))
            continue
        count += len(features)
        sums += torch.stack([features.sum(0), features.square().sum(0)])
        result.seconds += audio.seconds
        example = Example(each, len(features), target, fingerprint(audio.samples))
        result.examples.append(example)
    check_share(result.excluded, len(utterances), "data.train")
    mean, square = sums / count
    network.mean.copy_(mean)
    network.deviation.copy_((square - mean.square()).clamp_min(1e-4).sqrt())
    return result


def refuse_same_sound(
    examples: Sequence[Example], test: Sequence[Utterance], model: SpeechModel
) -> None:
    """Refuse a test utterance whose samples are in the training set under another name.

    Raises:
        InputError: ``overlap``.
    """
    known = {each.fingerprint: each.utterance.id for each in examples}
    for each, audio in usable(test, model.features.rate, []):
        if (name := known.get(fingerprint(audio.samples))) is not None:
            raise InputError(
                "the same sound is in the training set and in the test set",
                code="overlap",
                place="data.test",
                found=f"{each.id} of the test set, {name} of the training set",
                expected="different utterances",
                remedy="remove it from one set",
            )


def fingerprint(samples: Array) -> str:
    """Hash of samples as 16-bit integers: equal for the same sound in another file or format."""
    return blake2b(np.round(samples * 32767).astype(np.int32).tobytes(), digest_size=16).hexdigest()
