"""Durations as users write them: ``60m``, ``7d``, ``1h30m``."""

from __future__ import annotations

import math
import re

_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[wdhms])\s*")


def parse_duration(text: str | float) -> float:
    """Seconds in a duration such as ``60m``, ``7d``, ``90s``, ``1h30m`` or ``10`` (seconds).

    Raises:
        ValueError: if the text is not a duration, or units repeat or grow.
    """
    if isinstance(text, (int, float)):
        return float(text)
    bare = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", bare):
        return float(bare)
    total, position, last = 0.0, 0, math.inf
    while part := _PART.match(bare, position):
        size = _SECONDS[part[2]]
        if size >= last:
            break
        total, position, last = total + float(part[1]) * size, part.end(), size
    if not bare or position < len(bare):
        raise ValueError(
            f"{text!r} is not a duration; write for example 60m, 7d, 90s or 1h30m "
            "(units w, d, h, m, s, ms, the largest first)"
        )
    return total


def duration_text(seconds: float) -> str:
    """A duration as `parse_duration` reads it, ``"1h30m"``, ``"7.5s"``."""
    seconds = round(seconds, 6 if seconds < 1 else 3 if seconds < 60 else 0)
    if 0 < seconds < 1:
        return f"{1000 * seconds:.6g}ms"
    parts, rest = "", seconds
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        count, rest = divmod(rest, size)
        parts += f"{count:.0f}{unit}" if count else ""
    return parts + f"{rest:.6g}s" if rest or not parts else parts
