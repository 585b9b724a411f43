"""Recordings of one speaker whose phones have times, as a voice is trained on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor
from torch.nn import functional

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.opening import open_source
from holdfast.speech.recognize.audio import read_audio
from holdfast.speech.speak.dictionary import PAUSE
from holdfast.speech.speak.network import LEVELS, WaveNet
from holdfast.speech.speak.pitch import track_pitch
from holdfast.speech.speak.prosody import (
    TimedPhone,
    check_times,
    edges,
    frame_numbers,
    phone_numbers,
    pitch_of,
    symbols,
)
from holdfast.speech.speak.voice import Sound, compress

Positive = Annotated[float, Meta(gt=0)]
LN2 = float(np.log(2))


@dataclass(frozen=True)
class VoiceData:
    """Recordings of one speaker."""

    train: str
    """JSON lines ``{"audio_filepath", "phones": [{"phone", "start_s", "end_s"}]}``, relative to the
    configuration."""
    test: str
    """The same of sentences that are not trained on."""
    lowest_hz: Positive = 60.0
    """Lowest pitch of the speaker."""
    highest_hz: Positive = 400.0
    """Highest pitch of the speaker."""


@dataclass(frozen=True)
class Row:
    """A line of a manifest."""

    audio_filepath: str
    phones: Annotated[tuple[TimedPhone, ...], Meta(min_length=1)]
    text: str = ""


@dataclass(frozen=True)
class Recording:
    """An utterance as the networks read it: P phones in F frames."""

    timed: tuple[TimedPhone, ...]
    """With measured pitch; times begin at 0."""
    phones: Tensor
    """int64 [P, 2] Phones and stress."""
    prosody: Tensor
    """float32 [P, 2 + F0_VALUES] What the network of durations and pitch shall give."""
    codes: Tensor
    """uint8 [F x hop + 1] Mu-law levels of the samples, one of silence first."""
    symbols: Tensor
    """int64 [F, 2] Phone and stress of each frame."""
    numbers: Tensor
    """float32 [F, NUMBERS]"""

    def bits(self, network: WaveNet, start: int, frames: int, context: int) -> Tensor:
        """Mean of -log2 P of the samples of some frames; what is before them counts as silence.

        Args:
            network: predicts.
            start: first of the frames.
            frames: number of the frames, if the recording has so many.
            context: frames on each side that only the conditioning reads.
        """
        hop = (len(self.codes) - 1) // len(self.symbols)
        first, stop = max(0, start - context), start + frames
        inputs = (each[None, first : stop + context] for each in (self.symbols, self.numbers))
        conditioning = network.conditioning(*inputs)[:, start - first : stop - first]
        codes = self.codes[None, start * hop : stop * hop + 1].long()
        logits = network(codes, conditioning)
        return functional.cross_entropy(logits[0], codes[0, 1:]) / LN2


def read_recordings(path: Path, sound: Sound, data: VoiceData) -> list[Recording]:
    """The recordings of a manifest.

    Raises:
        InputError: ``invalid-syntax`` or what `read_config` and `read_audio` refuse, with the line;
            ``conflict`` if phones are not in order or end behind the sound; ``unknown-phone``;
            ``empty-input``.
    """
    recordings = []
    with open_source(path) as lines:
        for number, line in enumerate(lines, 1):
            place = f"line {number}"
            try:
                row = read_config(json.loads(line), Row, "the recording")
                recordings.append(_recording(path.parent, row, sound, data))
            except InputError as error:
                raise error.at(path, place) from error
            except ValueError as error:
                raise InputError(
                    f"not a line of JSON: {error}", code="invalid-syntax", path=path, place=place
                ) from error
    if not recordings:
        raise InputError("no recordings", code="empty-input", path=path)
    return recordings


def _recording(folder: Path, row: Row, sound: Sound, data: VoiceData) -> Recording:
    check_times(row.phones, sound.frame_s, begin_s=None)
    samples = read_audio(folder / row.audio_filepath, sound.rate).samples
    frames, ends = len(samples) // sound.hop, edges(row.phones, sound.frame_s)
    if ends[-1] > frames + 2:
        raise InputError(
            "phones behind the end of the sound",
            code="conflict",
            place="phones",
            found=f"{row.phones[-1].end_s:g} s",
            expected=f"at most {len(samples) / sound.rate:g} s",
        )
    ends = ends.clip(max=frames)
    samples = samples[ends[0] * sound.hop : ends[-1] * sound.hop]
    hertz = track_pitch(samples, sound.rate, sound.hop, data.lowest_hz, data.highest_hz)
    places, timed = (ends - ends[0]).tolist(), []
    for each, start, end in zip(row.phones, places, places[1:], strict=False):
        f0_hz = () if each.phone == PAUSE else pitch_of(hertz[start:end])
        timed.append(TimedPhone(each.phone, start * sound.frame_s, end * sound.frame_s, f0_hz))
    phones = symbols([each.phone for each in timed])
    arrays = (
        phones,
        phone_numbers(timed, sound.frame_s),
        np.insert(compress(samples), 0, LEVELS // 2),
        phones.repeat(np.diff(places), 0),
        frame_numbers(timed, sound.frame_s),
    )
    return Recording(tuple(timed), *map(torch.from_numpy, arrays))
