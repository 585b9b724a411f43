"""Speaking a text: words to phones, phones to times and pitch, these to samples, phrase by phrase."""

from __future__ import annotations

import sys
import time
import wave
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.answer import Answer, Section
from holdfast.config import read_config
from holdfast.errors import HoldfastError, InputError
from holdfast.numbers import brief, counted
from holdfast.plain import plain
from holdfast.speech.speak.dictionary import PAUSE
from holdfast.speech.speak.generation import Generator, Precision
from holdfast.speech.speak.pronunciation import Phonemizer, check_words
from holdfast.speech.speak.prosody import (
    HIGHEST_HZ,
    LOWEST_HZ,
    TimedPhone,
    check_times,
    edges,
    symbols,
)
from holdfast.speech.speak.ssml import Manner, spans
from holdfast.speech.speak.voice import Voice, expand

_SENTENCE_ENDS = ".?!"
_LONGEST_PHRASE = 200
"""Phones: what is in memory at a time."""


@dataclass(frozen=True)
class Speech(Answer):
    """A text that was spoken."""

    audio: Path
    """The WAV file; ``-``: samples were written to standard output."""
    seconds: float
    """Duration of the sound."""
    real_time_factor: float
    """CPU seconds per second of sound, from the text to the samples, loading and compiling left out."""
    phones: Sequence[TimedPhone]
    """What was spoken; can be edited and given back as ``prosody``."""

    title = "Speech"

    def to_dict(self) -> dict[str, Any]:
        """``{"seconds", "real_time_factor", "phones"}``; ``gain`` only where it is not 1."""
        phones = plain(self.phones)
        for row in phones:
            if row["gain"] == 1:
                del row["gain"]
        numbers = {"seconds": self.seconds, "real_time_factor": self.real_time_factor}
        return {**numbers, "phones": phones}

    def written(self) -> dict[str, Path]:
        """The sound."""
        return {"audio": self.audio}

    def sections(self) -> Sequence[Section]:
        """How much, how fast."""
        sentence = (
            f"{counted(len(self.phones), 'phone')} in {brief(self.seconds)} s, at "
            f"{brief(self.real_time_factor)} CPU seconds per second of sound."
        )
        return [Section("speech", "What was said?", sentence)]


@dataclass(frozen=True)
class ProsodyFile:
    """What ``speak --json`` prints; only the phones are read."""

    phones: tuple[TimedPhone, ...]
    seconds: float = 0.0
    real_time_factor: float = 0.0


def speak(
    voice: str | Path | Voice,
    text: str = "",
    output: str | Path = "-",
    *,
    prosody: str | Path | Sequence[TimedPhone] | None = None,
    seed: int = 0,
    precision: Precision = "fp32",
    phonemes: str | Path | None = None,
) -> Speech:
    """Speak a text, or phones with times and pitch.

    Phrases are written as they are ready, so memory does not grow with the text, and an interrupted run
    leaves a WAV file that can be played.

    Args:
        voice: a trained voice, or its folder.
        text: plain, or SSML with prosody and break.
        output: WAV file, 16 bit; ``-`` writes the samples alone to standard output.
        prosody: phones, or a JSON file as `Speech.to_dict` gives it; then no text is needed.
        seed: random seed (same seed, same samples).
        precision: of the weights, ``"fp32"`` or ``"int16"``.
        phonemes: folder of a model of `phonemes`.

    Raises:
        InputError: ``empty-input``; ``conflict`` if text and prosody differ, or phones overlap;
            ``unknown-phone``; what `spans`, `phonemes` and `Voice.load` refuse.
        HoldfastError: if the file cannot be written.
    """
    if not isinstance(voice, Voice):
        voice = Voice.load(voice)
    if prosody is None:
        phones = timed_phones(voice, text, phonemes)
    else:
        phones = iter(_edited(voice, prosody, text, phonemes))
    generator = Generator(voice.wavenet, voice.sound.hop, precision=precision)
    # The first phrase before the file is opened: mistakes in the text leave no file.
    pieces = phrases(phones)
    first = next(pieces, None)
    if first is None:
        raise InputError("nothing to speak", code="empty-input", expected="words")
    rng = np.random.default_rng(seed % 2**64)
    spoken, samples, cpu = [], 0, 0.0
    generator.compile()
    with _opened(output, voice.sound.rate) as append:
        for phrase in chain([first], pieces):
            begin = time.process_time()
            sound = synthesize(voice, generator, phrase, rng)
            cpu += time.process_time() - begin
            append(np.rint(sound.clip(-1, 1) * 32767).astype("<i2").tobytes())
            samples += len(sound)
            spoken += phrase
    seconds = samples / voice.sound.rate
    return Speech(Path(output), seconds, cpu / max(seconds, 1e-9), spoken)


