"""The fundamental frequency of speech by autocorrelation (Boersma 1993), frame by frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

Array = npt.NDArray[Any]
VOICED = 0.5
"""Normalized autocorrelation from which a frame is voiced."""
SILENT = 1e-3
"""Amplitude (root mean square) below which a frame is unvoiced; full scale is 1."""
_OCTAVE = 0.9
"""A shorter period wins if its autocorrelation is this share of the best."""


def track_pitch(
    samples: Array, rate: int, hop: int, lowest_hz: float = 60.0, highest_hz: float = 400.0
) -> Array:
    """F0 in Hz of each frame of `hop` samples, 0 where unvoiced.

    The autocorrelation of a Hann window of three periods of `lowest_hz`, divided by that of the window;
    the peak is interpolated by a parabola. Of several that are nearly as high, the shortest period counts.

    Args:
        samples: [n], full scale is 1.
        rate: samples per second.
        hop: samples per frame; frame k is centered at (k + 1/2) hop.
        lowest_hz: of the search.
        highest_hz: of the search.

    Returns:
        float64 [ceil(n / hop)].

    Raises:
        InputError: ``out-of-range`` if the limits are not 0 < lowest < highest <= rate / 4.
    """
    if not 0 < lowest_hz < highest_hz <= rate / 4:
        raise InputError(
            "invalid range of the pitch",
            code="out-of-range",
            found=f"{lowest_hz:g} to {highest_hz:g} Hz",
            expected=f"0 < lowest < highest <= {rate / 4:g} Hz",
        )
    shortest, longest = int(rate // highest_hz), int(np.ceil(rate / lowest_hz)) + 1
    width = 3 * (longest - 1)
    count = -(-len(samples) // hop)
    padded = np.pad(samples.astype(np.float64), (width, width + hop))
    centers = width + hop // 2 + hop * np.arange(count)
    frames = padded[centers[:, None] + np.arange(width) - width // 2]  # [frames, width]
    level = np.sqrt((frames**2).mean(1))

    # 1. Normalized autocorrelation at the lags within the limits and one more at each end.
    window = np.hanning(width + 2)[1:-1]
    frames = (frames - frames.mean(1, keepdims=True)) * window
    own, ideal = (_autocorrelation(each, longest + 2) for each in (frames, window[None]))
    own = own / np.maximum(own[:, :1], 1e-12) / (ideal / ideal[:, :1])
    before, inner, after = (own[:, shortest + k : longest + k + 1] for k in (-1, 0, 1))

    # 2. The shortest period of those peaks that are nearly as high as the best.
    height = np.where((inner > before) & (inner >= after), inner, -1.0)
    best = height.max(1)
    place = (height >= _OCTAVE * best[:, None]).argmax(1)

    # 3. A parabola through the peak and its neighbors.
    a, b, c = (each[np.arange(count), place] for each in (before, inner, after))
    bend = a - 2 * b + c
    shift = 0.5 * (a - c) / np.where(bend < 0, bend, -1.0)
    hertz = rate / (shortest + place + shift)
    within = (hertz >= lowest_hz) & (hertz <= highest_hz)
    found: Array = np.where((best > VOICED) & (level > SILENT) & within, hertz, 0.0)
    return found


def _autocorrelation(frames: Array, lags: int) -> Array:
    """[frames, width] -> [frames, lags]."""
    size = 1 << (frames.shape[1] + lags).bit_length()
    power = np.abs(np.fft.rfft(frames, size)) ** 2
    found: Array = np.fft.irfft(power)[:, :lags]
    return found
