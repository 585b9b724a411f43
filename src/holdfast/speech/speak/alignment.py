"""Forced alignment: when each word and phone of a known text is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown
from holdfast.files import write_whole
from holdfast.plain import plain
from holdfast.speech.recognize import hypotheses
from holdfast.speech.recognize.audio import read_audio
from holdfast.speech.recognize.features import log_features
from holdfast.speech.recognize.hypotheses import subtitles
from holdfast.speech.recognize.labels import read_text
from holdfast.speech.speak.dictionary import PAUSE, Phones
from holdfast.speech.speak.lattice import Array, PhoneGraph, best_path
from holdfast.speech.speak.pronunciation import Phonemizer, Word, check_words, model_folder
from holdfast.speech.speak.segmentation import Aligner

Format = Literal["textgrid", "ctm"]
_MIDDLE = 6.5
"""Gap per phone with the score 1/2; texts that are said had 0.5 to 7, others 8 to 19."""
MATCHES, DIFFERS = 0.8, 0.2
"""Score from which on audio and text match, and below which they do not; between, it is not known."""

QUIET, STEADY = 0.01, 1.5
"""Level of a sound beside the loudest (-40 dB), and beside the quietest, from which on it is no silence."""


@dataclass(frozen=True)
class AlignedPhone:
    """A phone, or a silence (``SIL``), with its time."""

    phone: str
    """ARPAbet with stress."""
    start_s: float
    end_s: float
    """Where the next begins."""
    score: float
    """0 to 1; see `score_of`."""


@dataclass(frozen=True)
class AlignedWord:
    """A word with its time."""

    word: str
    start_s: float
    end_s: float
    score: float
    """0 to 1, of all its phones; near 0 where something else is said."""
    phones: Phones
    """The pronunciation that fits best."""


@dataclass(frozen=True)
class Alignment(Answer):
    """Words and phones of a text with their times in a recording."""

    audio: str
    duration_s: float
    words: Sequence[AlignedWord]
    phones: Sequence[AlignedPhone]
    """From 0 to the end of the audio without gaps, the silences among them."""
    score: float
    """0 to 1, of the whole text."""
    path: Path | None = None
    """File that was written."""

    title = "Alignment"

    @property
    def matches(self) -> bool | None:
        """Whether the text is what is said; None: cannot tell. If it is not, the times mean nothing."""
        return True if self.score >= MATCHES else False if self.score < DIFFERS else None

    @property
    def exit_code(self) -> int:
        """1 if the text is not what is said."""
        return int(self.matches is False)

    def to_dict(self) -> dict[str, Any]:
        """`audio`, `duration_s`, `matches`, `score`; `words` and `phones` with start_s, end_s, score."""
        names = ("audio", "duration_s", "matches", "score", "words", "phones")
        return {name: plain(getattr(self, name)) for name in names}

    def written(self) -> Mapping[str, Path]:
        """The file."""
        return {} if self.path is None else {"alignment": self.path}

    def unknowns(self) -> Sequence[Unknown]:
        """Whether audio and text match; words that may not be there."""
        weak = [each for each in self.words if each.score < DIFFERS]
        named = ", ".join(f"{each.word} ({each.start_s:.2f} s)" for each in weak)
        sentence = {
            False: f"The audio does not hold this text (score {self.score:.2f}).",
            None: f"Cannot tell whether the audio holds this text (score {self.score:.2f}).",
            True: named and f"Perhaps not said, or said otherwise: {named}.",
        }[self.matches]
        remedy = "Compare the text with what is said; the times may mean nothing."
        return [Unknown(sentence, remedy, doubt=True)] if sentence else []

    def sections(self) -> Sequence[Section]:
        """One row per word."""
        sentence = f"{len(self.words):,} words in {self.duration_s:.2f} s, score {self.score:.2f}."
        rows = [
            (each.start_s, each.end_s, each.word, " ".join(each.phones), each.score)
            for each in self.words
        ]
        columns = {name: ColumnFormat(unit="s", digits=3) for name in ("start", "end")}
        columns |= {
            "word": ColumnFormat(),
            "phones": ColumnFormat(),
            "score": ColumnFormat(digits=2),
        }
        table = pa.table([*zip(*rows, strict=True)], [*columns])
        how = How(
            [
                "score = 1 / (1 + exp(gap - middle))",
                "gap = sum over frames of ln(P(best output) / P(output of the text)) / phones",
            ],
            {"middle": _MIDDLE, "matches from": MATCHES, "does not match below": DIFFERS},
            source="Arik and others, Deep Voice, 2017, section 4.2",
        )
        tables = [Table(table, columns)]
        return [Section("words", "When is each word said?", sentence, tables=tables, how=how)]


def align(
    audio: str | Path,
    text: str | Path,
    model: str | Path | None = None,
    *,
    phonemes: str | Path | None = None,
    form: Format | None = None,
    output: str | Path | None = None,
) -> Alignment:
    """Find when each word and phone of a text is said.

    Of several pronunciations the one that fits the sound is taken; silences between words are found.

    Args:
        audio: WAV or FLAC of any rate.
        text: what is said, in English; or the `Path` of a file with it.
        model: folder of an aligner; None: the environment's ``HOLDFAST_ALIGNER``, or the one in
            ``examples/speech/aligner`` of the clone that holdfast runs from.
        phonemes: folder of the model of `holdfast.speech.speak.phonemes`, found likewise.
        form: also write a TextGrid of Praat (``textgrid``), or a time-marked transcript (``ctm``).
        output: this file; by default beside the working directory's other files, with the audio's name.

    Raises:
        InputError: what `read_audio` and `phonemes` refuse; ``audio-too-short`` for the phones;
            ``out-of-range`` for audio and text that are too long at once.
    """
    aligner = Aligner.load(model_folder(model, "aligner"))
    if isinstance(text, Path):
        text = read_text(text)
    words = [each for each in Phonemizer(phonemes)(text) if each.source != "pause"]
    check_words(words, text)
    sound = read_audio(audio, aligner.features.rate)
    spoken = align_samples(aligner, sound.samples, words)
    path = None
    if form is not None:
        path = Path(output or Path(audio).with_suffix(f".{_SUFFIXES[form]}").name)
        _write(path, form, Path(audio).stem, *spoken[:2])
    return Alignment(str(audio), sound.seconds, *spoken, path)


_SUFFIXES = {"textgrid": "TextGrid", "ctm": "ctm"}


def align_samples(
    model: Aligner, samples: Array, words: Sequence[Word]
) -> tuple[list[AlignedWord], list[AlignedPhone], float]:
    """Align words with samples at the model's rate: words, phones, the score of all.

    Args:
        model: the network.
        samples: float32 [n].
        words: without pauses.

    Raises:
        InputError: ``empty-input`` for less than a frame; ``audio-too-short``; ``out-of-range``.
    """
    graph = PhoneGraph([each.alternates for each in words], model.alphabet)
    rate = model.features.rate
    begin, end = heard(samples, rate)
    path = best_path(outputs_of(model, samples[begin:end]), graph)
    gaps = np.add.reduceat(path.gaps, [0, *path.first[1:]])  # of each phone
    names = [graph.nodes[node].phone for node in path.nodes]
    owners = np.array([graph.nodes[node].word for node in path.nodes])
    # A boundary is in the middle of the frames that output it; a frame's time is that of its middle, less
    # what outputs are late.
    late = model.delay_s - model.features.window_s / 2 - begin / rate
    middle = (np.array(path.first) + path.last) / 2 * model.frame_s - late
    times = [0.0, *middle[1:].clip(0).tolist(), len(samples) / rate]
    for place, name in enumerate(names[1:], 1):
        if name == PAUSE:  # a silence is noticed late: at most half a phone is taken back
            times[place] -= min(model.silence_delay_s, (times[place] - times[place - 1]) / 2)
    scores = [score_of(gap) for gap in gaps]
    phones = [*map(AlignedPhone, names, times, times[1:], scores)]
    found = []
    for number, word in enumerate(words):
        places = np.flatnonzero(owners == number)
        own = slice(places[0], places[-1] + 1)
        start, end = times[own.start], times[own.stop]
        score = score_of(gaps[own].mean())
        found.append(AlignedWord(word.text, start, end, score, tuple(names[own])))
    return found, phones, score_of(gaps.mean())


def heard(samples: Array, rate: int) -> tuple[int, int]:
    """From the first to the last sound, with a fifth of a second of the silence around it.

    A network that has heard only short silences stretches the first and last phone over long ones.
    """
    size, edge = rate // 50, rate // 5
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    level = np.sqrt(np.square(frames).mean(1))
    if not level.any():
        return 0, len(samples)
    # Noise and hum are steady, so that their quietest frames are hardly below the others.
    loud = np.flatnonzero(level > max(QUIET * level.max(), STEADY * np.quantile(level, 0.05)))
    if not loud.size:
        return 0, len(samples)
    return max(int(loud[0]) * size - edge, 0), min(int(loud[-1] + 1) * size + edge, len(samples))


def score_of(gap: float) -> float:
    """Score of a gap per phone: how much less probable the text is than the best outputs, in ln units."""
    return float(1 / (1 + np.exp(gap - _MIDDLE)))


def outputs_of(model: Aligner, samples: Array) -> Array:
    """Log probabilities of the network, float64 [T, L]."""
    features = log_features(samples, model.features)
    model.network.eval()
    with torch.inference_mode():
        log_probs, _ = model.network(features[None], torch.tensor([len(features)]))
    array: Array = log_probs[0].double().numpy()
    return array


def _write(
    path: Path,
    form: Format,
    name: str,
    words: Sequence[AlignedWord],
    phones: Sequence[AlignedPhone],
) -> None:
    if form == "ctm":
        timed = [
            hypotheses.Word(each.word, 0, 0, each.start_s, each.end_s, each.score) for each in words
        ]
        content = subtitles(timed, "ctm", name)
    else:
        said = [(each.start_s, each.end_s, each.phone.replace(PAUSE, "")) for each in phones]
        # Silences are between words, too.
        tier = [(each.start_s, each.end_s, each.word) for each in words]
        tier = sorted([*tier, *(each for each in said if not each[2])])
        content = textgrid({"words": tier, "phones": said})
    write_whole(path, content.encode())


Interval = tuple[float, float, str]
"""Start and end in seconds, and the label."""

_HEAD = """\
File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0 
xmax = {} 
tiers? <exists> 
size = {} 
item []: 
"""  # noqa: W291 - Praat writes a space at the end of lines
_TIER = """\
    item [{}]:
        class = "IntervalTier" 
        name = "{}" 
        xmin = 0 
        xmax = {} 
        intervals: size = {} 
"""  # noqa: W291
_INTERVAL = """\
        intervals [{}]:
            xmin = {} 
            xmax = {} 
            text = "{}" 
"""  # noqa: W291


def textgrid(tiers: Mapping[str, Sequence[Interval]]) -> str:
    """A TextGrid with one interval tier per name; intervals of no length are left out.

    Args:
        tiers: intervals from 0 to the end of the audio without gaps, as Praat wants them.
    """
    end = _seconds(max(intervals[-1][1] for intervals in tiers.values()))
    text = _HEAD.format(end, len(tiers))
    for number, (name, intervals) in enumerate(tiers.items(), 1):
        lasting = [each for each in intervals if each[0] < each[1]]
        text += _TIER.format(number, name, end, len(lasting))
        for place, (start_s, end_s, label) in enumerate(lasting, 1):
            quoted = label.replace('"', '""')
            text += _INTERVAL.format(place, _seconds(start_s), _seconds(end_s), quoted)
    return text


def _seconds(time: float) -> str:
    """Without an exponent: the end of an interval reads as the start of the next."""
    return f"{time:.6f}".rstrip("0").rstrip(".")
