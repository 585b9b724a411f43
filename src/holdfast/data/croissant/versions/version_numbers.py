"""What the descriptions' own version numbers say, held against what changed.

The standard recommends MAJOR.MINOR.PATCH: PATCH where the data remain the same, MINOR where what was there
can still be had as it was, MAJOR where it cannot.
"""

from __future__ import annotations

import re
from typing import Literal

Bump = Literal["none", "patch", "minor", "major"]
BUMPS: tuple[Bump, ...] = ("none", "patch", "minor", "major")
StatedBump = Literal["none", "patch", "minor", "major", "back", "missing", "unreadable"]

_NUMBERS = re.compile(
    r"v?(0|[1-9]\d*)(?:\.(0|[1-9]\d*)(?:\.(0|[1-9]\d*)(-[\w.-]+)?(?:\+[\w.-]+)?)?)?", re.ASCII
)
Numbers = tuple[int, int, int]


def numbers(version: str) -> Numbers | None:
    """The three numbers of a version; ``1`` and ``1.0`` mean ``1.0.0``. None if it has another form."""
    found = _NUMBERS.fullmatch(version.strip())
    if found is None:
        return None
    major, minor, patch = (int(found[index] or 0) for index in (1, 2, 3))
    return major, minor, patch


def stated_bump(old: str | None, new: str | None) -> StatedBump:
    """The part of the version number that was raised from one version to the next."""
    if old is None or new is None:
        return "missing"
    if old.strip() == new.strip():
        return "none"
    before, after = numbers(old), numbers(new)
    if before is None or after is None:
        return "unreadable"
    if after < before:
        return "back"
    for index, bump in enumerate(reversed(BUMPS[1:])):
        if after[index] > before[index]:
            return bump
    return "none"


def worst(bumps: list[Bump]) -> Bump:
    """The largest of them; "none" where there are none."""
    return max(bumps, key=BUMPS.index, default="none")


def is_enough(stated: StatedBump, needed: Bump) -> bool:
    """Whether the numbers went up as far as the changes need."""
    if needed == "none":
        return stated != "back"
    return stated in BUMPS and BUMPS.index(stated) >= BUMPS.index(needed)


def raised(old: str | None, needed: Bump) -> str | None:
    """The least version that would do; None where the old one cannot be counted up from."""
    before = None if old is None else numbers(old)
    if before is None or needed == "none":
        return None
    major, minor, patch = before
    parts = {
        "patch": (major, minor, patch + 1),
        "minor": (major, minor + 1, 0),
        "major": (major + 1, 0, 0),
    }
    return ".".join(map(str, parts[needed]))