def synthesize(
    voice: Voice, generator: Generator, phones: Sequence[TimedPhone], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Samples, float32, of the next phones; the generator continues where it was."""
    counts = np.diff(edges(phones, voice.sound.frame_s))
    if not counts.sum():
        return np.zeros(0, np.float32)
    uniforms = rng.random((1, int(counts.sum()) * voice.sound.hop), np.float32)
    codes = generator.generate(voice.conditioning(phones)[None], uniforms)[0]
    gains = np.repeat([each.gain for each in phones], counts * voice.sound.hop)
    return (expand(codes) * gains).astype(np.float32)


def timed_phones(
    voice: Voice, text: str, phonemes: str | Path | None = None
) -> Iterator[TimedPhone]:
    """Phones of a text with times and pitch, sentence by sentence.

    Raises:
        InputError: see `speak`.
    """
    end_s, sentences = 0.0, [*_sentences(text, phonemes)]
    # All phones before the first is spoken: mistakes leave no file.
    symbols([each[0] for part in sentences for each in part], voice.description.phones)
    for sentence in sentences:
        # Recordings begin and end with a pause; so do sentences when they are predicted.
        names = [phone for phone, _, _ in sentence]
        lead = int(end_s > 0 and names[0] != PAUSE)
        predicted = voice.predict([PAUSE] * lead + names)[lead:]
        for (own_s, f0_hz), (phone, manner, pause_s) in zip(predicted, sentence, strict=True):
            frames = max(1, round((pause_s or own_s / manner.rate) / voice.sound.frame_s))
            start_s, end_s = end_s, round(end_s + frames * voice.sound.frame_s, 6)
            pitch = (np.array(f0_hz) * manner.pitch).clip(LOWEST_HZ, HIGHEST_HZ).round(2)
            yield TimedPhone(phone, start_s, end_s, tuple(pitch.tolist()), round(manner.gain, 4))


_Spoken = tuple[str, Manner, float]
"""A phone, its manner, and its duration in seconds if it is a pause of given length, else 0."""


def _sentences(text: str, phonemes: str | Path | None) -> Iterator[list[_Spoken]]:
    """Phones of each sentence; the first begins with a pause."""
    pronounce = Phonemizer(phonemes)
    parts = [(span, pronounce(span.text)) for span in spans(text)]
    check_words([word for _, words in parts for word in words], text)
    current: list[_Spoken] = [(PAUSE, Manner(), 0.0)]
    for span, words in parts:
        if not span.text:
            # A break behind a pause replaces it.
            if current and current[-1][0] == PAUSE:
                current.pop()
            current.append((PAUSE, span.manner, max(span.pause_s, 1e-3)))
        for word in words:
            pause = word.source == "pause"
            if pause and current and current[-1][0] == PAUSE:
                continue  # one is enough
            current += [(phone, span.manner, 0.0) for phone in word.phones]
            if pause and word.text in _SENTENCE_ENDS:
                yield current
                current = []
    if current:
        if current[-1][0] != PAUSE:
            current.append((PAUSE, Manner(), 0.0))
        yield current


def phrases(phones: Iterable[TimedPhone]) -> Iterator[list[TimedPhone]]:
    """Phones from pause to pause; the pause is the end of a phrase, which is cut if it is very long."""
    current: list[TimedPhone] = []
    for each in phones:
        current.append(each)
        if each.phone == PAUSE or len(current) == _LONGEST_PHRASE:
            yield current
            current = []
    if current:
        yield current


def _edited(
    voice: Voice,
    prosody: str | Path | Sequence[TimedPhone],
    text: str,
    phonemes: str | Path | None,
) -> Sequence[TimedPhone]:
    """Phones of a user, checked."""
    path, phones = None, prosody
    if isinstance(phones, (str, Path)):
        path = Path(phones)
        phones = read_config(path, ProsodyFile, "the prosody").phones
    check_times(phones, voice.sound.frame_s, path)
    symbols([each.phone for each in phones], voice.description.phones)
    if text:
        wanted = [each[0] for part in _sentences(text, phonemes) for each in part]
        wanted = [each for each in wanted if each != PAUSE]
        given = [each.phone for each in phones if each.phone != PAUSE]
        if given != wanted:
            raise InputError(
                "the prosody is of another text",
                code="conflict",
                path=path,
                found=" ".join(given[:8]),
                expected=" ".join(wanted[:8]),
                remedy="leave out the text to speak the phones of the file",
            )
    return phones


@contextmanager
def _opened(output: str | Path, rate: int) -> Iterator[Callable[[bytes], Any]]:
    """Appends 16-bit samples to standard output, or to a WAV file whose header is right each time."""
    if str(output) == "-":
        yield sys.stdout.buffer.write
        return
    try:
        with Path(output).open("wb", buffering=0) as file, wave.open(file, "wb") as sound:
            sound.setparams((1, 2, rate, 0, "NONE", ""))
            sound.writeframes(b"")
            yield sound.writeframes
    except OSError as error:
        raise HoldfastError(
            f"{output}: the file cannot be written\n  found: {error.strerror}\n"
            "  remedy: name a file in a folder that exists, on a disk with room"
        ) from error
