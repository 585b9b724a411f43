"""Phones with times and pitch: what a voice predicts, what a user may edit, what the WaveNet reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from holdfast.errors import InputError
from holdfast.speech.speak.dictionary import plain_phone
from holdfast.speech.speak.network import F0_VALUES

Array = npt.NDArray[Any]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
LONGEST_S = 60.0
"""Of one phone: what is in memory at a time."""
Hertz = Annotated[float, Meta(ge=10, le=2000)]


@dataclass(frozen=True)
class TimedPhone:
    """A phone where it is spoken."""

    phone: str
    """Symbol of ARPAbet, a vowel with its stress (``AH0``); ``SIL`` is a pause."""
    start_s: Seconds
    """Where it begins."""
    end_s: Seconds
    """Where it ends."""
    f0_hz: tuple[Hertz, ...] = ()
    """Fundamental frequency at equally spaced times; none: unvoiced."""
    gain: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Factor of the amplitude."""


def check_times(phones: Sequence[TimedPhone], frame_s: float, path: Path | None = None) -> None:
    """Refuse phones that do not follow each other, to a frame.

    Args:
        phones: of a user.
        frame_s: seconds per frame.
        path: their file.

    Raises:
        InputError: ``conflict`` with the number of the phone.
    """
    end_s = phones[0].start_s if phones else 0.0
    for number, each in enumerate(phones):
        late = round(each.start_s / frame_s) - round(end_s / frame_s)
        if late or not each.start_s <= each.end_s <= each.start_s + LONGEST_S:
            raise InputError(
                "phones that do not follow each other",
                code="conflict",
                path=path,
                place=f"phones[{number}]",
                found=f"{each.start_s:g} s to {each.end_s:g} s",
                expected=f"from {end_s:g} s, where the phone before it ends, {LONGEST_S:g} s at most; "
                "SIL is a pause",
            )
        end_s = each.end_s


def edges(phones: Sequence[TimedPhone], frame_s: float) -> Array:
    """Frame in which the first phone begins, and those in which phones end, int64 [P + 1]."""
    times = [*(each.start_s for each in phones[:1]), *(each.end_s for each in phones)]
    return np.round(np.array(times) / frame_s).astype(np.int64)


@dataclass(frozen=True)
class Scale:
    """Mean and deviation, to standardize by."""

    mean: float = 0.0
    deviation: Annotated[float, Meta(gt=0)] = 1.0

    @classmethod
    def of(cls, values: Array) -> Scale:
        """Of some values; a deviation of 0 counts as 1."""
        return cls(float(values.mean()), float(values.std()) or 1.0)

    def apply(self, values: Array) -> Array:
        """Standardized values."""
        return (values - self.mean) / self.deviation

    def invert(self, values: Array) -> Array:
        """Values of standardized ones."""
        return values * self.deviation + self.mean


@dataclass(frozen=True)
class Inventory:
    """What turns phones into the numbers that networks read."""

    phones: tuple[str, ...]
    """Phones of the voice, without stress."""
    frame_s: float
    """Seconds per frame."""
    duration: Scale
    """Of the natural logarithm of durations in seconds."""
    pitch: Scale
    """Of the natural logarithm of F0 in Hz."""

    def symbols(self, phones: Sequence[str]) -> Array:
        """Place of each phone and its stress (0: it has none), int64 [P, 2].

        Raises:
            InputError: ``unknown-phone`` with its number.
        """
        rows = []
        for number, phone in enumerate(phones):
            plain = plain_phone(phone)
            if plain not in self.phones:
                raise InputError(
                    "the voice has not been trained on this phone",
                    code="unknown-phone",
                    place=f"phones[{number}]",
                    found=phone,
                    expected=", ".join(self.phones),
                )
            rows.append((self.phones.index(plain), "012".find(phone[-1]) + 1))
        return np.array(rows, np.int64).reshape(-1, 2)

    def frame_counts(self, phones: Sequence[TimedPhone]) -> Array:
        """Frames of each phone, int64 [P]: times are rounded to whole frames."""
        return np.diff(edges(phones, self.frame_s))

    def frames(self, phones: Sequence[TimedPhone]) -> tuple[Array, Array]:
        """What the WaveNet reads: symbols int64 [F, 2] and numbers float32 [F, NUMBERS].

        Numbers are the place in the phone (0 to 1), its standardized log duration, whether it is voiced,
        and its standardized log F0 (0 if it is not).
        """
        counts = self.frame_counts(phones)
        symbols = self.symbols([each.phone for each in phones]).repeat(counts, 0)
        rows = []
        for each, count in zip(phones, counts.tolist(), strict=True):
            place = (np.arange(count) + 0.5) / max(count, 1)
            duration = self.duration.apply(np.log(max(count, 1) * self.frame_s))
            pitch, size = np.zeros(count), len(each.f0_hz)
            if size:
                known = (np.arange(size) + 0.5) / size
                pitch = self.pitch.apply(np.interp(place, known, np.log(each.f0_hz)))
            voiced = np.full(count, float(size > 0))
            rows.append(np.stack([place, np.full(count, duration), voiced, pitch], 1))
        return symbols, np.concatenate(rows).astype(np.float32)


def measured_pitch(hertz: Array, counts: Array) -> list[tuple[float, ...]]:
    """F0 of phones from that of frames; none for a phone with fewer voiced frames than unvoiced ones.

    Args:
        hertz: [F] Hz, 0 where unvoiced.
        counts: [P] frames of each phone.
    """
    found: list[tuple[float, ...]] = []
    for part in np.split(hertz, np.cumsum(counts)[:-1]):
        voiced = np.flatnonzero(part)
        if 2 * len(voiced) < len(part) or not len(voiced):
            found.append(())
            continue
        places = (np.arange(F0_VALUES) + 0.5) / F0_VALUES * len(part) - 0.5
        values = np.exp(np.interp(places, voiced, np.log(part[voiced])))
        found.append(tuple(values.tolist()))
    return found
