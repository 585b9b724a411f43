"""How numbers read, in a terminal as in a report: digits, thousands, intervals, durations."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import pairwise

MOST_WRITTEN_OUT = 10**30
"""Integers from here on, as counts of texts may be, are shortened."""


NEAR_ZERO = 1e-6
"""A lower end of an interval below this share of the upper one reads as "<" and a round number."""


def number(value: float | None, digits: int | None = None) -> str:
    """A number for people: thousands separated, never in exponent form between 1e-4 and 1e15.

    Args:
        value: any number; integers are exact, and written out below 1e30. None and NaN read as an en
            dash, infinities as ∞.
        digits: decimals; by default none for integers and four significant digits for floats. A
            positive value that would round to zero reads ``"<0.001"``.

    Returns:
        For example ``"1,204"``, ``"0.6502"``, ``"47.70"`` (digits=2), ``"−3.1"``.
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, int) and abs(value) >= MOST_WRITTEN_OUT:
        return f"{Decimal(value):.3e}".replace("-", "−")
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if digits is None:
        if isinstance(value, int) or value == 0:
            digits = 0
        else:
            magnitude = math.floor(math.log10(abs(value)))
            if not -5 < magnitude < 15:
                return f"{value:.3e}".replace("-", "−")
            digits = max(0, 3 - magnitude)
    exact = isinstance(value, int) and digits == 0
    text = f"{value:,}" if exact else f"{value:,.{digits}f}"
    if value > 0 and not text.strip("0."):
        return f"<{10**-digits:.{digits}f}"
    if text.startswith("-"):
        text = "−" + text[1:] if text.strip("-0.,") else text[1:]
    return text


def brief(value: float | None) -> str:
    """A number with three significant digits at least, ``"4.17"``, ``"22.3"``, ``"133,971"``."""
    if value is None or value == 0 or not math.isfinite(value):
        return number(value)
    magnitude = math.floor(math.log10(abs(value)))
    return number(value, min(max(0, 2 - magnitude), 6))


def p_value(p: float) -> str:
    """``"p = 0.031"``, ``"p < 0.000001"``."""
    return "p < 0.000001" if p < 1e-6 else f"p = {brief(p)}"


def probability(value: float) -> str:
    """A probability with three significant digits, however small: ``"0.086"``, ``"1.23e−08"``.

    One below 1 never reads as 1: ``"0.9996"``, ``">0.999999"``.
    """
    if 0.9995 <= value < 1:
        digits = -math.floor(math.log10(1 - value))
        return number(value, digits) if digits <= 6 else ">0.999999"
    if value == 0 or value >= 0.001:
        return brief(value)
    return f"{value:.2e}".replace("-", "−")


def bounds(lower: float, upper: float) -> str:
    """Bounds of a probability, ``"[0.0860, 0.9996]"``."""
    return f"[{probability(lower)}, {probability(upper)}]"


def counted(count: int, word: str, words: str | None = None) -> str:
    """``"1 node"``, ``"1,204 nodes"``."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def size(count: float | None) -> str:
    """Bytes: ``"6.1 MB"``, ``"812 B"``."""
    if count is None:
        return "–"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{number(count / factor, 1)} {unit}"
    return f"{count:,.0f} B"


def percent(share: float | None, digits: int | None = None) -> str:
    """A share between 0 and 1 as a percentage, ``"31 %"``, ``"3.1 %"``, ``"99.2 %"``.

    Args:
        share: 1 is 100 %.
        digits: decimals; by default one below 10 % and from 90 %, else none. What is not all or
            nothing never reads so: ``"<0.1 %"``, ``">99.9 %"``.
    """
    if share is None or share != share:
        return "–"
    if digits is None:
        digits = 0 if share in (0, 1) or 0.1 <= share < 0.9 else 1
    text = number(100 * share, digits)
    if share < 1 and text == number(100.0, digits):
        text = f">{number(100 - 10**-digits, digits)}"
    return f"{text} %"


def interval(low: float | None, high: float | None, digits: int | None = None) -> str:
    """An interval in brackets, ``"[5.1, 9.8]"``; one without an end reads ``"[27.1, ∞)"``."""
    end = ")" if high is not None and math.isinf(high) else "]"
    start = "(" if low is not None and math.isinf(low) else "["
    text = number(high, digits)
    if digits is None and low is not None and high is not None and 0 < low < high * NEAR_ZERO:
        digits = len(text.partition(".")[2])  # next to the other end it is as good as zero
    return f"{start}{number(low, digits)}, {text}{end}"


def duration(seconds: float | None) -> str:
    """A duration in its two largest units, ``"1 h 30 min"``, ``"47 d 17 h"``, ``"0.25 s"``."""
    if seconds is None or seconds != seconds:
        return "–"
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if math.isinf(seconds):
        return "∞"
    if seconds < 10:
        return f"{seconds:.3g} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for (large, size), (small, fraction) in pairwise(units):
        whole = round(seconds / fraction) * fraction  # rounded once, so that no "60 min" appears
        if whole >= size:
            count, rest = divmod(whole, size)
            parts = f"{count:,} {large}"
            return f"{parts} {rest // fraction} {small}" if rest else parts
    return f"{seconds:.0f} s"
