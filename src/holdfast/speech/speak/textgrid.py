"""Praat's TextGrid in its long text format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
