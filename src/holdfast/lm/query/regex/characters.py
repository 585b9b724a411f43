"""Sets of characters, as ranges of code points: the named classes of RE2's syntax, and case folding."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cache

import numpy as np

Ranges = tuple[tuple[int, int], ...]
"""Inclusive ranges of code points, ascending, neither touching nor overlapping; no surrogate among them."""

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
EVERYTHING: Ranges = ((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST))

PERL: dict[str, Ranges] = {
    "d": ((48, 57),),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}
POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": PERL["w"],
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CATEGORIES = {
    *("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd"),
    *("Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp"),
    *("C", "Cc", "Cf", "Co", "Cs"),
}  # fmt: skip
# RE2 leaves unassigned code points out of C; surrogates are not text.
_ASSIGNED_OTHER = ("Cc", "Cf", "Co")
# Beside K and k the Kelvin sign, beside S and s the long s: all that ASCII letters fold with.
_ASCII_CASES = {75: 0x212A, 107: 0x212A, 83: 0x17F, 115: 0x17F}


def normalised(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """The set that the pairs cover together, without surrogates."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    first, last = SURROGATES
    if not any(low <= last and high >= first for low, high in merged):
        return tuple(merged)
    out: list[tuple[int, int]] = []
    for low, high in merged:
        if low < first:
            out.append((low, min(high, first - 1)))
        if high > last:
            out.append((max(low, last + 1), high))
    return tuple(out)


def negated(ranges: Ranges) -> Ranges:
    """All characters that are not in the set."""
    out: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            out.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        out.append((start, LAST))
    return normalised(out)


@cache
def _all_text() -> str:
    """Every character, in order of code points."""
    codes = np.concatenate([np.arange(low, high + 1, dtype="<u4") for low, high in EVERYTHING])
    return codes.tobytes().decode("utf-32-le")


@cache
def unicode_class(name: str) -> Ranges | None:
    r"""The characters of a general category (``Lu``) or a script (``Greek``); None if it is unknown.

    Categories have their Unicode abbreviations, scripts their long names. The tables are those of the
    `regex` library.
    """
    import regex

    if name == "Any":
        return EVERYTHING
    if name == "Cs":
        return ()
    if name == "C":
        return normalised(pair for part in _ASSIGNED_OTHER for pair in unicode_class(part) or ())
    if name in _CATEGORIES:
        expression = rf"\p{{gc={name}}}+"
    elif name[:1].isupper() and name.replace("_", "").isalpha():
        expression = rf"\p{{script={name}}}+"
    else:
        return None
    try:
        pattern = regex.compile(expression)
    except regex.error:
        return None
    text = _all_text()
    return normalised(
        (ord(text[match.start()]), ord(text[match.end() - 1])) for match in pattern.finditer(text)
    )


def _folded(char: str) -> str:
    """Simple case folding: one character for one."""
    folded = char.casefold()
    if len(folded) == 1:
        return folded
    lower = char.lower()
    return lower if len(lower) == 1 else char


@cache
def _orbits() -> dict[int, tuple[int, ...]]:
    """The characters that fold alike, for each that does not stand alone."""
    alike: dict[str, list[int]] = {}
    text = _all_text()
    for start in range(0, len(text), 256):
        page = text[start : start + 256]
        if page.casefold() == page:
            continue
        for char in page:
            folded = _folded(char)
            if folded != char:
                alike.setdefault(folded, [ord(folded)]).append(ord(char))
    return {code: tuple(codes) for codes in alike.values() for code in codes}


@cache
def folded_with(ranges: Ranges) -> Ranges:
    """The set, and every character that differs from one of it in case alone (simple folding)."""
    pairs = list(ranges)
    if ranges and ranges[-1][1] < 128:
        for low, high in ranges:
            for code in range(low, high + 1):
                if chr(code).isalpha():
                    pairs.append((code ^ 32, code ^ 32))
                    if code in _ASCII_CASES:
                        pairs.append((_ASCII_CASES[code], _ASCII_CASES[code]))
        return normalised(pairs)
    starts = [low for low, _ in ranges]
    for code, orbit in _orbits().items():
        at = bisect_right(starts, code) - 1
        if at >= 0 and code <= ranges[at][1]:
            pairs += [(other, other) for other in orbit]
    return normalised(pairs)
