"""Word and character error rates of a model on a manifest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rapidfuzz.distance import Levenshtein

from holdfast.speech.recognize.decoding import Decoder
from holdfast.speech.recognize.hypotheses import together
from holdfast.speech.recognize.labels import clean_text
from holdfast.speech.recognize.manifests import (
    Excluded,
    Utterance,
    check_share,
    read_manifest,
    usable,
)
from holdfast.speech.recognize.model import SpeechModel
from holdfast.speech.recognize.results import Score
from holdfast.speech.recognize.streaming import transcribe

_BATCH = 16


def error_rates(
    references: Sequence[str], hypotheses: Sequence[str]
) -> tuple[float | None, float | None]:
    """Word and character error rate: edits of all texts over words (characters) of the references.

    Spaces between words are characters. None where the references are empty.

    Raises:
        ValueError: if there are not as many of one as of the other.
    """
    pairs = [(clean_text(a), clean_text(b)) for a, b in zip(references, hypotheses, strict=True)]
    rates = []
    for split in (str.split, list):
        edits = sum(Levenshtein.distance(split(a), split(b)) for a, b in pairs)
        total = sum(len(split(a)) for a, _ in pairs)
        rates.append(edits / total if total else None)
    return rates[0], rates[1]


def score(model: str | Path, manifest: str | Path, **settings: Any) -> Score:
    """Recognize a manifest and compare with its texts.

    Args:
        model: folder of a model.
        manifest: see `read_manifest`.
        settings: ``lm``, ``hotwords``, ``beam`` and the other fields of `Decoder`.

    Raises:
        InputError: what reading the model, the manifest or the language model refuses;
            ``too-many-rejects`` if more than a tenth of the audio cannot be used.
    """
    utterances, excluded = read_manifest(manifest)
    recognizer = SpeechModel.load(model)
    return score_utterances(recognizer, recognizer.decoder(**settings), utterances, excluded)


def score_utterances(
    model: SpeechModel,
    decoder: Decoder,
    utterances: Sequence[Utterance],
    excluded: Sequence[Excluded] = (),
) -> Score:
    """As `score`, of utterances.

    Args:
        model: recognizes them.
        decoder: of the model.
        utterances: of a manifest.
        excluded: rows of lines that are not usable, for the answer.
    """
    rows: list[Excluded] = []
    unknown: Counter[str] = Counter()
    references, texts, seconds = [], [], 0.0
    started = time.process_time()
    audio = usable(utterances, model.features.rate, rows, model.features.window)
    while batch := list(islice(audio, _BATCH)):
        transcripts = transcribe(model, decoder, [sound.samples for _, sound in batch])
        texts += [together(segments).text for segments in transcripts]
        for each, sound in batch:
            references.append(each.text)
            seconds += sound.seconds
            unknown += model.alphabet.unknown(each.text)
    working = time.process_time() - started
    check_share(rows, len(utterances), "manifest")
    wer, cer = error_rates(references, texts)
    factor = working / seconds
    characters = dict(unknown.most_common())
    return Score(wer, cer, len(texts), seconds, factor, [*excluded, *rows], characters)
