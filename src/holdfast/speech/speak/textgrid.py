"""Praat's TextGrid in its long text format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """A labeled part of a tier."""

    start_s: float
    end_s: float
    label: str


def textgrid(tiers: Mapping[str, Sequence[Interval]], length_s: float) -> str:
    """A TextGrid with one interval tier per name.

    Praat wants intervals from 0 to the end without gaps: what is missing is added with an empty label, and
    intervals of no length are left out.

    Args:
        tiers: intervals in the order of their times, which do not overlap.
        length_s: end of the audio.
    """
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", *_span(0, length_s)]
    lines += ["tiers? <exists> ", f"size = {len(tiers)} ", "item []: "]
    for number, (name, intervals) in enumerate(tiers.items(), 1):
        complete = _without_gaps(intervals, length_s)
        lines += [f"    item [{number}]:", '        class = "IntervalTier" ']
        lines += [f"        name = {_quoted(name)} ", *_span(0, length_s, 8)]
        lines.append(f"        intervals: size = {len(complete)} ")
        for place, each in enumerate(complete, 1):
            lines += [f"        intervals [{place}]:", *_span(each.start_s, each.end_s, 12)]
            lines.append(f"            text = {_quoted(each.label)} ")
    return "\n".join(lines) + "\n"


def _span(start_s: float, end_s: float, indent: int = 0) -> list[str]:
    """Both times, without an exponent: the end of an interval reads as the start of the next."""
    times = {"xmin": start_s, "xmax": end_s}
    return [
        f"{' ' * indent}{key} = {time:.6f}".rstrip("0").rstrip(".") + " "
        for key, time in times.items()
    ]


def _without_gaps(intervals: Sequence[Interval], length_s: float) -> list[Interval]:
    complete, end = [], 0.0
    for each in [*intervals, Interval(length_s, length_s, "")]:
        complete += [Interval(end, each.start_s, ""), each]
        end = each.end_s
    return [each for each in complete if each.end_s > each.start_s]


def _quoted(label: str) -> str:
    """Quotation marks are doubled."""
    return '"' + label.replace('"', '""') + '"'
