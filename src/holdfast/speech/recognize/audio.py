"""Audio files as samples of one rate: mixed to one channel, resampled, and refused where damaged."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

Array = npt.NDArray[Any]
SLOWEST, FASTEST = 4_000, 384_000
"""Sample rates that can be resampled, in Hz."""
LOUDEST = 32.0
"""Largest sample, 30 dB above full scale."""
LEAST_OFFSET = 5e-3
"""Mean from which on it is removed: an offset of the sound card would leak into the lowest bands."""
SILENT_MIX = 1e-4
"""Channels cancel each other if their mix keeps less than this share of their power."""
_STREAMED = 0x7FFF0000
"""Sizes from here on are what programs write into a WAV header before they know the length."""


@dataclass(frozen=True)
class Audio:
    """Sound of one channel."""

    samples: Array
    """float32 [n], full scale is -1 to 1."""
    rate: int
    """Samples per second."""
    notes: tuple[str, ...] = ()
    """What was changed: channels mixed, rate converted."""

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.samples) / self.rate


def read_audio(
    path: str | Path, rate: int, start_s: float = 0.0, duration_s: float | None = None
) -> Audio:
    """Read WAV (8 to 32 bit, float, mu-law, A-law), FLAC and what else libsndfile reads.

    Args:
        path: the file.
        rate: samples per second of the result; another rate is resampled (polyphase filter of SciPy).
        start_s: where to begin.
        duration_s: how much to read; None: to the end.

    Raises:
        InputError: ``not-found``, ``unknown-format``, ``damaged`` (cut off), ``empty-input``,
            ``not-finite``, or ``out-of-range`` (sample rate, samples far beyond full scale, or a part
            outside the file).
    """
    import soundfile

    path = Path(path)
    if not path.is_file():
        raise InputError("audio file not found", code="not-found", path=path)
    try:
        with soundfile.SoundFile(path) as file:
            source_rate, frames = file.samplerate, file.frames
            if not SLOWEST <= source_rate <= FASTEST:
                expected = f"{SLOWEST} to {FASTEST} Hz"
                raise _refused(path, "sample rate", "out-of-range", f"{source_rate} Hz", expected)
            start = round(start_s * source_rate)
            stop = frames if duration_s is None else start + round(duration_s * source_rate)
            # A manifest's durations are rounded: half a frame of features more is no mistake.
            if not 0 <= start <= stop <= frames + source_rate // 100:
                found = f"{start_s:g} s to {stop / source_rate:g} s"
                expected = f"a part of {frames / source_rate:g} s"
                raise _refused(path, "part of the audio", "out-of-range", found, expected)
            stop = min(stop, frames)
            if start:  # GSM and others cannot seek
                file.seek(start)
            # [samples, channels]
            channels = file.read(stop - start, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise InputError(
            "the audio cannot be read",
            code="unknown-format",
            path=path,
            found=str(error),
            expected="WAV or FLAC",
        ) from error
    if len(channels) < stop - start or _cut_off(path):
        found = f"{len(channels)} samples"
        raise _refused(path, "audio: cut off", "damaged", found, "as many as the header says")
    if not len(channels):
        raise _refused(path, "audio: empty", "empty-input", "0 samples", "speech")
    if not np.isfinite(channels).all():
        found = f"{int((~np.isfinite(channels)).sum())} samples are NaN or infinite"
        raise _refused(path, "audio", "not-finite", found, "finite samples")
    if (peak := np.abs(channels).max()) > LOUDEST:
        found = f"a peak of {peak:,.0f}, perhaps integers that were not divided by 32768"
        raise _refused(path, "audio: far beyond full scale", "out-of-range", found, "-1 to 1")
    notes = []
    if channels.shape[1] > 1:
        notes.append(f"{channels.shape[1]} channels mixed")
    if source_rate != rate:
        notes.append(f"resampled from {source_rate} Hz")
    mixed = channels.mean(axis=1)
    if np.square(mixed).mean() < SILENT_MIX * np.square(channels).mean():
        notes.append("the channels cancel each other (is one inverted?): use one of them")
    if abs(offset := float(mixed.mean())) > LEAST_OFFSET:
        mixed -= offset
        notes.append(f"DC offset of {offset:.3f} removed (full scale is 1)")
    samples = resample(mixed, source_rate, rate)
    return Audio(samples, rate, tuple(notes))


def resample(samples: Array, source: int, target: int) -> Array:
    """Samples at another rate, in float32 and below the lower Nyquist frequency."""
    if source == target or not len(samples):
        return samples
    from scipy.signal import resample_poly

    common = gcd(source, target)
    converted: Array = resample_poly(samples, target // common, source // common)
    return converted.astype(np.float32)


def _cut_off(path: Path) -> bool:
    """Whether a WAV file ends before the length in its header; libsndfile reads on without a word."""
    with path.open("rb") as file:
        head = file.read(12)
    size = int.from_bytes(head[4:8], "little")
    # The RIFF length starts behind its own field; a missing pad byte at the end is common.
    wave = head[:4] == b"RIFF" and head[8:12] == b"WAVE"
    return wave and size < _STREAMED and path.stat().st_size + 1 < size + 8


def _refused(path: Path, what: str, code: str, found: str, expected: str) -> InputError:
    return InputError(f"invalid {what}", code=code, path=path, found=found, expected=expected)
