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
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", *_limits("", length_s)]
    lines += ["tiers? <exists> ", f"size = {len(tiers)} ", "item []: "]
    for number, (name, intervals) in enumerate(tiers.items(), 1):
        complete = _without_gaps(intervals, length_s)
        lines += [f"    item [{number}]:", '        class = "IntervalTier" ']
        lines += [f"        name = {_quoted(name)} ", *_limits("        ", length_s)]
        lines.append(f"        intervals: size = {len(complete)} ")
        for place, each in enumerate(complete, 1):
            indent = " " * 12
            lines += [f"        intervals [{place}]:", f"{indent}xmin = {_number(each.start_s)} "]
            lines.append(f"{indent}xmax = {_number(each.end_s)} ")
            lines.append(f"{indent}text = {_quoted(each.label)} ")
    return "\n".join(lines) + "\n"


def _limits(indent: str, length_s: float) -> list[str]:
    return [f"{indent}xmin = 0 ", f"{indent}xmax = {_number(length_s)} "]


def _without_gaps(intervals: Sequence[Interval], length_s: float) -> list[Interval]:
    complete, end = [], 0.0
    for each in [*intervals, Interval(length_s, length_s, "")]:
        if each.start_s > end:
            complete.append(Interval(end, each.start_s, ""))
        if each.end_s > each.start_s:
            complete.append(each)
        end = max(end, each.end_s)
    return complete


def _number(seconds: float) -> str:
    """Without an exponent, and the same for the end of an interval and the start of the next."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def _quoted(label: str) -> str:
    """Quotation marks are doubled."""
    return '"' + label.replace('"', '""') + '"'
