"""Phones with times and pitch: what a voice predicts, what a user may edit, what the WaveNet reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from holdfast.errors import InputError
from holdfast.speech.speak.dictionary import UNITS, plain_phone
from holdfast.speech.speak.network import F0_VALUES, NUMBERS

Array = npt.NDArray[Any]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
LONGEST_S = 60.0
"""Of one phone: what is in memory at a time."""
LOWEST_HZ, HIGHEST_HZ = 10.0, 2000.0
Hertz = Annotated[float, Meta(ge=LOWEST_HZ, le=HIGHEST_HZ)]
LOG_DURATION, LOG_F0 = (-2.6, 0.6), (5.0, 0.1)
"""Mean and deviation of ln(seconds) of phones and of ln(Hz), about those of a speaker."""


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


def check_times(
    phones: Sequence[TimedPhone],
    frame_s: float,
    path: Path | None = None,
    begin_s: float | None = 0.0,
) -> None:
    """Refuse phones that do not follow each other, to a frame.

    Args:
        phones: of a user.
        frame_s: seconds per frame.
        path: their file.
        begin_s: where the first begins; None: anywhere.

    Raises:
        InputError: ``conflict`` with the number of the phone.
    """
    end_s = phones[0].start_s if phones and begin_s is None else begin_s or 0.0
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


def standard(values: Any, scale: tuple[float, float]) -> Array:
    """The logarithm of durations or frequencies as networks read it: near 0, about 1 wide."""
    found: Array = (np.log(values) - scale[0]) / scale[1]
    return found


def restored(values: Array, scale: tuple[float, float]) -> Array:
    """What `standard` was given."""
    found: Array = np.exp(values * scale[1] + scale[0])
    return found


def symbols(phones: Sequence[str], known: Collection[str] = UNITS) -> Array:
    """Place of each phone in `UNITS` and its stress (0: it has none), int64 [P, 2].

    Raises:
        InputError: ``unknown-phone`` with its number for one that is not `known`.
    """
    for number, phone in enumerate(phones):
        if plain_phone(phone) not in known:
            raise InputError(
                "the voice has not been trained on this phone",
                code="unknown-phone",
                place=f"phones[{number}]",
                found=phone,
                expected=", ".join(known),
            )
    rows = [(UNITS.index(plain_phone(each)), "012".find(each[-1]) + 1) for each in phones]
    return np.array(rows, np.int64).reshape(-1, 2)


def phone_numbers(phones: Sequence[TimedPhone], frame_s: float) -> Array:
    """What the network of durations and pitch shall give: float32 [P, 2 + F0_VALUES].

    Columns: standardized log duration, whether it is voiced, standardized log F0 (0 if it is not).
    """
    rows = np.zeros((len(phones), 2 + F0_VALUES), np.float32)
    rows[:, 0] = standard(np.diff(edges(phones, frame_s)).clip(1) * frame_s, LOG_DURATION)
    for row, each in zip(rows, phones, strict=True):
        if each.f0_hz:
            row[1], row[2:] = 1, pitch_at(_places(F0_VALUES), each.f0_hz)
    return rows


def frame_numbers(phones: Sequence[TimedPhone], frame_s: float) -> Array:
    """What the WaveNet reads beside the phone of each frame: float32 [F, NUMBERS].

    Numbers are the place in the phone (0 to 1), its standardized log duration, whether it is voiced,
    and its standardized log F0 (0 if it is not).
    """
    counts = np.diff(edges(phones, frame_s))
    numbers = np.zeros((counts.sum(), NUMBERS), np.float32)
    numbers[:, 1:3] = phone_numbers(phones, frame_s)[:, :2].repeat(counts, 0)
    for rows, each in zip(np.split(numbers, np.cumsum(counts)[:-1]), phones, strict=True):
        rows[:, 0] = _places(len(rows))
        if each.f0_hz:
            rows[:, 3] = pitch_at(rows[:, 0], each.f0_hz)
    return numbers


def pitch_at(places: Array, f0_hz: Sequence[float]) -> Array:
    """Standardized log F0 at places (0 to 1) of a phone."""
    return np.interp(places, _places(len(f0_hz)), standard(f0_hz, LOG_F0))


def _places(count: int) -> Array:
    """Middles of so many equal parts of what is from 0 to 1."""
    return (np.arange(count) + 0.5) / max(count, 1)


def pitch_of(hertz: Array) -> tuple[float, ...]:
    """F0 of a phone, `F0_VALUES` numbers; none if it has fewer voiced frames than unvoiced ones.

    Args:
        hertz: [F] Hz of its frames, 0 where unvoiced.
    """
    voiced = np.flatnonzero(hertz)
    if 2 * len(voiced) < max(len(hertz), 1):
        return ()
    places = _places(F0_VALUES) * len(hertz) - 0.5
    return tuple(np.exp(np.interp(places, voiced, np.log(hertz[voiced]))).tolist())
