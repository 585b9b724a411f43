"""Speaking a text: words to phones, phones to times and pitch, these to samples, phrase by phrase."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from holdfast.answer import Answer, Section, Value
from holdfast.config import read_config
from holdfast.errors import HoldfastError, InputError
from holdfast.numbers import brief, counted
from holdfast.speech.speak.generation import Generator, Precision
from holdfast.speech.speak.pronunciation import phonemes as pronounce
from holdfast.speech.speak.prosody import SILENCE, TimedPhone
from holdfast.speech.speak.ssml import Manner, spans
from holdfast.speech.speak.voice import Voice, expand

_SENTENCE_ENDS = ".?!"
_LONGEST_S, _LONGEST_PHRASE = 60.0, 200
"""Of one phone, and phones of a phrase: what is in memory at a time."""


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

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Speech"

    def to_dict(self) -> dict[str, Any]:
        """``{"seconds", "real_time_factor", "phones"}``; ``gain`` only where it is not 1."""
        rows = []
        for each in self.phones:
            row: dict[str, Any] = {
                "phone": each.phone,
                "start_s": each.start_s,
                "end_s": each.end_s,
            }
            row["f0_hz"] = list(each.f0_hz)
            rows.append(row if each.gain == 1 else {**row, "gain": each.gain})
        return {
            "seconds": self.seconds,
            "real_time_factor": self.real_time_factor,
            "phones": rows,
        }

    def values(self) -> Sequence[Value]:
        """What two voices are compared by."""
        return [Value("real_time_factor", self.real_time_factor, better="lower")]

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
        phones = iter(_edited(prosody, text, phonemes))
    generator = Generator(voice.wavenet, voice.sound.hop, precision=precision)
    # The first phrase before the file is opened: mistakes in the text leave no file.
    pieces = phrases(phones)
    first = next(pieces, None)
    if first is None:
        raise InputError("nothing to speak", code="empty-input", expected="words")
    rng = np.random.default_rng(seed)
    spoken, samples, cpu = [], 0, 0.0
    generator.compile()
    with _opened(output, voice.sound.rate) as sink:
        for phrase in chain([first], pieces):
            begin = time.process_time()
            sound = synthesize(voice, generator, phrase, rng)
            cpu += time.process_time() - begin
            sink.write(sound)
            samples += len(sound)
            spoken += phrase
    seconds = samples / voice.sound.rate
    return Speech(Path(output), seconds, cpu / max(seconds, 1e-9), spoken)


def synthesize(
    voice: Voice, generator: Generator, phones: Sequence[TimedPhone], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Samples, float32, of the next phones; the generator continues where it was."""
    counts = voice.inventory.frame_counts(phones)
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
    end_s = 0.0
    for sentence in _sentences(text, phonemes):
        # Recordings begin and end with a pause; so do sentences when they are predicted.
        names = [phone for phone, _, _ in sentence]
        lead = int(end_s > 0 and names[0] != SILENCE)
        predicted = voice.predict([SILENCE] * lead + names)[lead:]
        for plain, (_, manner, pause_s) in zip(predicted, sentence, strict=True):
            duration = (plain.end_s - plain.start_s) / manner.rate
            if pause_s:
                duration = pause_s
            frames = max(1, round(duration / voice.sound.frame_s))
            start_s, end_s = end_s, round(end_s + frames * voice.sound.frame_s, 6)
            pitch = tuple(round(each * manner.pitch, 2) for each in plain.f0_hz)
            yield TimedPhone(plain.phone, start_s, end_s, pitch, round(manner.gain, 4))


_Spoken = tuple[str, Manner, float]
"""A phone, its manner, and its duration in seconds if it is a pause of given length, else 0."""


def _sentences(text: str, phonemes: str | Path | None) -> Iterator[list[_Spoken]]:
    """Phones of each sentence; the first begins with a pause."""
    current: list[_Spoken] = [(SILENCE, Manner(), 0.0)]
    words = False
    for span in spans(text):
        if not span.text:
            # A break behind a pause replaces it.
            if current and current[-1][0] == SILENCE:
                current.pop()
            current.append((SILENCE, span.manner, max(span.pause_s, 1e-3)))
            continue
        for word in pronounce(span.text, phonemes).words:
            words = words or word.source != "pause"
            current += [(phone, span.manner, 0.0) for phone in word.phones]
            ends = word.source == "pause" and word.text[-1:] in _SENTENCE_ENDS
            if words and ends:
                yield current
                current = []
    if not words:
        found = repr(text[:40])
        raise InputError("nothing to speak", code="empty-input", found=found, expected="words")
    if current:
        if current[-1][0] != SILENCE:
            current.append((SILENCE, Manner(), 0.0))
        yield current


def phrases(phones: Iterable[TimedPhone]) -> Iterator[list[TimedPhone]]:
    """Phones from pause to pause; the pause is the end of a phrase, which is cut if it is very long."""
    current: list[TimedPhone] = []
    for each in phones:
        current.append(each)
        if each.phone == SILENCE or len(current) == _LONGEST_PHRASE:
            yield current
            current = []
    if current:
        yield current


def _edited(
    prosody: str | Path | Sequence[TimedPhone], text: str, phonemes: str | Path | None
) -> Sequence[TimedPhone]:
    """Phones of a user, checked."""
    path = Path(prosody) if isinstance(prosody, (str, Path)) else None
    phones: Sequence[TimedPhone] = prosody if path is None else ()  # type: ignore[assignment]
    if path is not None:
        phones = read_config(path, ProsodyFile, "the prosody").phones
    end = phones[0].start_s if phones else 0.0
    for number, each in enumerate(phones):
        if each.start_s != end or not each.start_s <= each.end_s <= each.start_s + _LONGEST_S:
            raise InputError(
                "phones that do not follow each other",
                code="conflict",
                path=path,
                place=f"phones[{number}]",
                found=f"{each.start_s:g} s to {each.end_s:g} s",
                expected=f"from {end:g} s, where the phone before it ends, {_LONGEST_S:g} s at most",
            )
        end = each.end_s
    if text:
        wanted = [phone for part in _sentences(text, phonemes) for phone, _, _ in part]
        given = [each.phone for each in phones if each.phone != SILENCE]
        if given != [each for each in wanted if each != SILENCE]:
            raise InputError(
                "the prosody is of another text",
                code="conflict",
                path=path,
                found=" ".join(given[:8]),
                expected=" ".join(wanted[:8]),
                remedy="leave out the text to speak the phones of the file",
            )
    return phones


class _Sink:
    """16-bit samples into a file or pipe; a WAV header, where there is one, is right after every write."""

    def __init__(self, file: BinaryIO, rate: int, header: bool) -> None:
        self.file, self.rate, self.header, self.size = file, rate, header, 0
        self.write(np.zeros(0, np.float32))

    def write(self, samples: np.ndarray[Any, Any]) -> None:
        """Append samples from -1 to 1."""
        data = np.rint(samples.clip(-1, 1) * 32767).astype("<i2").tobytes()
        self.size += len(data)
        if self.header:
            fmt = struct.pack("<HHIIHH", 1, 1, self.rate, 2 * self.rate, 2, 16)
            head = struct.pack("<4sI8sI", b"RIFF", 36 + self.size, b"WAVEfmt ", len(fmt)) + fmt
            self.file.seek(0)
            self.file.write(head + struct.pack("<4sI", b"data", self.size))
            self.file.seek(0, 2)
        self.file.write(data)
        self.file.flush()


@contextmanager
def _opened(output: str | Path, rate: int) -> Iterator[_Sink]:
    if str(output) == "-":
        yield _Sink(sys.stdout.buffer, rate, header=False)
        return
    try:
        with Path(output).open("wb") as file:
            yield _Sink(file, rate, header=True)
    except OSError as error:
        raise HoldfastError(
            f"{output}: the file cannot be written\n  found: {error.strerror}\n"
            "  remedy: name a file in a folder that exists, on a disk with room"
        ) from error
